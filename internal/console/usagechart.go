package console

import (
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// measureNames are what the chart can show.
var measureNames = []pick{{Value: "spend", Name: "Spend"}, {Value: "calls", Name: "Requests"}, {Value: "tokens", Name: "Tokens"}, {Value: "failed", Name: "Failed"}}

// measure is the one that the address asks for.
func (v *visit) measure() string {
	show := v.r.URL.Query().Get("show")
	if slices.ContainsFunc(measureNames, func(m pick) bool { return m.Value == show }) {
		return show
	}
	return measureNames[0].Value
}

// measureOf is what the chart shows of a group.
func measureOf(u *ledger.Usage, measure string) int64 {
	switch measure {
	case "calls":
		return u.Calls
	case "tokens":
		return u.PromptTokens + u.CompletionTokens
	case "failed":
		return u.Failed
	}
	return int64(u.Charge)
}

// Lengths of time that decide what a bar is of.
const (
	day24   = 24 * time.Hour
	byHours = 1  // day: its hours
	byDays  = 92 // days at most: each; longer ones are cut into weeks
)

// usageChart draws usage over time: an hour, a day or a week a bar.
func (v *visit) usageChart(f ledger.UsageFilter, s span) (chart, error) {
	step, by, layout, per := day24, ledger.ByDay, time.DateOnly, "day"
	length := int(s.to.Sub(s.from) / day24)
	switch {
	case length <= byHours:
		step, by, layout, per = time.Hour, ledger.ByHour, "2006-01-02T15", "hour"
	case length > byDays:
		step, per = 7*day24, "week"
	}
	groups, err := v.s.Records.UsageOf(v.context(), f, by)
	if err != nil {
		return chart{}, err
	}
	measure := v.measure()
	var bars []bar
	for at := s.from; at.Before(s.to); at = at.Add(step) {
		name := day(at, v.now)
		if step == time.Hour {
			name = clock(at)
		}
		bars = append(bars, bar{Name: name, Open: at.Add(step).After(v.now)})
	}
	for i := range groups {
		if t, err := time.Parse(layout, groups[i].Group); err == nil {
			bars[int(t.Sub(s.from)/step)].Value += measureOf(&groups[i], measure)
		}
	}
	for len(bars) > 1 && step == time.Hour && bars[len(bars)-1].Open && bars[len(bars)-2].Open {
		bars = bars[:len(bars)-1] // hours that have not begun
	}
	title := map[string]string{"spend": "Spend", "calls": "Requests", "tokens": "Tokens", "failed": "Failed requests"}[measure] + " per " + per
	if measure != "spend" {
		return newChart(title, "", bars, func(n int64) string { return count(n) }), nil
	}
	return newChart(title, "IU", bars, func(n int64) string { return spendText(money.Amount(n)) }), nil
}

// spendText is an amount in a chart: with as many decimals as tell it from nothing.
func spendText(a money.Amount) string {
	if a < money.IU/10 {
		return decimals(a, 2, 6, halfUp)
	}
	return decimals(a, 2, 2, halfUp)
}
