package admin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
)

func TestKey_Life(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "web", ExpiresAt: &expires, Models: []string{"svc-pulse"}})
	if err != nil || !strings.HasPrefix(minted.Secret, minted.Prefix) {
		t.Fatalf("CreateKey = %+v, %v", minted, err)
	}
	bearer := []string{"Bearer " + minted.Secret}
	if _, err := h.keys.Authenticate(bearer, time.Now()); err != nil {
		t.Errorf("the new key is refused: %v", err)
	}
	list, err := h.Keys(ctx, "Example Lab")
	if err != nil || len(list) != 1 || list[0].Status != "active" || !list[0].ExpiresAt.Equal(expires) || !cmp.Equal(list[0].Models, []string{"svc-pulse"}) {
		t.Errorf("Keys = %+v, %v", list, err)
	}
	use, err := h.Key(ctx, minted.ID)
	if err != nil || use.Account != "Example Lab" || use.Running != 0 {
		t.Errorf("Key = %+v, %v", use, err)
	}
	gone, err := h.RevokeKey(ctx, minted.ID)
	if err != nil || gone.Status != "revoked" || gone.Confirmed != 1 || gone.Servers != 1 || gone.RevokedAt.IsZero() {
		t.Errorf("RevokeKey = %+v, %v", gone, err)
	}
	if _, err := h.keys.Authenticate(bearer, time.Now()); !errors.Is(err, apikey.ErrRevoked) {
		t.Errorf("the revoked key gives %v", err)
	}
	if again, err := h.RevokeKey(ctx, minted.ID); err != nil || !again.RevokedAt.Equal(gone.RevokedAt) {
		t.Errorf("RevokeKey again = %+v, %v, want the first time", again, err)
	}
}

func TestKey_Rotate(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := h.RotateKey(ctx, minted.ID, admin.Rotation{})
	if err != nil || first.Replaces != minted.ID || first.ID == minted.ID || first.Until == nil || !strings.HasPrefix(first.Secret, first.Prefix) {
		t.Fatalf("RotateKey = %+v, %v", first, err)
	}
	if left := time.Until(*first.Until); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("the old key works for %s more, want a day", left)
	}
	second, err := h.RotateKey(ctx, first.ID, admin.Rotation{Overlap: "0s"})
	if err != nil || second.Until != nil {
		t.Fatalf("RotateKey without overlap = %+v, %v", second, err)
	}
	for secret, want := range map[string]error{minted.Secret: nil, first.Secret: apikey.ErrRevoked, second.Secret: nil} {
		if _, err := h.keys.Authenticate([]string{"Bearer " + secret}, time.Now()); !errors.Is(err, want) {
			t.Errorf("the key %s gives %v, want %v", secret[:14], err, want)
		}
	}
	list, err := h.Keys(ctx, "Example Lab")
	if err != nil || len(list) != 3 || *list[0].ReplacedBy != first.ID || *list[1].ReplacedBy != second.ID || list[2].ReplacedBy != nil {
		t.Errorf("Keys = %+v, %v", list, err)
	}
	for _, c := range []struct {
		id, overlap, code string
		status            int
	}{
		{minted.ID, "", "key_replaced", 409},
		{"key_none", "", "key_not_found", 404},
		{second.ID, "a day", "invalid_overlap", 400},
		{second.ID, "-1s", "invalid_overlap", 400},
		{second.ID, "2161h", "invalid_overlap", 400},
	} {
		_, err := h.RotateKey(ctx, c.id, admin.Rotation{Overlap: c.overlap})
		if e, ok := errors.AsType[*admin.Error](err); !ok || e.Code != c.code || e.Status != c.status {
			t.Errorf("RotateKey(%s, %q) gives %v, want %d %s", c.id, c.overlap, err, c.status, c.code)
		}
	}
}

// A key shows what was spent of its budget and what is held; the key that takes its place
// goes on from there.
func TestKey_Budget(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	c := h.lab(t)
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "web", Budget: "2.50/month"})
	if err != nil {
		t.Fatal(err)
	}
	k, _ := h.keys.Find(minted.ID)
	m := h.offer.List(time.Now())[0]
	reserve := func() *ledger.Hold {
		t.Helper()
		hold, err := h.ledger.Reserve(ledger.Call{
			RequestID: ident.RequestID(), AccountID: c.ID, KeyID: k.ID, Model: m.ID, PriceID: m.PriceID, Price: m.Price, CreatedAt: time.Now(),
			PromptTokens: 10, Output: 100, LeastOutput: 100,
			Budget: ledger.Budget{ID: k.Budget.ID, Period: k.Budget.Period(time.Now()), Amount: k.Budget.Amount},
		})
		if err != nil {
			t.Fatal(err)
		}
		return hold
	}
	done, running := reserve(), reserve()
	if _, err := done.Settle(ledger.Outcome{PromptTokens: 10, CompletionTokens: 50, Status: 200, Ending: ledger.EndStop}); err != nil {
		t.Fatal(err)
	}
	rotated, err := h.RotateKey(ctx, minted.ID, admin.Rotation{})
	if err != nil {
		t.Fatal(err)
	}
	want := admin.Budget{Amount: "2.5", Period: "month", Spent: "0.0055", Held: "0.0105"}
	for _, id := range []string{minted.ID, rotated.ID} {
		use, err := h.Key(ctx, id)
		if err != nil || use.Key.Budget == nil || *use.Key.Budget != want {
			t.Errorf("the budget of %s is %+v, %v, want %+v", id, use.Key.Budget, err, want)
		}
	}
	if err := running.Void(ledger.Outcome{}); err != nil {
		t.Fatal(err)
	}
}

func TestKey_Limits(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	h.lab(t)
	if _, err := h.SetAccount(ctx, "Example Lab", admin.Change{Plan: new("free")}); err != nil {
		t.Fatal(err)
	}
	minted, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "slow", RPM: new(int64(20)), TPM: new(int64(60000))})
	if err != nil {
		t.Fatal(err)
	}
	use, err := h.Key(ctx, minted.ID)
	if err != nil || use.Key.RPM == nil || *use.Key.RPM != 20 || use.Key.TPM == nil || *use.Key.TPM != 60000 {
		t.Errorf("Key = %+v, %v", use, err)
	}
	for _, c := range []struct {
		in   admin.NewKey
		want string
	}{
		{admin.NewKey{Name: "fast", RPM: new(int64(21))}, "The plan free allows 20 requests per minute"},
		{admin.NewKey{Name: "fast", TPM: new(int64(60001))}, "The plan free allows 60000 tokens per minute"},
		{admin.NewKey{Name: "fast", RPM: new(int64(20)), TPM: new(int64(60001))}, "The plan free allows 60000 tokens per minute"},
	} {
		_, err := h.CreateKey(ctx, "Example Lab", c.in)
		if code(err) != "invalid_limit" || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("CreateKey = %v, want %s", err, c.want)
		}
	}
	// A subscription's plan applies while it runs: pro has no limits.
	if _, err := h.Subscribe(ctx, "Example Lab", admin.NewSubscription{Plan: "pro", Until: new(time.Now().Add(time.Hour))}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "fast", RPM: new(int64(1000))}); err != nil {
		t.Errorf("CreateKey on the subscription's plan: %v", err)
	}
}
