package engine

import (
	"math"
	"time"
)

// Stats are counts of this moment and since Open.
type Stats struct {
	Running int // sequences that are computed together
	Places  int // how many those may be
	Waiting int // requests in the queue
	// Pages are of 16 positions: those there are, those that running sequences hold,
	// and those that nobody holds but that a prompt may find again.
	PagesTotal, PagesUsed, PagesCached int

	Steps        int64
	Busy         time.Duration // spent in steps
	Tokens       int64         // generated
	PromptTokens int64         // computed
	Preempted    int64         // times that a sequence lost its pages to an owner who had nothing running
	// PrefixQueries is the tokens of prompts that were admitted, PrefixHits those of
	// them that were found in the cache.
	PrefixQueries, PrefixHits int64
	// TokensPerSecond is what was generated a second in the last 10 seconds, or so, of
	// computing; 0 before the first step.
	TokensPerSecond float64

	QueueTime  Histogram // from Generate to the beginning of the first choice
	FirstToken Histogram // from Generate to the first token of any choice
}

// Histogram counts durations.
type Histogram struct {
	Counts [16]int64 // by the buckets of [Buckets]
	Count  int64     // of all durations, longer ones included
	Sum    time.Duration
}

// Buckets are the upper bounds of a histogram's counts: each has what is longer than
// the bound before.
func Buckets() [16]time.Duration {
	const ms, s = time.Millisecond, time.Second
	return [16]time.Duration{ms, 5 * ms / 2, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, s, 5 * s / 2, 5 * s, 10 * s, 30 * s, 60 * s, 300 * s}
}

func (h *Histogram) observe(d time.Duration) {
	h.Count++
	h.Sum += d
	for i, most := range Buckets() {
		if d <= most {
			h.Counts[i]++
			return
		}
	}
}

// rate is a number of events a second of which the latest count most.
type rate struct{ events, seconds float64 }

// add counts events that took d, and returns the rate.
func (r *rate) add(events int, d time.Duration) float64 {
	const horizon = 10 // seconds in which what was loses 1-1/e of its weight
	keep := math.Exp(-d.Seconds() / horizon)
	r.events = float64(r.events*keep) + float64(events)
	r.seconds = float64(r.seconds*keep) + d.Seconds()
	if r.seconds == 0 {
		return 0
	}
	return r.events / r.seconds
}
