package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/ratelimit"
)

// TestModels: what the plan lacks is listed with the plan that has it.
func TestModels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	page := text(t, w.ask("GET", "/models", ada, nil))
	// 1,000 tokens in and 300 out of svc-titan, at 12,000 and 36,000 nano-IU.
	has(t, page, "svc-pulse", "house-70b", "not in your plan, but in scale", `title="0.0228 IU"`)
	if strings.Index(page, "house-70b") < strings.Index(page, "svc-titan") {
		t.Error("what the plan lacks is listed first")
	}
	has(t, text(t, w.ask("GET", "/models/house-70b", ada, nil)), "Calls of it are refused with 403.")
	w.grantLab(10 * money.IU)
	k, _, err := w.keys.Create(t.Context(), apikey.NewKey{AccountID: w.lab.ID, Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	has(t, text(t, w.ask("GET", "/models/svc-titan", ada, nil)), "has not called it yet", "&#34;svc-titan&#34;")
	w.madeCall(k.ID, "svc-titan")
	has(t, text(t, w.ask("GET", "/models/svc-titan", ada, nil)), "0.42 s", "the last 1 call")
	if r := w.ask("GET", "/models/svc-tian", ada, nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("a model that there is not: %s", r.Status)
	}
}

// TestLimits: the page has what the limiter counts, of the account and of the visitor's keys.
func TestLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.person("ada@example.test", false, w.lab, member.Owner)
	ben := w.person("ben@example.test", false, w.lab, member.Regular)
	has(t, text(t, w.ask("GET", "/limits", ada, nil)), "Requests per minute", ">600<", "No key has limits of its own.", "No call was refused for a limit in the last 24 hours.")
	k, _, err := w.keys.Create(t.Context(), apikey.NewKey{AccountID: w.lab.ID, Name: "batch", RPM: 33})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = w.limiter.Take(time.Now(), ratelimit.Claim{
		Account: w.lab.ID, Key: k.ID, AccountLimits: ratelimit.Limits{Requests: 600, Tokens: 600_000, Concurrency: 64}, KeyLimits: ratelimit.Limits{Requests: 33}, Tokens: 4321,
	})
	if err != nil {
		t.Fatal(err)
	}
	has(t, text(t, w.ask("GET", "/limits", ada, nil)), ">4,321<", "batch", ">33<")
	if page := text(t, w.ask("GET", "/limits", ben, nil)); strings.Contains(page, "batch") {
		t.Error("a member sees another's key")
	}
}
