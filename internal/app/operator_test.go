package app

import (
	"io"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/routing"
)

// The console is told the last change of each target, and no more changes than are kept.
func TestTargets(t *testing.T) {
	t.Parallel()
	var seen targets
	rack, hosted := catalog.Target{Upstream: "rack", Model: "m"}, catalog.Target{Upstream: "hosted", Model: "m"}
	until := time.Now().Add(time.Minute)
	seen.note(routing.Change{Target: hosted, Class: "timeout", Err: io.EOF, Until: until})
	for range changesKept {
		seen.note(routing.Change{Target: rack, Class: "unreachable", Until: until})
		seen.note(routing.Change{Target: rack})
	}
	h := seen.health()
	if h.Last[hosted].Class != "timeout" || h.Last[hosted].Reason != "EOF" || h.Last[rack].Class != "" || !h.Last[hosted].Until.Equal(until) {
		t.Errorf("the last changes are %+v", h.Last)
	}
	if len(h.Changes) != changesKept || h.Changes[0].Class != "" || h.Changes[1].Class != "unreachable" || h.Changes[0].At.Before(h.Changes[1].At) {
		t.Errorf("%d changes, %+v", len(h.Changes), h.Changes[:2])
	}
}

// The console is told what the server is and what its directory holds.
func TestSystem(t *testing.T) {
	t.Parallel()
	o, out, errs := options(t, t.TempDir(), &provider{})
	s := start(t, o, out, errs).system()
	standing := map[string]string{}
	for _, c := range s.Checks {
		standing[c.Name] = c.Standing
	}
	if s.Unready != "" || s.Schema == 0 || s.Started.IsZero() || standing["disk"] == "" || standing["directory"] == "" {
		t.Errorf("the system is %+v", s)
	}
	if len(s.Files) == 0 || s.Files[0].Bytes < s.Files[len(s.Files)-1].Bytes {
		t.Errorf("the files are %+v", s.Files)
	}
}
