// Package telemetry measures the process for Prometheus. It knows names, units and
// labels; what is measured comes in as plain values and functions.
//
// No label has a value that a client can choose: models are those on offer, codes and
// classes are ours. Nothing is told of single accounts or keys.
package telemetry

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics counts what it is told. It is safe for concurrent use; a nil Metrics counts
// nothing.
type Metrics struct {
	registry *prometheus.Registry

	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	firstToken *prometheus.HistogramVec
	prompt     *prometheus.CounterVec
	cached     *prometheus.CounterVec
	completion *prometheus.CounterVec
	charged    *prometheus.CounterVec
	running    map[bool]prometheus.Gauge // by whether they are streams
	answered   memo[answer, answers]
	models     memo[string, models]

	commits    *prometheus.CounterVec
	commitOps  prometheus.Histogram
	commitTime prometheus.Histogram

	attempts      *prometheus.CounterVec
	retries       *prometheus.CounterVec
	attemptsFirst *prometheus.HistogramVec
	ejections     *prometheus.CounterVec

	revocations *prometheus.CounterVec
	lostEvents  *prometheus.CounterVec

	proofOK, proofTime, proofTook prometheus.Gauge
}

// New returns metrics of a process of that version, with those of the Go runtime and
// of the process, in a registry of their own.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "parley_build_info", Help: "1, labelled with what runs.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.calls()
	m.books()
	m.upstreams()
	return m
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	m.registry.MustRegister(g)
	return g
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

func (m *Metrics) calls() {
	m.requests = m.counter("parley_requests_total", "Answered requests. code is the error's, empty without one.", "route", "model", "status", "code")
	m.duration = m.histogram("parley_request_duration_seconds", "From receipt to the end of the answer.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}, "route", "model", "mode")
	m.firstToken = m.histogram("parley_time_to_first_token_seconds", "From receipt of a call to the first piece of its answer.", firstTokenBuckets(), "model")
	m.prompt = m.counter("parley_prompt_tokens_total", "Charged tokens of prompts, cached ones included.", "model")
	m.cached = m.counter("parley_cached_prompt_tokens_total", "Charged tokens of prompts that a provider had in its cache.", "model")
	m.completion = m.counter("parley_completion_tokens_total", "Charged tokens of answers.", "model")
	m.charged = m.counter("parley_charged_iu_total", "Charges in IU, for trends; the ledger has the exact sums.", "model")
	running := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "parley_running_calls", Help: "Calls under way."}, []string{"mode"})
	m.registry.MustRegister(running)
	m.running = map[bool]prometheus.Gauge{false: running.WithLabelValues(whole), true: running.WithLabelValues(stream)}
}

func (m *Metrics) books() {
	m.commits = m.counter("parley_ledger_commits_total", "Transactions of the ledger by their result: ok or failed.", "result")
	m.commits.WithLabelValues("failed")
	ops := m.histogram("parley_ledger_commit_ops", "Changes in one transaction.", prometheus.ExponentialBuckets(1, 2, 11))
	took := m.histogram("parley_ledger_commit_duration_seconds", "One transaction, its fsync included.",
		[]float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5})
	m.commitOps, m.commitTime = ops.WithLabelValues().(prometheus.Histogram), took.WithLabelValues().(prometheus.Histogram)
	m.proofOK = m.gauge("parley_ledger_proof_ok", "1 when the last proof of the books found every law to hold, 0 when not or when it could not be made.")
	m.proofTime = m.gauge("parley_ledger_proof_timestamp_seconds", "When the last proof ended, or new books were made; 0 before the first of others.")
	m.proofTook = m.gauge("parley_ledger_proof_duration_seconds", "How long it took, its pauses included.")
	m.proofOK.Set(1) // new books
	m.lostEvents = m.counter("parley_webhook_events_lost_total", "Events that were forgotten before their endpoint had taken them.", "endpoint")
	m.revocations = m.counter("parley_revocations_total", "Keys revoked and accounts suspended since the start.", "what")
}

func (m *Metrics) upstreams() {
	m.attempts = m.counter("parley_upstream_attempts_total", "Requests to upstreams by their outcome.", "upstream", "outcome")
	m.retries = m.counter("parley_upstream_retries_total", "Attempts after the first of a call, at the same target or another.", "model")
	m.ejections = m.counter("parley_upstream_ejections_total", "Targets that were left out for a while, by the failure that did it.", "upstream", "outcome")
	m.attemptsFirst = m.histogram("parley_upstream_time_to_first_token_seconds", "From one attempt to the first piece of its answer.", firstTokenBuckets(), "upstream")
}

