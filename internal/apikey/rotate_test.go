package apikey_test

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
)

// The new key is the old one with another secret; the old one works until the overlap
// ends, also after a restart.
func TestRotate(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	for _, c := range []struct {
		name    string
		expires time.Time
		overlap time.Duration
		until   time.Duration // how long the old one works; 0 is not at all
		after   error
	}{
		{"a day", time.Time{}, 24 * time.Hour, 24 * time.Hour, apikey.ErrExpired},
		{"not at all", time.Time{}, 0, 0, apikey.ErrRevoked},
		{"not longer than it had", soon, 24 * time.Hour, time.Hour, apikey.ErrExpired},
		{"shorter than it had", soon, time.Minute, time.Minute, apikey.ErrExpired},
		{"the longest", time.Time{}, apikey.MaxOverlap, apikey.MaxOverlap, apikey.ErrExpired},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := open(t, dir, nil)
			k, before := r.create(t, apikey.NewKey{
				Name: "web", ExpiresAt: c.expires, Models: []string{"m"}, Scopes: account.ScopeChat,
				Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, RPM: 7, TPM: 8, Budget: account.Budget{Amount: 9},
			})
			fresh, secret, old, err := r.Rotate(t.Context(), k.ID, c.overlap)
			if err != nil {
				t.Fatal(err)
			}
			same := cmpopts.IgnoreFields(apikey.Key{}, "ID", "Prefix", "Last4", "Hash", "CreatedAt")
			if diff := cmp.Diff(k, fresh, same, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("the new key differs (-old +new):\n%s", diff)
			}
			if k.Budget.ID == "" || k.Budget.Amount != 9 {
				t.Errorf("the budget is %+v", k.Budget)
			}
			if old.ID != k.ID || old.ReplacedBy != fresh.ID || fresh.ID == k.ID || fresh.ReplacedBy != "" {
				t.Errorf("%+v is replaced by %+v", old, fresh)
			}
			end := fresh.CreatedAt.Add(c.until)
			if !c.expires.IsZero() && c.until == time.Hour {
				end = c.expires
			}
			for restart, r := range []*ring{r, open(t, dir, nil)} {
				for _, at := range []struct {
					now  time.Time
					want error
				}{{end.Add(-time.Microsecond), nil}, {end, c.after}} {
					if c.until == 0 {
						at.want = c.after
					}
					if _, err := r.Authenticate(before, at.now); !errors.Is(err, at.want) {
						t.Errorf("restart %d: the old key at %s gives %v, want %v", restart, at.now, err, at.want)
					}
				}
				if p, err := r.Authenticate(header(secret), end.Add(-time.Microsecond)); err != nil || p.KeyID != fresh.ID {
					t.Errorf("restart %d: the new key gives %+v, %v", restart, p, err)
				}
				if list := r.List(r.acct); len(list) != 2 || list[0].ReplacedBy != fresh.ID || list[1].ID != fresh.ID {
					t.Errorf("restart %d: List = %+v", restart, list)
				}
			}
		})
	}
}

func TestRotate_Refuses(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir(), nil)
	k, _ := r.create(t, apikey.NewKey{})
	gone, _ := r.create(t, apikey.NewKey{})
	replaced, _ := r.create(t, apikey.NewKey{})
	if _, err := r.Revoke(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := r.Rotate(t.Context(), replaced.ID, time.Hour); err != nil {
		t.Fatal(err)
	}
	n := len(r.List(r.acct))
	for _, c := range []struct {
		id      string
		overlap time.Duration
		want    error
	}{
		{"key_none", 0, apikey.ErrNotFound},
		{k.ID, -1, apikey.ErrOverlap},
		{k.ID, apikey.MaxOverlap + 1, apikey.ErrOverlap},
		{gone.ID, time.Hour, apikey.ErrRevoked},
		{replaced.ID, time.Hour, apikey.ErrReplaced},
		{replaced.ID, 0, apikey.ErrReplaced},
	} {
		if _, s, _, err := r.Rotate(t.Context(), c.id, c.overlap); !errors.Is(err, c.want) || s != "" {
			t.Errorf("Rotate(%s, %s) = %q, %v, want %v", c.id, c.overlap, s, err, c.want)
		}
	}
	if got := len(r.List(r.acct)); got != n {
		t.Errorf("%d keys, want %d", got, n)
	}
	// Nothing changes in memory that is not stored.
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := r.Rotate(t.Context(), k.ID, 0); err == nil {
		t.Error("Rotate over a closed database succeeds")
	}
	if same, _ := r.Find(k.ID); same.ReplacedBy != "" || same.Status(time.Now()) != "active" {
		t.Errorf("the key became %+v", same)
	}
}

// Without an overlap what runs with the old key is cut; with one it goes on.
func TestRotate_Cuts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, t.TempDir(), nil)
		for overlap, want := range map[time.Duration]error{0: apikey.ErrRevoked, time.Hour: nil} {
			k, h := r.create(t, apikey.NewKey{})
			p, err := r.Authenticate(h, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			var cause error
			stop := p.Watch(func(err error) { cause = err })
			if _, _, _, err := r.Rotate(t.Context(), k.ID, overlap); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if stop(); !errors.Is(cause, want) {
				t.Errorf("after an overlap of %s the call has ended by %v, want %v", overlap, cause, want)
			}
		}
	})
}
