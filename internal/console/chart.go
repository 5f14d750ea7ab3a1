package console

import (
	"fmt"
	"html/template"
	"strings"
)

// bar is one of a chart.
type bar struct {
	Name  string // under it, and in the table
	Value int64
	Open  bool // its time is not over: it is dashed
}

// chart is bars over time, drawn here; the template "chart" shows it with the table of its
// figures. Make one with newChart.
type chart struct {
	Title string // "Spend per day"
	Unit  string // "IU"
	Bars  []bar
	Top   int64 // of the scale
	text  func(int64) string
}

// newChart makes a chart; text shows a value, without its unit.
func newChart(title, unit string, bars []bar, text func(int64) string) chart {
	c := chart{Title: title, Unit: unit, Bars: bars, text: text}
	c.Top = 2
	for _, b := range bars {
		c.Top = max(c.Top, ceiling(b.Value))
	}
	return c
}

// ceiling is the least of 2, 4, 10, 20, 40, 100, … that n is not above: half of it is a round
// number too, which stands beside the middle line.
func ceiling(n int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, step := range []int64{2, 4, 10} {
			if step*unit >= n || unit > 1e17 {
				return step * unit
			}
		}
	}
}

// Text is a value of the chart as it is shown.
func (c chart) Text(n int64) string { return c.text(n) }

// Middle is half the scale.
func (c chart) Middle() int64 { return c.Top / 2 }

// Below are the names that stand under the chart: the first, the middle and the last.
func (c chart) Below() []string {
	switch n := len(c.Bars); n {
	case 0:
		return nil
	case 1, 2:
		return []string{c.Bars[0].Name, c.last()}[:n]
	default:
		return []string{c.Bars[0].Name, c.Bars[(n-1)/2].Name, c.last()}
	}
}

func (c chart) last() string {
	b := c.Bars[len(c.Bars)-1]
	if b.Open {
		return b.Name + ", so far"
	}
	return b.Name
}

// Sentence says what the picture shows, for who does not see it.
func (c chart) Sentence() string {
	if len(c.Bars) == 0 {
		return c.Title + ". There is nothing to show."
	}
	least, most, sum := c.Bars[0].Value, c.Bars[0].Value, int64(0)
	for _, b := range c.Bars {
		least, most, sum = min(least, b.Value), max(most, b.Value), sum+b.Value
	}
	unit := ""
	if c.Unit != "" {
		unit = " " + c.Unit
	}
	return fmt.Sprintf("%s from %s to %s. Lowest %s%s, highest %s%s, %s%s in all. The table follows.",
		c.Title, c.Bars[0].Name, c.Bars[len(c.Bars)-1].Name, c.text(least), unit, c.text(most), unit, c.text(sum), unit)
}

// Plot is the picture: bars of a chart that is 100 wide and 100 high, whatever its size.
func (c chart) Plot() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="plot" viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="%s">`, template.HTMLEscapeString(c.Sentence()))
	b.WriteString(`<line x1="0" x2="100" y1="0" y2="0"/><line x1="0" x2="100" y1="50" y2="50"/>`)
	step := 100 / float64(max(1, len(c.Bars)))
	for i, x := range c.Bars {
		height := 100 * float64(x.Value) / float64(c.Top)
		class := ""
		if x.Open {
			class = ` class="p"`
		}
		fmt.Fprintf(&b, `<rect%s x="%.2f" y="%.2f" width="%.2f" height="%.2f"><title>%s: %s %s</title></rect>`,
			class, float64(i)*step+step*.18, 100-height, step*.64, height, template.HTMLEscapeString(x.Name), template.HTMLEscapeString(c.text(x.Value)), template.HTMLEscapeString(c.Unit))
	}
	b.WriteString(`<line class="z" x1="0" x2="100" y1="100" y2="100"/></svg>`)
	return template.HTML(b.String())
}

// meter is a small bar beside the numbers that it draws: from 80 % it warns, at 100 % it is
// full. A limit of 0 is none, and draws nothing.
func meter(used, limit any) template.HTML {
	u, l := integer(used), integer(limit)
	if l <= 0 {
		return ""
	}
	percent := 100 * float64(u) / float64(l)
	class := "meter"
	switch {
	case percent >= 100:
		class = "meter bad"
	case percent >= 80:
		class = "meter warn"
	}
	return template.HTML(fmt.Sprintf(`<svg class="%s" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect width="%.1f" height="6"/></svg>`, class, max(0, min(percent, 100))))
}

// spark is a line beside a number. Those of a column have one top, so that they compare.
func spark(values []int64, top int64) template.HTML {
	if len(values) < 2 {
		return ""
	}
	top = max(top, 1)
	var b strings.Builder
	b.WriteString(`<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true"><path d="`)
	for i, n := range values {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", verb, 100*float64(i)/float64(len(values)-1), 19-18*float64(n)/float64(top))
	}
	b.WriteString(`"/></svg>`)
	return template.HTML(b.String())
}
