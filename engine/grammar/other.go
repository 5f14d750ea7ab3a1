package grammar

import (
	"github.com/parley-ai/parley/engine/grammar/regex"
)

// otherType is the properties of an object that its schema does not name. Their
// names have no escapes, so that a name given twice is the same bytes, and at least
// one character.
//
// In the phases of a name a frame is in state k; n is where the name begins in the
// text, and space the phase of a character that is begun. A name that no other begins
// with is free: it need not be compared any more.
type otherType struct {
	dfa *regex.DFA // nil: any name; state 0 is then before it, 1 within
	// nodes are the values' places, class tells by state which one a name that ends
	// there has; -1: there may be none.
	nodes []*node
	class []int32
	// declared are the names that are taken, sorted.
	declared []string
	colon    int32 // tokens of the quote and the colon
	// chars are characters that lead to every state that any does, the cheapest.
	chars []char

	// final, dist, by state, are the fewest tokens with the value, if the name ends
	// there, and if it may go on.
	final, dist []int32
}

// char is a character with its tokens, if each byte is one.
type char struct {
	r     rune
	first byte
	cost  int32
}

// printable are the characters that names and strings may always have, each a token.
const printable = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_- !#$%&'()*+,./:;<=>?@[]^`{|}~"

// setChars fills chars: of what is not ASCII one of each class that patterns tell
// apart.
func (t *otherType) setChars(v *Vocab) {
	for _, r := range printable {
		t.chars = append(t.chars, char{r, byte(r), 1})
	}
	if t.dfa == nil {
		return
	}
	for c := range t.dfa.Classes() {
		if r, _ := t.dfa.Class(c); r >= 0x80 {
			if cost := v.character(r, r); cost < infinite {
				t.chars = append(t.chars, char{r, string(r)[0], cost})
			}
		}
	}
}

// after returns the state after a character.
func (t *otherType) after(q int32, r rune) int32 {
	if t.dfa == nil {
		return 1
	}
	return t.dfa.Step(q, r)
}

// tabulate works out final and dist from the costs of the nodes.
func (t *otherType) tabulate() {
	t.final, t.dist = make([]int32, len(t.class)), make([]int32, len(t.class))
	for q, c := range t.class {
		t.final[q] = infinite
		if c >= 0 {
			t.final[q] = sum(t.colon, t.nodes[c].cost)
		}
		t.dist[q] = t.final[q]
	}
	if t.dfa == nil {
		t.dist[0] = sum(1, t.dist[1])
		return
	}
	for again := true; again; {
		again = false
		for q := range t.dist {
			for _, c := range t.chars {
				if to := t.after(int32(q), c.r); to != regex.Dead && sum(c.cost, t.dist[to]) < t.dist[q] {
					t.dist[q] = sum(c.cost, t.dist[to])
					again = true
				}
			}
		}
	}
}

// cost is the fewest tokens of an undeclared property, its first quote included,
// whatever others there are.
func (t *otherType) cost() int32 {
	if t.dfa == nil {
		// Of two characters there are more names than an object may have properties.
		return sum(3, t.final[1])
	}
	return sum(1, t.name(nil, 0, "", nil))
}

// taken reports whether a property has the name, and adds to next the bytes that
// follow it in longer ones. begun tells whether there is any of either.
func (t *otherType) taken(m *machine, name string, seen *names, next *[256]bool) (taken, begun bool) {
	lo, hi := 0, len(t.declared)
	if name != "" {
		w := words{texts: t.declared}
		lo, hi = w.find(name)
	}
	for _, s := range t.declared[lo:hi] {
		begun = true
		if len(s) == len(name) {
			taken = true
		} else {
			next[s[len(name)]] = true
		}
	}
	for ; seen != nil; seen = seen.before {
		s := m.text[seen.start:seen.end]
		if len(s) < len(name) || string(s[:len(name)]) != name {
			continue
		}
		begun = true
		if len(s) == len(name) {
			taken = true
		} else {
			next[s[len(name)]] = true
		}
	}
	return taken, begun
}

