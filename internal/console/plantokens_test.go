package console_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

// TestPlanTokens: wherever a charge stands, the tokens that the plan has paid for stand beside it,
// so that no call looks as if it had cost nothing.
func TestPlanTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, op := w.person("ada@example.test", false, w.lab, member.Owner), w.operator()
	w.accounts.SetPlans([]account.Plan{{ID: "pro", Terms: subscription.Terms{Tokens: 1500}}})
	if _, err := account.NewSubscriptions(w.accounts, w.books).Set(t.Context(), w.lab.ID, "pro", subscription.Options{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	w.grant(w.lab, ledger.Grant{Amount: 100 * money.IU})
	if page := shown(t, w.ask("GET", "/", owner, nil)); !strings.Contains(page, "And 1,500 plan tokens, used before credit.") {
		t.Error("the overview does not say what is left of the plan")
	}
	k := w.makeKey(w.lab, "web")
	now := time.Now()
	o := ledger.Outcome{PromptTokens: 1000, CompletionTokens: 234}
	whole, part := w.call(k, "svc-titan", now, o), w.call(k, "svc-titan", now, o)
	none := w.call(k, "svc-titan", now, o)
	if whole.PlanTokens != 1234 || whole.Charge != 0 || part.PlanTokens != 266 || part.Charge == 0 || none.PlanTokens != 0 {
		t.Fatalf("the plan paid for %d, %d and %d tokens", whole.PlanTokens, part.PlanTokens, none.PlanTokens)
	}
	tags := regexp.MustCompile(`<[^>]*>`)
	for _, c := range []struct {
		path  string
		token member.Token
		want  []string
	}{
		{"/requests", owner, []string{"0.0000001,234 plan tokens", "266 plan tokens"}},
		{"/requests/" + whole.RequestID, owner, []string{"svc-titan, 0.000000 IU and 1,234 plan tokens", "Paid by the plan: 1,234 tokens", "Tokens counted bythe upstream"}},
		{"/requests/" + part.RequestID, owner, []string{" IU and 266 plan tokens", "Paid by the plan: 266 tokens"}},
		{"/usage?by=key", owner, []string{"and 1,500 plan tokens;", "1,500 plan tokens100.0", "Total3"}},
		{"/", owner, []string{"and 1,500 plan tokens;"}},
		{"/keys/" + k.ID, owner, []string{"and 1,500 plan tokens", "0.0000001,234 plan tokens", "All its requests"}},
		{"/operator/accounts/" + w.lab.ID, op, []string{"Plan tokens0 left"}},
		{"/operator", op, []string{"0.0000001,234 plan tokens"}},
	} {
		page := tags.ReplaceAllString(strings.ReplaceAll(text(t, w.ask("GET", c.path, c.token, nil)), "\n", ""), "")
		for _, want := range c.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not say %q", c.path, want)
			}
		}
	}
	if page := text(t, w.ask("GET", "/requests/"+none.RequestID, owner, nil)); strings.Contains(page, "plan token") || strings.Contains(page, "Paid by the plan") {
		t.Error("a call of which the plan has paid nothing speaks of its tokens")
	}
}
