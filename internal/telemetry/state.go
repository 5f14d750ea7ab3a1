package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Engine is what an embedded engine does at this moment and has done since its start.
type Engine struct {
	Running, Places, Waiting           int
	PagesUsed, PagesCached, PagesTotal int
	Generated, Prompt                  int64 // tokens
	PrefixQueries, PrefixHits          int64 // tokens
	Preempted, Steps                   int64
	Busy                               time.Duration
	TokensPerSecond                    float64
	QueueTime, FirstToken              Histogram
}

// Histogram is durations that were counted elsewhere.
type Histogram struct {
	Bounds []time.Duration // rising
	Counts []int64         // of what is above the bound before and not above its own
	Count  int64           // of all
	Sum    time.Duration
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

// Dropped reports by f, at every scrape, how many refusals were not written down.
func (m *Metrics) Dropped(f func() int64) {
	if m == nil {
		return
	}
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "parley_refusals_dropped_total", Help: "Refusals that nobody can be told about later: more came than could be written.",
	}, func() float64 { return float64(f()) }))
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
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	c.values = []value{
		{desc("parley_engine_running", "Choices of calls that are computed together."), gauge, func(e Engine) float64 { return float64(e.Running) }},
		{desc("parley_engine_places", "How many may be computed together."), gauge, func(e Engine) float64 { return float64(e.Places) }},
		{desc("parley_engine_waiting", "Calls that wait for a place."), gauge, func(e Engine) float64 { return float64(e.Waiting) }},
		{desc("parley_engine_pages_used", "Pages of keys and values in use, 16 positions each."), gauge, func(e Engine) float64 { return float64(e.PagesUsed) }},
		{desc("parley_engine_pages_cached", "Pages not in use that a prompt may find again."), gauge, func(e Engine) float64 { return float64(e.PagesCached) }},
		{desc("parley_engine_pages", "Pages of keys and values that there are."), gauge, func(e Engine) float64 { return float64(e.PagesTotal) }},
		{desc("parley_engine_generated_tokens_total", "Tokens generated."), counter, func(e Engine) float64 { return float64(e.Generated) }},
		{desc("parley_engine_prompt_tokens_total", "Tokens of prompts computed."), counter, func(e Engine) float64 { return float64(e.Prompt) }},
		{desc("parley_engine_prefix_cache_queries_total", "Tokens of prompts looked up in the cache."), counter, func(e Engine) float64 { return float64(e.PrefixQueries) }},
		{desc("parley_engine_prefix_cache_hits_total", "Tokens of prompts found in the cache."), counter, func(e Engine) float64 { return float64(e.PrefixHits) }},
		{desc("parley_engine_preemptions_total", "Times that a choice lost its pages to an account that had nothing running."), counter, func(e Engine) float64 { return float64(e.Preempted) }},
		{desc("parley_engine_steps_total", "Steps, each over all running calls."), counter, func(e Engine) float64 { return float64(e.Steps) }},
		{desc("parley_engine_busy_seconds_total", "Time spent in steps."), counter, func(e Engine) float64 { return e.Busy.Seconds() }},
		{desc("parley_engine_tokens_per_second", "Tokens generated a second of computing, lately."), gauge, func(e Engine) float64 { return e.TokensPerSecond }},
	}
	c.histograms = []histogram{
		{desc("parley_engine_queue_time_seconds", "From the arrival of a call to its beginning."), func(e Engine) Histogram { return e.QueueTime }},
		{desc("parley_engine_time_to_first_token_seconds", "From the arrival of a call to its first token."), func(e Engine) Histogram { return e.FirstToken }},
	}
	m.registry.MustRegister(c)
}

type value struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(Engine) float64
}

type histogram struct {
	desc *prometheus.Desc
	of   func(Engine) Histogram
}

// metric is h in the shape of the field, where a bucket has all that is not above it.
func (h histogram) metric(e Engine, id string) prometheus.Metric {
	all := h.of(e)
	buckets, n := make(map[float64]uint64, len(all.Bounds)), int64(0)
	for i, bound := range all.Bounds {
		n += all.Counts[i]
		buckets[bound.Seconds()] = uint64(n)
	}
	return prometheus.MustNewConstHistogram(h.desc, uint64(all.Count), all.Sum.Seconds(), buckets, id)
}

// engines is a collector: the numbers of one scrape belong to one moment.
type engines struct {
	state      func() map[string]Engine
	values     []value
	histograms []histogram
}

// Describe sends the descriptions.
func (c *engines) Describe(out chan<- *prometheus.Desc) {
	for _, v := range c.values {
		out <- v.desc
	}
	for _, h := range c.histograms {
		out <- h.desc
	}
}

// Collect sends the values of this moment.
func (c *engines) Collect(out chan<- prometheus.Metric) {
	for id, e := range c.state() {
		for _, v := range c.values {
			out <- prometheus.MustNewConstMetric(v.desc, v.kind, v.of(e), id)
		}
		for _, h := range c.histograms {
			out <- h.metric(e, id)
		}
	}
}
