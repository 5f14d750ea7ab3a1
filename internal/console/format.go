package console

import (
	"fmt"
	"html/template"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/money"
)

// minus is the sign that stands before amounts: as wide as a figure, and read as what it is.
const minus = "\u2212"

// balance shows what is left, with two decimals, never more than there is.
func balance(a money.Amount) template.HTML { return amount(a, 2, 2, down) }

// bound shows an amount that somebody has chosen, exactly.
func bound(a money.Amount) template.HTML { return amount(a, 2, 9, down) }

// spent shows a sum of what was used, with two decimals.
func spent(a money.Amount) template.HTML { return amount(a, 2, 2, halfUp) }

// row shows an amount in a list, with six decimals.
func row(a money.Amount) template.HTML { return amount(a, 6, 6, halfUp) }

// exact shows all there is of an amount, at least six decimals.
func exact(a money.Amount) template.HTML { return amount(a, 6, 9, down) }

// rounding is how an amount gets fewer decimals than it has.
type rounding bool

const (
	down   rounding = false // towards less, so that nobody is told of more than there is
	halfUp rounding = true
)

// amount is a with least to most decimals. Those after the second are pale, what would look
// like nothing is "<0.01", and the title has the exact number.
func amount(a money.Amount, least, most int, r rounding) template.HTML {
	text := decimals(a, least, most, r)
	whole, frac, _ := strings.Cut(text, ".")
	var b strings.Builder
	fmt.Fprintf(&b, `<span class="n" title="%s IU">`, template.HTMLEscapeString(strings.Replace(a.String(), "-", minus, 1)))
	b.WriteString(template.HTMLEscapeString(whole))
	b.WriteString("." + frac[:2])
	if len(frac) > 2 {
		b.WriteString(`<span class="f">` + frac[2:] + `</span>`)
	}
	b.WriteString(`</span>`)
	return template.HTML(b.String())
}

// decimals is a in figures, grouped by thousands.
func decimals(a money.Amount, least, most int, r rounding) string {
	sign, u := "", uint64(a)
	if a < 0 {
		sign, u = minus, -u
	}
	unit := uint64(1)
	for range 9 - most {
		unit *= 10
	}
	shown := u / unit
	up := u%unit != 0 && (bool(r) && u%unit >= (unit+1)/2 || !bool(r) && a < 0)
	if up {
		shown++
	}
	text := fmt.Sprintf("%0*d", most+1, shown)
	whole, frac := text[:len(text)-most], text[len(text)-most:]
	if u != 0 && shown == 0 {
		return sign + "<0." + strings.Repeat("0", most-1) + "1"
	}
	for len(frac) > least && frac[len(frac)-1] == '0' {
		frac = frac[:len(frac)-1]
	}
	return sign + english.Group(whole) + "." + frac
}

// count is an exact number of things: any integer of Go's.
func count(n any) string {
	text := fmt.Sprint(n)
	if digits, negative := strings.CutPrefix(text, "-"); negative {
		return minus + english.Group(digits)
	}
	return english.Group(text)
}

// plural is a number of things with their noun; see [english.Plural]. n is any signed integer
// of Go's.
func plural(n any, noun string) string {
	return english.Plural(reflect.ValueOf(n).Int(), noun)
}

// ago says when something was, as people read it; the title has the exact time. The zero time
// is "never".
func ago(t, now time.Time) template.HTML {
	if t.IsZero() {
		return "never"
	}
	return stamped(t, relative(t, now))
}

func relative(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	switch d := now.Sub(t); {
	case d < 0:
		return day(t, now)
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min ago"
	case d < 24*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h ago"
	}
	return day(t, now)
}

// day is a date: "21 Nov", with its year where that is another.
func day(t, now time.Time) string {
	if t.UTC().Year() != now.UTC().Year() {
		return t.UTC().Format("2 Jan 2006")
	}
	return t.UTC().Format("2 Jan")
}

// moment is a date with its time of day.
func moment(t, now time.Time) template.HTML { return stamped(t, day(t, now)+", "+clock(t)) }

// clock is a time of day, UTC.
func clock(t time.Time) string { return t.UTC().Format("15:04") }

func stamped(t time.Time, text string) template.HTML {
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05 UTC"), template.HTMLEscapeString(text)))
}

// middle shortens a long name for reading: both ends are what people compare.
func middle(s string) string {
	if r := []rune(s); len(r) > 24 {
		return string(r[:12]) + "…" + string(r[len(r)-8:])
	}
	return s
}

// who is the name of whoever did something, for reading: an address breaks behind its @ and dots
// first. Only the middle of what fills a line is left out.
func who(name string) template.HTML {
	if r := []rune(name); len(r) > 72 {
		name = string(r[:48]) + "…" + string(r[len(r)-16:])
	}
	text := template.HTMLEscapeString(name)
	if !strings.Contains(name, "@") {
		return template.HTML(text)
	}
	return template.HTML(strings.NewReplacer("@", "@<wbr>", ".", ".<wbr>").Replace(text))
}

// agentName says in two words what a browser calls itself in twenty.
func agentName(agent string) string {
	browser := "Another program"
	// Each of them also claims to be those that follow it.
	for _, b := range [][2]string{{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}} {
		if strings.Contains(agent, b[0]) {
			browser = b[1]
			break
		}
	}
	for _, system := range [][2]string{{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"}} {
		if strings.Contains(agent, system[0]) {
			return browser + " on " + system[1]
		}
	}
	return browser
}

// join is names in a list: "a, b and c".
func join(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// wait is a short time from now: "644 ms", "4 s", or nothing.
func wait(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds()+1, 10) + " ms"
	}
	return strconv.Itoa(int((d+time.Second-1)/time.Second)) + " s"
}

// tookSeconds is a duration in a list: "0.42", or a dash for none.
func tookSeconds(d time.Duration) string {
	if d <= 0 {
		return "–"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 2, 64)
}

// short is a large number in a figure: "1.28", with "M" beside it.
func short(n int64) template.HTML {
	const million, billion = 1_000_000, 1_000_000_000
	var text string
	scaled := func(size float64, unit string) string {
		return strconv.FormatFloat(float64(n)/size, 'f', 2, 64) + `<span class="u">` + unit + `</span>`
	}
	switch {
	case n >= billion:
		text = scaled(billion, "G")
	case n >= million:
		text = scaled(million, "M")
	default:
		return template.HTML(count(n))
	}
	return template.HTML(`<span title="` + count(n) + `">` + text + `</span>`)
}

// most is the largest of values, and 1 at least.
func most(values []int64) int64 { return slices.Max(append(values, 1)) }
