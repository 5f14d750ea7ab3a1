package apikey_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/store"
)

// ring is a keyring over a real database with one account on the plan "pro".
type ring struct {
	*apikey.Keyring
	accounts *account.Directory
	db       *store.DB
	acct     string
}

var plans = []account.Plan{{ID: "pro", RPM: 60}, {ID: "max"}}

// open opens the database of dir as a process that starts would; wrap may be nil.
func open(t testing.TB, dir string, wrap func(apikey.Store) apikey.Store) *ring {
	t.Helper()
	ctx := context.Background()
	db, err := store.Open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r := &ring{accounts: account.NewDirectory(db), db: db}
	r.accounts.SetPlans(plans)
	if err := r.accounts.Load(ctx); err != nil {
		t.Fatal(err)
	}
	a, ok := r.accounts.ByName("Acme")
	if !ok {
		if a, err = r.accounts.Create(ctx, "Acme", "pro"); err != nil {
			t.Fatal(err)
		}
	}
	r.acct = a.ID
	var s apikey.Store = db
	if wrap != nil {
		s = wrap(db)
	}
	r.Keyring = apikey.NewKeyring(s, r.accounts)
	if err := r.Load(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *ring) create(t testing.TB, n apikey.NewKey) (apikey.Key, []string) {
	t.Helper()
	n.AccountID = r.acct
	if n.Name == "" {
		n.Name = "laptop"
	}
	k, s, err := r.Create(context.Background(), n)
	if err != nil {
		t.Fatalf("Create(%+v): %v", n, err)
	}
	return k, header(s)
}

func header(s apikey.Secret) []string { return []string{"Bearer " + string(s)} }

func TestCreate_Refuses(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir(), nil)
	for _, c := range []struct {
		name string
		n    apikey.NewKey
		want error
	}{
		{"no such account", apikey.NewKey{AccountID: "acct_none", Name: "k"}, account.ErrNotFound},
		{"no name", apikey.NewKey{}, apikey.ErrName},
		{"a name of 101", apikey.NewKey{Name: strings.Repeat("é", 101)}, apikey.ErrName},
		{"a line break", apikey.NewKey{Name: "a\nb"}, apikey.ErrName},
		{"no UTF-8", apikey.NewKey{Name: "a\xff"}, apikey.ErrName},
		{"an invisible character", apikey.NewKey{Name: "a\u202eb"}, apikey.ErrName},
		{"expired", apikey.NewKey{Name: "k", ExpiresAt: time.Now().Add(-time.Second)}, apikey.ErrExpiry},
		{"expired long ago", apikey.NewKey{Name: "k", ExpiresAt: time.Unix(0, 0)}, apikey.ErrExpiry},
	} {
		if c.n.AccountID == "" {
			c.n.AccountID = r.acct
		}
		k, s, err := r.Create(context.Background(), c.n)
		if !errors.Is(err, c.want) || s != "" || k.ID != "" {
			t.Errorf("%s: Create = %+v, %q, %v, want %v", c.name, k, s, err, c.want)
		}
	}
	if ks := r.List(r.acct); len(ks) != 0 {
		t.Errorf("List = %+v, want none", ks)
	}
	r.create(t, apikey.NewKey{Name: strings.Repeat("é", 100)})
}

