package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/store"
)

// Who restores over books learns which keys, accounts and tokens work again that had an end in
// those: an old backup must not open what was closed since without a word.
func TestRestore_Revives(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	db := open(t, dir)
	lab, shop := addAccount(t, db, "Lab"), addAccount(t, db, "Shop")
	now := time.Now().UTC().Truncate(time.Microsecond)
	key := func(name string, expires time.Time) apikey.Key {
		t.Helper()
		k := apikey.Key{ID: "key_" + name, AccountID: lab, Name: name, Hash: [32]byte([]byte(name + "................................")), Scopes: account.DefaultScopes, CreatedAt: now, ExpiresAt: expires}
		if err := db.CreateKey(ctx, k); err != nil {
			t.Fatal(err)
		}
		return k
	}
	leaked, rotated, ended, gone := key("leaked", time.Time{}), key("rotated", now.Add(time.Hour)), key("ended", now.Add(-time.Hour)), key("gone", time.Time{})
	key("good", time.Time{})
	if err := db.RevokeKey(ctx, gone.ID, now); err != nil {
		t.Fatal(err)
	}
	if err := db.CreateToken(ctx, apikey.Token{ID: "opt_ci", Name: "ci", CreatedAt: now}); err != nil {
		t.Fatal(err)
	}
	exec(t, db, `INSERT INTO member (id, email, created_at) VALUES ('mbr_a', 'a@example.org', 1)`)
	exec(t, db, `INSERT INTO session (id, hash, member_id, stage, address, agent, created_at, seen_at, proved_at) VALUES ('s', x'00', 'mbr_a', 'open', '', '', 1, 1, 1)`)
	exec(t, db, `INSERT INTO door_link (hash, id, kind, created_by, created_at, expires_at) VALUES (x'01', 'l', 'operator', '', 1, 9000000000000000)`)
	file := backup(t, db)

	after := rotated
	after.ReplacedBy, after.ExpiresAt = "key_fresh", now.Add(time.Minute)
	for _, err := range []error{
		db.RevokeKey(ctx, leaked.ID, now), db.RevokeKey(ctx, ended.ID, now), db.RevokeToken(ctx, "opt_ci", now),
		db.ReplaceKey(ctx, after, apikey.Key{ID: "key_fresh", AccountID: lab, Name: "rotated", Scopes: account.DefaultScopes, CreatedAt: now}),
		db.UpdateAccount(ctx, account.Account{ID: shop, Name: "Shop", Plan: "pro", Status: account.Suspended}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	r, err := store.Restore(ctx, file, dir, true)
	if err != nil {
		t.Fatal(err)
	}
	want := []store.Revived{
		{Kind: "account", ID: shop, Name: "Shop"},
		{Kind: "key", ID: leaked.ID, Name: "leaked", Account: "Lab"},
		{Kind: "key", ID: rotated.ID, Name: "rotated", Account: "Lab"},
		{Kind: "token", ID: "opt_ci", Name: "ci"},
	}
	if diff := cmp.Diff(want, r.Revived); diff != "" || !r.Compared {
		t.Errorf("compared: %v (-want +got):\n%s", r.Compared, diff)
	}
	if age := r.Newest.Sub(now); age < 0 || age > time.Hour {
		t.Errorf("the backup is of %s, want soon after %s", r.Newest, now)
	}
	restored := open(t, dir)
	for _, table := range []string{"session", "door_link"} {
		if n := query[int](t, restored, `SELECT count(*) FROM `+table); n != 0 {
			t.Errorf("%d rows of %s are restored", n, table)
		}
	}

	// Where there is nothing to compare with, that is said.
	r, err = store.Restore(ctx, file, t.TempDir(), false)
	if err != nil || r.Compared || r.Revived != nil || r.Newest.IsZero() {
		t.Errorf("Restore into an empty directory = %+v, %v", r, err)
	}
}
