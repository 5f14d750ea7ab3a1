package config

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/parley-ai/parley/internal/money"
)

var (
	// An id stands in URLs, receipts and tables, so it has no blanks.
	idShape    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$`)
	syntaxLine = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)
)

// section remembers where things were written, for the checks between sections.
type section struct {
	plans, upstreams, models []*yaml.Node
	refs                     []reference
	windows                  []window
}

// reference is a use of a plan or an upstream by name.
type reference struct {
	node        *yaml.Node
	where, kind string
	name        string
}

// window remembers where a model says how long its answers may be.
type window struct {
	node  *yaml.Node
	model int
}

func parse(name, dir string, text []byte, lookup func(string) (string, bool)) (*Config, error) {
	r := &reader{dir: dir, lookup: lookup}
	c := &Config{
		Source: name,
		Listen: "127.0.0.1:8080",
		Drain:  Drain{Limit: 10 * time.Minute},
		Engine: Engine{MaxSequences: 16, KVBytes: 512 << 20},

		LowCredit: money.IU,
	}
	r.path("data", &c.Data)(&yaml.Node{Kind: yaml.ScalarNode, Value: "./data"})
	if root := r.document(text); root != nil {
		r.file(root, c)
	}
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
		return nil, &Error{File: name, Problems: r.problems}
	}
	return c, nil
}

// document is the root of the file's only document, or nil after a problem.
func (r *reader) document(text []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		r.problem(&doc, "the file is empty. It needs plans, upstreams and models.")
		return nil
	}
	if err == nil {
		err = decoder.Decode(&more)
		if err == nil {
			r.problem(&more, "a second document begins here. A configuration is one document.")
			return nil
		}
	}
	if !errors.Is(err, io.EOF) {
		m := syntaxLine.FindStringSubmatch(err.Error())
		if m == nil {
			m = []string{"", "", err.Error()}
		}
		line, _ := strconv.Atoi(m[1]) // No line is line 1.
		r.problem(&yaml.Node{Line: line}, "not YAML: %s.", m[2])
		return nil
	}
	return resolve(doc.Content[0])
}

func (r *reader) file(root *yaml.Node, c *Config) {
	var s section
	seen := r.fields(root, "", "Files", []field{
		{"listen", r.address("listen", &c.Listen)},
		{"data", func(n *yaml.Node) {
			if r.path("data", &c.Data)(n); n.Kind == yaml.ScalarNode && n.Value == "" {
				r.problem(n, "data has no value.")
			}
		}},
		{"tls", func(n *yaml.Node) { r.tls(n, &c.TLS) }},
		{"drain", func(n *yaml.Node) { r.drain(n, &c.Drain) }},
		{"metrics", func(n *yaml.Node) { r.metrics(n, &c.Metrics) }},
		{"engine", func(n *yaml.Node) { r.engine(n, &c.Engine) }},
		{"plans", func(n *yaml.Node) {
			r.list(n, "plans", func(item *yaml.Node) { r.plan(item, c, &s) })
		}},
		{"upstreams", func(n *yaml.Node) {
			r.list(n, "upstreams", func(item *yaml.Node) { r.upstream(item, c, &s) })
		}},
		{"models", func(n *yaml.Node) {
			r.list(n, "models", func(item *yaml.Node) { r.model(item, c, &s) })
		}},
		{"webhooks", func(n *yaml.Node) {
			r.list(n, "webhooks", func(item *yaml.Node) { r.webhook(item, c) })
		}},
		{"payment", func(n *yaml.Node) { r.payment(n, &c.Payment) }},
		{"low_credit", r.amount("low_credit", &c.LowCredit)},
		{"trusted_proxies", r.networks("trusted_proxies", &c.TrustedProxies)},
		{"public_url", func(n *yaml.Node) { r.publicURL(n, &c.PublicURL) }},
	})
	if seen == nil {
		return
	}
	for _, need := range []struct {
		key, add string
		have     int
	}{
		{"plans", "- {id: pro, rpm: 600}", len(s.plans)},
		{"upstreams", "- {id: local, kind: local}", len(s.upstreams)},
		{"models", "- {id: …, context_window: …, pricing: …, plans: …, targets: …}", len(s.models)},
	} {
		if need.have > 0 {
			continue
		}
		at := root
		if key, ok := seen[need.key]; ok {
			at = key
		}
		r.problem(at, "%s has no entry. Add %s", need.key, need.add)
	}
	r.cross(c, &s)
}

func (r *reader) tls(n *yaml.Node, t *TLS) {
	r.fields(n, "tls: ", "TLS settings", []field{
		{"cert", r.path("tls: cert", &t.Cert)},
		{"key", r.path("tls: key", &t.Key)},
	})
	if (t.Cert == "") != (t.Key == "") {
		r.problem(n, "tls needs both cert and key.")
	}
}

func (r *reader) drain(n *yaml.Node, d *Drain) {
	r.fields(n, "drain: ", "Drain settings", []field{
		{"delay", r.duration("drain: delay", &d.Delay)},
		{"limit", r.duration("drain: limit", &d.Limit)},
	})
}

func (r *reader) metrics(n *yaml.Node, m *Metrics) {
	seen := r.fields(n, "metrics: ", "Metrics", []field{{"listen", r.address("metrics: listen", &m.Listen)}})
	if seen != nil && seen["listen"] == nil {
		r.problem(n, "metrics has no listen. Add listen: 127.0.0.1:9464")
	}
}

func (r *reader) engine(n *yaml.Node, e *Engine) {
	r.fields(n, "engine: ", "Engine settings", []field{
		{"threads", r.count("engine: threads", 0, &e.Threads)},
		{"max_sequences", r.count("engine: max_sequences", 1, &e.MaxSequences)},
		{"kv_bytes", r.size("engine: kv_bytes", &e.KVBytes)},
	})
}

func (r *reader) plan(n *yaml.Node, c *Config, s *section) {
	var p Plan
	where := r.entry(n, "plan", &p.ID)
	r.fields(n, where, "Plans", []field{
		{"id", func(*yaml.Node) {}},
		{"rpm", r.integer(where+"rpm", 0, &p.RPM)},
		{"tpm", r.integer(where+"tpm", 0, &p.TPM)},
		{"concurrency", r.integer(where+"concurrency", 0, &p.Concurrency)},
		{"limits", func(v *yaml.Node) { r.modelLimits(v, where, &p, s) }},
		{"max_output", r.count(where+"max_output", 1, &p.MaxOutput)},
		{"period", r.period(where+"period", &p.Period)},
		{"included", func(v *yaml.Node) { r.included(v, where, &p.Included) }},
		{"grace", r.duration(where+"grace", &p.Grace)},
	})
	s.plans = append(s.plans, n)
	c.Plans = append(c.Plans, p)
}

// modelLimits reads limits by the names of models.
func (r *reader) modelLimits(n *yaml.Node, where string, p *Plan, s *section) {
	where += "limits: "
	if n.Kind != yaml.MappingNode {
		r.problem(n, "%sexpected models and their limits, found %s.", where, kind(n))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		l := ModelLimit{Model: n.Content[i].Value}
		if slices.ContainsFunc(p.Limits, func(other ModelLimit) bool { return other.Model == l.Model }) {
			r.problem(n.Content[i], "%smodel %q is named twice.", where, l.Model)
			continue
		}
		at := where + l.Model + ": "
		seen := r.fields(n.Content[i+1], at, "Limits of a model", []field{
			{"rpm", r.integer(at+"rpm", 1, &l.RPM)},
			{"tpm", r.integer(at+"tpm", 1, &l.TPM)},
		})
		if seen != nil && len(seen) == 0 {
			r.problem(n.Content[i], "%sno limit. Add rpm: 60", at)
		}
		s.refs = append(s.refs, reference{n.Content[i], where, "model", l.Model})
		p.Limits = append(p.Limits, l)
	}
}

func (r *reader) model(n *yaml.Node, c *Config, s *section) {
	m := Model{Created: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	at := len(c.Models)
	where := r.entry(n, "model", &m.ID)
	seen := r.fields(n, where, "Models", []field{
		{"id", func(*yaml.Node) {}},
		{"description", r.str(where+"description", &m.Description)},
		{"context_window", r.count(where+"context_window", 1, &m.ContextWindow)},
		{"max_output", func(v *yaml.Node) {
			r.count(where+"max_output", 1, &m.MaxOutput)(v)
			s.windows = append(s.windows, window{v, at})
		}},
		{"pricing", func(v *yaml.Node) { r.pricing(v, where, &m.Price) }},
		{"created", r.date(where+"created", &m.Created)},
		{"deprecated", r.date(where+"deprecated", &m.Deprecated)},
		{"plans", func(v *yaml.Node) { r.modelPlans(v, where, &m, s) }},
		{"targets", func(v *yaml.Node) { r.targets(v, where, &m, s) }},
		{key: "tokenizer"},
		{key: "resume"},
	})
	s.models = append(s.models, n)
	if seen != nil {
		for _, need := range []struct{ key, text string }{
			{"context_window", "%s has no context_window. Add context_window: 8192"},
			{"pricing", `%s has no price. Add pricing: {input: "0.05", output: "0.1"}`},
			{"plans", "%s is on no plan. Add plans: […]."},
			{"targets", "%s has no target. Add targets: [{upstream: …, model: …}]."},
		} {
			if seen[need.key] == nil {
				r.problem(n, need.text, strings.TrimSuffix(where, ": "))
			}
		}
		if seen["max_output"] == nil {
			m.MaxOutput = m.ContextWindow
		}
	}
	c.Models = append(c.Models, m)
}

func (r *reader) modelPlans(n *yaml.Node, where string, m *Model, s *section) {
	r.list(n, where+"plans", func(item *yaml.Node) {
		id, ok := r.text(item, where+"plans")
		if !ok {
			return
		}
		if slices.Contains(m.Plans, id) {
			r.problem(item, "%splan %q is named twice.", where, id)
			return
		}
		m.Plans = append(m.Plans, id)
		s.refs = append(s.refs, reference{item, where, "plan", id})
	})
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		r.problem(n, "%s is on no plan. Add plans: […].", strings.TrimSuffix(where, ": "))
	}
}

func (r *reader) targets(n *yaml.Node, where string, m *Model, s *section) {
	r.list(n, where+"targets", func(item *yaml.Node) {
		var t Target
		seen := r.fields(item, where+"target: ", "Targets", []field{
			{"upstream", func(v *yaml.Node) {
				r.str(where+"upstream", &t.Upstream)(v)
				s.refs = append(s.refs, reference{v, where, "upstream", t.Upstream})
			}},
			{"model", r.str(where+"target: model", &t.Model)},
			{key: "tier"},
			{key: "weight"},
		})
		m.Targets = append(m.Targets, t)
		if seen != nil && (seen["upstream"] == nil || t.Model == "") {
			r.problem(item, "%sa target needs upstream and model.", where)
		}
		if i := slices.Index(m.Targets, t); i < len(m.Targets)-1 {
			r.problem(item, "%starget %s/%s is named twice.", where, t.Upstream, t.Model)
		}
	})
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		r.problem(n, "%s has no target. Add targets: [{upstream: …, model: …}].", strings.TrimSuffix(where, ": "))
	}
}

func (r *reader) pricing(n *yaml.Node, where string, p *money.Price) {
	where += "pricing: "
	seen := r.fields(n, where, "Prices", []field{
		{"input", r.price(where+"input", &p.Input)},
		{"output", r.price(where+"output", &p.Output)},
		{"cached_input", r.price(where+"cached_input", &p.CachedInput)},
	})
	if seen == nil {
		return
	}
	for _, key := range []string{"input", "output"} {
		if seen[key] == nil {
			r.problem(n, `%sno %s price. Add %s: "0.05"`, where, key, key)
		}
	}
	if seen["cached_input"] == nil {
		p.CachedInput = p.Input
	}
}

func (r *reader) price(what string, into *money.Amount) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := r.text(n, what)
		if !ok {
			return
		}
		a, err := money.ParsePerThousand(s)
		if err != nil {
			r.problem(n, "%s must be IU per 1K tokens, a number from 0 to 1,000,000 with at most 6 decimals, not %q.", what, s)
			return
		}
		*into = a
	}
}