func firstTokenBuckets() []float64 {
	return []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// The two ways in which an answer is sent.
const (
	whole  = "whole"
	stream = "stream"
)

func mode(streamed bool) string {
	if streamed {
		return stream
	}
	return whole
}

// Request is an answered request.
type Request struct {
	Route      string // a name of the route table
	Model      string // on offer, or empty
	Stream     bool
	Status     int
	Code       string // of the error, or empty
	Took       time.Duration
	FirstToken time.Duration // 0 when there was none
	Prompt     int           // tokens that are charged
	Cached     int           // of them
	Completion int
	Charged    float64 // IU
}

// answers are what a kind of answer counts for, models what tokens of a model do.
type (
	answer struct {
		route, model, code string
		status             int
		stream             bool
	}
	answers struct {
		count prometheus.Counter
		took  prometheus.Observer
	}
	models struct {
		firstToken                          prometheus.Observer
		prompt, cached, completion, charged prometheus.Counter
	}
)

func (m *Metrics) answersOf(a answer) answers {
	return answers{
		count: m.requests.WithLabelValues(a.route, a.model, strconv.Itoa(a.status), a.code),
		took:  m.duration.WithLabelValues(a.route, a.model, mode(a.stream)),
	}
}

func (m *Metrics) modelsOf(id string) models {
	return models{
		firstToken: m.firstToken.WithLabelValues(id),
		prompt:     m.prompt.WithLabelValues(id), cached: m.cached.WithLabelValues(id),
		completion: m.completion.WithLabelValues(id), charged: m.charged.WithLabelValues(id),
	}
}

// Request counts an answered request.
func (m *Metrics) Request(r Request) {
	if m == nil {
		return
	}
	a := m.answered.of(answer{r.Route, r.Model, r.Code, r.Status, r.Stream}, m.answersOf)
	a.count.Inc()
	a.took.Observe(r.Took.Seconds())
	if r.Model == "" {
		return
	}
	of := m.models.of(r.Model, m.modelsOf)
	if r.FirstToken > 0 {
		of.firstToken.Observe(r.FirstToken.Seconds())
	}
	add(of.prompt, float64(r.Prompt))
	add(of.cached, float64(r.Cached))
	add(of.completion, float64(r.Completion))
	add(of.charged, r.Charged)
}

// add leaves out what a counter cannot take: it never goes down.
func add(c prometheus.Counter, by float64) {
	if by > 0 {
		c.Add(by)
	}
}

// Running changes how many calls are under way.
func (m *Metrics) Running(streamed bool, by int) {
	if m != nil {
		m.running[streamed].Add(float64(by))
	}
}

// Commit counts a transaction of the ledger.
func (m *Metrics) Commit(ops int, took time.Duration, failed bool) {
	if m == nil {
		return
	}
	result := "ok"
	if failed {
		result = "failed"
	}
	m.commits.WithLabelValues(result).Inc()
	m.commitOps.Observe(float64(ops))
	m.commitTime.Observe(took.Seconds())
}

// Proof tells how the last proof of the books ended, and when.
func (m *Metrics) Proof(ok bool, took time.Duration, end time.Time) {
	if m == nil {
		return
	}
	m.proofOK.Set(0)
	if ok {
		m.proofOK.Set(1)
	}
	m.proofTime.Set(float64(end.Unix()))
	m.proofTook.Set(took.Seconds())
}

// Attempt counts a request to an upstream. firstToken is 0 when nothing came.
func (m *Metrics) Attempt(upstream, outcome string, firstToken time.Duration) {
	if m == nil {
		return
	}
	m.attempts.WithLabelValues(upstream, outcome).Inc()
	if firstToken > 0 {
		m.attemptsFirst.WithLabelValues(upstream).Observe(firstToken.Seconds())
	}
}

// Ejected counts a target of the upstream that is left out for a while.
func (m *Metrics) Ejected(upstream, outcome string) {
	if m != nil {
		m.ejections.WithLabelValues(upstream, outcome).Inc()
	}
}

// Retries counts the attempts of one call after its first.
func (m *Metrics) Retries(model string, n int) {
	if m != nil && n > 0 {
		m.retries.WithLabelValues(model).Add(float64(n))
	}
}

// Revoked counts the loss of a right; what is "key" or "account".
func (m *Metrics) Revoked(what string) {
	if m != nil {
		m.revocations.WithLabelValues(what).Inc()
	}
}

// EventsLost counts events that were forgotten before that endpoint had taken them.
func (m *Metrics) EventsLost(endpoint string, n int) {
	if m != nil {
		m.lostEvents.WithLabelValues(endpoint).Add(float64(n))
	}
}
