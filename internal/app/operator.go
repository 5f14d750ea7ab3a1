package app

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/console"
	"github.com/parley-ai/parley/internal/routing"
)

// operatorRooms wires the operator's pages.
func (a *App) operatorRooms() console.Operator {
	r := a.rooms
	return console.Operator{
		Accounts: countedAccounts{r.accounts, r.metrics}, Ledger: r.ledger, Store: r.db, Prover: &a.proofs, Catalog: r.catalog, Tokens: r.tokens, Settings: a.settings(), Health: a.health, Hour: &a.hour, System: a.system,
	}
}

// health is how the upstreams of the configuration stand.
func (a *App) health() console.Health {
	h := a.targets.health()
	for _, u := range a.config.Upstreams {
		known := console.Upstream{ID: u.ID, Kind: "embedded engine", Running: a.attempts[u.ID].Load()}
		if u.Kind == config.KindOpenAI {
			known.Kind, known.Host = "OpenAI-compatible", host(u.BaseURL)
		}
		h.Upstreams = append(h.Upstreams, known)
	}
	return h
}

// changesKept is how many changes of targets are remembered.
const changesKept = 50

// targets remembers which targets were ejected and serve again. It is safe for concurrent use.
type targets struct {
	mu      sync.Mutex
	last    map[catalog.Target]console.TargetChange
	changes []console.TargetChange // the last first
}

// note remembers a change.
func (t *targets) note(c routing.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = map[catalog.Target]console.TargetChange{}
	}
	change := console.TargetChange{At: time.Now(), Target: c.Target, Class: string(c.Class), Until: c.Until}
	if c.Err != nil {
		change.Reason = c.Err.Error()
	}
	t.last[c.Target] = change
	t.changes = slices.Insert(t.changes, 0, change)
	t.changes = t.changes[:min(len(t.changes), changesKept)]
}

func (t *targets) health() console.Health {
	t.mu.Lock()
	defer t.mu.Unlock()
	return console.Health{Last: maps.Clone(t.last), Changes: slices.Clone(t.changes)}
}

// settings are what the configuration says beside plans, models and upstreams. Secrets are
// not of it.
func (a *App) settings() []console.Setting {
	c := a.config
	yes := func(is bool, what string) string {
		if is {
			return what
		}
		return "none"
	}
	list := func(all []string) string { return cmp.Or(strings.Join(all, ", "), "none") }
	var proxies, hooks []string
	for _, p := range c.TrustedProxies {
		proxies = append(proxies, p.String())
	}
	for _, w := range c.Webhooks {
		hooks = append(hooks, host(w.URL))
	}
	return []console.Setting{
		{Name: "Configuration", Key: "--config", Value: c.Source},
		{Name: "Data directory", Key: "data", Value: c.Data},
		{Name: "Address", Key: "listen", Value: c.Listen},
		{Name: "Public address", Key: "public_url", Value: a.publicURL().String()},
		{Name: "Certificate", Key: "tls", Value: cmp.Or(c.TLS.Cert, "none: plain HTTP")},
		{Name: "Proxies that are believed", Key: "trusted_proxies", Value: list(proxies)},
		{Name: "Metrics", Key: "metrics.listen", Value: cmp.Or(c.Metrics.Listen, "none")},
		{Name: "Stopping", Key: "drain", Value: "readiness first, " + minutes(c.Drain.Delay) + " later no new calls, running ones up to " + minutes(c.Drain.Limit)},
		{Name: "Payments", Key: "payment", Value: yes(a.rooms.payments != nil, "Stripe")},
		{Name: "Webhooks", Key: "webhooks", Value: list(hooks)},
		{Name: "Low credit", Key: "low_credit", Value: c.LowCredit.String() + " IU"},
	}
}