// A key that could not be stored opens nothing.
func TestCreate_StoreFails(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir(), nil)
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	k, s, err := r.Create(context.Background(), apikey.NewKey{AccountID: r.acct, Name: "k"})
	if err == nil || s != "" || k.ID != "" || len(r.List(r.acct)) != 0 {
		t.Errorf("Create over a closed database = %+v, %q, %v; List = %v", k, s, err, r.List(r.acct))
	}
}

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
		if _, err := r.accounts.Change(context.Background(), r.acct, nil, new("suspended")); err != nil {
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
	if _, err := r.accounts.Change(context.Background(), r.acct, new("max"), nil); err != nil {
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

func TestRevoke(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := open(t, t.TempDir(), nil)
	k, h := r.create(t, apikey.NewKey{})
	if _, err := r.Authenticate(h, time.Now()); err != nil {
		t.Fatal(err)
	}
	first, err := r.Revoke(ctx, k.ID)
	if err != nil || first.RevokedAt.IsZero() || first.RevokedAt.Nanosecond()%1000 != 0 || first.LastUsedAt.IsZero() {
		t.Errorf("Revoke = %+v, %v, want a time to the microsecond and the last use", first, err)
	}
	again, err := r.Revoke(ctx, k.ID)
	if diff := cmp.Diff(first, again); diff != "" || err != nil {
		t.Errorf("Revoke again: %v (-first +again)\n%s", err, diff)
	}
	if _, err := r.Revoke(ctx, "key_none"); !errors.Is(err, apikey.ErrNotFound) {
		t.Errorf("Revoke of no key gives %v, want ErrNotFound", err)
	}
	other, h := r.create(t, apikey.NewKey{})
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Revoke(ctx, other.ID); err == nil {
		t.Error("Revoke over a closed database succeeds")
	}
	if _, err := r.Authenticate(h, time.Now()); err != nil { // what is not durable has not happened
		t.Errorf("Authenticate after a Revoke that failed: %v", err)
	}
}

func TestFindAndList(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := open(t, t.TempDir(), nil)
	other, err := r.accounts.Create(ctx, "Other", "pro")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Create(ctx, apikey.NewKey{AccountID: other.ID, Name: "theirs"}); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"z", "a", "m"} { // oldest first, whatever the name
		k, _ := r.create(t, apikey.NewKey{Name: name})
		want = append(want, k.ID)
		for start := time.Now(); time.Since(start) < time.Microsecond; { // ids sort to a quarter of it
		}
	}
	var got []string
	for _, k := range r.List(r.acct) {
		got = append(got, k.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List differs (-want +got):\n%s", diff)
	}
	if k, ok := r.Find(want[1]); !ok || k.Name != "a" {
		t.Errorf("Find = %+v, %v", k, ok)
	}
	if k, ok := r.Find("key_none"); ok {
		t.Errorf("Find of no key = %+v", k)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		k    apikey.Key
		want string
	}{
		{apikey.Key{}, "active"},
		{apikey.Key{ExpiresAt: now.Add(1)}, "active"},
		{apikey.Key{ExpiresAt: now}, "expired"},
		{apikey.Key{ExpiresAt: now, RevokedAt: now.Add(-time.Hour)}, "revoked"},
		{apikey.Key{RevokedAt: now.Add(time.Hour)}, "revoked"},
	} {
		if got := c.k.Status(now); got != c.want {
			t.Errorf("Status of %+v = %s, want %s", c.k, got, c.want)
		}
	}
}

// Load restores every field of every key.
func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := open(t, dir, nil)
	now := time.Now()
	r.create(t, apikey.NewKey{Name: "all"})
	r.create(t, apikey.NewKey{Name: "none", Models: []string{}})
	r.create(t, apikey.NewKey{Name: "Zoë's \"key\"", Models: []string{"a", "b/c"}, ExpiresAt: now.Add(time.Hour + 123)})
	k, used := r.create(t, apikey.NewKey{Name: "used"})
	if _, err := r.Authenticate(used, now); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Revoke(context.Background(), k.ID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Run(ctx); err != nil { // writes what was used and returns
		t.Fatal(err)
	}
	want := r.List(r.acct)
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, open(t, dir, nil).List(r.acct)); diff != "" {
		t.Errorf("List after a restart differs (-before +after):\n%s", diff)
	}
}

// The secret is nowhere on the disk, in no part and no form that opens anything.
func TestSecretIsNotStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := open(t, dir, nil)
	k, h := r.create(t, apikey.NewKey{Name: "needle in the hay"})
	secret := strings.TrimPrefix(h[0], "Bearer ")
	if _, err := r.Authenticate(h, time.Now()); err != nil {
		t.Fatal(err)
	}
	search := func(when string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("files = %v, %v", files, err)
		}
		var named bool
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			named = named || bytes.Contains(b, []byte(k.Name)) && bytes.Contains(b, k.Hash[:])
			for i := 10; i+8 <= len(secret); i++ { // its prefix and last four may be shown
				if bytes.Contains(b, []byte(secret[i:i+8])) {
					t.Errorf("%s: %s has characters %d to %d of the secret", when, filepath.Base(f), i, i+8)
					break
				}
			}
		}
		if !named {
			t.Errorf("%s: the key is in no file: the search proves nothing", when)
		}
	}
	search("running")
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	search("closed")
}

