package main

import (
	"encoding/csv"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/english"
)

type usage struct {
	directory
	Account string `required:"" help:"Name or id of the account." placeholder:"NAME"`
	From    string `help:"First hour, as 2026-11-01 or 2026-11-01T14:00:00Z; default the first of this month." placeholder:"TIME"`
	To      string `help:"Hour before which it ends; default now." placeholder:"TIME"`
	By      string `help:"key, model, day or hour; default day." placeholder:"GROUP"`
}

func (usage) Help() string {
	return `A call counts in the hour in which it was admitted. Times are UTC.

Example: parley usage --account "Example Lab" --from 2026-11-01 --by model`
}

func (u *usage) Run(e *env) error {
	q := url.Values{}
	for name, text := range map[string]string{"from": u.From, "to": u.To} {
		if text == "" {
			continue
		}
		t, err := time.Parse(time.DateOnly, text)
		if err != nil {
			if t, err = moment("--"+name, text); err != nil {
				return err
			}
		}
		q.Set(name, t.Format(time.RFC3339))
	}
	if u.By != "" {
		q.Set("by", u.By)
	}
	return e.with(u.directory, false, func(c *admin.Client) error {
		got, err := c.Usage(e.ctx, u.Account, q)
		if err != nil {
			return e.named(c, u.Account, err)
		}
		return e.answer(got, func() { e.usage(got) })
	})
}

func (e *env) usage(r admin.UsageReport) {
	if len(r.Groups) == 0 {
		e.note("No calls from %s to %s.", date(r.From), date(r.To))
		return
	}
	total := r.Total
	total.Group = "total"
	all := append(r.Groups, total)
	charges := make([]string, len(all))
	for i, u := range all {
		charges[i] = u.Charge
	}
	charges = credits(charges...)
	rows := make([][]string, len(all))
	for i, u := range all {
		rows[i] = []string{u.Group, english.Count(u.Calls), english.Count(u.PromptTokens), english.Count(u.CachedTokens), english.Count(u.CompletionTokens), english.Count(u.PlanTokens), charges[i]}
	}
	e.table(withoutPlan(total.PlanTokens == 0, []column{
		{head: strings.ToUpper(r.By), cut: true},
		{head: "CALLS", right: true},
		{head: "IN", right: true},
		{head: "CACHED", right: true},
		{head: "OUT", right: true},
		{head: ofPlan, right: true},
		{head: "CHARGE IU", right: true},
	}, rows))
}

// ofPlan heads the column of tokens that a plan included.
const ofPlan = "OF PLAN"

// withoutPlan leaves that column out where it has nothing to say.
func withoutPlan(none bool, columns []column, rows [][]string) ([]column, [][]string) {
	i := slices.IndexFunc(columns, func(c column) bool { return c.head == ofPlan })
	if !none || i < 0 {
		return columns, rows
	}
	for n := range rows {
		rows[n] = slices.Delete(rows[n], i, i+1)
	}
	return slices.Delete(columns, i, i+1), rows
}

type statement struct {
	directory
	Name  string `arg:"" help:"Name or id of the account."`
	Month string `required:"" help:"Month in UTC, as 2026-11." placeholder:"MONTH"`
}

func (statement) Help() string {
	return `Prints CSV: the opening balance, a line for every grant, debit and expiry and for
every day's usage by key and model, the closing balance. The amounts add up.

Example: parley statement "Example Lab" --month 2026-11 > 2026-11.csv`
}

func (s *statement) Run(e *env) error {
	return e.with(s.directory, false, func(c *admin.Client) error {
		got, err := c.Statement(e.ctx, s.Name, s.Month)
		if err != nil {
			return e.named(c, s.Name, err)
		}
		if e.json {
			return e.answer(got, nil)
		}
		return e.statement(got)
	})
}

func (e *env) statement(s admin.Statement) error {
	w := csv.NewWriter(e.out)
	lines := [][]string{
		{"date", "kind", "text", "key", "model", "calls", "prompt_tokens", "cached_tokens", "completion_tokens", "plan_tokens", "amount", "balance"},
		{s.Month, "opening", "", "", "", "", "", "", "", "", "", s.Opening},
	}
	for _, l := range s.Lines {
		row := []string{l.At.UTC().Format(time.DateOnly), l.Kind, cell(l.Text), cell(l.KeyName), l.Model, "", "", "", "", "", l.Amount, l.Balance}
		if l.Kind == "usage" {
			for i, n := range []int64{l.Calls, l.PromptTokens, l.CachedTokens, l.CompletionTokens, l.PlanTokens} {
				row[5+i] = strconv.FormatInt(n, 10)
			}
		}
		lines = append(lines, row)
	}
	lines = append(lines, []string{s.Month, "closing", "", "", "", "", "", "", "", "", "", s.Closing})
	return w.WriteAll(lines)
}

// cell keeps a spreadsheet from running what a text says.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
