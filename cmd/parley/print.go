package main

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-ai/parley/internal/english"
)

// column is one column of a table.
type column struct {
	head  string
	right bool // numbers
	cut   bool // may be cut in the middle on a narrow terminal
}

// least is how short a cut column may become.
const least = 13

// table prints aligned columns without lines. width is that of the terminal; with 0
// nothing is cut.
func (e *env) table(columns []column, rows [][]string) {
	widths := make([]int, len(columns))
	total := 2 * (len(columns) - 1)
	for i, c := range columns {
		widths[i] = utf8.RuneCountInString(c.head)
		for _, r := range rows {
			widths[i] = max(widths[i], visible(r[i]))
		}
		total += widths[i]
	}
	for i, c := range columns {
		if over := total - e.width; c.cut && e.width > 0 && over > 0 && widths[i] > least {
			n := max(least, widths[i]-over)
			total -= widths[i] - n
			widths[i] = n
		}
	}
	var b strings.Builder
	line := func(cells func(int) string) {
		b.Reset()
		for i, c := range columns {
			cell := middle(cells(i), widths[i])
			gap := strings.Repeat(" ", widths[i]-visible(cell))
			if c.right {
				cell = gap + cell
			} else {
				cell += gap
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(cell)
		}
		e.print("%s", strings.TrimRight(b.String(), " "))
	}
	line(func(i int) string { return columns[i].head })
	for _, r := range rows {
		line(func(i int) string { return r[i] })
	}
}

// visible is how many columns s takes; painted words count without their colour.
func visible(s string) int {
	n := utf8.RuneCountInString(s)
	if strings.HasSuffix(s, plain) {
		if i := strings.IndexByte(s, 'm'); i > 0 {
			n -= i + 1 + len(plain)
		}
	}
	return n
}

// middle cuts s in the middle when it is longer than n.
func middle(s string, n int) string {
	if visible(s) <= n {
		return s
	}
	r := []rune(s)
	end := (n - 1) / 2
	return string(r[:n-1-end]) + "…" + string(r[len(r)-end:])
}

// Decimals of amounts for people.
const (
	fewest = 2
	most   = 6
)

// credits shows amounts of IU with the same number of decimals: as many as the most
// exact one needs, from 2 to 6, the rest cut off. What is not zero never shows as zero.
func credits(amounts ...string) []string {
	places := fewest
	for _, a := range amounts {
		_, frac, _ := strings.Cut(a, ".")
		places = max(places, min(len(frac), most))
	}
	out := make([]string, len(amounts))
	for i, a := range amounts {
		whole, frac, _ := strings.Cut(a, ".")
		frac += strings.Repeat("0", max(0, places-len(frac)))
		out[i] = english.Group(whole) + "." + frac[:places]
		if strings.Trim(out[i], "-0.,") == "" && strings.Trim(a, "-0.") != "" {
			out[i] = "<0.000001"
		}
	}
	return out
}

// credit shows one amount.
func credit(amount string) string { return credits(amount)[0] }

// ago is how long ago t was, for people.
func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	switch d := now.Sub(*t); {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min ago"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " h ago"
	default:
		return strconv.Itoa(int(d/(24*time.Hour))) + " days ago"
	}
}

// date is a moment for people, in UTC.
func date(t time.Time) string { return t.UTC().Format("2 Jan 2006 at 15:04 UTC") }

// clock is a time of today, or a date and a time.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04:05")
}
