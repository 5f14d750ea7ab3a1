package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/refusal"
)

// limitsPage is what templates/limits.html shows.
type limitsPage struct {
	Account, Models []limitRow
	Keys            []keyLimits
	Refused         map[string]int // by key, in the last day
	Counted         bool           // whether they could be
	Most            bool           // there are more than Refused counts
	All             int
	Plan            string
}

// keyLimits is a key with its own limits.
type keyLimits struct {
	ID, Name string
	Rows     []limitRow
	Refused  int
}

// limitsShown says what is in use of every limit of the account, and what that means.
func (s *Server) limitsShown(v *visit) error {
	p := limitsPage{Plan: v.account.PlanAt(v.now), Refused: map[string]int{}}
	use := s.Limits.InUse(v.now, v.account.ID)
	if plan, ok := s.Accounts.Plan(p.Plan); ok {
		p.Account = limitRows("", plan.Limits(), use.Account)
		for _, id := range slices.Sorted(maps.Keys(plan.ModelLimits)) {
			p.Models = append(p.Models, limitRows(id, plan.ModelLimits[id], use.Models[id])...)
		}
	}
	refused, ok := partial(v, func(ctx context.Context) ([]refusal.Record, error) {
		return s.Records.Refusals(ctx, refusal.Filter{AccountID: v.account.ID, From: v.now.Add(-24 * time.Hour), Code: "rate_limit_exceeded", Limit: refusalsCounted})
	})
	p.Counted, p.All, p.Most = ok, len(refused), len(refused) == refusalsCounted
	for i := range refused {
		p.Refused[refused[i].KeyID]++
	}
	for _, k := range s.Keys.List(v.account.ID) {
		if !v.mayKey(&k) || k.Status(v.now) != "active" {
			continue
		}
		rows := limitRows("", ratelimit.Limits{Requests: k.RPM, Tokens: k.TPM}, use.Keys[k.CountedAs])
		if len(rows) > 0 || p.Refused[k.ID] > 0 {
			p.Keys = append(p.Keys, keyLimits{k.ID, k.Name, rows, p.Refused[k.ID]})
		}
	}
	slices.SortStableFunc(p.Keys, func(a, b keyLimits) int { return cmp.Compare(b.Refused, a.Refused) })
	return v.page("limits", "Limits", p)
}

// RefusedText is how many calls of the last day met a limit.
func (p limitsPage) RefusedText() string {
	switch {
	case p.Most:
		return strconv.Itoa(p.All) + " or more calls were refused for a limit in the last 24 hours."
	case p.All == 0:
		return "No call was refused for a limit in the last 24 hours."
	case p.All == 1:
		return "1 call was refused for a limit in the last 24 hours."
	}
	return count(p.All) + " calls were refused for a limit in the last 24 hours."
}
