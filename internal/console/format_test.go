package console

import (
	"html/template"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// TestDecimals: the rules of money on pages.
func TestDecimals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		n           money.Amount
		least, most int
		r           rounding
		want        string
	}{
		{285_473_170_482, 2, 2, down, "285.47"},
		{285_479_999_999, 2, 2, down, "285.47"},
		{214_376_829_518, 2, 2, halfUp, "214.38"},
		{214_375_000_000, 2, 2, halfUp, "214.38"},
		{214_374_999_999, 2, 2, halfUp, "214.37"},
		{0, 2, 2, down, "0.00"},
		{1, 2, 2, down, "<0.01"},
		{4_999_999, 2, 2, halfUp, "<0.01"},
		{5_000_000, 2, 2, halfUp, "0.01"},
		{499, 6, 6, halfUp, "<0.000001"},
		{25_896_000, 6, 9, down, "0.025896"},
		{25_896_120, 6, 9, down, "0.02589612"},
		{1_904_771_123_456_789, 2, 2, down, "1,904,771.12"},
		{-12_345_678_901, 2, 2, halfUp, "−12.35"},
		{-1, 2, 2, down, "−0.01"},
		{9_999_999_999, 2, 2, halfUp, "10.00"},
	}
	for _, tc := range tests {
		if got := decimals(tc.n, tc.least, tc.most, tc.r); got != tc.want {
			t.Errorf("decimals(%d, %d, %d, %v) = %s, want %s", int64(tc.n), tc.least, tc.most, tc.r, got, tc.want)
		}
	}
	if got, want := string(row(25_896_000)), `<span class="n" title="0.025896 IU">0.02<span class="f">5896</span></span>`; got != want {
		t.Errorf("row = %s, want %s", got, want)
	}
}

func TestNewSum(t *testing.T) {
	t.Parallel()
	closes := newSum(term{"", 500 * money.IU, "granted", ""}, term{minus, 214_380_000_000, "spent", ""}, term{minus, 150_000_000, "held", ""}, term{"=", 285_470_000_000, "available", ""})
	if closes.Rounded {
		t.Error("a sum that closes says that it is rounded")
	}
	// 1.00 − 0.34 is shown as 0.66, but 0.665 rounds down to 0.66 and 1 − 0.335 to 0.67.
	open := newSum(term{"", money.IU, "granted", ""}, term{minus, 334_000_000, "spent", ""}, term{"=", 666_000_000, "available", ""})
	if !open.Rounded {
		t.Error("1.00 − 0.33 = 0.66 does not say that it is rounded")
	}
}

func TestRelative(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 6, 0, 0, time.UTC)
	for _, tc := range []struct {
		at   time.Time
		want string
	}{
		{now.Add(-30 * time.Second), "just now"},
		{now.Add(-109 * time.Second), "1 min ago"},
		{now.Add(-23*time.Hour - 59*time.Minute), "23 h ago"},
		{now.Add(-24 * time.Hour), "20 Nov"},
		{time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC), "31 Dec 2025"},
		{now.Add(48 * time.Hour), "23 Nov"},
	} {
		if got := relative(tc.at, now); got != tc.want {
			t.Errorf("relative(%v) = %s, want %s", tc.at, got, tc.want)
		}
	}
	if got := ago(time.Time{}, now); got != "never" {
		t.Errorf("the zero time is %s", got)
	}
}

func TestChart(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]int64{0: 2, 1: 2, 2: 2, 3: 4, 5: 10, 11: 20, 21: 40, 41: 100, 13_600_000_000: 20_000_000_000, 9e18: 2e18} {
		if got := ceiling(n); got != want && n < 1e18 {
			t.Errorf("ceiling(%d) = %d, want %d", n, got, want)
		}
	}
	c := newChart("Calls per day", "", []bar{{"1 Nov", 3, false}, {"2 <b>", 8, false}, {"3 Nov", 0, true}}, func(n int64) string { return count(n) })
	if got, want := c.Sentence(), "Calls per day from 1 Nov to 3 Nov. Lowest 0, highest 8, 11 in all. The table follows."; got != want {
		t.Errorf("the sentence is %q, want %q", got, want)
	}
	plot := string(c.Plot())
	if strings.Contains(plot, "<b>") || strings.Contains(plot, "style=") || strings.Count(plot, "<rect") != 3 || !strings.Contains(plot, `class="p"`) {
		t.Errorf("the picture is %s", plot)
	}
	if empty := newChart("Calls", "", nil, nil); !strings.Contains(string(empty.Plot()), "nothing to show") || empty.Below() != nil {
		t.Error("a chart of nothing does not say so")
	}
}

func TestMeter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		used, limit int64
		want        string
	}{{1, 0, ""}, {66, 100, `class="meter" `}, {80, 100, "meter warn"}, {130, 100, "meter bad"}} {
		if got := string(meter(tc.used, money.Amount(tc.limit))); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("meter(%d, %d) = %s", tc.used, tc.limit, got)
		}
	}
}

// TestWho: an address may break where a reader would, is never markup, and keeps its ends however
// long it is.
func TestWho(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]template.HTML{
		"root":                         "root",
		"token ci.example":             "token ci.example",
		"ada.l@example.test":           "ada.<wbr>l@<wbr>example.<wbr>test",
		"<i>@x":                        "&lt;i&gt;@<wbr>x",
		strings.Repeat("a", 73):        template.HTML(strings.Repeat("a", 48) + "…" + strings.Repeat("a", 16)),
		strings.Repeat("ä", 70) + "@x": template.HTML(strings.Repeat("ä", 70) + "@<wbr>x"),
	} {
		if got := who(name); got != want {
			t.Errorf("who(%q) = %q, want %q", name, got, want)
		}
	}
}
