package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Engine is what an embedded engine does at this moment and has done since its start.
type Engine struct {
	Running, Waiting      int
	PagesUsed, PagesTotal int
	Generated, Prompt     int64 // tokens
	Steps                 int64
}

// Ready reports by f whether calls can be served, at every scrape.
func (m *Metrics) Ready(f func() bool) {
	if m == nil {
		return
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "parley_ready", Help: "1 while /readyz is 200, else 0.",
	}, func() float64 {
		if f() {
			return 1
		}
		return 0
	}))
}

// Engines reports by f, at every scrape, what the engines do, by the ids of their
// upstreams. It is to be called once.
func (m *Metrics) Engines(f func() map[string]Engine) {
	if m == nil {
		return
	}
	c := &engines{state: f}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"upstream"}, nil)
	}
	c.values = []value{
		{desc("parley_engine_running", "Calls that are computed together."), prometheus.GaugeValue, func(e Engine) float64 { return float64(e.Running) }},
		{desc("parley_engine_waiting", "Calls that wait for a place."), prometheus.GaugeValue, func(e Engine) float64 { return float64(e.Waiting) }},
		{desc("parley_engine_pages_used", "Pages of keys and values in use, 16 positions each."), prometheus.GaugeValue, func(e Engine) float64 { return float64(e.PagesUsed) }},
		{desc("parley_engine_pages", "Pages of keys and values that there are."), prometheus.GaugeValue, func(e Engine) float64 { return float64(e.PagesTotal) }},
		{desc("parley_engine_generated_tokens_total", "Tokens generated."), prometheus.CounterValue, func(e Engine) float64 { return float64(e.Generated) }},
		{desc("parley_engine_prompt_tokens_total", "Tokens of prompts computed."), prometheus.CounterValue, func(e Engine) float64 { return float64(e.Prompt) }},
		{desc("parley_engine_steps_total", "Steps, each over all running calls."), prometheus.CounterValue, func(e Engine) float64 { return float64(e.Steps) }},
	}
	m.registry.MustRegister(c)
}

type value struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(Engine) float64
}

// engines is a collector: the numbers of one scrape belong to one moment.
type engines struct {
	state  func() map[string]Engine
	values []value
}

// Describe sends the descriptions.
func (c *engines) Describe(out chan<- *prometheus.Desc) {
	for _, v := range c.values {
		out <- v.desc
	}
}

// Collect sends the values of this moment.
func (c *engines) Collect(out chan<- prometheus.Metric) {
	for id, e := range c.state() {
		for _, v := range c.values {
			out <- prometheus.MustNewConstMetric(v.desc, v.kind, v.of(e), id)
		}
	}
}