// touches counts what the store is told of last uses, and can fail.
type touches struct {
	apikey.Store
	calls atomic.Int32
	fail  atomic.Bool
}

var errDisk = errors.New("disk I/O error")

func (s *touches) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	s.calls.Add(1)
	if s.fail.Load() {
		return errDisk
	}
	return s.Store.TouchKeys(ctx, used)
}

// stored is the last use that the database knows of.
func (r *ring) stored(t testing.TB, id string) time.Time {
	t.Helper()
	keys, err := r.db.Keys(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.ID == id {
			return k.LastUsedAt
		}
	}
	t.Fatalf("no key %s", id)
	return time.Time{}
}

// A key's last use is kept to the minute and written once a minute, in one batch; a key
// that is not used is not written.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &touches{}
		r := open(t, dir, func(db apikey.Store) apikey.Store { s.Store = db; return s })
		defer r.db.Close() // before the bubble ends: its goroutines are inside
		k, h := r.create(t, apikey.NewKey{})
		idle, _ := r.create(t, apikey.NewKey{})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()

		start := time.Now().Truncate(time.Minute)
		time.Sleep(20 * time.Second) // the bubble's clock, not ours
		for range 5 {
			if _, err := r.Authenticate(h, time.Now()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got, _ := r.Find(k.ID); !got.LastUsedAt.Equal(start) {
			t.Errorf("Find says %v, want the minute %v", got.LastUsedAt, start)
		}
		if s.calls.Load() != 0 || !r.stored(t, k.ID).IsZero() {
			t.Errorf("%d writes before the minute is over, want 0", s.calls.Load())
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if got := r.stored(t, k.ID); s.calls.Load() != 1 || !got.Equal(start) {
			t.Errorf("after a minute %d writes, last use %v, want 1 and %v", s.calls.Load(), got, start)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if s.calls.Load() != 1 {
			t.Errorf("%d writes after idle minutes, want 1", s.calls.Load())
		}
		minute := time.Now().Truncate(time.Minute)
		if _, err := r.Authenticate(h, time.Now()); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returns %v, want nil", err)
		}
		if got := r.stored(t, k.ID); !got.Equal(minute) {
			t.Errorf("at the end the last use is %v, want %v", got, minute)
		}
		if got := r.stored(t, idle.ID); !got.IsZero() {
			t.Errorf("a key that was never used has last use %v", got)
		}
	})
}

// A write that fails is reported and its uses are not forgotten.
func TestRun_StoreFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &touches{}
		r := open(t, dir, func(db apikey.Store) apikey.Store { s.Store = db; return s })
		defer r.db.Close()
		k, h := r.create(t, apikey.NewKey{})
		used := time.Now().Truncate(time.Minute)
		if _, err := r.Authenticate(h, time.Now()); err != nil {
			t.Fatal(err)
		}
		s.fail.Store(true)
		if err := r.Run(context.Background()); !errors.Is(err, errDisk) {
			t.Errorf("Run returns %v, want the store's error", err)
		}
		s.fail.Store(false)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run returns %v", err)
		}
		if got := r.stored(t, k.ID); !got.Equal(used) {
			t.Errorf("last use is %v, want %v", got, used)
		}
	})
}

// Refused calls are no use of a key.
func TestRefusedIsNoUse(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir(), nil)
	k, h := r.create(t, apikey.NewKey{ExpiresAt: time.Now().Add(time.Hour)})
	if _, err := r.Authenticate(h, time.Now().Add(2*time.Hour)); !errors.Is(err, apikey.ErrExpired) {
		t.Fatal(err)
	}
	if got, _ := r.Find(k.ID); !got.LastUsedAt.IsZero() {
		t.Errorf("LastUsedAt = %v, want never", got.LastUsedAt)
	}
}
