package main

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/app"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/english"
)

type models struct{ directory }

func (m *models) Run(e *env) error {
	return e.with(m.directory, false, func(c *admin.Client) error {
		list, err := c.Models(e.ctx)
		if err != nil {
			return err
		}
		return e.answer(list, func() {
			in, out := make([]string, len(list)), make([]string, len(list))
			for i, m := range list {
				in[i], out[i] = m.Pricing.Input, m.Pricing.Output
			}
			in, out = credits(in...), credits(out...)
			rows := make([][]string, len(list))
			for i, m := range list {
				rows[i] = []string{m.ID, english.Count(m.ContextWindow), in[i], out[i], strings.Join(m.Plans, ", "), e.status(m.State), strings.Join(upstreams(m), ", ")}
			}
			e.table([]column{
				{head: "MODEL", cut: true},
				{head: "CONTEXT", right: true},
				{head: "INPUT", right: true},
				{head: "OUTPUT", right: true},
				{head: "PLANS", cut: true},
				{head: "STATE"},
				{head: ""},
			}, rows)
			e.print("%s", e.paint(dim, "Prices in IU per 1K tokens."))
		})
	})
}

// upstreams are those of a model's targets; of an embedded engine its load and speed too.
func upstreams(m admin.Model) (names []string) {
	for _, t := range m.Targets {
		name, _, _ := strings.Cut(t, "/")
		if i := slices.IndexFunc(m.Engines, func(e admin.Engine) bool { return e.Upstream == name }); i >= 0 {
			name += " (" + load(m.Engines[i]) + ")"
		}
		names = append(names, name)
	}
	return names
}

// load is what an engine does: "3 of 16, 2 waiting, 141 tok/s".
func load(e admin.Engine) string {
	s := english.Count(e.Running) + " of " + english.Count(e.Places)
	if e.Waiting > 0 {
		s += ", " + english.Count(e.Waiting) + " waiting"
	}
	if e.TokensPerSecond > 0 {
		s += ", " + english.Count(int(e.TokensPerSecond+0.5)) + " tok/s"
	}
	return s
}

type planLs struct{ directory }

func (p *planLs) Run(e *env) error {
	return e.with(p.directory, false, func(c *admin.Client) error {
		list, err := c.Plans(e.ctx)
		if err != nil {
			return err
		}
		return e.answer(list, func() { e.plans(list) })
	})
}

type planShow struct {
	directory
	ID string `arg:"" help:"Id of the plan."`
}

func (p *planShow) Run(e *env) error {
	return e.with(p.directory, false, func(c *admin.Client) error {
		plan, err := c.Plan(e.ctx, p.ID)
		if err != nil {
			return err
		}
		return e.answer(plan, func() {
			e.print("%s", plan.ID)
			e.print("  limits    %s", limits(plan))
			for _, id := range slices.Sorted(maps.Keys(plan.Limits)) {
				e.print("            %s: %s", id, limits(admin.Plan{RPM: plan.Limits[id].RPM, TPM: plan.Limits[id].TPM}))
			}
			if plan.MaxOutput != nil {
				e.print("  answers   at most %s tokens", english.Count(*plan.MaxOutput))
			}
			e.print("  models    %s", strings.Join(plan.Models, ", "))
			e.print("  included  %s", includes(plan))
			if plan.GraceSeconds > 0 {
				e.print("  grace     %s", time.Duration(plan.GraceSeconds)*time.Second)
			}
			e.print("  accounts  %s", english.Count(plan.Accounts))
		})
	})
}

func (e *env) plans(list []admin.Plan) {
	rows := make([][]string, len(list))
	for i, p := range list {
		rows[i] = []string{p.ID, limitOr(p.RPM, "none"), limitOr(p.TPM, "none"), limitOr(p.Concurrency, "none"), includes(p), english.Count(p.Accounts), strings.Join(p.Models, ", ")}
	}
	e.table([]column{
		{head: "PLAN"},
		{head: "REQUESTS/MIN", right: true},
		{head: "TOKENS/MIN", right: true},
		{head: "AT ONCE", right: true},
		{head: "INCLUDED", cut: true},
		{head: "ACCOUNTS", right: true},
		{head: "MODELS", cut: true},
	}, rows)
}

// includes says what each paid period of a plan brings.
func includes(p admin.Plan) string {
	if p.Included.Tokens == 0 && p.Included.Credit == "0" {
		return "none"
	}
	return included(p.Included.Tokens, p.Included.Credit) + " per " + every(p.Period)
}

// every is the length of a period in words.
func every(period string) string {
	if days, ok := strings.CutSuffix(period, "d"); ok {
		return days + " days"
	}
	return period
}

// limitOr is a limit, or the word for one that is not set.
func limitOr(n *int64, word string) string {
	if n == nil {
		return word
	}
	return english.Count(*n)
}

type configCheck struct {
	File string `arg:"" help:"The configuration file."`
}

// checked is the answer of config check for scripts.
type checked struct {
	OK       bool      `json:"ok"`
	Problems []problem `json:"problems"`
}

type problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

func (c *configCheck) Run(e *env) error {
	loaded, err := config.Load(c.File)
	found, wrong := errors.AsType[*config.Error](err)
	if err != nil && !wrong {
		return err
	}
	out := checked{OK: !wrong, Problems: []problem{}}
	if wrong {
		for _, p := range found.Problems {
			out.Problems = append(out.Problems, problem{found.File, p.Line, p.Text})
		}
	}
	err = e.answer(out, func() {
		if wrong {
			e.print("%s", found)
			return
		}
		e.print("%s is in order: %s, %s, %s.", c.File, english.Plural(len(loaded.Models), "model"), english.Plural(len(loaded.Plans), "plan"), english.Plural(len(loaded.Upstreams), "upstream"))
	})
	if err == nil && wrong {
		return exitError(exitFailed)
	}
	return err
}

type versionCmd struct{}

func (versionCmd) Run(e *env) error {
	v := struct {
		Version  string `json:"version"`
		Go       string `json:"go"`
		Platform string `json:"platform"`
	}{app.Version(version), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	return e.answer(v, func() { e.print("parley %s (%s, %s)", v.Version, v.Go, v.Platform) })
}
