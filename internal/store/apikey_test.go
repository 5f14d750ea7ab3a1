package store_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/money"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	acct := addAccount(t, db, "Acme")
	all, none, some := key(acct), key(acct), key(acct)
	none.Models, none.ExpiresAt = []string{}, at.Add(time.Hour)
	none.Budget = account.Budget{ID: "budget_a", Amount: 25 * money.IU}
	some.Models, some.Scopes = []string{"m", `odd "name", [x]`}, account.ScopeBilling|account.ScopeKeysWrite
	some.Budget = account.Budget{ID: "budget_a", Amount: 7, Monthly: true}
	some.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::1/128")}
	want := map[string]apikey.Key{all.ID: all, none.ID: none, some.ID: some}
	for _, k := range want {
		if err := db.CreateKey(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	used := at.Add(time.Minute)
	if err := db.TouchKeys(ctx, map[string]time.Time{all.ID: used, some.ID: used, "key_none": used}); err != nil {
		t.Errorf("TouchKeys gives %v, want nil also for a key that is gone", err)
	}
	if err := db.TouchKeys(ctx, nil); err != nil {
		t.Errorf("TouchKeys of nothing gives %v", err)
	}
	if err := db.RevokeKey(ctx, some.ID, at.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{some.ID, "key_none"} { // revoked already; not there
		if err := db.RevokeKey(ctx, id, at.Add(time.Hour)); !errors.Is(err, apikey.ErrNotFound) {
			t.Errorf("RevokeKey(%s) gives %v, want ErrNotFound", id, err)
		}
	}
	all.LastUsedAt, some.LastUsedAt, some.RevokedAt = used, used, at.Add(time.Second)
	want[all.ID], want[some.ID] = all, some
	keys, err := db.Keys(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]apikey.Key{}
	for _, k := range keys {
		got[k.ID] = k
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" { // nil and empty Models differ
		t.Errorf("Keys differ (-want +got):\n%s", diff)
	}
}

func TestCreateKey_Refused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	k := key(addAccount(t, db, "Acme"))
	if err := db.CreateKey(ctx, k); err != nil {
		t.Fatal(err)
	}
	sameHash, nobodys := k, key("acct_none")
	sameHash.ID = ident.New(ident.Key)
	for name, bad := range map[string]apikey.Key{"an id in use": k, "a hash in use": sameHash, "no such account": nobodys} {
		if err := db.CreateKey(ctx, bad); err == nil {
			t.Errorf("CreateKey with %s succeeds", name)
		}
	}
	if keys, err := db.Keys(ctx); err != nil || len(keys) != 1 {
		t.Errorf("Keys = %v, %v, want one", keys, err)
	}
}

// What can be changed of a key is written, and nothing else of it.
func TestUpdateKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	acct := addAccount(t, db, "Acme")
	k, gone := key(acct), key(acct)
	for _, k := range []apikey.Key{k, gone} {
		if err := db.CreateKey(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.RevokeKey(ctx, gone.ID, at); err != nil {
		t.Fatal(err)
	}
	k.Name, k.Models, k.ExpiresAt, k.RPM, k.TPM = "phone", []string{"m"}, at.Add(time.Hour), 7, 8
	k.Scopes, k.Networks = account.ScopeBilling, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	k.Budget = account.Budget{ID: "budget_x", Amount: 5, Monthly: true}
	other := k
	other.Prefix, other.Last4, other.CreatedAt, other.LastUsedAt, other.ReplacedBy, other.RevokedAt = "x", "x", at.Add(time.Hour), at, gone.ID, at
	if err := db.UpdateKey(ctx, other); err != nil {
		t.Fatal(err)
	}
	for _, k := range []apikey.Key{gone, key(acct)} {
		if err := db.UpdateKey(ctx, k); !errors.Is(err, apikey.ErrNotFound) {
			t.Errorf("UpdateKey of %s gives %v, want ErrNotFound", k.ID, err)
		}
	}
	gone.RevokedAt = at
	keys, err := db.Keys(ctx)
	byID := cmpopts.SortSlices(func(a, b apikey.Key) bool { return a.ID < b.ID })
	if diff := cmp.Diff([]apikey.Key{k, gone}, keys, byID, cmpopts.EquateComparable(netip.Prefix{})); err != nil || diff != "" {
		t.Errorf("Keys: %v (-want +got):\n%s", err, diff)
	}
}

// A key is replaced once: by both rows, or by none.
func TestReplaceKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	acct := addAccount(t, db, "Acme")
	old, next, late := key(acct), key(acct), key(acct)
	if err := db.CreateKey(ctx, old); err != nil {
		t.Fatal(err)
	}
	old.ReplacedBy, old.ExpiresAt = next.ID, at.Add(time.Hour)
	if err := db.ReplaceKey(ctx, old, next); err != nil {
		t.Fatal(err)
	}
	if err := db.RevokeKey(ctx, next.ID, at); err != nil {
		t.Fatal(err)
	}
	for _, k := range []apikey.Key{old, next, key(acct)} { // replaced, revoked, not there
		if err := db.ReplaceKey(ctx, k, late); !errors.Is(err, apikey.ErrReplaced) {
			t.Errorf("ReplaceKey of %s gives %v, want ErrReplaced", k.ID, err)
		}
	}
	next.RevokedAt = at
	keys, err := db.Keys(ctx)
	slices.SortFunc(keys, func(a, b apikey.Key) int { return strings.Compare(a.ID, b.ID) })
	want := []apikey.Key{old, next}
	slices.SortFunc(want, func(a, b apikey.Key) int { return strings.Compare(a.ID, b.ID) })
	if diff := cmp.Diff(want, keys); err != nil || diff != "" {
		t.Errorf("Keys: %v (-want +got):\n%s", err, diff)
	}
}

func TestKeys_DamagedRow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tamper := range []string{
		`UPDATE api_key SET hash = x'00112233'`,
		`UPDATE api_key SET hash = hash || x'00'`,
		`UPDATE api_key SET models = 'm'`,
		`UPDATE api_key SET scopes = 'chat root'`,
		`UPDATE api_key SET scopes = ''`,
		`UPDATE api_key SET networks = '10.0.0.0/8 anywhere'`,
	} {
		db := open(t, t.TempDir())
		if err := db.CreateKey(ctx, key(addAccount(t, db, "Acme"))); err != nil {
			t.Fatal(err)
		}
		exec(t, db, tamper)
		if keys, err := db.Keys(ctx); err == nil {
			t.Errorf("after %s Keys = %v, want an error: a key that opens the wrong things is worse than none", tamper, keys)
		}
	}
}
