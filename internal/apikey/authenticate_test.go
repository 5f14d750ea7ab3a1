package apikey_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
)

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	soon := now.Add(time.Hour).Truncate(time.Microsecond)
	revoke := func(t *testing.T, r *ring, k apikey.Key) {
		t.Helper()
		if _, err := r.Revoke(context.Background(), k.ID); err != nil {
			t.Fatal(err)
		}
	}
	suspend := func(t *testing.T, r *ring, _ apikey.Key) {
		t.Helper()
		if _, err := r.accounts.Change(context.Background(), r.acct, account.Change{Status: new("suspended")}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		expires time.Time
		now     time.Time
		do      []func(*testing.T, *ring, apikey.Key)
		want    error
	}{
		{"active", time.Time{}, now, nil, nil},
		{"active for ever", time.Time{}, now.AddDate(1000, 0, 0), nil, nil},
		{"a microsecond before it expires", soon, soon.Add(-time.Microsecond), nil, nil},
		{"a nanosecond before it expires", soon, soon.Add(-1), nil, nil},
		{"expired at the instant", soon, soon, nil, apikey.ErrExpired},
		{"expired", soon, soon.Add(time.Second), nil, apikey.ErrExpired},
		{"expired in another zone", soon.In(time.FixedZone("east", 5*3600)), soon, nil, apikey.ErrExpired},
		{"a fraction below a microsecond", soon.Add(999), soon, nil, apikey.ErrExpired},
		{"revoked", time.Time{}, now, []func(*testing.T, *ring, apikey.Key){revoke}, apikey.ErrRevoked},
		{"revoked twice", time.Time{}, now, []func(*testing.T, *ring, apikey.Key){revoke, revoke}, apikey.ErrRevoked},
		{"revoked and expired", soon, soon, []func(*testing.T, *ring, apikey.Key){revoke}, apikey.ErrRevoked},
		{"suspended", time.Time{}, now, []func(*testing.T, *ring, apikey.Key){suspend}, apikey.ErrSuspended},
		{"suspended and revoked", time.Time{}, now, []func(*testing.T, *ring, apikey.Key){revoke, suspend}, apikey.ErrSuspended},
		{"suspended and expired", soon, soon, []func(*testing.T, *ring, apikey.Key){suspend}, apikey.ErrSuspended},
		{"revoked while suspended", time.Time{}, now, []func(*testing.T, *ring, apikey.Key){suspend, revoke}, apikey.ErrSuspended},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := open(t, dir, nil)
			k, h := r.create(t, apikey.NewKey{ExpiresAt: c.expires})
			_, other := r.create(t, apikey.NewKey{})
			for _, f := range c.do {
				f(t, r, k)
			}
			for _, r := range []*ring{r, open(t, dir, nil)} { // now, and after a restart
				p, err := r.Authenticate(h, c.now)
				if !errors.Is(err, c.want) || (p == nil) != (c.want != nil) {
					t.Errorf("Authenticate = %+v, %v, want %v", p, err, c.want)
				}
				if p != nil && (p.Account.ID != r.acct || p.Plan.ID != "pro" || p.Plan.RPM != 60 || p.KeyID != k.ID || p.KeyName != "laptop") {
					t.Errorf("Authenticate = %+v of %+v on %+v", p, p.Account, p.Plan)
				}
				if _, err := r.Authenticate(other, c.now); c.want != nil && !errors.Is(c.want, apikey.ErrSuspended) && err != nil {
					t.Errorf("Authenticate of the account's other key: %v", err)
				}
			}
		})
	}
}

