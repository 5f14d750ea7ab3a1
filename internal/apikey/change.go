package apikey

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ident"
)

// Change is what is to be different of a key; nil leaves a thing as it is. What a zero
// value means is said at [NewKey].
type Change struct {
	Name      *string
	ExpiresAt *time.Time
	Models    *[]string
	Scopes    *account.Scopes // not none
	Networks  *[]netip.Prefix
	Budget    *account.Budget // what was spent stays, until a change to none
	RPM, TPM  *int64
}

// Change changes a key for every call that comes after it has returned; those that run go
// on as they began. It fails with [ErrNotFound], [ErrRevoked], [ErrName], [ErrLimit],
// [ErrExpiry] or [account.ErrScope].
func (r *Keyring) Change(ctx context.Context, id string, c Change) (Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, ok := r.byID[id]
	switch {
	case !ok:
		return Key{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	case !old.RevokedAt.IsZero():
		return Key{}, ErrRevoked
	}
	e := &entry{Key: old.Key, used: old.used, life: old.life}
	if err := r.apply(&e.Key, c); err != nil {
		return Key{}, err
	}
	if err := r.store.UpdateKey(ctx, e.Key); err != nil {
		return Key{}, err
	}
	r.put(e)
	return e.view(), nil
}

// apply changes k. What was right when it was set is not checked again: a plan may have
// become smaller since, and a key have expired.
func (r *Keyring) apply(k *Key, c Change) error {
	now := time.Now().UTC().Truncate(time.Microsecond)
	set(&k.Name, c.Name)
	set(&k.RPM, c.RPM)
	set(&k.TPM, c.TPM)
	set(&k.Scopes, c.Scopes)
	if c.Models != nil {
		k.Models = slices.Clone(*c.Models)
	}
	if c.Networks != nil {
		k.Networks = slices.Clone(*c.Networks)
	}
	if c.ExpiresAt != nil {
		k.ExpiresAt = time.Time{}
		if t := c.ExpiresAt.UTC().Truncate(time.Microsecond); !c.ExpiresAt.IsZero() { // as it is stored
			k.ExpiresAt = t
		}
	}
	if c.Budget != nil {
		k.Budget = budgetOf(*c.Budget, k.Budget.ID)
	}
	a, ok := r.accounts.ByID(k.AccountID)
	if !ok {
		return account.ErrNotFound
	}
	plan, ok := r.accounts.Plan(a.PlanAt(now))
	switch {
	case ok && (c.RPM != nil && !within(k.RPM, plan.RPM) || c.TPM != nil && !within(k.TPM, plan.TPM)):
		return ErrLimit
	case c.Name != nil && !printable(k.Name):
		return ErrName
	case c.ExpiresAt != nil && !k.ExpiresAt.IsZero() && !canEnd(k.ExpiresAt, now):
		return ErrExpiry
	case k.Scopes == 0:
		return account.ErrScope
	}
	return nil
}

// set stores *v, where there is one.
func set[T any](into, v *T) {
	if v != nil {
		*into = *v
	}
}

// within reports whether a key's limit fits under its plan's; 0 is none.
func within(key, plan int64) bool { return key >= 0 && (plan == 0 || key <= plan) }

// budgetOf is b as it is kept: counted under id, or under a new one.
func budgetOf(b account.Budget, id string) account.Budget {
	if b.Amount <= 0 {
		return account.Budget{}
	}
	b.ID = cmp.Or(id, ident.New(ident.Budget))
	return b
}
