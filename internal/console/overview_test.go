package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/wire"
)

// grantLab gives the lab credit.
func (w *world) grantLab(a money.Amount) {
	w.t.Helper()
	if _, err := w.books.Grant(w.t.Context(), ledger.Grant{AccountID: w.lab.ID, Amount: a}); err != nil {
		w.t.Fatal(err)
	}
}

// reserveCall begins a call of the lab of 100 tokens in.
func (w *world) reserveCall(keyID, model string) *ledger.Hold {
	w.t.Helper()
	m, ok := w.catalog.Lookup(model, time.Now())
	if !ok {
		w.t.Fatalf("no model %s", model)
	}
	h, err := w.books.Reserve(ledger.Call{
		RequestID: ident.RequestID(), CompletionID: ident.New(ident.Completion), AccountID: w.lab.ID, KeyID: keyID, Model: model, PriceID: m.PriceID,
		Price: money.Price{Input: money.IU / 100, Output: money.IU / 100}, Stream: true, CreatedAt: time.Now(), PromptTokens: 100, Output: 100, LeastOutput: 1,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// madeCall is a call that is over: it costs 1.5 IU.
func (w *world) madeCall(keyID, model string) {
	w.t.Helper()
	h := w.reserveCall(keyID, model)
	if err := h.Persist(); err != nil {
		w.t.Fatal(err)
	}
	if err := h.Durable(); err != nil {
		w.t.Fatal(err)
	}
	h.Delivered(50)
	if _, err := h.Settle(ledger.Outcome{PromptTokens: 100, CompletionTokens: 50, Status: 200, Ending: ledger.EndStop, UsageSource: ledger.UsageProvider, Target: "local/m", Attempts: 1, FirstToken: 420 * time.Millisecond}); err != nil {
		w.t.Fatal(err)
	}
}

// has reports what a page lacks.
func has(t *testing.T, page string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %q:\n%s", part, page)
		}
	}
}

// TestOverview_New: an account that nothing was called with sees how to begin, and the page
// asks again by itself only when that was asked for.
func TestOverview_New(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	r := w.ask("GET", "/", ada, nil)
	if r.Header.Get("Refresh") != "" {
		t.Error("the page reloads by itself unasked")
	}
	page := text(t, r)
	has(t, page, "Quick start", "Create key", "http://localhost:8080/v1/chat/completions", "svc-pulse", "Nothing was called yet.", "Wait for the first call")
	i := strings.Index(page, "/?watch=")
	if i < 0 {
		t.Fatalf("no link that waits:\n%s", page)
	}
	watch := page[i : i+strings.IndexByte(page[i:], '"')]
	r = w.ask("GET", watch, ada, nil)
	if got := r.Header.Get("Refresh"); got != "5" {
		t.Errorf("Refresh: %q", got)
	}
	now := time.Now().Add(6 * time.Minute)
	w.gate.Now = func() time.Time { return now }
	if r := w.ask("GET", watch, ada, nil); r.Header.Get("Refresh") != "" {
		t.Error("the page asks for longer than 5 minutes")
	}
	has(t, text(t, w.ask("GET", "/?lang=python", ada, nil)), `base_url=&#34;http://localhost:8080/v1&#34;`)
}

// TestOverview: every figure is of the calls that were made, and the sum closes while a call
// runs.
func TestOverview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	w.grantLab(20 * money.IU)
	k, _, err := w.keys.Create(t.Context(), apikey.NewKey{AccountID: w.lab.ID, Name: "web-app"})
	if err != nil {
		t.Fatal(err)
	}
	w.madeCall(k.ID, "svc-titan")
	w.madeCall(k.ID, "svc-pulse")
	h := w.reserveCall(k.ID, "svc-titan")
	if err := h.Persist(); err != nil {
		t.Fatal(err)
	}
	page := text(t, w.ask("GET", "/", ada, nil))
	// 20 granted, 3 spent, 2 held, 15 left.
	has(t, page, ">20.00</span></b><i><a href=\"/billing\">granted", ">3.00</span></b><i><a href=\"/usage\">spent", ">2.00</span></b><i>held by 1 running call", ">15.00</span></b><i>available",
		"How long it lasts is not known yet", "200 in, 100 out", "<dd class=\"n\">0.42", "svc-titan", "web-app", "Spend per day from", "Requests per minute")
	if strings.Contains(page, "Could not be read") || strings.Contains(page, "could not be read") {
		t.Error("a part of the page is missing")
	}
	if err := h.Void(ledger.Outcome{Status: 502, Ending: ledger.EndUpstreamError}); err != nil {
		t.Fatal(err)
	}
	w.madeCall(k.ID, "svc-titan") // the receipt of what was voided is written with it
	has(t, text(t, w.ask("GET", "/", ada, nil)), ">15.50</span></b><i>available", "0 refused, 1 failed")
	w.refuse(k, refusal.Record{At: time.Now(), Status: 429, Code: "rate_limit_exceeded"})
	has(t, text(t, w.ask("GET", "/", ada, nil)), "1 refused, 1 failed")
}

// TestOverview_Warnings: what needs a person stands above, two things at most.
func TestOverview_Warnings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	w.grantLab(3 * money.IU)
	k, _, err := w.keys.Create(t.Context(), apikey.NewKey{AccountID: w.lab.ID, Name: "ends", ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	w.madeCall(k.ID, "svc-titan")
	has(t, text(t, w.ask("GET", "/", ada, nil)), "Key ends ends on")
	err = w.db.AddRefusals(t.Context(), []refusal.Record{{
		RequestID: ident.RequestID(), AccountID: w.lab.ID, KeyID: k.ID, Model: "svc-titan", At: time.Now(), Status: 429, Code: "rate_limit_exceeded",
		Rule: wire.RuleRequests, Scope: refusal.Key, Message: "Too <many> requests.",
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.madeCall(k.ID, "svc-titan")
	page := text(t, w.ask("GET", "/", ada, nil))
	has(t, page, "No credit is left.", "1 call was refused in the last hour.", "Too &lt;many&gt; requests.")
	if strings.Contains(page, "Key ends ends on") {
		t.Error("a third banner is shown")
	}
}
