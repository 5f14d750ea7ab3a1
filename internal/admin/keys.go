package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ledger"
)

func (s *service) key(r *http.Request) (apikey.Key, error) {
	id := r.PathValue("key")
	k, ok := s.Keys.Find(id)
	if !ok {
		return apikey.Key{}, missing("key_not_found", "No key has the id %q.", id)
	}
	return k, nil
}

func (s *service) keyView(k apikey.Key, now time.Time) Key {
	v := Key{
		ID: k.ID, Name: k.Name, Prefix: k.Prefix, Status: k.Status(now),
		CreatedAt: k.CreatedAt.UTC(), ExpiresAt: moment(k.ExpiresAt), LastUsedAt: moment(k.LastUsedAt),
		RPM: limit(k.RPM), TPM: limit(k.TPM), Models: slices.Clone(k.Models), Scopes: k.Scopes.Names(), Allow: apikey.Networks(k.Networks), Budget: s.budgetView(k, now),
	}
	if k.ReplacedBy != "" {
		v.ReplacedBy = &k.ReplacedBy
	}
	if v.Models == nil {
		v.Models = []string{}
	}
	return v
}

// budgetView is what the key may spend and has spent; nil is no budget.
func (s *service) budgetView(k apikey.Key, now time.Time) *Budget {
	b := k.Budget
	if b.ID == "" {
		return nil
	}
	spending := s.Ledger.Spending(k.AccountID, ledger.Budget{ID: b.ID, Period: b.Period(now)})
	v := &Budget{Amount: b.Amount.String(), Period: "total", Spent: spending.Spent.String(), Held: spending.Held.String()}
	if b.Monthly {
		v.Period = "month"
	}
	return v
}

// moment is t for JSON, where a zero time is null.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

func (s *service) listKeys(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	now, list := time.Now(), s.Keys.List(a.ID)
	out := make([]Key, 0, len(list))
	for _, k := range list {
		out = append(out, s.keyView(k, now))
	}
	return out, nil
}

func (s *service) createKey(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	var in NewKey
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	n := apikey.NewKey{AccountID: a.ID, Name: in.Name}
	if in.ExpiresAt != nil {
		n.ExpiresAt = *in.ExpiresAt
	}
	if n.Models, err = s.restriction(in.Models); err != nil {
		return nil, err
	}
	if in.Scopes != nil {
		if n.Scopes, err = account.ParseScopes(in.Scopes); err != nil {
			return nil, err
		}
	}
	if in.Budget != "" {
		if n.Budget, err = account.ParseBudget(in.Budget); err != nil {
			return nil, err
		}
	}
	if n.Networks, err = apikey.ParseNetworks(in.Allow); err != nil {
		return nil, err
	}
	if n.RPM, err = limitOf("rpm", in.RPM); err != nil {
		return nil, err
	}
	if n.TPM, err = limitOf("tpm", in.TPM); err != nil {
		return nil, err
	}
	k, secret, err := s.Keys.Create(r.Context(), n)
	if errors.Is(err, apikey.ErrLimit) {
		return nil, s.overPlan(a, n.RPM)
	}
	if err != nil {
		return nil, err
	}
	return Minted{ID: k.ID, Secret: string(secret), Prefix: k.Prefix}, nil
}

// restriction checks the models that a key is restricted to; none are all.
func (s *service) restriction(models []string) (list []string, err error) {
	for _, id := range models {
		if !s.offered(id) {
			return nil, invalid("model_not_found", "No model is called %q.", id)
		}
		list = append(list, id)
	}
	return list, nil
}

// limitOf is a limit that was asked for; 0 is none.
func limitOf(name string, n *int64) (int64, error) {
	if n == nil {
		return 0, nil
	}
	if *n < 1 {
		return 0, invalid("invalid_limit", "A limit of a key is at least 1; %s is %d.", name, *n)
	}
	return *n, nil
}

// overPlan says which limit of a key its plan does not allow, and what to do. The key
// was to have rpm requests per minute.
func (s *service) overPlan(a *account.Account, rpm int64) error {
	id := a.PlanAt(time.Now())
	p, ok := s.Accounts.Plan(id)
	if !ok {
		return apikey.ErrLimit
	}
	name, what, most := "rpm", "requests", p.RPM
	if p.RPM == 0 || rpm <= p.RPM {
		name, what, most = "tpm", "tokens", p.TPM
	}
	return invalid("invalid_limit", "The plan %s allows %d %s per minute, and no key may have more.\nGive %s as %d or less, or put the account on a larger plan.", id, most, what, name, most)
}

func (s *service) showKey(r *http.Request) (any, error) {
	k, err := s.key(r)
	if err != nil {
		return nil, err
	}
	out := KeyUse{Key: s.keyView(k, time.Now())}
	if a, ok := s.Accounts.ByID(k.AccountID); ok {
		out.Account = a.Name
	}
	for _, c := range s.Ledger.Running(k.AccountID) {
		if c.KeyID == k.ID {
			out.Running++
			if c.Stream {
				out.Streams++
			}
		}
	}
	return out, nil
}

func (s *service) revokeKey(r *http.Request) (any, error) {
	k, err := s.key(r)
	if err != nil {
		return nil, err
	}
	if k, err = s.Keys.Revoke(r.Context(), k.ID); err != nil {
		return nil, err
	}
	out := Revoked{ID: k.ID, Status: k.Status(time.Now()), RevokedAt: k.RevokedAt.UTC()}
	if s.Status().Serving {
		// The keyring of this process is the one that admits calls: no other server shares the directory.
		out.Confirmed, out.Servers = 1, 1
	}
	return out, nil
}

// defaultOverlap lets whoever holds the old secret change it within a day.
const defaultOverlap = 24 * time.Hour

func (s *service) rotateKey(r *http.Request) (any, error) {
	k, err := s.key(r)
	if err != nil {
		return nil, err
	}
	var in Rotation
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	overlap := defaultOverlap
	if in.Overlap != "" {
		if overlap, err = time.ParseDuration(in.Overlap); err != nil {
			return nil, invalid("invalid_overlap", "An overlap is a time such as 24h or 90m, not %q.", in.Overlap)
		}
	}
	fresh, secret, old, err := s.Keys.Rotate(r.Context(), k.ID, overlap)
	switch {
	case errors.Is(err, apikey.ErrReplaced):
		k, _ = s.Keys.Find(k.ID) // by a call just now, maybe
		return nil, &Error{Status: http.StatusConflict, Code: "key_replaced", Message: fmt.Sprintf("The key %s was replaced by %s.\nRotate that one.", k.ID, k.ReplacedBy)}
	case err != nil:
		return nil, err
	}
	out := Rotated{ID: fresh.ID, Secret: string(secret), Prefix: fresh.Prefix, Replaces: old.ID}
	if old.RevokedAt.IsZero() {
		out.Until = moment(old.ExpiresAt)
	}
	return out, nil
}
