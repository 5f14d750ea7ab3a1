package apikey_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
)

// Each thing is changed alone, for the next call and after a restart.
func TestChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := open(t, dir, nil)
	soon := time.Now().Add(time.Hour).UTC()
	networks := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	k, h := r.create(t, apikey.NewKey{})
	for _, c := range []struct {
		name   string
		change apikey.Change
		want   func(*apikey.Key)
	}{
		{"nothing", apikey.Change{}, func(*apikey.Key) {}},
		{"name", apikey.Change{Name: new("phone")}, func(k *apikey.Key) { k.Name = "phone" }},
		{"limits", apikey.Change{RPM: new(int64(60)), TPM: new(int64(9))}, func(k *apikey.Key) { k.RPM, k.TPM = 60, 9 }},
		{"one limit off", apikey.Change{TPM: new(int64(0))}, func(k *apikey.Key) { k.TPM = 0 }},
		{"models", apikey.Change{Models: &[]string{"m"}}, func(k *apikey.Key) { k.Models = []string{"m"} }},
		{"all models", apikey.Change{Models: new([]string)}, func(k *apikey.Key) { k.Models = nil }},
		{"scopes", apikey.Change{Scopes: new(account.ScopeBilling)}, func(k *apikey.Key) { k.Scopes = account.ScopeBilling }},
		{"networks", apikey.Change{Networks: &networks}, func(k *apikey.Key) { k.Networks = networks }},
		{"every network", apikey.Change{Networks: new([]netip.Prefix)}, func(k *apikey.Key) { k.Networks = nil }},
		{"expiry", apikey.Change{ExpiresAt: &soon}, func(k *apikey.Key) { k.ExpiresAt = soon.Truncate(time.Microsecond) }},
		{"no expiry", apikey.Change{ExpiresAt: new(time.Time)}, func(k *apikey.Key) { k.ExpiresAt = time.Time{} }},
		{"budget", apikey.Change{Budget: &account.Budget{Amount: 5}}, func(k *apikey.Key) { k.Budget.Amount = 5 }},
		{"another budget", apikey.Change{Budget: &account.Budget{Amount: 7, Monthly: true}}, func(k *apikey.Key) { k.Budget.Amount, k.Budget.Monthly = 7, true }},
		{"no budget", apikey.Change{Budget: &account.Budget{}}, func(k *apikey.Key) { k.Budget = account.Budget{} }},
	} {
		got, err := r.Change(t.Context(), k.ID, c.change)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		counted := got.Budget.ID
		if want := k.Budget.ID; want != "" && got.Budget.Amount > 0 && counted != want {
			t.Errorf("%s: what was spent under %s counts no longer: %s", c.name, want, counted)
		}
		if (counted != "") != (got.Budget.Amount > 0) {
			t.Errorf("%s: the budget is %+v", c.name, got.Budget)
		}
		c.want(&k)
		k.Budget.ID = counted
		after, _ := open(t, dir, nil).Find(k.ID)
		for _, got := range []apikey.Key{got, after} {
			if diff := cmp.Diff(k, got, cmpopts.EquateComparable(netip.Prefix{}), cmpopts.IgnoreFields(apikey.Key{}, "LastUsedAt")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
		}
		p, err := r.Authenticate(h, time.Now())
		if err != nil || p.KeyName != k.Name || p.Scopes != k.Scopes || p.Budget != k.Budget || p.KeyLimits.Requests != k.RPM ||
			p.KeyLimits.Tokens != k.TPM || len(p.Networks) != len(k.Networks) || p.May("other") != (k.Models == nil) {
			t.Errorf("%s: the next call is of %+v, %v", c.name, p, err)
		}
	}
}

func TestChange_Refuses(t *testing.T) {
	t.Parallel()
	r := open(t, t.TempDir(), nil)
	k, _ := r.create(t, apikey.NewKey{RPM: 60})
	gone, _ := r.create(t, apikey.NewKey{})
	if _, err := r.Revoke(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Second)
	for _, c := range []struct {
		id     string
		change apikey.Change
		want   error
	}{
		{"key_none", apikey.Change{}, apikey.ErrNotFound},
		{gone.ID, apikey.Change{Name: new("x")}, apikey.ErrRevoked},
		{k.ID, apikey.Change{Name: new("")}, apikey.ErrName},
		{k.ID, apikey.Change{Name: new(strings.Repeat("n", 101))}, apikey.ErrName},
		{k.ID, apikey.Change{RPM: new(int64(61))}, apikey.ErrLimit},
		{k.ID, apikey.Change{TPM: new(int64(-1))}, apikey.ErrLimit},
		{k.ID, apikey.Change{ExpiresAt: &past}, apikey.ErrExpiry},
		{k.ID, apikey.Change{Scopes: new(account.Scopes)}, account.ErrScope},
	} {
		if _, err := r.Change(t.Context(), c.id, c.change); !errors.Is(err, c.want) {
			t.Errorf("Change of %s to %+v gives %v, want %v", c.id, c.change, err, c.want)
		}
	}
	if same, _ := r.Find(k.ID); same.Name != "laptop" || same.RPM != 60 || same.TPM != 0 {
		t.Errorf("the key became %+v", same)
	}
	// A plan that became smaller does not stand in the way of another change.
	r.accounts.SetPlans([]account.Plan{{ID: "pro", RPM: 10}})
	if _, err := r.Change(t.Context(), k.ID, apikey.Change{Name: new("phone")}); err != nil {
		t.Errorf("a name on a smaller plan gives %v", err)
	}
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Change(t.Context(), k.ID, apikey.Change{Name: new("lost")}); err == nil {
		t.Error("Change over a closed database succeeds")
	}
	if same, _ := r.Find(k.ID); same.Name != "phone" {
		t.Errorf("what was not stored is in memory: %+v", same)
	}
}
