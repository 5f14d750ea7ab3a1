package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/money"
)

const freePlan = "{id: free, rpm: 20, tpm: 60000, concurrency: 4}"

func TestParse_Plan(t *testing.T) {
	t.Parallel()
	text := strings.Replace(whole, freePlan, `{id: free, max_output: 500, period: 30d, grace: 72h, included: {tokens: 1_000_000, credit: "2.5"}}`, 1)
	c, err := parse("f", "", []byte(text), lookup)
	if err != nil {
		t.Fatal(err)
	}
	want := Plan{ID: "free", MaxOutput: 500, Period: "30d", Grace: 72 * time.Hour, Included: Included{Tokens: 1_000_000, Credit: 2*money.IU + money.IU/2}}
	if diff := cmp.Diff(want, c.Plans[0]); diff != "" {
		t.Errorf("the plan (-want +got):\n%s", diff)
	}
}

func TestParse_PlanProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ plan, want string }{
		{"{id: free, max_output: 0}", "7: plan free: max_output must be at least 1, not 0."},
		{"{id: free, period: week}", `7: plan free: period must be month, year or a number of days such as 30d, not "week".`},
		{"{id: free, grace: -1h}", `7: plan free: grace must not be negative, not "-1h".`},
		{"{id: free, included: 5}", `7: plan free: included: expected keys and values, found "5".`},
		{"{id: free, included: {tokens: 1e6}}", `7: plan free: included: tokens must be a whole number, not "1e6".`},
		{"{id: free, included: {tokens: 1000000000000001}}", "7: plan free: included: tokens must be at most 1,000,000,000,000,000, not 1000000000000001."},
		{"{id: free, included: {credit: -5}}", `7: plan free: included: credit must be a number of IU from 0 to 1,000,000,000 with at most 9 decimals, not "-5".`},
		{"{id: free, included: {token: 5}}", `7: plan free: included: unknown key "token". Did you mean "tokens"?`},
	} {
		_, err := parse("f", "", []byte(strings.Replace(whole, freePlan, c.plan, 1)), lookup)
		if err == nil || err.Error() != "f:"+c.want+"\n1 problem." {
			t.Errorf("%s: %v, want %s", c.plan, err, c.want)
		}
	}
}
