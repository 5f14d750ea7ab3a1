package grammar

import (
	"math"
	"slices"
)

// Matcher is one generation's place in a grammar. It serves one goroutine at a time;
// matchers of one grammar are independent of each other.
//
// The budget left, an argument of [Matcher.Allows] and [Matcher.Mask], is the tokens
// that may still be written, the next one included. As long as each token was
// allowed with the budget of its time, and the first budget was at least
// [Grammar.Least], some token is allowed, and when the budget is used up the text is
// complete. The end-of-text token takes nothing of the budget.
type Matcher struct {
	machine
	g       *Grammar
	threads []frame
	dist    int32 // their distance
	ended   bool

	// The token that Allows looked at last, which is mostly the one to be accepted.
	tried     int32 // -1: none
	triedDist int32
	trial     []frame

	spare   []frame
	levels  [][]frame // of a walk, by depth
	strings []frame   // likewise, in one string
	bits    bitset
	key     []byte
}

func newMatcher(g *Grammar) *Matcher {
	m := &Matcher{g: g, tried: -1, dist: g.root.cost}
	m.machine = machine{v: g.vocab, root: g.root}
	m.threads = []frame{{}}
	return m
}

// Done reports whether the text is complete: it may end here.
func (m *Matcher) Done() bool { return m.dist == 0 }

// MustEnd reports whether the text is complete and nothing may follow. Only the
// end-of-text token is then allowed; there is no need to compute one.
func (m *Matcher) MustEnd() bool {
	if m.ended || m.dist > 0 {
		return m.ended
	}
	for b := range 256 {
		m.spare = m.try(m.threads, byte(b), m.spare[:0])
		if len(m.spare) > 0 {
			return false
		}
	}
	return true
}

// Distance returns the fewest tokens that complete the text.
func (m *Matcher) Distance() int { return int(m.dist) }

// try is feed without the byte in the text afterwards.
func (m *Matcher) try(threads []frame, b byte, out []frame) []frame {
	n := len(m.text)
	out = m.feed(threads, b, out)
	m.text = m.text[:n]
	return out
}

// allowance is the greatest distance that a next token may leave. What nests too
// deep may only be closed.
func (m *Matcher) allowance(left int) int32 {
	for i := range m.threads {
		if m.threads[i].depth > MaxNesting {
			left = min(left, int(m.dist))
		}
	}
	return int32(min(left-1, int(infinite)-1))
}

// Allows reports whether the token may be next with a budget of left.
func (m *Matcher) Allows(id int32, left int) bool {
	if m.v.ending[id] {
		return m.Done()
	}
	return m.look(id) && m.triedDist <= m.allowance(left)
}

// look steps the threads through a token into trial. It reports whether the grammar
// has the token here.
func (m *Matcher) look(id int32) bool {
	if id == m.tried {
		return len(m.trial) > 0
	}
	m.tried, m.trial = id, m.trial[:0]
	if m.ended || id < 0 || int(id) >= len(m.v.pieces) || m.v.pieces[id] == nil {
		return false
	}
	m.run(m.v.pieces[id])
	return len(m.trial) > 0
}

// run steps the threads through the bytes into trial.
func (m *Matcher) run(bytes []byte) {
	n := len(m.text)
	m.trial = append(m.trial[:0], m.threads...)
	for _, b := range bytes {
		m.trial, m.spare = m.feed(m.trial, b, m.spare[:0]), m.trial
		if len(m.trial) == 0 {
			break
		}
	}
	m.triedDist = m.distance(m.trial)
	m.text = m.text[:n]
}

// Accept adds a token. It reports false, and changes nothing, if the grammar does not
// have it here; what it costs is not looked at. After an end-of-text token, which is
// accepted when the text is complete, nothing is allowed.
func (m *Matcher) Accept(id int32) bool {
	if m.v.ending[id] {
		if m.ended || !m.Done() {
			return false
		}
		m.ended = true
		m.tried = -1
		return true
	}
	if !m.look(id) {
		return false
	}
	m.commit(m.v.pieces[id])
	return true
}

// AcceptBytes adds text that does not come from a token of its own: what the prompt
// has begun, or what follows a mark within the token that ended it. Like
// [Matcher.Accept] it reports false and changes nothing if the grammar does not have
// it here. The budget must still suffice afterwards, see [Matcher.Distance].
func (m *Matcher) AcceptBytes(text []byte) bool {
	m.tried = -1
	if m.ended {
		return false
	}
	if m.run(text); len(m.trial) == 0 {
		return false
	}
	m.commit(text)
	return true
}

// commit makes the trial of the bytes the state.
func (m *Matcher) commit(bytes []byte) {
	m.text = append(m.text, bytes...)
	m.threads, m.trial = m.trial, m.threads[:0]
	m.dist, m.tried = m.triedDist, -1
}

