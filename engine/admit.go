package engine

import "github.com/parley-ai/parley/engine/kv"

// admit lets calls begin, and sequences that wait go on, while there is room; e.mu is
// held. The pages of a choice's whole budget are promised now, so it never runs out of
// room. Nobody overtakes the one whose turn it is, or a long request would starve: who
// has nothing running comes before who has, and of the first the one who has waited
// longest.
func (e *Engine) admit() {
	e.resume()
	for {
		s, c := e.paused(), e.queue.first(e.places)
		switch {
		case s != nil && (c == nil || e.precedes(s, c)):
			if !e.restore(s) {
				return
			}
		case c != nil:
			if !e.enter(c) {
				return
			}
		default:
			return
		}
	}
}

// resume gives free places to those who are paused and have their pages, the oldest
// first.
func (e *Engine) resume() {
	free := e.o.MaxSequences - e.active()
	for _, s := range e.running {
		if s.paused && s.pages != nil && free > 0 {
			s.paused, s.fresh = false, 0
			free--
		}
	}
}

// precedes reports whether the paused s comes before the waiting c.
func (e *Engine) precedes(s *sequence, c *call) bool {
	if e.places(c.Owner) > 0 {
		return true
	}
	return e.working(s.Owner) == 0 && s.ticket < c.ticket
}

// enter begins choices of a call that waits; false if there is no room for one.
func (e *Engine) enter(c *call) bool {
	starving := e.places(c.Owner) == 0
	if _, ok := e.seat(starving); !ok {
		return false
	}
	tables, cached := e.room(c)
	if len(tables) == 0 {
		return false
	}
	if yields, _ := e.seat(starving); yields != nil {
		e.pause(yields)
	}
	e.queue.served(c.Owner)
	e.begin(c, tables, cached)
	if c.admitted == c.Choices {
		e.queue.remove(c)
	}
	return true
}

// active is how many sequences have a place.
func (e *Engine) active() (n int) {
	for _, s := range e.running {
		if !s.paused {
			n++
		}
	}
	return n
}

// places is how many sequences of the owner have begun and not ended.
func (e *Engine) places(owner string) (n int) {
	for _, s := range e.running {
		if s.Owner == owner {
			n++
		}
	}
	return n
}

// working is how many of them have a place.
func (e *Engine) working(owner string) (n int) {
	for _, s := range e.running {
		if s.Owner == owner && !s.paused {
			n++
		}
	}
	return n
}

// room takes pages for as many of the choices of c as may begin now. Who has something
// running already leaves an eighth of the places and of the pages to others, so that
// who comes next need not take them from a long answer.
func (e *Engine) room(c *call) (tables []kv.Table, cached int) {
	need := kv.Need{Prefix: reusable(c.keys, len(c.Prompt)), Shared: len(c.Prompt), Length: len(c.Prompt) + c.MaxTokens}
	held := e.places(c.Owner)
	need.Tables = min(c.Choices-c.admitted, e.o.MaxSequences-e.o.MaxSequences/8-held, e.o.MaxSequences-e.active())
	if need.Spare = e.cache.Total() / 8; need.Tables > 0 {
		tables, cached = e.cache.Admit(need)
	}
	if held == 0 && len(tables) == 0 {
		need.Tables, need.Spare = 1, 0
		tables, cached = e.claim(need)
	}
	return tables, cached
}
