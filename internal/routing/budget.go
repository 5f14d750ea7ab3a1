package routing

import (
	"sync"
	"time"
)

// A retry budget's figures are those of Finagle: in any ten seconds an upstream is asked
// again at most 10 times a second and for a fifth of the calls that came to it. An upstream
// that fails every call gets 1.2 times its load, not three times.
const (
	budgetWindow = 10 // seconds
	budgetEvery  = 5  // calls that pay for one further attempt
	budgetRate   = 10 // further attempts a second that nobody pays for
)

// budget counts the calls and the further attempts of the last seconds.
type budget struct {
	mu      sync.Mutex
	seconds [budgetWindow]second
}

type second struct{ at, calls, again int64 }

// call pays for further attempts.
func (b *budget) call(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slot(now).calls++
}

// left says whether there may be a further attempt now.
func (b *budget) left(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sum(now) > 0
}

// take is one further attempt, if there may be one.
func (b *budget) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sum(now) <= 0 {
		return false
	}
	b.slot(now).again++
	return true
}

// slot is the second of now. The caller has locked b.
func (b *budget) slot(now time.Time) *second {
	at := now.Unix()
	s := &b.seconds[at%budgetWindow]
	if s.at != at {
		*s = second{at: at}
	}
	return s
}

// sum is how many further attempts are left. The caller has locked b.
func (b *budget) sum(now time.Time) int64 {
	var calls, again int64
	for i := range b.seconds {
		if s := &b.seconds[i]; now.Unix()-s.at < budgetWindow {
			calls += s.calls
			again += s.again
		}
	}
	return budgetRate*budgetWindow + calls/budgetEvery - again
}
