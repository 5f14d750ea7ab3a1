package engine

import (
	"slices"

	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/kv"
)

// An owner who has nothing running takes place and pages from others, so that it never
// waits for the end of somebody's answer. Who gives them up goes on later: a pause of
// the place alone costs nothing but time, and of pages that were taken what they held
// is computed again, which gives the same bits.

// turn is how many steps a sequence that is its owner's only one is left alone with
// what it has been given, and for each again of positions it had to compute once more
// one step: so at least that part of the work gets on, however many want the room.
const (
	turn  = 32
	again = 8
)

// ripe reports whether s has had its turn.
func (s *sequence) ripe() bool { return s.fresh >= max(turn, s.lost/again) }

// paused is the sequence without a place whose turn is next, or nil: first those whose
// owner has nothing running, and of them the one that has waited longest.
func (e *Engine) paused() (next *sequence) {
	starves := false
	for _, s := range e.running {
		if !s.paused {
			continue
		}
		alone := e.working(s.Owner) == 0
		if next == nil || alone && !starves || alone == starves && s.ticket < next.ticket {
			next, starves = s, alone
		}
	}
	return next
}

// pause takes the place from s. It keeps its pages.
func (e *Engine) pause(s *sequence) {
	s.paused, s.ticket = true, e.ticket()
}

// ticket is a number that rises: who has the lower one has waited longer. e.mu is held.
func (e *Engine) ticket() int64 {
	e.tickets++
	return e.tickets
}

// evict takes place and pages from s. What others need not stays in the cache, where s
// will look for it.
func (e *Engine) evict(s *sequence) {
	if !s.paused {
		e.pause(s)
	}
	e.stats.Preempted++
	e.cache.Release(s.pages)
	s.reached = max(s.reached, s.pos)
	s.pages, s.pos, s.published, s.quota = nil, 0, 0, 0
	if s.follows { // from now on it computes its prompt itself
		s.follows = false
		for _, leader := range e.running {
			leader.followers = slices.DeleteFunc(leader.followers, func(f *sequence) bool { return f == s })
		}
	}
}

// restore gives s a place, and pages if it has none; false if there is no room.
func (e *Engine) restore(s *sequence) bool {
	starving := e.working(s.Owner) == 0
	if _, ok := e.seat(starving); !ok {
		return false
	}
	if s.pages == nil && !e.refill(s, starving) {
		return false
	}
	if yields, _ := e.seat(starving); yields != nil {
		e.pause(yields)
	}
	s.paused, s.fresh = false, 0
	return true
}

// refill gives pages to s, which has none.
func (e *Engine) refill(s *sequence, starving bool) bool {
	prefix := reusable(s.prefix.keys, len(s.Prompt))
	if s.generated > 0 { // what comes next is drawn, so no logits are wanted
		prefix = s.prefix.keys[:s.reached/kernel.Page]
	}
	need := kv.Need{Prefix: prefix, Shared: len(prefix) * kernel.Page, Length: len(s.Prompt) + s.MaxTokens, Tables: 1}
	take := e.cache.Admit
	if starving {
		take = e.claim
	}
	tables, cached := take(need)
	if len(tables) == 0 {
		return false
	}
	s.pages, s.pos, s.lost = tables[0], cached, max(0, s.reached-cached)
	s.found(cached)
	return true
}

// seat is whether there is a place, or whose it can be: yields is nil for a free one.
// For somebody who has nothing running it is that of the newest sequence of the owner
// who has the most, or where nobody has more than one of a sequence that has had its
// turn, the one that has had it longest.
func (e *Engine) seat(starving bool) (yields *sequence, ok bool) {
	if e.active() < e.o.MaxSequences {
		return nil, true
	}
	if !starving {
		return nil, false
	}
	most := 1
	for _, s := range e.running {
		if s.paused {
			continue
		}
		n := e.working(s.Owner)
		switch {
		case n > most || n > 1 && n == most,
			most == 1 && s.ripe() && (yields == nil || s.fresh > yields.fresh):
			most, yields = n, s
		}
	}
	return yields, yields != nil
}

// claim is kv.Cache.Admit for somebody who has nothing running: where pages are
// missing, others give theirs up, but only if that is enough.
func (e *Engine) claim(need kv.Need) (tables []kv.Table, cached int) {
	if missing := e.cache.Missing(need); missing > 0 {
		for _, s := range e.victims(missing) {
			e.evict(s)
		}
	}
	return e.cache.Admit(need)
}

// victims are sequences that hold missing pages which no others do: time and again the
// newest one of the owner who holds the most pages, leaving it one sequence, unless
// that has had its turn. There are none if all that may be taken is not enough.
func (e *Engine) victims(missing int) (out []*sequence) {
	pages, holds := map[string]int{}, map[string]int{}
	for _, s := range e.running {
		if s.pages != nil {
			pages[s.Owner] += len(s.pages)
			holds[s.Owner]++
		}
	}
	var tables []kv.Table
	for e.cache.Sole(tables) < missing {
		var victim *sequence
		for _, s := range e.running {
			switch {
			case s.pages == nil || slices.Contains(out, s),
				holds[s.Owner] == 1 && !s.ripe(),
				slices.ContainsFunc(s.followers, func(f *sequence) bool { return !slices.Contains(out, f) }):
			case victim == nil || pages[s.Owner] >= pages[victim.Owner]:
				victim = s
			}
		}
		if victim == nil {
			return nil
		}
		out, tables = append(out, victim), append(tables, victim.pages)
		pages[victim.Owner] -= len(victim.pages)
		holds[victim.Owner]--
	}
	return out
}
