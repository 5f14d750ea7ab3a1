package admin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/admin"
)

// What is given is changed, null takes away, and what is absent stays.
func TestKey_Set(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "web", RPM: new(int64(5)), Budget: "1"})
	if err != nil {
		t.Fatal(err)
	}
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	want, err := h.Key(ctx, minted.ID)
	if err != nil {
		t.Fatal(err)
	}
	set := func(in admin.KeyChange, change func(k *admin.Key)) {
		t.Helper()
		got, err := h.SetKey(ctx, minted.ID, in)
		change(&want.Key)
		if diff := cmp.Diff(want.Key, got); err != nil || diff != "" {
			t.Errorf("SetKey: %v (-want +got):\n%s", err, diff)
		}
	}
	set(admin.KeyChange{}, func(*admin.Key) {})
	set(admin.KeyChange{Name: new("app"), Scopes: []string{"billing"}, RPM: admin.Set(int64(6)), TPM: admin.Set(int64(7))}, func(k *admin.Key) {
		k.Name, k.Scopes, k.RPM, k.TPM = "app", []string{"billing"}, new(int64(6)), new(int64(7))
	})
	set(admin.KeyChange{
		Models: admin.Set([]string{"svc-pulse"}), Allow: admin.Set([]string{"10.0.0.0/8"}), Budget: admin.Set("2/month"), ExpiresAt: admin.Set(expires),
	}, func(k *admin.Key) {
		k.Models, k.Allow, k.ExpiresAt = []string{"svc-pulse"}, []string{"10.0.0.0/8"}, &expires
		k.Budget = &admin.Budget{Amount: "2", Period: "month", Spent: "0", Held: "0"}
	})
	set(admin.KeyChange{
		Models: admin.Unset[[]string](), Allow: admin.Unset[[]string](), Budget: admin.Unset[string](), ExpiresAt: admin.Unset[time.Time](),
		RPM: admin.Unset[int64](), TPM: admin.Unset[int64](),
	}, func(k *admin.Key) {
		k.Models, k.Allow, k.ExpiresAt, k.Budget, k.RPM, k.TPM = []string{}, []string{}, nil, nil, nil, nil
	})
}

func TestKey_SetRefuses(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	if _, err := h.SetAccount(ctx, "Example Lab", admin.Change{Plan: new("free")}); err != nil {
		t.Fatal(err)
	}
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	before, _ := h.Key(ctx, minted.ID)
	for _, c := range []struct {
		body, code string
		status     int
	}{
		{`{"name":""}`, "invalid_name", 400},
		{`{"scopes":[]}`, "invalid_scope", 400},
		{`{"scopes":["root"]}`, "invalid_scope", 400},
		{`{"models":["none"]}`, "model_not_found", 400},
		{`{"allow":["10.0.0.5/8"]}`, "invalid_network", 400},
		{`{"budget":"0"}`, "invalid_budget", 400},
		{`{"rpm":0}`, "invalid_limit", 400},
		{`{"rpm":21}`, "invalid_limit", 400},
		{`{"tpm":60001}`, "invalid_limit", 400},
		{`{"expires_at":"2020-01-01T00:00:00Z"}`, "invalid_expiry", 400},
		{`{"expires_at":"tomorrow"}`, "invalid_request", 400},
		{`{"tmp":1}`, "invalid_request", 400},
	} {
		w := httptest.NewRecorder()
		h.api.ServeHTTP(w, httptest.NewRequest(http.MethodPatch, "/admin/v1/keys/"+minted.ID, strings.NewReader(c.body)))
		var e struct{ Error struct{ Code string } }
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != c.status || e.Error.Code != c.code {
			t.Errorf("%s: %d %s, want %d %s", c.body, w.Code, w.Body, c.status, c.code)
		}
	}
	after, err := h.Key(ctx, minted.ID)
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Errorf("refused changes changed the key: %v\n%s", err, diff)
	}
	if _, err := h.RevokeKey(ctx, minted.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.SetKey(ctx, minted.ID, admin.KeyChange{Name: new("x")}); code(err) != "key_revoked" {
		t.Errorf("a change of a revoked key gives %v", err)
	}
	if _, err := h.SetKey(ctx, "key_none", admin.KeyChange{}); code(err) != "key_not_found" {
		t.Errorf("a change of no key gives %v", err)
	}
}
