package app

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/telemetry"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/webhook"
)

func TestEndOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		ending ledger.Ending
		want   telemetry.End
	}{
		{200, ledger.EndStop, telemetry.Answered},
		{200, "", telemetry.Answered}, // a whole answer given again
		{200, ledger.EndClientGone, telemetry.Left},
		{499, "", telemetry.Left},
		{200, ledger.EndUpstreamCut, telemetry.Failed},
		{502, ledger.EndUpstreamError, telemetry.Failed},
		{503, "", telemetry.Failed},
		{400, ledger.EndUpstreamError, telemetry.Refused}, // the provider did not take the request
		{429, "", telemetry.Refused},
		{401, "", telemetry.Refused},
		{200, ledger.EndKeyRevoked, telemetry.Refused},
	} {
		o := api.Observation{Status: c.status, Call: chat.Summary{Ending: c.ending}}
		if got := endOf(o); got != c.want {
			t.Errorf("%d %q ended as %d, want %d", c.status, c.ending, got, c.want)
		}
	}
}

func TestAttemptEnd(t *testing.T) {
	t.Parallel()
	for want, err := range map[telemetry.End]error{
		telemetry.Answered: nil, telemetry.Left: errors.New("the caller left"),
		telemetry.Refused: &upstream.Rejected{}, telemetry.Failed: &upstream.Failure{Class: upstream.Timeout},
	} {
		if got := attemptEnd(outcome(err)); got != want {
			t.Errorf("%v ended as %d, want %d", err, got, want)
		}
	}
}

// losing is an outbox that loses events of two endpoints each time.
type losing struct{ webhook.Store }

func (losing) ForgetEvents(context.Context, time.Time, time.Time, int) (int, []webhook.Lost, error) {
	return 3, []webhook.Lost{{Address: "a", Events: 1}, {Address: "b", Events: 2}}, nil
}

func TestCountedOutbox(t *testing.T) {
	t.Parallel()
	m := telemetry.New("v")
	for _, metrics := range []*telemetry.Metrics{m, m, nil} {
		n, lost, err := countedOutbox{losing{}, metrics}.ForgetEvents(t.Context(), time.Time{}, time.Time{}, 1)
		if n != 3 || len(lost) != 2 || err != nil {
			t.Errorf("ForgetEvents = %d, %v, %v", n, lost, err)
		}
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if text := w.Body.String(); !strings.Contains(text, `parley_webhook_events_lost_total{endpoint="a"} 2`) || !strings.Contains(text, `parley_webhook_events_lost_total{endpoint="b"} 4`) {
		t.Errorf("the metrics are %s", text)
	}
}
