package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/explain"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/wire"
)

// refusedPage is what templates/request-refused.html shows.
type refusedPage struct {
	ID      string
	Outcome string // status and code
	explain.Explained
	Heading   string
	Key       string
	Gauge     *gauge
	Checks    []check
	Saw       string // the body that the client was sent
	Siblings  int
	More      bool // than could be looked at
	TheseHref string
	// Hour is the one that siblings are of.
	Hour, HourEnd time.Time
}

// gauge is what there was, what was in use and what was asked for.
type gauge struct {
	Used, Asked, Limit string
	Over               string // by how much it was too much
	Picture            template.HTML
}

// check is one of the rules, in the order in which they are.
type check struct{ Class, Icon, Name, Text string }

// refused is the page of a call that was refused.
func (s *Server) refused(v *visit, x explain.Explained) error {
	f := x.Refusal
	p := refusedPage{
		ID: f.RequestID, Outcome: strconv.Itoa(f.Status) + " " + f.Code, Explained: x, Heading: x.Reason.Heading,
		Gauge: gaugeOf(f), Checks: checksOf(f), Saw: saw(f),
	}
	if f.KeyID != "" {
		p.Key = v.keyName(f.KeyID)
	}
	hour := f.At.Truncate(time.Hour)
	same, err := s.Records.Refusals(v.context(), refusal.Filter{
		AccountID: f.AccountID, KeyID: f.KeyID, Code: f.Code, From: hour, To: hour.Add(time.Hour), Limit: siblingsMost + 1,
	})
	if err != nil {
		return err
	}
	p.Hour, p.HourEnd = hour, hour.Add(time.Hour)
	p.More = len(same) > siblingsMost
	for _, r := range same[:min(len(same), siblingsMost)] {
		if r.Rule == f.Rule {
			p.Siblings++
		}
	}
	day := f.At.UTC().Format(time.DateOnly)
	p.TheseHref = "/requests?" + url.Values{"result": {"refused"}, "key": {f.KeyID}, "time": {day + ".." + day}}.Encode()
	return v.page("request-refused", p.Heading, p)
}

// siblingsMost bounds how many refusals of an hour are looked at.
const siblingsMost = 1000

// gaugeOf draws the refusals that have numbers, nil for the others. What credit or a budget
// had is what was left and what running calls held.
func gaugeOf(f *refusal.Record) *gauge {
	used, asked, limit := f.Used, f.Asked, f.Limit
	text := func(n int64) string { return count(n) }
	switch f.Rule {
	case wire.RuleRequests, wire.RuleTokens, wire.RuleTooLarge, wire.RuleConcurrency:
		asked = max(asked, 1)
		if f.Rule == wire.RuleTooLarge {
			used = 0 // it alone is too much
		}
	case wire.RuleCredit, wire.RuleHeld, wire.RuleBudget:
		used, limit = f.Held, f.Limit+f.Held
		text = func(n int64) string { return money.Amount(n).String() + " IU" }
	default:
		return nil
	}
	if asked == 0 || limit == 0 {
		return nil
	}
	scale := 1000 / float64(max(limit, used+asked))
	at := func(n int64) float64 { return float64(n) * scale }
	g := &gauge{Used: text(used), Asked: text(asked), Limit: text(limit), Over: text(max(0, used+asked-limit))}
	g.Picture = template.HTML(fmt.Sprintf(`<svg viewBox="0 0 1000 14" preserveAspectRatio="none" role="img" aria-label="%s in use and %s asked for, against a limit of %s">`+
		`<rect class="tr" width="1000" height="14"/><rect class="u1" width="%.1f" height="14"/><rect class="u2" x="%.1f" width="%.1f" height="14"/><line x1="%.1f" x2="%.1f" y1="-4" y2="18"/></svg>`,
		g.Used, g.Asked, g.Limit, at(used), at(used), at(asked), at(limit), at(limit)))
	return g
}

// rule is one of the checks and by what of it a call can be refused.
type rule struct {
	name, passed string
	rules        []wire.Rule
	statuses     []int // of refusals that have no rule
}

// rules are the checks in the order in which a call meets them.
var rules = []rule{
	{"API key", "known and in use", nil, []int{401, 403}},
	{"Request", "readable and valid", []wire.Rule{wire.RuleParameter}, []int{400, 405, 408, 413, 415}},
	{"Model", "on offer", []wire.Rule{wire.RuleModel}, nil},
	{"Plan", "has the model", []wire.Rule{wire.RulePlan}, nil},
	{"Models of the key", "allow the model", []wire.Rule{wire.RuleKeyModels}, nil},
	{"Prompt", "fits the window", []wire.Rule{wire.RuleContext}, nil},
	{"Credit", "some was left", []wire.Rule{wire.RuleSubscription}, nil},
	{"Requests per minute", "within all limits", []wire.Rule{wire.RuleRequests}, nil},
	{"Tokens per minute", "within all limits", []wire.Rule{wire.RuleTokens, wire.RuleTooLarge}, nil},
	{"Calls at once", "within the limit", []wire.Rule{wire.RuleConcurrency}, nil},
	{"Hold", "set aside", []wire.Rule{wire.RuleCredit, wire.RuleHeld, wire.RuleBudget}, nil},
	{"Upstream", "", nil, nil},
}

// refusedAt is the place of the rule that refused the call, below 0 where it is none.
func refusedAt(f *refusal.Record) int {
	// Where nothing at all is left, a call is refused before its size is looked at.
	spent := f.Rule == wire.RuleCredit && f.Asked == 0 || f.Rule == wire.RuleBudget && f.Limit == 0
	return slices.IndexFunc(rules, func(r rule) bool {
		switch {
		case spent:
			return r.name == "Credit"
		case f.Rule == "":
			return slices.Contains(r.statuses, f.Status)
		}
		return slices.Contains(r.rules, f.Rule)
	})
}

// checksOf is what of the rules the call passed; none where it was refused by something else.
func checksOf(f *refusal.Record) []check {
	at := refusedAt(f)
	if at < 0 {
		return nil
	}
	var list []check
	for i, r := range rules {
		switch {
		case i < at:
			list = append(list, check{"", "ok", r.name, r.passed})
		case i == at:
			list = append(list, check{"no", "bad", r.name, refusedText(f)})
		default:
			list = append(list, check{"skip-r", "dash", r.name, "not reached"})
		}
	}
	return list
}

// refusedText is the rule's arithmetic in few words.
func refusedText(f *refusal.Record) string {
	if g := gaugeOf(f); g != nil {
		return g.Used + " + " + g.Asked + " is more than " + g.Limit
	}
	if words, ok := refusedWords[f.Rule]; ok {
		return words
	}
	return f.Code
}

// saw is the error as the client received it: what is kept of it.
func saw(f *refusal.Record) string {
	var param *string
	if f.Param != "" {
		param = &f.Param
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the template does
	e.SetIndent("", "  ")
	err := e.Encode(struct {
		Message string  `json:"message"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}{f.Message, param, f.Code})
	if err != nil { // no text is without a JSON form
		return f.Message
	}
	return strings.TrimSpace(b.String())
}
