package routing

import (
	"errors"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/upstream"
)

// A target is ejected when it failed so many times in a row, or more than half of so many
// calls in the window; the figures are Envoy's. While it is ejected one call a second is
// sent there all the same, from the fifth second on: the first that succeeds ends it, so a
// target that has recovered does not wait for its time.
const (
	failuresInRow = 5
	leastCalls    = 20
	healthWindow  = 10 // seconds
	firstProbe    = 5 * time.Second
	probeEvery    = time.Second
	ejectFor      = 30 * time.Second // times the ejections that followed each other
	mostEjections = 10
	calm          = 5 * time.Minute // without an ejection: the next is the first again
)

// Change is a target that was ejected or serves again.
type Change struct {
	Target catalog.Target
	// Class is the failure that ejected it, empty when it serves again.
	Class upstream.Class
	// Err is what that failure was, for the operator; nil when it serves again.
	Err error
	// Until is when it is no longer ejected at the latest.
	Until time.Time
}

// health is what is known of the targets. It is safe for concurrent use.
type health struct {
	changed func(Change) // never nil
	mu      sync.Mutex
	targets map[catalog.Target]*state
}

// state is what is known of one.
type state struct {
	inRow   int
	seconds [healthWindow]struct{ at, calls, failed int64 }

	ejected, until, probed time.Time // ejected is zero when it is not
	times                  int
}

// serves says whether a call may go to t as if nothing was known of it: it is not ejected,
// or the call is the one that finds out whether it should still be.
func (h *health) serves(t catalog.Target, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.targets[t]
	switch {
	case s == nil || s.ejected.IsZero():
		return true
	case !now.Before(s.until):
		h.restore(t, s)
		return true
	case now.Sub(s.ejected) >= firstProbe && now.Sub(s.probed) >= probeEvery:
		s.probed = now
		return true
	}
	return false
}

// note counts a call that ended now. f is nil for one that did not fail by the target's fault.
func (h *health) note(t catalog.Target, f *upstream.Failure, now time.Time) {
	if f != nil {
		if f.Class == upstream.Busy {
			return // our own engine has more to do than it can, and is well
		}
		if _, callers := errors.AsType[*upstream.Rejected](f); callers {
			f = nil // no account may shut a target to the others by what it asks for
		} else if f.Class == upstream.Refused {
			return // nor where it may be the target that is wrong
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.targets[t]
	if s == nil {
		s = &state{}
		h.targets[t] = s
	}
	second := &s.seconds[now.Unix()%healthWindow]
	if second.at != now.Unix() {
		second.at, second.calls, second.failed = now.Unix(), 0, 0
	}
	second.calls++
	if f == nil {
		s.inRow = 0
		if !s.ejected.IsZero() {
			h.restore(t, s)
		}
		return
	}
	second.failed++
	s.inRow++
	if s.ejected.IsZero() && (f.Class == upstream.Denied || s.inRow >= failuresInRow || s.failing(now)) {
		h.eject(t, s, f, now)
	}
}

// failing says whether more than half of the last calls failed.
func (s *state) failing(now time.Time) bool {
	var calls, failed int64
	for _, second := range s.seconds {
		if now.Unix()-second.at < healthWindow {
			calls += second.calls
			failed += second.failed
		}
	}
	return calls >= leastCalls && 2*failed > calls
}

func (h *health) eject(t catalog.Target, s *state, f *upstream.Failure, now time.Time) {
	if now.Sub(s.until) > calm {
		s.times = 0
	}
	s.times = min(s.times+1, mostEjections)
	s.ejected, s.probed, s.until = now, time.Time{}, now.Add(time.Duration(s.times)*ejectFor)
	h.changed(Change{Target: t, Class: f.Class, Err: f.Err, Until: s.until})
}

func (h *health) restore(t catalog.Target, s *state) {
	*s = state{times: s.times, until: s.until}
	h.changed(Change{Target: t})
}
