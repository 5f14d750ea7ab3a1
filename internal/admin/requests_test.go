package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/wire"
)

// reserve begins a call of svc-pulse.
func (h *house) reserve(t *testing.T, accountID, keyID string) (id string, hold *ledger.Hold) {
	t.Helper()
	m := h.offer.List(time.Now())[0]
	id = ident.RequestID()
	hold, err := h.ledger.Reserve(ledger.Call{
		RequestID: id, CompletionID: ident.CompletionOf(id), AccountID: accountID, KeyID: keyID, Model: m.ID, PriceID: m.PriceID, Price: m.Price,
		PlanVersion: "plan_x", CreatedAt: time.Now().UTC().Truncate(time.Microsecond), PromptTokens: 100, Output: 50, LeastOutput: 50,
	})
	if err != nil {
		t.Fatal(err)
	}
	return id, hold
}

// A call is explained while it runs, when it has been charged, and when credit was given
// back, by its own id and by that of its completion.
func TestRequest_Charge(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	lab := h.lab(t)
	key, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	id, hold := h.reserve(t, lab.ID, key.ID)
	hold.Delivered(7)
	running, err := h.Request(ctx, id)
	if err != nil || running.Kind != "running" || running.Charge.Receipt.CompletionTokens != 7 || running.Account != "Example Lab" || running.Key != "web" {
		t.Errorf("a running call: %+v, %v", running, err)
	}
	_, err = hold.Settle(ledger.Outcome{
		PromptTokens: 100, CachedTokens: 40, CompletionTokens: 7, Status: 200, Ending: ledger.EndClientGone, UsageSource: ledger.UsageEstimated,
		Target: "local/small", Attempts: 2, FirstToken: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Refund(ctx, id, admin.NewRefund{Amount: "0.001", Reason: "too slow"}); err != nil {
		t.Fatal(err)
	}
	for _, asked := range []string{id, ident.CompletionOf(id)} {
		got, err := h.Request(ctx, asked)
		if err != nil || got.RequestID != id || got.Kind != "charge" || got.Refusal != nil || got.AccountID != lab.ID || got.KeyID != key.ID {
			t.Fatalf("%s: %+v, %v", asked, got, err)
		}
		c := got.Charge
		parts := []admin.ChargePart{
			{Kind: "prompt", Count: 60, Price: "0.05", Amount: "0.003"},
			{Kind: "cached prompt", Count: 40, Price: "0.05", Amount: "0.002"},
			{Kind: "completion", Count: 7, Price: "0.1", Amount: "0.0007"},
		}
		if diff := cmp.Diff(parts, c.Parts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", asked, diff)
		}
		if c.Receipt.Charge != "0.0057" || c.Receipt.Hold != "0.01" || c.Released != "0.0043" || c.Free != "0" || c.FirstToken != 5 || len(c.Refunds) != 1 || c.Refunds[0].Reason != "too slow" {
			t.Errorf("%s: %+v", asked, c)
		}
		if len(c.Sentences) != 2 || !strings.HasPrefix(c.Sentences[0], "The client left after 7 tokens") {
			t.Errorf("%s says %q", asked, c.Sentences)
		}
	}
}

// A refusal is explained with whose limit it was, what there is instead, and when it ends.
func TestRequest_Refusal(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	lab := h.lab(t)
	key, err := h.CreateKey(ctx, "Example Lab", admin.NewKey{Name: "ci", Budget: "1/month"})
	if err != nil {
		t.Fatal(err)
	}
	base := refusal.Record{AccountID: lab.ID, KeyID: key.ID, At: time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC), Status: 429, Code: "rate_limit_exceeded"}
	record := func(change func(*refusal.Record)) string {
		t.Helper()
		r := base
		r.RequestID = ident.RequestID()
		change(&r)
		if err := h.db.AddRefusals(ctx, []refusal.Record{r}); err != nil {
			t.Fatal(err)
		}
		return r.RequestID
	}
	for _, c := range []struct {
		name          string
		id            string
		heading, text string
	}{
		{"a key's limit", record(func(r *refusal.Record) {
			r.Rule, r.Scope, r.Limit, r.Used, r.Asked, r.Clears = wire.RuleTokens, refusal.Key, 30_000, 29_937, 385, 644*time.Millisecond
		}), "Refused: tokens per minute of key ci", "It cleared 644 ms later, at 15:09:26.644 UTC."},
		{"the account's limit", record(func(r *refusal.Record) {
			r.Rule, r.Scope, r.Limit, r.Used, r.Asked = wire.RuleRequests, refusal.Account, 5, 5, 1
		}), "Refused: requests per minute of the account", "one every 12.0 s"},
		{"a model's limit", record(func(r *refusal.Record) { r.Rule, r.Scope, r.Model, r.Limit = wire.RuleRequests, refusal.Model, "m", 5 }), "Refused: requests per minute of the account for m", "Raise"},
		{"a budget of the month", record(func(r *refusal.Record) { r.Rule, r.Scope, r.Asked = wire.RuleBudget, refusal.Key, 5 }), "Refused: the budget of key ci", "1 April 2026 00:00 UTC"},
		{"a plan", record(func(r *refusal.Record) { r.Rule, r.Scope, r.Model = wire.RulePlan, refusal.Account, "svc-titan" }), "Refused: svc-titan is not in the plan", "Use a plan that has it: pro."},
		{"a name", record(func(r *refusal.Record) { r.Rule, r.Model = wire.RuleModel, "svc-tian" }), "No model called “svc-tian”", "Did you mean svc-titan?"},
		{"a key that is gone", record(func(r *refusal.Record) {
			r.Rule, r.Scope, r.KeyID = wire.RuleKeyModels, refusal.Key, "key_gone"
			r.Model = "m"
		}), "Refused: m is not allowed for key key_gone", "restricted"},
		{"nobody", record(func(r *refusal.Record) { r.AccountID, r.KeyID, r.Status, r.Code = "", "", 401, "missing_api_key" }), "Refused: missing_api_key", "Send it in the header"},
	} {
		got, err := h.Request(ctx, c.id)
		if err != nil || got.Kind != "refusal" || got.Charge != nil {
			t.Errorf("%s: %+v, %v", c.name, got, err)
			continue
		}
		r := got.Refusal
		if text := strings.Join(append(r.Do, r.Why, r.Clears), " "); r.Heading != c.heading || !strings.Contains(text, c.text) {
			t.Errorf("%s: %q %s\nwant %q and %q", c.name, r.Heading, text, c.heading, c.text)
		}
	}
	list, err := h.Refusals(ctx, "Example Lab", 3)
	if err != nil || len(list) != 3 || list[0].KeyID != "key_gone" || list[2].Model != "svc-titan" {
		t.Errorf("Refusals = %+v, %v", list, err)
	}
	for _, id := range []string{"req_none", "chatcmpl-none", "x"} {
		if _, err := h.Request(ctx, id); code(err) != "request_not_found" {
			t.Errorf("Request(%s): %v", id, err)
		}
	}
}
