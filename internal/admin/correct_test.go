package admin_test

import (
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// charge makes a call of the account that costs 2.5 IU and returns its id.
func (h *house) charge(t *testing.T, accountID string) string {
	t.Helper()
	return h.chargeAt(t, accountID, time.Now())
}

func (h *house) chargeAt(t *testing.T, accountID string, at time.Time) string {
	t.Helper()
	m, ok := h.offer.Lookup("svc-pulse", time.Now())
	if !ok {
		t.Fatal("svc-pulse is not on offer")
	}
	id := ident.RequestID()
	hold, err := h.ledger.Reserve(ledger.Call{
		RequestID: id, CompletionID: ident.CompletionID(), AccountID: accountID, KeyID: "key_x", Model: m.ID,
		PriceID: m.PriceID, Price: money.Price{Input: 50_000, CachedInput: 50_000, Output: 100_000}, PlanVersion: "plan_x",
		CreatedAt: at, PromptTokens: 10_000, Output: 20_000, LeastOutput: 20_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold.Settle(ledger.Outcome{PromptTokens: 10_000, CompletionTokens: 20_000, Status: 200, Ending: ledger.EndStop, UsageSource: ledger.UsageCounted}); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestRefund(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	id := h.charge(t, h.lab(t).ID)
	got, err := h.Refund(ctx, id, admin.NewRefund{Amount: "1", Reason: "half of it was wrong"})
	want := admin.Refund{RequestID: id, Account: "Example Lab", Charge: "2.5", Refunded: "1", Available: "11"}
	if err != nil || got != want {
		t.Errorf("Refund of 1 = %+v, %v, want %+v", got, err, want)
	}
	want.Refunded, want.Available = "2.5", "12.5"
	if got, err := h.Refund(ctx, id, admin.NewRefund{Reason: "the rest too"}); err != nil || got != want {
		t.Errorf("Refund of the rest = %+v, %v, want %+v", got, err, want)
	}
	_, err = h.Refund(ctx, id, admin.NewRefund{Amount: "0.000000001", Reason: "more"})
	if code(err) != "refund_exceeds_charge" || err.Error() != id+" was charged 2.5 IU, of which 2.5 IU were given back: at most the rest can be." {
		t.Errorf("Refund of more gives %v", err)
	}
	for want, in := range map[string]admin.NewRefund{
		"invalid_reason": {Reason: " "}, "invalid_amount": {Amount: "-1", Reason: "x"}, "charge_not_found": {Reason: "x"},
	} {
		if _, err := h.Refund(ctx, "req_none", in); code(err) != want {
			t.Errorf("Refund of %+v gives %v, want %s", in, err, want)
		}
	}
	if v, err := h.Verify(ctx); err != nil || !v.OK {
		t.Errorf("Verify = %+v, %v", v, err)
	}
}
