package apikey_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
