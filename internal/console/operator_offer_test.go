package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

// operatorOffer is a model with two targets.
func operatorOffer(t *testing.T) *catalog.Catalog {
	t.Helper()
	c, err := catalog.New([]catalog.Model{{
		ID: "svc-titan", Description: "Large.", ContextWindow: 32768, MaxOutput: 4096, Price: money.Price{Input: 12_000, CachedInput: 3_000, Output: 36_001}, Plans: []string{"pro"},
		Targets: []catalog.Target{{Upstream: "rack", Model: "big"}, {Upstream: "hosted", Model: "bigger"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOperatorOffer: plans, models and upstreams are as the configuration has them, with how
// their targets stand.
func TestOperatorOffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := w.operator()
	rack, hosted := catalog.Target{Upstream: "rack", Model: "big"}, catalog.Target{Upstream: "hosted", Model: "bigger"}
	w.health.Upstreams = []console.Upstream{{ID: "rack", Kind: "OpenAI-compatible", Host: "10.0.0.7:8000"}, {ID: "hosted", Kind: "OpenAI-compatible"}, {ID: "spare", Kind: "embedded engine"}}
	check := func(path string, want ...string) {
		t.Helper()
		page := shown(t, w.ask("GET", path, op, nil))
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %q: %s", path, text, page)
			}
		}
	}
	check("/operator/plans", "64 calls at once600600,00064–svc-titan2")
	check("/operator/models", "svc-titanLarge.", "rack/big In rotation", "0.0120.0030.036001", "32,768")
	check("/operator/upstreams", "10.0.0.7:8000", "big In rotation", "no model uses it", "No target was taken out")

	now := time.Now()
	out := console.TargetChange{At: now, Target: rack, Class: "timeout", Reason: "no answer in time", Until: now.Add(time.Minute)}
	over := console.TargetChange{At: now.Add(-time.Hour), Target: hosted, Class: "refused", Until: now.Add(-time.Minute)}
	w.health.Last = map[catalog.Target]console.TargetChange{rack: out, hosted: over}
	w.health.Changes = []console.TargetChange{out, over, {At: now.Add(-2 * time.Hour), Target: hosted}}
	check("/operator/models", "rack/big Out: timeout", "hosted/bigger Tried with the next call")
	check("/operator/upstreams", "1 target out of rotation", "Taken outtimeout", "at the latestno answer in time", "Serves again")

	w.accounts.SetPlans([]account.Plan{{ID: "pro", Terms: subscription.Terms{Tokens: 1_000_000, Credit: 5 * money.IU}}})
	check("/operator/plans", "–1,000,000 tokens, 5.00 IUsvc-titan2")
	w.accounts.SetPlans([]account.Plan{{ID: "max"}})
	check("/operator/plans", "2 accounts on a plan that the configuration does not have", "max", "no limits")
}
