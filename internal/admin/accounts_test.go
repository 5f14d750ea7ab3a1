package admin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/admin"
)

func TestAccount_Life(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	c := h.lab(t)
	if c.Name != "Example Lab" || !strings.HasPrefix(c.ID, "acct_") {
		t.Fatalf("CreateAccount = %+v", c)
	}
	want := admin.Account{ID: c.ID, Name: "Example Lab", Plan: "pro", Status: "active", Balance: "12.5", Held: "0", Available: "12.5", LowCredit: "1"}
	got, err := h.Account(ctx, "Example Lab")
	if err != nil || got != want {
		t.Errorf("Account = %+v, %v, want %+v", got, err, want)
	}
	if got, err := h.Account(ctx, c.ID); err != nil || got != want {
		t.Errorf("Account by id = %+v, %v", got, err)
	}
	want.Plan, want.Status = "free", "suspended"
	got, err = h.SetAccount(ctx, "Example Lab", admin.Change{Plan: new("free"), Status: new("suspended")})
	if err != nil || got != want {
		t.Errorf("SetAccount = %+v, %v, want %+v", got, err, want)
	}
	for _, c := range []struct {
		set  admin.Setting[string]
		want string
		own  bool
	}{{admin.Set("2.5"), "2.5", true}, {admin.Setting[string]{}, "2.5", true}, {admin.Set("0"), "0", true}, {admin.Unset[string](), "1", false}} {
		want.LowCredit, want.OwnThreshold = c.want, c.own
		if got, err := h.SetAccount(ctx, "Example Lab", admin.Change{Plan: new("free"), LowCredit: c.set}); err != nil || got != want {
			t.Errorf("SetAccount to the threshold %+v = %+v, %v, want %+v", c.set, got, err, want)
		}
	}
	all, err := h.Accounts(ctx)
	if diff := cmp.Diff([]admin.Account{want}, all); err != nil || diff != "" {
		t.Errorf("Accounts: %v, (-want +got)\n%s", err, diff)
	}
	s, err := h.Summary(ctx, "Example Lab")
	if err != nil || s.Granted != "12.5" || s.Spent != "0" || s.Plan == nil || s.Plan.ID != "free" || *s.Plan.RPM != 20 {
		t.Errorf("Summary = %+v, %v", s, err)
	}
}

// Names are free text: whatever a path could mistake for its own must come through.
func TestAccount_OddNames(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	for _, name := range []string{"..", ".", "a/b", "50% off?", "a#b&c=d", "summary", "Ünïcode 実験"} {
		if _, err := h.CreateAccount(ctx, admin.NewAccount{Name: name, Plan: "pro"}); err != nil {
			t.Errorf("CreateAccount(%q): %v", name, err)
			continue
		}
		if a, err := h.Account(ctx, name); err != nil || a.Name != name {
			t.Errorf("Account(%q) = %q, %v", name, a.Name, err)
		}
		if _, err := h.Receipts(ctx, name, 1); err != nil {
			t.Errorf("Receipts(%q): %v", name, err)
		}
	}
}

func TestCredit_SameRefAddsOnce(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	in := admin.NewCredit{Amount: "50", Note: "support case 118", Ref: "case-118"}
	first, err := h.AddCredit(ctx, "Example Lab", in)
	if err != nil || !first.Added || first.Available != "62.5" {
		t.Fatalf("AddCredit = %+v, %v", first, err)
	}
	second, err := h.AddCredit(ctx, "Example Lab", in)
	if err != nil || second.Added || second.Available != "62.5" || !second.At.Equal(first.At) {
		t.Errorf("again = %+v, %v, want what was added at %s", second, err, first.At)
	}
	// A reference cannot stand for what Parley itself granted.
	if c, err := h.AddCredit(ctx, "Example Lab", admin.NewCredit{Amount: "1", Note: "n", Ref: "creation"}); err != nil || !c.Added {
		t.Errorf("ref creation = %+v, %v", c, err)
	}
	in.Ref = ""
	for range 2 {
		if c, err := h.AddCredit(ctx, "Example Lab", in); err != nil || !c.Added {
			t.Errorf("without ref = %+v, %v", c, err)
		}
	}
}
