package console

import (
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/money"
)

// offer is what the operator's pages ask of catalog.Catalog.
type offer interface {
	List(now time.Time) []*catalog.Model
}

// planRow is a plan with who is on it.
type planRow struct {
	account.Plan
	Models   []string
	Accounts int
}

// Words are its limits.
func (p planRow) Words() string { return limitWords(&p.Plan) }

// Included is what each paid period of it brings; empty is nothing.
func (p planRow) Included() string {
	var all []string
	if n := p.Terms.Tokens; n > 0 {
		all = append(all, english.Plural(n, "token"))
	}
	if c := p.Terms.Credit; c > 0 {
		all = append(all, decimals(c, 2, 9, down)+" IU")
	}
	return strings.Join(all, ", ")
}

// operatorPlansPage is what templates/operator-plans.html shows.
type operatorPlansPage struct {
	Plans []planRow
	Lost  []*account.Account // on a plan that the configuration does not have
}

// operatorPlans lists plans as the configuration has them.
func (s *Server) operatorPlans(v *visit) error {
	var p operatorPlansPage
	on := map[string]int{}
	for _, a := range s.Accounts.All() {
		id := a.PlanAt(v.now)
		on[id]++
		if _, ok := s.Accounts.Plan(id); !ok {
			p.Lost = append(p.Lost, a)
		}
	}
	for _, plan := range s.Operator.Accounts.Plans() {
		row := planRow{Plan: plan, Accounts: on[plan.ID]}
		for _, m := range s.Operator.Catalog.List(v.now) {
			if m.OnPlan(plan.ID) {
				row.Models = append(row.Models, m.ID)
			}
		}
		p.Plans = append(p.Plans, row)
	}
	if n := len(p.Lost); n > 0 {
		v.say(noteWarn, english.Plural(n, "account")+" on a plan that the configuration does not have.", "No model may be used there. Put the plan back, or change the plan of "+p.Lost[0].Name+".")
	}
	return v.page("operator-plans", "Plans", p)
}

// routedModel is a model with its price of 1,000 tokens.
type routedModel struct {
	*catalog.Model
	Input, Cached, Output money.Amount
	Targets               []targetRow
}

// targetRow is where a model's calls go, and how that stands.
type targetRow struct {
	catalog.Target
	Icon, Words string
}

// operatorModels lists the models on offer with the targets in the order in which they are
// tried.
func (s *Server) operatorModels(v *visit) error {
	health := s.Operator.Health()
	var rows []routedModel
	for _, m := range s.Operator.Catalog.List(v.now) {
		const thousand = 1000
		row := routedModel{Model: m, Input: m.Price.Input * thousand, Cached: m.Price.CachedInput * thousand, Output: m.Price.Output * thousand}
		for _, t := range m.Targets {
			row.Targets = append(row.Targets, health.row(t, v.now))
		}
		rows = append(rows, row)
	}
	return v.page("operator-models", "Models and routes", rows)
}

// Upstream is a place where models run.
type Upstream struct {
	ID, Kind, Host string
	Running        int64 // attempts
}

// TargetChange is a target that was taken out of the rotation, or serves again.
type TargetChange struct {
	At     time.Time
	Target catalog.Target
	Class  string    // of the failures; empty when it serves again
	Reason string    // what the last of them was, in the words of the log
	Until  time.Time // when it is tried like the others again, at the latest
}

// Health is what is known of upstreams since the start of the server.
type Health struct {
	Upstreams []Upstream // in the order of the configuration
	Last      map[catalog.Target]TargetChange
	Changes   []TargetChange // some of them, the last first
}

// row says how a target stands.
func (h Health) row(t catalog.Target, now time.Time) targetRow {
	last := h.Last[t]
	switch {
	case last.Class == "":
		return targetRow{t, "ok", "In rotation"}
	case now.Before(last.Until):
		return targetRow{t, "bad", "Out: " + last.Class}
	}
	return targetRow{t, "half", "Tried with the next call"}
}

// upstreamRow is an upstream with what it serves.
type upstreamRow struct {
	Upstream
	Flow    flowRow // of the last minutes
	Targets []targetRow
	Models  []string
}

// operatorUpstreamsPage is what templates/operator-upstreams.html shows.
type operatorUpstreamsPage struct {
	Rows    []upstreamRow
	Top     int64 // failures of a minute, of all upstreams
	Follow  follow
	Changes []TargetChange
}

// operatorUpstreams shows which targets calls go to and which were taken out.
func (s *Server) operatorUpstreams(v *visit) error {
	health := s.Operator.Health()
	p := operatorUpstreamsPage{Changes: health.Changes, Follow: v.following()}
	out := 0
	flows := s.Operator.Hour.Since(v.now, upstreamMinutes).Upstreams
	for _, u := range health.Upstreams {
		row := upstreamRow{Upstream: u, Flow: flowRow{u.ID, flows[u.ID], upstreamMinutes * time.Minute}}
		for _, m := range row.Flow.Minutes {
			p.Top = max(p.Top, m.Failed)
		}
		seen := map[catalog.Target]bool{}
		for _, m := range s.Operator.Catalog.List(v.now) {
			for _, t := range m.Targets {
				if t.Upstream != u.ID {
					continue
				}
				row.Models = append(row.Models, m.ID)
				if seen[t] {
					continue
				}
				seen[t] = true
				r := health.row(t, v.now)
				if r.Icon == "bad" {
					out++
				}
				row.Targets = append(row.Targets, r)
			}
		}
		p.Rows = append(p.Rows, row)
	}
	if out > 0 {
		v.say(noteBad, english.Plural(out, "target")+" out of rotation.", "Calls go to the other targets of their models. One that is out is probed about every second, and serves again with the first call that succeeds.")
	}
	return v.page("operator-upstreams", "Upstreams", p)
}
