package subscription_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the test of zones does not depend on the machine

	"pgregory.net/rapid"

	"github.com/parley-ai/parley/internal/subscription"
)

func date(year int, month time.Month, day, hour int) time.Time {
	return time.Date(year, month, day, hour, 0, 0, 0, time.UTC)
}

func TestInterval_After(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, every string
		anchor      time.Time
		want        []time.Time // after 1, 2, …
	}{
		{
			"the 31st comes back after short months", "month", date(2027, 1, 31, 12),
			[]time.Time{date(2027, 2, 28, 12), date(2027, 3, 31, 12), date(2027, 4, 30, 12), date(2027, 5, 31, 12)},
		},
		{"the 31st in a leap year", "month", date(2028, 1, 31, 0), []time.Time{date(2028, 2, 29, 0), date(2028, 3, 31, 0)}},
		{"the 30th", "month", date(2027, 1, 30, 0), []time.Time{date(2027, 2, 28, 0), date(2027, 3, 30, 0)}},
		{"over the end of a year", "month", date(2026, 11, 30, 23), []time.Time{date(2026, 12, 30, 23), date(2027, 1, 30, 23), date(2027, 2, 28, 23)}},
		{
			"a leap day by the year", "year", date(2028, 2, 29, 6),
			[]time.Time{date(2029, 2, 28, 6), date(2030, 2, 28, 6), date(2031, 2, 28, 6), date(2032, 2, 29, 6)},
		},
		{"a century that is no leap year", "year", date(2096, 2, 29, 0), []time.Time{date(2097, 2, 28, 0), date(2098, 2, 28, 0), date(2099, 2, 28, 0), date(2100, 2, 28, 0)}},
		{"days over a leap day", "30d", date(2028, 2, 1, 0), []time.Time{date(2028, 3, 2, 0), date(2028, 4, 1, 0)}},
	} {
		i, err := subscription.ParseInterval(c.every)
		if err != nil {
			t.Fatal(err)
		}
		for n, want := range c.want {
			if got := i.After(c.anchor, int64(n)+1); !got.Equal(want) {
				t.Errorf("%s: %d after %v is %v, want %v", c.name, n+1, c.anchor, got, want)
			}
		}
	}
}

// Clocks that are put forward or back somewhere do not matter: periods are counted in UTC.
func TestInterval_Zones(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	anchor := time.Date(2027, 2, 28, 2, 30, 0, 0, berlin) // a month later there is no 2:30
	for n := int64(1); n <= 12; n++ {
		for _, every := range []string{"month", "30d"} {
			i, _ := subscription.ParseInterval(every)
			got, want := i.After(anchor, n), i.After(anchor.UTC(), n)
			if !got.Equal(want) || got.Location() != time.UTC || got.Hour() != 1 || got.Minute() != 30 {
				t.Errorf("%d times %s after %v: %v, want %v", n, every, anchor, got, want)
			}
		}
	}
}

func TestParseInterval(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"month", "year", "1d", "30d", "365d", "3660d"} {
		if i, err := subscription.ParseInterval(good); err != nil || i.String() != good {
			t.Errorf("ParseInterval(%q) = %q, %v", good, i, err)
		}
	}
	for _, bad := range []string{"", "months", "Month", "0d", "-1d", "3661d", "030d", "1.5d", "30", "d", "30 d", "999999999999999999999d"} {
		if i, err := subscription.ParseInterval(bad); err == nil {
			t.Errorf("ParseInterval(%q) = %v", bad, i)
		}
	}
}

// Whatever the anchor: periods follow each other without a gap, months keep day and time
// unless the month is too short, and then it is its last day.
func TestInterval_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		anchor := time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(rt, "anchor")).UTC() // until 2096
		months := rapid.SampledFrom([]int{1, 12}).Draw(rt, "months")
		i := subscription.Interval{Months: months}
		before := anchor
		for n := range int64(40) {
			got := i.After(anchor, n+1)
			if !got.After(before) || got.Sub(before) > 366*24*time.Hour {
				rt.Fatalf("period %d lasts from %v to %v", n+1, before, got)
			}
			wantMonth := (int(anchor.Month())-1+months*int(n+1))%12 + 1
			last := time.Date(got.Year(), got.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
			if int(got.Month()) != wantMonth || got.Day() != min(anchor.Day(), last) || got.Sub(got.Truncate(24*time.Hour)) != anchor.Sub(anchor.Truncate(24*time.Hour)) {
				rt.Fatalf("%d months after %v is %v", months*int(n+1), anchor, got)
			}
			before = got
		}
		days := rapid.IntRange(1, 3660).Draw(rt, "days")
		n := rapid.Int64Range(0, 500).Draw(rt, "n")
		if got, want := (subscription.Interval{Days: days}).After(anchor, n), anchor.Add(time.Duration(n)*time.Duration(days)*24*time.Hour); n*int64(days) < 100_000 && !got.Equal(want) {
			rt.Fatalf("%d times %d days after %v is %v, want %v", n, days, anchor, got, want)
		}
	})
}
