package simulation_test

import (
	"testing"

	"github.com/parley-ai/parley/internal/ledger"
)

// Every ending has one class, and who is to blame for a call that was not charged is said
// by its status.
func TestReceipt_Class(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state  ledger.State
		ending ledger.Ending
		status int
		want   ledger.Class
	}{
		{ledger.Running, "", 0, ledger.Answered},
		{ledger.Settled, ledger.EndStop, 200, ledger.Answered},
		{ledger.Settled, ledger.EndLength, 200, ledger.Answered},
		{ledger.Settled, ledger.EndToolCalls, 200, ledger.Answered},
		{ledger.Settled, ledger.EndFilter, 200, ledger.Answered},
		{ledger.Settled, ledger.EndClientGone, 200, ledger.Left},
		{ledger.Voided, ledger.EndClientGone, 499, ledger.Left},
		{ledger.Voided, ledger.EndClientGone, 400, ledger.Left},
		{ledger.Settled, ledger.EndKeyRevoked, 200, ledger.Refused},
		{ledger.Voided, ledger.EndKeyRevoked, 500, ledger.Refused},
		{ledger.Voided, ledger.EndUpstreamError, 399, ledger.Failed},
		{ledger.Voided, ledger.EndUpstreamError, 400, ledger.Refused},
		{ledger.Voided, ledger.EndUpstreamError, 498, ledger.Refused},
		{ledger.Voided, ledger.EndUpstreamError, 499, ledger.Failed},
		{ledger.Voided, ledger.EndUpstreamError, 502, ledger.Failed},
		{ledger.Settled, ledger.EndUpstreamCut, 400, ledger.Failed},
		{ledger.Settled, ledger.EndShutdown, 200, ledger.Failed},
		{ledger.Recovered, ledger.EndCrash, 200, ledger.Failed},
	} {
		r := ledger.Receipt{State: tt.state, Ending: tt.ending, Status: tt.status}
		if got := r.Class(); got != tt.want {
			t.Errorf("%s %s %d is %s, want %s", tt.state, tt.ending, tt.status, got, tt.want)
		}
	}
}

// A report is as good as its laws, and names the first that is broken.
func TestReport_Broken(t *testing.T) {
	t.Parallel()
	a, b := ledger.Invariant{Name: "a", Detail: "off by 1"}, ledger.Invariant{Name: "b", Detail: "off by 2"}
	sound := ledger.Invariant{Name: "sound", OK: true}
	r := ledger.Report{Invariants: []ledger.Invariant{sound, a, b}}
	if r.OK() || r.Broken() != a {
		t.Errorf("Broken = %+v, OK %v, want %+v", r.Broken(), r.OK(), a)
	}
	r.Invariants = r.Invariants[:1]
	if !r.OK() || r.Broken() != (ledger.Invariant{}) {
		t.Errorf("Broken = %+v, OK %v of sound books", r.Broken(), r.OK())
	}
}
