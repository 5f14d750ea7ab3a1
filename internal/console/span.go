package console

import (
	"strings"
	"time"
)

// span is a stretch of time that a list or a sum is of. The zero value is all of it.
type span struct {
	name     string
	from, to time.Time // to is not in it; zero has no end
}

// has reports whether t is in the span.
func (s span) has(t time.Time) bool { return !t.Before(s.from) && (s.to.IsZero() || t.Before(s.to)) }

// lately are the spans that end now.
var lately = []struct {
	value, name string
	long        time.Duration
}{
	{"1h", "Last hour", time.Hour},
	{"24h", "Last 24 hours", 24 * time.Hour},
	{"7d", "Last 7 days", 7 * 24 * time.Hour},
	{"30d", "Last 30 days", 30 * 24 * time.Hour},
}

// spanOf reads a span as addresses have it: one of lately, or two dates, "2026-11-01..2026-11-21",
// both in it. What is neither is the zero span.
func spanOf(text string, now time.Time) span {
	for _, l := range lately {
		if l.value == text {
			return span{name: l.name, from: now.Add(-l.long)}
		}
	}
	first, last, _ := strings.Cut(text, "..")
	from, errFrom := time.Parse(time.DateOnly, first)
	to, errTo := time.Parse(time.DateOnly, last)
	if errFrom != nil || errTo != nil || to.Before(from) {
		return span{}
	}
	return days(from, to, now)
}

// days is the span from one midnight to the end of the day of another.
func days(from, to, now time.Time) span {
	s := span{name: day(from, now), from: from, to: to.AddDate(0, 0, 1)}
	if !to.Equal(from) {
		s.name += " to " + day(to, now)
	}
	return s
}

// timeOptions are lately, and the span asked for.
func timeOptions(value string, now time.Time) []pick {
	options := []pick{{Name: "Any time"}}
	found := value == ""
	for _, l := range lately {
		found = found || l.value == value
		options = append(options, pick{Value: l.value, Name: l.name})
	}
	if !found {
		options = append(options, pick{Value: value, Name: spanOf(value, now).name})
	}
	choose(options, value)
	return options
}

// Name is the span for people.
func (s span) Name() string { return s.name }
