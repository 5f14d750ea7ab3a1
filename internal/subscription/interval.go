package subscription

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// Interval is how long a period lasts: so many months, or so many days of 24 hours; one
// of the two is 0. The zero value is no interval.
type Interval struct {
	Months, Days int
}

// Month is the interval of plans that say nothing else.
var Month = Interval{Months: 1}

// mostDays bounds an interval of days: ten years.
const mostDays = 3660

// ErrInterval means a text that is no interval.
var ErrInterval = errors.New("a period is month, year or a number of days from 1d to 3660d")

// ParseInterval reads "month", "year" or a number of days such as "30d". It fails with
// [ErrInterval].
func ParseInterval(text string) (Interval, error) {
	switch text {
	case "month":
		return Month, nil
	case "year":
		return Interval{Months: 12}, nil
	}
	digits, ok := strings.CutSuffix(text, "d")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > mostDays || digits != strconv.Itoa(n) {
		return Interval{}, ErrInterval
	}
	return Interval{Days: n}, nil
}

// String is what [ParseInterval] reads; empty for the zero value.
func (i Interval) String() string {
	switch {
	case i.Months == 1:
		return "month"
	case i.Months == 12:
		return "year"
	case i.Days > 0:
		return strconv.Itoa(i.Days) + "d"
	}
	return ""
}

// After is n intervals after anchor, in UTC. Months keep anchor's day and time; a month
// that has no such day gives its last one. It is counted from anchor each time, so that
// the 31st comes back after a short month: 31 January, 28 February, 31 March.
func (i Interval) After(anchor time.Time, n int64) time.Time {
	anchor = anchor.UTC()
	if i.Months == 0 {
		return anchor.AddDate(0, 0, i.Days*int(n))
	}
	year, month, day := anchor.Date()
	first := time.Date(year, month+time.Month(int64(i.Months)*n), 1, anchor.Hour(), anchor.Minute(), anchor.Second(), anchor.Nanosecond(), time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(day, last)-1)
}

// since is how many whole intervals lie between anchor and t, not before it.
func (i Interval) since(anchor, t time.Time) int64 {
	anchor, t = anchor.UTC(), t.UTC()
	var n int64
	if i.Months == 0 {
		n = int64(t.Sub(anchor)/(24*time.Hour)) / int64(i.Days)
	} else {
		y, m, _ := anchor.Date()
		ty, tm, _ := t.Date()
		n = int64((ty-y)*12+int(tm-m)) / int64(i.Months)
	}
	// Whether the day has come is a question of the calendar.
	for n > 0 && i.After(anchor, n).After(t) {
		n--
	}
	return n
}