// name is the fewest tokens that complete the property after the bytes name of its
// name, in state q.
func (t *otherType) name(m *machine, q int32, name string, seen *names) int32 {
	var next [256]bool
	taken, begun := t.taken(m, name, seen, &next)
	if !begun {
		return t.dist[q]
	}
	least := infinite
	if !taken {
		least = t.final[q]
	}
	for _, c := range t.chars {
		if to := t.after(q, c.r); !next[c.first] && to != regex.Dead {
			least = min(least, sum(c.cost, t.dist[to]))
		}
	}
	if least < infinite {
		return least
	}
	// Only what begins as another name does is left.
	for _, c := range t.chars {
		if to := t.after(q, c.r); next[c.first] && to != regex.Dead && t.dist[to] < infinite {
			least = min(least, sum(c.cost, t.name(m, to, name+string(c.r), seen)))
		}
	}
	return least
}

// rest is the fewest tokens that complete the property of a frame in a name, with
// which the text ends.
func (t *otherType) rest(m *machine, f *frame, text []byte) int32 {
	if f.phase == objectFree && (f.space == strText || t.dfa == nil) {
		return sum(missing(f.space), t.dist[f.k])
	}
	name := string(text[f.n:])
	if f.space == strText {
		return t.name(m, f.k, name, f.names)
	}
	name, phase, n := begun(name)
	lo, hi := reach(phase, n)
	least := infinite
	if t.dfa == nil {
		return sum(missing(phase), t.name(m, 1, name+string(lo), f.names))
	}
	// The least character of each class: as its bytes come it stays that.
	for c := t.dfa.ClassOf(lo); c < t.dfa.Classes(); c++ {
		r, _ := t.dfa.Class(c)
		if r = max(r, lo); r > hi {
			break
		}
		if to := t.dfa.Step(f.k, r); to != regex.Dead {
			least = min(least, sum(missing(phase), t.name(m, to, name+string(r), f.names)))
		}
	}
	return least
}

// begun takes the character that is begun from the end of a name.
func begun(name string) (before string, phase uint8, n int64) {
	i := len(name) - 1
	for name[i]&0xc0 == 0x80 {
		i--
	}
	for _, b := range []byte(name[i:]) {
		phase, n, _ = rune8(phase, n, b)
	}
	return name[:i], phase, n
}

// step takes a byte of a name, or the quote that ends it.
func (t *otherType) step(m *machine, f frame, b byte) (frame, bool) {
	if b == '"' && f.space == strText {
		if t.final[f.k] >= infinite {
			return f, false
		}
		if f.phase == objectName {
			var next [256]bool
			if taken, _ := t.taken(m, string(m.text[f.n:]), f.names, &next); taken {
				return f, false
			}
		}
		count := int32(1)
		if f.names != nil {
			count += f.names.count
		}
		f.names = &names{before: f.names, start: int32(f.n), end: int32(len(m.text)), count: count}
		f.phase, f.k, f.n = objectColon, t.class[f.k], 0
		return f, true
	}
	if b < ' ' || b == '"' || b == '\\' {
		return f, false
	}
	var n int64
	if f.space != strText && t.dfa != nil {
		_, _, n = begun(string(m.text[f.n:]))
	}
	phase, n, ok := rune8(f.space, n, b)
	if !ok {
		return f, false
	}
	f.space = phase
	switch {
	case t.dfa == nil:
		f.k = 1
	case phase == strText:
		if f.k = t.dfa.Step(f.k, rune(n)); f.k == regex.Dead {
			return f, false
		}
	}
	text := append(m.text, b)
	if f.phase == objectName && phase == strText {
		var next [256]bool
		if _, begun := t.taken(m, string(text[f.n:]), f.names, &next); !begun {
			f.phase = objectFree
		}
	}
	return f, t.dfa == nil || t.rest(m, &f, text) < infinite
}
