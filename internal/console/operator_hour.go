package console

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/telemetry"
)

// upstreamMinutes is what the figures of an upstream are of.
const upstreamMinutes = 10

// flowRow is what calls of a model, or attempts at an upstream, add up to.
type flowRow struct {
	Name string
	telemetry.Series
	span time.Duration
}

// Calls are all that ended.
func (r flowRow) Calls() int64 { return r.Series.Calls() }

// Refused and Failed are those that ended so.
func (r flowRow) Refused() int64 { return r.Ends[telemetry.Refused] }
func (r flowRow) Failed() int64  { return r.Ends[telemetry.Failed] }

// Median and Slow are the times within which half and 95 % of the calls had their first token.
func (r flowRow) Median() string { return tookSeconds(r.FirstToken(0.5)) }
func (r flowRow) Slow() string   { return tookSeconds(r.FirstToken(0.95)) }

// Speed is how many tokens of answers came in a second.
func (r flowRow) Speed() string {
	return fmt.Sprintf("%.1f", float64(r.Completion)/r.span.Seconds())
}

// Amount is what was charged.
func (r flowRow) Amount() money.Amount { return money.Amount(r.Charged) }

// Errors has a bar for the failures of each minute, out of top.
func (r flowRow) Errors(top int64) template.HTML {
	var b strings.Builder
	b.WriteString(`<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">`)
	wide := 100 / float64(max(len(r.Minutes), 1))
	for i, m := range r.Minutes {
		if m.Failed > 0 {
			high := max(20*float64(m.Failed)/float64(max(top, 1)), 2)
			fmt.Fprintf(&b, `<rect class="e" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, wide*float64(i), 20-high, wide*0.8, high)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// flowRows are the flows of an hour, those with the most calls first.
func flowRows(all map[string]telemetry.Series, span time.Duration) []flowRow {
	var rows []flowRow
	for _, name := range slices.Sorted(maps.Keys(all)) {
		rows = append(rows, flowRow{name, all[name], span})
	}
	slices.SortStableFunc(rows, func(a, b flowRow) int { return cmp.Compare(b.Calls(), a.Calls()) })
	return rows
}

// lastHour is what is shown of the last hour.
type lastHour struct {
	All               flowRow
	Models, Upstreams []flowRow
	Chart             chart
	Since             string // when it begins; later than an hour ago after a start
}

// lastHour adds up what this process has seen of the last hour.
func (v *visit) lastHour() lastHour {
	t := v.s.Operator.Hour.Since(v.now, telemetry.HourMinutes)
	begin := v.now.Truncate(time.Minute).Add(-(telemetry.HourMinutes - 1) * time.Minute)
	if started := v.s.Operator.System().Started; started.After(begin) {
		begin = started
	}
	span := max(v.now.Sub(begin), time.Second)
	h := lastHour{All: flowRow{"", t.All, span}, Models: flowRows(t.Models, span), Upstreams: flowRows(t.Upstreams, span), Since: clock(begin)}
	var bars []bar
	for i, m := range t.All.Minutes {
		at := v.now.Truncate(time.Minute).Add(time.Duration(i-len(t.All.Minutes)+1) * time.Minute)
		bars = append(bars, bar{Name: clock(at), Value: m.Calls, Open: i == len(t.All.Minutes)-1})
	}
	h.Chart = newChart("Calls per minute", "", bars, func(n int64) string { return count(n) })
	return h
}
