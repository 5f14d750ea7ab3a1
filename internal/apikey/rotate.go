package apikey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ident"
)

// MaxOverlap is how long a key can work beside the one that has replaced it.
const MaxOverlap = 90 * 24 * time.Hour

// Errors of [Keyring.Rotate].
var (
	ErrOverlap  = errors.New("the overlap of two keys lies between 0 and 2160h")
	ErrReplaced = errors.New("the key was replaced already")
)

// Rotate makes a key with the settings of another and lets that one work for overlap
// more, with 0 not at all: then what runs with it is cut, as by [Keyring.Revoke]. Both
// are stored together or neither is. It returns the new key, its secret and the old one.
// It fails with [ErrNotFound], [ErrOverlap], [ErrRevoked], [ErrReplaced] or [ErrExpired].
func (r *Keyring) Rotate(ctx context.Context, id string, overlap time.Duration) (fresh Key, _ Secret, old Key, _ error) {
	if overlap < 0 || overlap > MaxOverlap {
		return Key{}, "", Key{}, ErrOverlap
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.byID[id]
	if !ok {
		return Key{}, "", Key{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	switch status := e.Status(now); {
	case e.ReplacedBy != "":
		return Key{}, "", Key{}, fmt.Errorf("%w, by %s", ErrReplaced, e.ReplacedBy)
	case status == "revoked":
		return Key{}, "", Key{}, ErrRevoked
	case status == "expired":
		return Key{}, "", Key{}, ErrExpired
	}
	secret := mint()
	fresh, old = e.Key, e.Key
	fresh.ID, fresh.Prefix, fresh.Last4, fresh.Hash = ident.New(ident.Key), secret.Prefix(), secret.Last4(), secret.Hash()
	fresh.CreatedAt, fresh.LastUsedAt = now, time.Time{}
	old.ReplacedBy = fresh.ID
	if overlap == 0 {
		old.RevokedAt = now
	} else if end := now.Add(overlap.Truncate(time.Microsecond)); old.ExpiresAt.IsZero() || end.Before(old.ExpiresAt) {
		old.ExpiresAt = end
	}
	if err := r.store.ReplaceKey(ctx, old, fresh); err != nil {
		return Key{}, "", Key{}, err
	}
	r.put(&entry{Key: fresh, used: newMinute(time.Time{}), life: account.NewLife()})
	replaced := &entry{Key: old, used: e.used, life: e.life}
	r.put(replaced)
	if overlap == 0 {
		e.life.End(ErrRevoked)
	}
	return fresh, secret, replaced.view(), nil
}
