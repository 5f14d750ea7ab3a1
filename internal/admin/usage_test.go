package admin_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/admin"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	id := h.lab(t).ID
	before := time.Now().UTC()
	h.charge(t, id)
	h.charge(t, id)
	got, err := h.Usage(ctx, "Example Lab", url.Values{"by": {"model"}, "from": {before.Truncate(time.Hour).Format(time.RFC3339)}})
	if err != nil {
		t.Fatal(err)
	}
	total := admin.Usage{Calls: 2, PromptTokens: 20_000, CompletionTokens: 40_000, Charge: "5", WrittenOff: "0"}
	group := total
	group.Group = "svc-pulse"
	if diff := cmp.Diff([]admin.Usage{group, total}, append(got.Groups, got.Total)); diff != "" {
		t.Errorf("Usage (-want +got):\n%s", diff)
	}
	for want, q := range map[string]url.Values{
		"invalid_by": {"by": {"moon"}}, "invalid_from": {"from": {"2026-11-01T00:30:00Z"}}, "invalid_to": {"to": {"tomorrow"}},
	} {
		if _, err := h.Usage(ctx, "Example Lab", q); code(err) != want {
			t.Errorf("Usage of %v gives %v, want %s", q, err, want)
		}
	}
	if _, err := h.Statement(ctx, "Example Lab", "2026-13"); code(err) != "invalid_month" {
		t.Errorf("a thirteenth month gives %v", err)
	}
	// When a month ends during the test the calls may be in the next one, or one in each.
	var lines []admin.StatementLine
	months := []string{before.Format("2006-01")}
	if after := time.Now().UTC().Format("2006-01"); after != months[0] {
		months = append(months, after)
	}
	balance := "0"
	for _, month := range months {
		s, err := h.Statement(ctx, "Example Lab", month)
		if err != nil || s.Opening != balance {
			t.Fatalf("Statement = %+v, %v, want it to open with %s", s, err, balance)
		}
		lines, balance = append(lines, s.Lines...), s.Closing
	}
	if balance != "7.5" || len(lines) < 2 {
		t.Fatalf("the statements end with %s: %+v, want 12.5 less two calls of 2.5", balance, lines)
	}
	var calls int64
	for _, l := range lines[1:] {
		if calls += l.Calls; l.Kind != "usage" {
			t.Errorf("the line of usage is %+v", l)
		}
	}
	if last := lines[len(lines)-1]; calls != 2 || last.Balance != "7.5" {
		t.Errorf("%d calls, the last line is %+v", calls, last)
	}
}

// TestSummary_Forecast: with a full day of use an account is told until when its credit lasts.
func TestSummary_Forecast(t *testing.T) {
	t.Parallel()
	h, ctx := open(t), t.Context()
	id := h.lab(t).ID
	if s, err := h.Summary(ctx, id); err != nil || s.PerDay != "" || s.LastsUntil != nil {
		t.Errorf("before any use: %+v, %v", s, err)
	}
	day := time.Now().UTC().Truncate(24 * time.Hour)
	h.chargeAt(t, id, day.Add(-72*time.Hour)) // its day is not a full one
	h.chargeAt(t, id, day.Add(-time.Hour))
	s, err := h.Summary(ctx, id)
	if !day.Equal(time.Now().UTC().Truncate(24 * time.Hour)) {
		t.Skip("the day ended during the test")
	}
	if err != nil || s.PerDay != "1.25" || s.LastsUntil == nil {
		t.Fatalf("Summary = %+v, %v", s, err)
	}
	if left := time.Until(*s.LastsUntil).Round(time.Hour); left != 6*24*time.Hour {
		t.Errorf("7.5 IU at 1.25 a day last for %v", left)
	}
}