// Mask returns the tokens that may be next with a budget of left: bit i of word w is
// token 64*w+i. It holds all that Allows allows, but where an adversarial schema has
// so many branches that looking at all would take too long; it is never empty before
// the end. The slice is valid until the next call and must not be written.
func (m *Matcher) Mask(left int) []uint64 {
	if m.bits == nil {
		m.bits = newBitset(len(m.v.pieces))
	}
	clear(m.bits)
	if m.ended {
		return m.bits
	}
	if m.Done() {
		for _, id := range m.v.ends {
			m.bits.add(id)
		}
	}
	most := m.allowance(left) - m.dist
	for _, g := range m.gains() {
		if g.gain > most {
			break
		}
		for _, id := range g.ids {
			m.bits.add(id)
		}
		if g.bits != nil {
			m.bits.or(g.bits)
		}
	}
	return m.bits
}

// gain is tokens that change the distance by the same number.
type gain struct {
	gain int32
	ids  []int32
	bits bitset // more of them, shared
}

// gains returns the tokens that the grammar has here, by rising gain.
func (m *Matcher) gains() []gain {
	m.key = m.appendKey(m.key[:0])
	f, ok := m.g.cache.get(m.key)
	if !ok {
		f = m.walkAll()
		m.g.cache.put(m.key, f)
	}
	if f.alone {
		m.narrow()
	}
	return f.list
}

// maxWalk bounds the steps of one walk, some 20 ms; beyond, only the thread that is
// nearest to its end is followed from here on, which is enough to get there.
const maxWalk = 1 << 18

func (m *Matcher) walkAll() found {
	w := walk{m: m, from: m.threads, left: maxWalk}
	if w.run() {
		return found{list: w.list()}
	}
	m.narrow()
	w = walk{m: m, from: m.threads, left: math.MaxInt}
	w.run()
	return found{w.list(), true}
}

// narrow leaves the thread that is nearest to its end.
func (m *Matcher) narrow() {
	for i := range m.threads {
		if sum(m.own(&m.threads[i]), m.threads[i].rest) == m.dist {
			m.threads[0] = m.threads[i]
			break
		}
	}
	m.threads, m.tried = m.threads[:1], -1
}

// walk finds the tokens that may follow.
type walk struct {
	m     *Matcher
	from  []frame
	left  int // steps that may still be taken
	found []gain
}

// run reports whether all was seen within the limit.
func (w *walk) run() bool {
	rest := w.from[:0:0]
	for i := range w.from {
		text, ok := w.text(&w.from[i])
		if !ok {
			return false
		}
		if !text {
			rest = append(rest, w.from[i])
		}
	}
	return (len(rest) == 0 || w.trie(&w.m.v.plain, rest)) && w.trie(&w.m.v.other, w.from)
}

// trie walks all tokens that the threads take.
func (w *walk) trie(t *trie, from []frame) bool {
	m := w.m
	base := len(m.text)
	defer func() { m.text = m.text[:base] }()
	for len(m.levels) <= m.v.longest {
		m.levels = append(m.levels, nil)
	}
	m.levels[0] = append(m.levels[0][:0], from...)
	for at := int32(0); int(at) < len(t.nodes); {
		n := &t.nodes[at]
		above := m.levels[n.depth-1]
		m.text = m.text[:base+int(n.depth)-1]
		before := m.work
		out := m.feed(above, n.b, m.levels[n.depth][:0])
		m.levels[n.depth] = out
		if w.left -= m.work - before; w.left < 0 {
			return false
		}
		if len(out) == 0 {
			at = n.skip
			continue
		}
		if n.ids < n.end {
			if d := m.distance(out); d < infinite {
				w.add(d-m.dist, t.ids[n.ids:n.end]...)
			}
		}
		at++
	}
	return true
}

// add notes tokens with their gain.
func (w *walk) add(g int32, ids ...int32) {
	f := w.at(g)
	f.ids = append(f.ids, ids...)
}

// at returns the entry of a gain.
func (w *walk) at(g int32) *gain {
	i, ok := slices.BinarySearchFunc(w.found, g, func(f gain, g int32) int { return int(f.gain) - int(g) })
	if !ok {
		w.found = slices.Insert(w.found, i, gain{gain: g})
	}
	return &w.found[i]
}

// list returns what was found, without waste: it is kept.
func (w *walk) list() []gain {
	words := (len(w.m.v.pieces) + 63) / 64
	for i := range w.found {
		f := &w.found[i]
		if f.bits == nil && len(f.ids) > 2*words {
			f.bits = newBitset(len(w.m.v.pieces))
			for _, id := range f.ids {
				f.bits.add(id)
			}
			f.ids = nil
		}
		f.ids = slices.Clip(f.ids)
	}
	return slices.Clip(w.found)
}
