package ratelimit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/ratelimit"
)

// What is in use is what calls have claimed, until it leaves the windows.
func TestInUse(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	l := ratelimit.New(start)
	limits := ratelimit.Limits{Requests: 100, Tokens: 1000, Concurrency: 10}
	take := func(after time.Duration, key, model string, tokens int64) *ratelimit.Ticket {
		t.Helper()
		c := ratelimit.Claim{Account: "a", Key: key, AccountLimits: limits, Tokens: tokens}
		if model != "" {
			c.Model, c.ModelLimits = model, limits
		}
		ticket, _, err := l.Take(start.Add(after), c)
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	check := func(after time.Duration, account ratelimit.Use, keys, models map[string]ratelimit.Use) {
		t.Helper()
		want := ratelimit.InUse{Account: account, Keys: keys, Models: models}
		if diff := cmp.Diff(want, l.InUse(start.Add(after), "a")); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", after, diff)
		}
	}
	none := map[string]ratelimit.Use{}
	check(0, ratelimit.Use{}, none, none)
	first := take(0, "k", "", 100)
	take(10*time.Second, "j", "m", 50)
	check(20*time.Second,
		ratelimit.Use{Requests: 2, Tokens: 150, Running: 2, RequestsClear: 50 * time.Second, TokensClear: 50 * time.Second},
		map[string]ratelimit.Use{
			"k": {Requests: 1, Tokens: 100, Running: 1, RequestsClear: 40 * time.Second, TokensClear: 40 * time.Second},
			"j": {Requests: 1, Tokens: 50, Running: 1, RequestsClear: 50 * time.Second, TokensClear: 50 * time.Second},
		},
		map[string]ratelimit.Use{"m": {Requests: 1, Tokens: 50, Running: 1, RequestsClear: 50 * time.Second, TokensClear: 50 * time.Second}})
	first.Done(start.Add(30*time.Second), 0)
	check(65*time.Second,
		ratelimit.Use{Requests: 1, Tokens: 50, Running: 1, RequestsClear: 5 * time.Second, TokensClear: 5 * time.Second},
		map[string]ratelimit.Use{"j": {Requests: 1, Tokens: 50, Running: 1, RequestsClear: 5 * time.Second, TokensClear: 5 * time.Second}},
		map[string]ratelimit.Use{"m": {Requests: 1, Tokens: 50, Running: 1, RequestsClear: 5 * time.Second, TokensClear: 5 * time.Second}})
	check(2*time.Minute, ratelimit.Use{Running: 1}, map[string]ratelimit.Use{"j": {Running: 1}}, map[string]ratelimit.Use{"m": {Running: 1}})
}
