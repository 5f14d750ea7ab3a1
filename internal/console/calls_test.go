package console_test

import (
	"encoding/hex"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/wire"
)

// makeKey makes a key of an account.
func (w *world) makeKey(a *account.Account, name string) apikey.Key {
	w.t.Helper()
	k, _, err := w.keys.Create(w.t.Context(), apikey.NewKey{AccountID: a.ID, Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// grant adds credit.
func (w *world) grant(a *account.Account, g ledger.Grant) {
	w.t.Helper()
	g.AccountID = a.ID
	if _, err := w.books.Grant(w.t.Context(), g); err != nil {
		w.t.Fatal(err)
	}
}

// requestID is one of a call at that time.
func requestID(at time.Time) string {
	var tail [10]byte
	for i := range tail {
		tail[i] = byte(rand.IntN(256))
	}
	return ident.RequestIDsSince(at) + hex.EncodeToString(tail[:])
}

// reserve begins a call.
func (w *world) reserve(k apikey.Key, model string, at time.Time, prompt, most int) (string, *ledger.Hold) {
	w.t.Helper()
	id := requestID(at)
	c := ledger.Call{
		RequestID: id, CompletionID: ident.CompletionOf(id), AccountID: k.AccountID, KeyID: k.ID, Model: model,
		CreatedAt: at.UTC().Truncate(time.Microsecond), PromptTokens: prompt, Output: most, LeastOutput: most, PlanVersion: "",
	}
	for _, m := range w.catalog.List(at) {
		if m.ID == model {
			c.PriceID, c.Price = m.PriceID, m.Price
		}
	}
	h, err := w.books.Reserve(c)
	if err != nil {
		w.t.Fatal(err)
	}
	return id, h
}

// call makes a call that has ended.
func (w *world) call(k apikey.Key, model string, at time.Time, o ledger.Outcome) ledger.Receipt {
	w.t.Helper()
	_, h := w.reserve(k, model, at, o.PromptTokens, max(o.CompletionTokens, 16))
	if o.Status == 0 {
		o.Status = 200
	}
	if o.Ending == "" {
		o.Ending = ledger.EndStop
	}
	if o.Attempts == 0 {
		o.Attempts = 1
	}
	o.UsageSource, o.Target = ledger.UsageProvider, "local/m"
	if o.Status != 200 {
		if err := h.Void(o); err != nil {
			w.t.Fatal(err)
		}
		return ledger.Receipt{}
	}
	r, err := h.Settle(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// refuse remembers that a call was refused.
func (w *world) refuse(k apikey.Key, r refusal.Record) string {
	w.t.Helper()
	r.AccountID, r.KeyID = k.AccountID, k.ID
	if r.RequestID == "" {
		r.RequestID = requestID(r.At)
	}
	if err := w.db.AddRefusals(w.t.Context(), []refusal.Record{r}); err != nil {
		w.t.Fatal(err)
	}
	return r.RequestID
}

var (
	rowLink   = regexp.MustCompile(`class="row n" href="/requests/([^"]+)"`)
	olderLink = regexp.MustCompile(`href="([^"]+)">Older`)
)

// walk reads a list to its end and returns the ids in its order.
func (w *world) walk(token member.Token, path string) (ids []string, pages int) {
	w.t.Helper()
	for path != "" {
		r := w.ask("GET", path, token, nil)
		page := text(w.t, r)
		if r.StatusCode != 200 {
			w.t.Fatalf("%s: %s\n%s", path, r.Status, w.log)
		}
		for _, m := range rowLink.FindAllStringSubmatch(page, -1) {
			ids = append(ids, m[1])
		}
		path = ""
		if m := olderLink.FindStringSubmatch(page); m != nil {
			path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
		if pages++; pages > 100 {
			w.t.Fatal("the list has no end")
		}
	}
	return ids, pages
}

// TestRequests_Pages: calls that ended and calls that were refused come in one order, each
// once, over all pages, and filters leave out the others.
func TestRequests_Pages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	w.grant(w.lab, ledger.Grant{Amount: 1000 * money.IU})
	w.grant(w.other, ledger.Grant{Amount: 1000 * money.IU})
	web, batch, foreign := w.makeKey(w.lab, "web-app"), w.makeKey(w.lab, "batch"), w.makeKey(w.other, "foreign")
	start := time.Now().Add(-30 * time.Hour)
	var all, refused, ofBatch []string
	for i := range 260 {
		at := start.Add(time.Duration(i) * 7 * time.Minute)
		k := web
		if i%3 == 0 {
			k = batch
		}
		var id string
		if i%4 == 1 || i > 100 && i < 180 { // many in a row
			id = w.refuse(k, refusal.Record{At: at, Status: 429, Code: "rate_limit_exceeded", Rule: wire.RuleTokens, Model: "svc-titan", Limit: 10, Used: 9, Asked: 5})
			refused = append(refused, id)
		} else {
			id = w.call(k, "svc-titan", at, ledger.Outcome{PromptTokens: 10 + i, CompletionTokens: i}).RequestID
		}
		all = append(all, id)
		if k.ID == batch.ID {
			ofBatch = append(ofBatch, id)
		}
		w.call(foreign, "svc-titan", at, ledger.Outcome{PromptTokens: 1, CompletionTokens: 1})
	}
	for _, ids := range [][]string{all, refused, ofBatch} {
		slices.Reverse(ids)
	}
	for query, want := range map[string][]string{
		"": all, "?result=refused": refused, "?key=" + batch.ID: ofBatch, "?model=svc-pulse": nil, "?result=left": nil,
		"?time=1h&least=1000": nil,
	} {
		got, pages := w.walk(token, "/requests"+query)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %d ids on %d pages, want %d in their order", query, len(got), pages, len(want))
		}
		if query == "" && pages < 6 {
			t.Errorf("all of it came on %d pages", pages)
		}
	}
	if r := w.ask("GET", "/requests?before=nonsense", token, nil); r.StatusCode != 404 {
		t.Errorf("a cursor of nobody's: %s", r.Status)
	}
}

var number = regexp.MustCompile(`title="([^"]+) IU"`)

// sums reads the exact amounts of a part of a page, which their titles have.
func sums(t *testing.T, part string) (list []money.Amount) {
	t.Helper()
	for _, m := range number.FindAllStringSubmatch(part, -1) {
		digits, negative := strings.CutPrefix(m[1], "−")
		a, err := money.ParseAmount(digits)
		if err != nil {
			t.Fatal(err)
		}
		if negative {
			a = -a
		}
		list = append(list, a)
	}
	return list
}

// between is the text of a page from one mark to the next.
func between(t *testing.T, page, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, from)
	part, _, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("the page has no %q … %q:\n%s", from, to, page)
	}
	return part
}

// TestRequest_Sums: on the page of any call the rows add up to the charge, and held less
// charged is released.
func TestRequest_Sums(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Regular)
	w.grant(w.lab, ledger.Grant{Amount: money.IU})
	k := w.makeKey(w.lab, "<b>web</b>")
	outcomes := []ledger.Outcome{
		{PromptTokens: 1204, CompletionTokens: 318, FirstToken: time.Millisecond},
		{PromptTokens: 500, CachedTokens: 499, CompletionTokens: 1, Attempts: 3},
		{PromptTokens: 7, CompletionTokens: 41, Ending: ledger.EndClientGone},
		{PromptTokens: 7, CompletionTokens: 3, Ending: ledger.EndUpstreamCut},
		{PromptTokens: 9, Status: 502, ErrorCode: "upstream_error", Ending: ledger.EndUpstreamError},
	}
	for range 20 {
		prompt := rand.IntN(3000)
		outcomes = append(outcomes, ledger.Outcome{PromptTokens: prompt, CachedTokens: rand.IntN(prompt + 1), CompletionTokens: rand.IntN(800)})
	}
	for i, o := range outcomes {
		w.call(k, []string{"svc-titan", "svc-pulse"}[i%2], time.Now(), o)
	}
	// Beyond its hold: the account has nothing more to pay with.
	_, h := w.reserve(k, "svc-titan", time.Now(), 1, 1)
	poor := w.books.Balance(w.lab.ID).Available()
	_, rest := w.reserve(k, "svc-titan", time.Now(), int(poor/12_000), 0)
	if _, err := h.Settle(ledger.Outcome{PromptTokens: 1, CompletionTokens: 900, Status: 200, Ending: ledger.EndStop, UsageSource: ledger.UsageProvider, Attempts: 1}); err != nil {
		t.Fatal(err)
	}
	ids, _ := w.walk(token, "/requests")
	if len(ids) != len(outcomes)+2 {
		t.Fatalf("%d calls, want %d", len(ids), len(outcomes)+2)
	}
	var written int
	for _, id := range ids {
		page := text(t, w.ask("GET", "/requests/"+id, token, nil))
		if strings.Contains(page, "<b>web</b>") {
			t.Fatal("the name of a key became markup")
		}
		if strings.Contains(page, "Charge so far") {
			continue
		}
		if strings.Contains(page, "Written off") {
			written++
		}
		rows, charge := sums(t, between(t, page, "<tbody>", "</tbody>")), sums(t, between(t, page, "<tfoot>", "</tfoot>"))
		var sum money.Amount
		for _, a := range rows {
			sum += a
		}
		if len(charge) != 1 || sum != charge[0] {
			t.Errorf("%s: %v is not %v", id, rows, charge)
		}
		if s := sums(t, between(t, page, `class="sum n"`, "</section>")); len(s) != 3 || s[0]-s[1] != s[2] || s[1] != charge[0] {
			t.Errorf("%s: the hold is %v", id, s)
		}
		// The same call by the id of its completion, as JSON.
		js := text(t, w.ask("GET", "/requests/"+ident.CompletionOf(id)+"/json", token, nil))
		if !strings.Contains(js, `"charge": "`+charge[0].String()+`"`) || !strings.Contains(js, id) {
			t.Errorf("%s as JSON:\n%s", id, js)
		}
	}
	if written != 1 {
		t.Errorf("%d pages say that something was written off, want 1", written)
	}
	if err := rest.Void(ledger.Outcome{Status: 499}); err != nil {
		t.Fatal(err)
	}
}

// TestRequest_Running: a call that is under way is on the list and has a page that is made
// anew until it has ended.
func TestRequest_Running(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	w.grant(w.lab, ledger.Grant{Amount: money.IU})
	id, h := w.reserve(w.makeKey(w.lab, "web"), "svc-titan", time.Now(), 100, 100)
	for _, query := range []string{"", "?result=running", "?model=svc-titan"} {
		if ids, _ := w.walk(token, "/requests"+query); !slices.Equal(ids, []string{id}) {
			t.Errorf("%q: %v", query, ids)
		}
	}
	if ids, _ := w.walk(token, "/requests?model=svc-pulse"); len(ids) != 0 {
		t.Error("the filter lets it through")
	}
	if r := w.ask("GET", "/requests/"+id, token, nil); r.Header.Get("Refresh") == "" || !strings.Contains(text(t, r), "Charge so far") {
		t.Errorf("%s, refresh %q", r.Status, r.Header.Get("Refresh"))
	}
	if _, err := h.Settle(ledger.Outcome{PromptTokens: 100, CompletionTokens: 2, Status: 200, Ending: ledger.EndStop, Attempts: 1}); err != nil {
		t.Fatal(err)
	}
	if r := w.ask("GET", "/requests/"+id, token, nil); r.Header.Get("Refresh") != "" || !strings.Contains(text(t, r), "released") {
		t.Error("the page of a call that has ended is made anew, or is not final")
	}
}

// TestRequests_Others: what another account has made is not there, by any address.
func TestRequests_Others(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	w.grant(w.other, ledger.Grant{Amount: money.IU})
	k := w.makeKey(w.other, "secret-name")
	ended := w.call(k, "svc-titan", time.Now(), ledger.Outcome{PromptTokens: 1, CompletionTokens: 1}).RequestID
	running, h := w.reserve(k, "svc-titan", time.Now(), 1, 16)
	defer h.Void(ledger.Outcome{Status: 499})
	refused := w.refuse(k, refusal.Record{At: time.Now(), Status: 402, Code: "insufficient_quota", Rule: wire.RuleCredit})
	for _, id := range []string{ended, running, refused, ident.CompletionOf(ended)} {
		for _, path := range []string{"/requests/" + id, "/requests/" + id + "/json"} {
			if r := w.ask("GET", path, token, nil); r.StatusCode != 404 {
				t.Errorf("%s: %s", path, r.Status)
			}
		}
		page := text(t, w.ask("GET", "/requests?id="+id, token, nil))
		if !strings.Contains(page, "No call of this account has that id") {
			t.Errorf("looking for %s finds something", id)
		}
	}
	for _, path := range []string{"/requests?key=" + k.ID, "/requests/csv?key=" + k.ID} {
		if page := text(t, w.ask("GET", path, token, nil)); strings.Contains(page, "secret-name") || strings.Contains(page, ended) {
			t.Errorf("%s tells of another account's key", path)
		}
	}
}

// TestRefused_Pages: each rule's page has the sentences of package wire, its numbers and
// the place of the rule.
func TestRefused_Pages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	k := w.makeKey(w.lab, "ci-nightly")
	at := time.Now().Add(-time.Minute)
	for _, tc := range []struct {
		record refusal.Record
		want   []string
	}{
		{
			refusal.Record{Status: 429, Code: "rate_limit_exceeded", Rule: wire.RuleTokens, Scope: refusal.Key, Limit: 30_000, Used: 29_937, Asked: 385, Fits: 12, Clears: 644 * time.Millisecond, Message: `<i>"limit"</i>`},
			[]string{"Refused: tokens per minute of key ci-nightly", "It cleared 644 ms later", "29,937 in use", "322 too much", "with 12 this call", "29,937 + 385 is more than 30,000", `"rate_limit_exceeded"`},
		},
		{
			refusal.Record{Status: 402, Code: "insufficient_quota", Rule: wire.RuleHeld, Scope: refusal.Account, Limit: 5_000_000, Held: 20_000_000, Asked: 10_000_000},
			[]string{"held by your own running calls", "0.02 IU in use", "0.01 IU asked for", "limit 0.025 IU", "0.005 IU too much"},
		},
		{
			refusal.Record{Status: 402, Code: "insufficient_quota", Rule: wire.RuleCredit, Scope: refusal.Account},
			[]string{"no credit left", `<li class="no">`, "Add credit"},
		},
		{refusal.Record{Status: 403, Code: "model_access_denied", Rule: wire.RulePlan, Model: "svc-pulse"}, []string{"svc-pulse is not in the plan", "Use a plan that has it: pro."}},
		{refusal.Record{Status: 404, Code: "model_not_found", Rule: wire.RuleModel, Model: "svc-tian"}, []string{"No model called “svc-tian”", "Did you mean svc-titan?"}},
		{refusal.Record{Status: 400, Code: "decimal_above_max_value", Rule: wire.RuleParameter, Param: "temperature", Message: "temperature is 3"}, []string{"Refused: temperature", "temperature is 3"}},
		{refusal.Record{Status: 503, Code: "server_is_overloaded", Message: "full"}, []string{"Failed: server_is_overloaded, not charged"}},
	} {
		tc.record.At = at
		id := w.refuse(k, tc.record)
		page := html.UnescapeString(text(t, w.ask("GET", "/requests/"+id, token, nil)))
		for _, want := range tc.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q:\n%s", tc.record.Rule, want, between(t, page, "<main", "</main>"))
			}
		}
	}
}

