package ratelimit

import "time"

// span is how long an entry counts.
const span = time.Minute

// Entries that come close together are kept as one group, which leaves the window a
// minute after its last entry: what was let in is never counted too short. A group
// spans at most half a second and, unless it is a single call, 1/256 of a limit; only
// the oldest group can count too long, so at most 0.4 % of a limit is ever missing,
// however the calls arrive. A window has at most 120 + 2·256 groups of 24 bytes.
const (
	groupSpan  = span / 120
	groupShare = 256
)

// group is some entries of less than half a second.
type group struct {
	first, last time.Duration
	requests    int32
	latest      int32 // how many entries came at last
	tokens      int64
}

// window counts the requests and tokens of one scope. Times are measured from the
// limiter's start. The zero value is an empty window.
type window struct {
	ring     []group // its length is a power of two; group n is at n % len
	oldest   int64   // number of the oldest group that counts
	next     int64   // number behind the newest
	requests int64   // sums over the groups
	tokens   int64
}

// holds reports whether there is anything in the group.
func (g *group) holds() bool { return g.requests != 0 || g.tokens != 0 }

func (w *window) group(n int64) *group { return &w.ring[n&int64(len(w.ring)-1)] }

// advance lets go of what is a minute old at that time.
func (w *window) advance(now time.Duration) {
	for ; w.oldest < w.next; w.oldest++ {
		g := w.group(w.oldest)
		if g.last+span > now {
			return
		}
		w.requests -= int64(g.requests)
		w.tokens -= g.tokens
	}
}

// entry is where something was counted.
type entry struct {
	group  int64
	before time.Duration // the group's last entry before this one
	at     time.Duration // this one
	latest int32         // how many came at before
}

// add counts requests and tokens now, in the newest group if they fit there.
func (w *window) add(now time.Duration, requests int32, tokens int64, l Limits) entry {
	if w.oldest < w.next {
		g := w.group(w.next - 1)
		now = max(now, g.last) // callers may come out of order by a lock's wait
		if now-g.first < groupSpan && small(int64(g.requests+requests), l.Requests) && small(g.tokens+tokens, l.Tokens) {
			e := entry{group: w.next - 1, before: g.last, at: now, latest: g.latest}
			if now > g.last {
				g.last, g.latest = now, 0
			}
			g.latest++
			w.correct(e, requests, tokens)
			return e
		}
	}
	if int(w.next-w.oldest) == len(w.ring) {
		w.grow()
	}
	e := entry{group: w.next, before: now, at: now, latest: 1}
	w.next++
	*w.group(e.group) = group{first: now, last: now, latest: 1}
	w.correct(e, requests, tokens)
	return e
}

func small(n, limit int64) bool { return limit == 0 || n <= limit/groupShare }

func (w *window) grow() {
	ring := make([]group, max(8, 2*len(w.ring)))
	for n := w.oldest; n < w.next; n++ {
		ring[n&int64(len(ring)-1)] = *w.group(n)
	}
	w.ring = ring
}

// correct changes what was counted at e, as long as it counts at all.
func (w *window) correct(e entry, requests int32, tokens int64) {
	if e.group < w.oldest {
		return
	}
	g := w.group(e.group)
	g.requests += requests
	g.tokens += tokens
	w.requests += int64(requests)
	w.tokens += tokens
}

// forget takes back e as if it had never been. Its group ends with the entry before it again,
// unless others came when it did.
func (w *window) forget(e entry, requests int32, tokens int64) {
	w.correct(e, -requests, -tokens)
	if e.group < w.oldest {
		return
	}
	g := w.group(e.group)
	if g.last != e.at {
		return
	}
	if g.latest--; g.latest == 0 {
		g.last, g.latest = e.before, e.latest
	}
}

// wait is how long until need more fit under limit, when count sums a group and sum is
// what the window holds now. It is exact unless running calls give something back.
func (w *window) wait(now time.Duration, sum, need, limit int64, count func(*group) int64) time.Duration {
	for n := w.oldest; n < w.next; n++ {
		g := w.group(n)
		if sum -= count(g); sum+need <= limit {
			return g.last + span - now
		}
	}
	return span
}

// empty is how long until no group that counts is left in the window.
func (w *window) empty(now time.Duration, counts func(*group) bool) time.Duration {
	for n := w.next - 1; n >= w.oldest; n-- {
		if g := w.group(n); counts(g) {
			return g.last + span - now
		}
	}
	return 0
}
