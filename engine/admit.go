package engine

import "github.com/parley-ai/parley/engine/kv"

// admit lets calls begin while there is room; e.mu is held. The pages of a choice's
// whole budget are promised now, so it never runs out of room. Nobody overtakes the
// one whose turn it is, or a long request would starve.
func (e *Engine) admit() {
	e.resume()
	for e.queue.n > 0 {
		c := e.queue.first(e.places)
		var yields *sequence
		if e.active() >= e.o.MaxSequences {
			if yields = e.yielding(c.Owner); yields == nil {
				return
			}
		}
		tables, cached := e.room(c)
		if len(tables) == 0 {
			return
		}
		if yields != nil {
			yields.paused = true
		}
		e.queue.served(c.Owner)
		e.begin(c, tables, cached)
		if c.admitted == c.Choices {
			e.queue.remove(c)
		}
	}
}

// resume gives free places to those who are paused, the oldest first.
func (e *Engine) resume() {
	free := e.o.MaxSequences - e.active()
	for _, s := range e.running {
		if s.paused && free > 0 {
			s.paused = false
			free--
		}
	}
}

// yielding is who gives its place up for the first sequence of an owner when no place
// is free: the newest sequence of the owner who has the most, or nil if that is one.
// It keeps its pages, so a pause costs it nothing but time.
func (e *Engine) yielding(newcomer string) (last *sequence) {
	if e.places(newcomer) > 0 {
		return nil
	}
	most, active := 1, map[string]int{}
	for _, s := range e.running {
		if !s.paused {
			active[s.Owner]++
		}
	}
	for _, s := range e.running {
		if n := active[s.Owner]; !s.paused && (n > most || n == most && last != nil) {
			most, last = n, s
		}
	}
	return last
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

// room takes pages for as many of the choices of c as may begin now. Who has something
// running already leaves an eighth of the places and of the pages to others, so that
// who comes next need not wait until a long answer ends.
func (e *Engine) room(c *call) (tables []kv.Table, cached int) {
	need := kv.Need{Prefix: reusable(c.keys, len(c.Prompt)), Shared: len(c.Prompt), Length: len(c.Prompt) + c.MaxTokens}
	held := e.places(c.Owner)
	need.Tables = min(c.Choices-c.admitted, e.o.MaxSequences-e.o.MaxSequences/8-held, e.o.MaxSequences-e.active())
	if need.Spare = e.cache.Total() / 8; need.Tables > 0 {
		tables, cached = e.cache.Admit(need)
	}
	if held == 0 && len(tables) == 0 {
		need.Tables, need.Spare = 1, 0
		tables, cached = e.cache.Admit(need)
	}
	return tables, cached
}