// TestCallsCSV: the file has every call of the pages, its amounts add up to what was spent,
// and no cell is a formula.
func TestCallsCSV(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.person("ada@example.test", false, w.lab, member.Owner)
	w.grant(w.lab, ledger.Grant{Amount: 100 * money.IU})
	k := w.makeKey(w.lab, "=1+1")
	var wg sync.WaitGroup
	for i := range 1003 { // more than are read at once
		wg.Go(func() {
			w.call(k, "svc-pulse", time.Now().Add(time.Duration(i)*time.Millisecond-time.Hour), ledger.Outcome{PromptTokens: i, CompletionTokens: i % 7})
		})
	}
	wg.Wait()
	r := w.ask("GET", "/requests/csv", token, nil)
	if got := r.Header.Get("Content-Type"); got != "text/csv; charset=utf-8" {
		t.Errorf("it is %s", got)
	}
	lines := readCSV(t, text(t, r))
	var sum money.Amount
	for _, l := range lines {
		a, err := money.ParseAmount(l["charge_iu"])
		if err != nil || l["charge_niu"] != fmt.Sprint(int64(a)) || l["key"] != "'=1+1" {
			t.Fatalf("%v: %v", l, err)
		}
		sum += a
	}
	if posted := w.books.Balance(w.lab.ID).Posted; len(lines) != 1003 || sum != posted {
		t.Errorf("%d lines of %s, spent were %s", len(lines), sum, posted)
	}
	if lines := readCSV(t, text(t, w.ask("GET", "/requests/csv?"+url.Values{"model": {"svc-titan"}}.Encode(), token, nil))); len(lines) != 0 {
		t.Errorf("%d lines of a model that nobody called", len(lines))
	}
}
