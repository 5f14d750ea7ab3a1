package admin

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/subscription"
)

func (s *service) status(*http.Request) (any, error) { return s.Status(), nil }

func (s *service) models(*http.Request) (any, error) {
	state := "offline"
	if s.Status().Serving {
		state = "ready"
	}
	engines, out := s.Engines(), []Model{}
	for _, m := range s.Catalog.List(time.Now()) {
		v := Model{
			ID: m.ID, Description: m.Description, ContextWindow: m.ContextWindow, MaxOutput: m.MaxOutput,
			Pricing: Pricing{Input: m.Price.Input.PerThousand(), CachedInput: m.Price.CachedInput.PerThousand(), Output: m.Price.Output.PerThousand()},
			Created: m.Created.UTC(), Plans: slices.Clone(m.Plans), State: state, Engines: []Engine{},
		}
		for _, t := range m.Targets {
			v.Targets = append(v.Targets, t.String())
			if i := slices.IndexFunc(engines, func(e Engine) bool { return e.Upstream == t.Upstream }); i >= 0 {
				v.Engines = append(v.Engines, engines[i])
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// offered reports whether a model of that id can be asked for now.
func (s *service) offered(id string) bool {
	for _, m := range s.Catalog.List(time.Now()) {
		if m.ID == id {
			return true
		}
	}
	return false
}

func (s *service) planView(p *account.Plan, now time.Time) Plan {
	v := Plan{
		ID: p.ID, RPM: limit(p.RPM), TPM: limit(p.TPM), Concurrency: limit(p.Concurrency), Models: []string{}, Limits: map[string]ModelLimits{},
		MaxOutput: limit(int64(p.MaxOutput)), Period: cmp.Or(p.Terms.Interval, subscription.Month).String(),
		Included: Included{Tokens: p.Terms.Tokens, Credit: p.Terms.Credit.String()}, GraceSeconds: int64(p.Terms.Grace / time.Second),
	}
	for id, l := range p.ModelLimits {
		v.Limits[id] = ModelLimits{RPM: limit(l.Requests), TPM: limit(l.Tokens)}
	}
	for _, m := range s.Catalog.List(now) {
		if m.OnPlan(p.ID) {
			v.Models = append(v.Models, m.ID)
		}
	}
	for _, a := range s.Accounts.All() {
		if a.PlanAt(now) == p.ID {
			v.Accounts++
		}
	}
	return v
}

// limit is n for JSON, where a limit that is not set is null.
func limit(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func (s *service) plans(*http.Request) (any, error) {
	now, out := time.Now(), []Plan{}
	for _, p := range s.Accounts.Plans() {
		out = append(out, s.planView(&p, now))
	}
	return out, nil
}

func (s *service) showPlan(r *http.Request) (any, error) {
	p, err := s.plan(r.PathValue("plan"), http.StatusNotFound)
	if err != nil {
		return nil, err
	}
	return s.planView(p, time.Now()), nil
}
