package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-ai/parley/e2e/proc"
)

type subscribedTo struct {
	Plan, Status, Renews, Until string
	NextPlan                    string `json:"next_plan"`
	Period                      struct {
		Number         int
		IncludedTokens int64  `json:"included_tokens"`
		IncludedCredit string `json:"included_credit"`
	}
	TokensLeft int64  `json:"tokens_left"`
	CreditLeft string `json:"credit_left"`
}

// TestPlan: what a period includes is used before credit, receipts say so, and it ends with the
// subscription; a code is credit, once.
func TestPlan(t *testing.T) {
	t.Parallel()
	s := behind(t, startStub(t), "")
	secret, _ := account(t, s, "member", "free", "")
	other, _ := account(t, s, "other", "free", "")
	ask := func(words int) string {
		return tell("svc-pulse", fmt.Sprintf(`,"max_tokens":%d`, words), fmt.Sprintf("words=%d", words))
	}
	wantError(t, post(t, s, secret, ask(5)), http.StatusPaymentRequired, "insufficient_quota")
	run(t, s, "subscription", "set", "member", "--plan", "member")
	show := func() subscribedTo { return runJSON[subscribedTo](t, s, "subscription", "show", "member") }
	if got := show(); got.Plan != "member" || got.Status != "active" || got.Renews != "auto" || got.Period.Number != 1 ||
		got.Period.IncludedTokens != 20000 || got.Period.IncludedCredit != "0.5" || got.TokensLeft != 20000 || got.CreditLeft != "0.5" {
		t.Fatalf("%+v", got)
	}
	e := wantError(t, post(t, s, secret, ask(1001)), http.StatusBadRequest, "invalid_value")
	if !strings.Contains(e.Error.Message, "Your plan supports at most 1000 completion tokens") {
		t.Errorf("above the plan's output: %s", e.Error.Message)
	}
	var log []entry
	used := int64(0)
	for n := range 25 {
		c := wantCompletion(t, post(t, s, secret, ask(800+n)))
		log = append(log, entry{completionID: c.ID, complete: true, usage: c.Usage})
		used += c.Usage.Prompt + c.Usage.Completion
	}
	type receipt struct {
		PlanTokens int64 `json:"plan_tokens"`
		In         int64 `json:"prompt_tokens"`
		Out        int64 `json:"completion_tokens"`
		Charge     string
	}
	receipts := runJSON[[]receipt](t, s, "receipts", "--account", "member")
	covered, split := int64(0), 0
	for _, r := range receipts {
		covered += r.PlanTokens
		if r.PlanTokens < r.In+r.Out {
			split++
		}
		if (r.Charge == "0") != (r.PlanTokens == r.In+r.Out) {
			t.Errorf("%+v: what the plan pays for costs nothing, the rest something", r)
		}
	}
	if used <= 20000 || covered != 20000 || split == 0 {
		t.Errorf("%d tokens used, %d of the plan, %d calls with a charge", used, covered, split)
	}
	if got := show(); got.TokensLeft != 0 || got.CreditLeft == "0.5" || got.CreditLeft == "0" {
		t.Errorf("when the tokens are used: %+v", got)
	}
	// To a bigger plan and back with the next period.
	if r := run(t, s, "subscription", "change", "member", "--plan", "free"); !strings.Contains(r.Stdout, "then on free") {
		t.Errorf("change says %q", r.Stdout)
	}
	if got := show(); got.Plan != "member" || got.NextPlan != "free" {
		t.Errorf("%+v", got)
	}
	run(t, s, "subscription", "cancel", "member", "--now")
	if got := show(); got.Status != "canceled" || got.CreditLeft != "0" || got.TokensLeft != 0 {
		t.Errorf("canceled: %+v", got)
	}
	wantError(t, post(t, s, secret, ask(5)), http.StatusPaymentRequired, "billing_not_active")
	for _, args := range [][]string{{"renew", "member"}, {"cancel", "member"}, {"change", "member", "--plan", "pro"}} {
		if r := s.Run(append([]string{"subscription"}, args...)...); r.Code != 1 || !strings.Contains(r.Stderr, "No subscription runs.") {
			t.Errorf("%v of one that has ended: %d %s", args, r.Code, r.Stderr)
		}
	}
	code := runJSON[[]struct{ ID, Code string }](t, s, "code", "create", "--amount", "0.25", "--note", "welcome")[0]
	redeem := func(name string) proc.Result {
		o := s.Options
		o.Stdin = strings.ToLower(code.Code) + "\n"
		return proc.Run(o, "code", "redeem", name)
	}
	if r := redeem("member"); r.Code != 0 || !strings.Contains(r.Stdout, "Added 0.25 IU to member.") {
		t.Errorf("redeem: %+v", r)
	}
	for _, name := range []string{"member", "other"} {
		if r := redeem(name); r.Code != 1 || !strings.Contains(r.Stderr, "The code was redeemed by member on ") {
			t.Errorf("redeem again for %s: %+v", name, r)
		}
	}
	c := wantCompletion(t, post(t, s, secret, ask(5)))
	log = append(log, entry{completionID: c.ID, complete: true, usage: c.Usage})
	wantError(t, post(t, s, other, ask(5)), http.StatusPaymentRequired, "insufficient_quota")
	run(t, s, "ledger", "verify")
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	checkBooks(t, s.Options.Data, log)
}
