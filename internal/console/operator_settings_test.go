package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/telemetry"
)

// TestOperatorTokens: a token works until it is revoked; its text is in one answer, however
// often the form is sent.
func TestOperatorTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	const path = "/operator/settings"
	form := func(name, days string) url.Values {
		m := formToken.FindStringSubmatch(text(t, w.ask("GET", path, op, nil)))
		if m == nil {
			t.Fatal("the form has no token")
		}
		return url.Values{"token": {m[1]}, "name": {name}, "days": {days}}
	}
	for _, wrong := range []url.Values{form("", ""), form("x", "0"), form("x", "3651"), form("x", "soon")} {
		if r := w.ask("POST", path, op, wrong); r.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%v: %s", wrong, r.Status)
		}
	}
	f := form("billing-sync", "30")
	page := text(t, w.ask("POST", path, op, f))
	secret := regexp.MustCompile(`op-parley-[0-9A-Za-z]+`).FindString(page)
	if secret == "" {
		t.Fatalf("no token:\n%s", page)
	}
	if again := text(t, w.ask("POST", path, op, f)); !strings.Contains(again, secret) {
		t.Error("a double click shows another page")
	}
	now := time.Now().Add(time.Minute)
	w.gate.Now = func() time.Time { return now }
	if again := shown(t, w.ask("POST", path, op, f)); strings.Contains(again, secret) || !strings.Contains(again, "The token was shown once") {
		t.Errorf("the form once more: %s", again)
	}
	all := w.tokens.List()
	if len(all) != 1 || all[0].Name != "billing-sync" || all[0].ExpiresAt.Sub(all[0].CreatedAt).Round(time.Hour) != 30*24*time.Hour {
		t.Fatalf("tokens %+v", all)
	}
	list := text(t, w.ask("GET", path, op, nil))
	has(t, list, "billing-sync", all[0].Prefix, "127.0.0.1:8080")
	if strings.Contains(list, secret) {
		t.Error("the list has the secret")
	}
	revoke := path + "/tokens/" + all[0].ID + "/revoke"
	has(t, text(t, w.ask("GET", revoke, op, nil)), "Keep the token", "from the moment you confirm")
	if status, page := w.sent(revoke, op, nil); status != http.StatusSeeOther || !strings.Contains(page, "The token is revoked.") || w.tokens.List()[0].RevokedAt.IsZero() {
		t.Errorf("revoke: %d %s", status, page)
	}
	if r := w.ask("GET", path+"/tokens/optoken_none/revoke", op, nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("a token that there is not: %s", r.Status)
	}
}

// TestOperatorTraffic: the figures are those of the last minute, of every account; the list
// has running, ended and refused calls, the newest first.
func TestOperatorTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	has(t, text(t, w.ask("GET", "/operator", op, nil)), "No calls yet", "Calls a second")
	now := time.Now()
	for _, a := range []struct {
		name string
		at   time.Time
	}{{"Example Lab", now.Add(-2 * time.Second)}, {"Other Works", now.Add(-time.Second)}, {"Other Works", now.Add(-10 * time.Minute)}} {
		account := w.lab
		if a.name == w.other.Name {
			account = w.other
		}
		w.grant(account, ledger.Grant{Amount: money.IU})
		w.call(w.makeKey(account, "k"+a.at.String()), "svc-titan", a.at, ledger.Outcome{PromptTokens: 100, CompletionTokens: 30})
	}
	k := w.makeKey(w.lab, "refused")
	w.refuse(k, refusal.Record{At: now, Status: 429, Code: "rate_limit_exceeded", Model: "svc-pulse"})
	w.reserve(k, "svc-pulse", now, 10, 10)
	page := shown(t, w.ask("GET", "/operator", op, nil))
	for _, part := range []string{"Calls a second0.11 running", "Answered20 left", "Refused1", "Failed0", "Output1.0tokens a second", "200 tokens in, 60 out", "Example Lab", "Other Works", "Running", "held"} {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %q:\n%s", part, page)
		}
	}
	calls := regexp.MustCompile(`name="q" value="(req_[0-9a-f]+)"`).FindAllStringSubmatch(text(t, w.ask("GET", "/operator", op, nil)), -1)
	if len(calls) != 5 {
		t.Fatalf("%d calls of 5 can be opened", len(calls))
	}
	for _, c := range calls {
		if status, page := w.sent("/find", op, url.Values{"q": {c[1]}}); status != http.StatusSeeOther || !strings.Contains(page, "You are looking at") || !strings.Contains(page, c[1]) {
			t.Errorf("opening %s: %d %s", c[1], status, page)
		}
	}
}

// TestOperatorTraffic_Hour: the last hour is shown by minute, model and upstream, and an
// upstream with its last ten minutes.
func TestOperatorTraffic_Hour(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	has(t, text(t, w.ask("GET", "/operator", op, nil)), "No call has ended since then")
	now := time.Now().Truncate(time.Minute)
	w.gate.Now = func() time.Time { return now }
	w.system.Started = now.Add(-3 * time.Hour)
	w.health.Upstreams = []console.Upstream{{ID: "rack", Kind: "OpenAI-compatible", Running: 7}}
	for i := range 70 {
		at := now.Add(-time.Duration(69-i) * time.Minute)
		w.hour.Call(at, telemetry.Ended{Model: "svc-titan", Upstream: "rack", End: telemetry.Answered, Prompt: 5, Completion: 590, Charged: int64(money.IU), FirstToken: 100 * time.Millisecond})
		w.hour.Attempt(at, "rack", telemetry.Answered, 100*time.Millisecond)
		w.hour.Attempt(at, "rack", telemetry.Failed, 0)
	}
	w.hour.Call(now, telemetry.Ended{End: telemetry.Refused})
	page := shown(t, w.ask("GET", "/operator", op, nil))
	for _, part := range []string{
		"Last hourseen by this server since " + now.Truncate(time.Minute).Add(-59*time.Minute).UTC().Format("15:04"), "Calls per minute",
		"svc-titan60000.100.1010.060.000000", "rack1200600.100.10", "All calls6110", "60.000000",
	} {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %q:\n%s", part, page)
		}
	}
	r := w.ask("GET", "/operator/upstreams", op, nil)
	body := text(t, r)
	has(t, body, `<td class="num c-sm">7</td>`, "50.0", `<rect class="e"`)
	if n := strings.Count(body, `<rect class="e"`); n != 10 {
		t.Errorf("%d bars of failures", n)
	}
}