func TestAuthenticate_Unknown(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir(), nil)
	_, h := r.create(t, apikey.NewKey{})
	now := time.Now()
	never := string(apikey.Mint())
	key := strings.TrimPrefix(h[0], "Bearer ")
	for _, token := range []string{never, "sk-parley-", "k", "sk-proj-" + key[10:], key[:58], key + "x", strings.ToUpper(key), valid} {
		_, err := r.Authenticate([]string{"Bearer " + token}, now)
		if e, ok := errors.AsType[*apikey.UnknownError](err); !ok || e.Token != token {
			t.Errorf("Authenticate(%q) gives %v, want UnknownError with the token", token, err)
		} else if len(token) > 1 && strings.Contains(err.Error(), token) {
			t.Errorf("the error %q shows the token", err)
		}
	}
	for want, values := range map[error][]string{apikey.ErrMissing: nil, apikey.ErrMalformed: {h[0], h[0]}} {
		if _, err := r.Authenticate(values, now); !errors.Is(err, want) {
			t.Errorf("Authenticate(%q) gives %v, want %v", values, err, want)
		}
	}
	if _, err := r.Authenticate([]string{"bearer " + key}, now); err != nil {
		t.Errorf("Authenticate with the scheme in lower case: %v", err)
	}
	// The key is there, its account was never loaded.
	strange := apikey.NewKeyring(r.db, account.NewDirectory(r.db))
	if err := strange.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := strange.Authenticate(h, now); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("Authenticate without the account gives %v, want UnknownError", err)
	}
}

func TestAuthenticate_Plan(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir(), nil)
	_, h := r.create(t, apikey.NewKey{})
	if _, err := r.accounts.Change(context.Background(), r.acct, account.Change{Plan: new("max")}); err != nil {
		t.Fatal(err)
	}
	p, err := r.Authenticate(h, time.Now())
	if err != nil || p.Plan.ID != "max" {
		t.Errorf("after a change of plan Authenticate = %+v, %v", p, err)
	}
	// The account stays on a plan that the configuration does not have any more: its
	// calls are known, and are allowed nothing.
	r.accounts.SetPlans(plans[:1])
	p, err = r.Authenticate(h, time.Now())
	if err != nil || !cmp.Equal(*p.Plan, account.Plan{ID: "max"}) {
		t.Errorf("on a plan that is gone Authenticate = %+v, %v, want a plan with only its id", p, err)
	}
}

func TestAuthenticate_Models(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := open(t, dir, nil)
	_, all := r.create(t, apikey.NewKey{})
	_, none := r.create(t, apikey.NewKey{Models: []string{}})
	list := []string{"a", "b"}
	_, some := r.create(t, apikey.NewKey{Models: list})
	list[0] = "c" // the caller's slice is the caller's
	for restart, r := range []*ring{r, open(t, dir, nil)} {
		for _, c := range []struct {
			name string
			h    []string
			may  map[string]bool
		}{
			{"all", all, map[string]bool{"a": true, "c": true, "": true}},
			{"none", none, map[string]bool{"a": false, "": false}},
			{"some", some, map[string]bool{"a": true, "b": true, "c": false, "A": false, "": false}},
		} {
			p, err := r.Authenticate(c.h, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for model, want := range c.may {
				if got := p.May(model); got != want {
					t.Errorf("restart %d, key for %s: May(%q) = %v, want %v", restart, c.name, model, got, want)
				}
			}
		}
	}
}

// After Revoke has returned, not one request that begins is let in.
func TestRevoke_WhileAuthenticating(t *testing.T) {
	t.Parallel()
	const callers = 8
	r := open(t, t.TempDir(), nil)
	for range 5 {
		k, h := r.create(t, apikey.NewKey{})
		var (
			revoked, stop atomic.Bool
			before, after atomic.Int64
			begun, wg     sync.WaitGroup
		)
		begun.Add(callers)
		for range callers {
			wg.Go(func() {
				for first := true; !stop.Load(); first = false {
					late := revoked.Load() // read before the call begins
					_, err := r.Authenticate(h, time.Now())
					switch {
					case late && !errors.Is(err, apikey.ErrRevoked):
						t.Errorf("Authenticate after Revoke gives %v, want ErrRevoked", err)
						stop.Store(true)
					case late:
						if after.Add(1) == 500 {
							stop.Store(true)
						}
					case err == nil:
						before.Add(1)
					case !errors.Is(err, apikey.ErrRevoked):
						t.Errorf("Authenticate during Revoke gives %v", err)
					}
					if first {
						begun.Done()
					}
				}
			})
		}
		begun.Wait()
		if _, err := r.Revoke(context.Background(), k.ID); err != nil {
			t.Fatal(err)
		}
		revoked.Store(true)
		wg.Wait()
		if before.Load() < callers || after.Load() == 0 {
			t.Errorf("%d calls succeeded before and %d were refused after, want at least %d and 1", before.Load(), after.Load(), callers)
		}
	}
}
