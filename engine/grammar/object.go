package grammar

import (
	"fmt"
	"slices"
)

// objectType is objects that a schema allows. Declared properties are written in the
// order of the schema, those that are optional may be left out, undeclared ones come
// last. A frame on it is before declared property i and has j properties, which no
// longer count once nothing depends on them.
type objectType struct {
	path     string
	props    []member
	other    *otherType // undeclared properties; nil: none
	min, max int32      // properties in all; max noLimit: any number

	keys  *words  // name, quote and colon of each property, sorted
	order []int32 // of keys: the property
	// next, required, by property, are the first required one from it on, and their
	// number.
	next, required []int32
	// closing[need*(len(props)+1)+i] is the fewest tokens that complete the object
	// from before property i on with at least need more of them, without the brace.
	closing []int32
}

// member is a declared property.
type member struct {
	name     string
	node     *node
	required bool
	key      []int32 // costs of name, quote and colon from each byte on
}

// Phases of an object.
const (
	objectOpen  uint8 = iota // after the brace
	objectKey                // in a declared name: keys n>>32 to n&mask, k bytes of them
	objectName               // in an undeclared name that may become another's: see otherType
	objectFree               // in one that cannot
	objectColon              // after an undeclared name: k is its class
	objectValue              // before the value of property i-1
	objectOther              // before the value of an undeclared name of class k
	objectAfter              // after a value
	objectNext               // after a comma
)

// spellKeys makes the sorted keys of the properties.
func (t *objectType) spellKeys(v *Vocab) {
	var texts []string
	place := map[string]int32{}
	for i := range t.props {
		quoted := string(appendString(nil, t.props[i].name))
		key := quoted[1:] + ":"
		texts = append(texts, key)
		place[key] = int32(i)
	}
	t.keys = newWords(v, texts)
	t.order = make([]int32, len(t.keys.texts))
	for k, key := range t.keys.texts {
		t.order[k] = place[key]
		t.props[place[key]].key = t.keys.costs[k]
	}
}

// tabulate works out the tables from the costs of the nodes.
func (t *objectType) tabulate() {
	n := len(t.props)
	t.next, t.required = make([]int32, n+1), make([]int32, n+1)
	t.next[n] = int32(n)
	for i := n - 1; i >= 0; i-- {
		t.next[i], t.required[i] = t.next[i+1], t.required[i+1]
		if t.props[i].required {
			t.next[i] = int32(i)
			t.required[i]++
		}
	}
	t.closing = slices.Grow(t.closing[:0], (int(t.min)+1)*(n+1))[:(int(t.min)+1)*(n+1)]
	other := infinite
	if t.other != nil {
		t.other.tabulate()
		other = sum(1, t.other.cost())
	}
	for need := int32(0); need <= t.min; need++ {
		row := t.closing[int(need)*(n+1):]
		row[n] = 0
		if need > 0 {
			row[n] = sum(other, t.closing[int(need-1)*(n+1)+n])
		}
		for i := n - 1; i >= 0; i-- {
			p := &t.props[i]
			taken := sum(sum(1, p.cost()), t.closing[int(max(need-1, 0))*(n+1)+i+1])
			if row[i] = taken; !p.required {
				row[i] = min(taken, row[i+1])
			}
		}
	}
}

// cost is the fewest tokens of the property, its first quote included.
func (p *member) cost() int32 { return sum(sum(1, p.key[0]), p.node.cost) }

// end is the fewest tokens that complete the object after count properties, those
// before i written or left out, with the brace.
func (t *objectType) end(i, count int32) int32 {
	need := max(t.min-count, 0)
	return sum(t.closing[int(need)*(len(t.props)+1)+int(i)], 1)
}

// cost is the fewest tokens of a whole object.
func (t *objectType) cost() int32 {
	t.tabulate()
	if t.required[0] > t.max || t.min > t.max {
		return infinite
	}
	return sum(1, t.open())
}

// open is own after the brace: the first property needs no comma.
func (t *objectType) open() int32 {
	c := t.end(0, 0)
	if c > 1 && c < infinite {
		c--
	}
	return c
}

// count returns j after another property, as far as it matters.
func (t *objectType) count(j int32) int32 {
	if t.max == noLimit && j >= t.min {
		return j
	}
	return j + 1
}

// take is own with declared property p next, from byte k of its key on; infinite if
// it cannot be next.
func (t *objectType) take(f *frame, p, k int32) int32 {
	m := &t.props[p]
	if p < f.i || p > t.next[f.i] || f.j+1+t.required[p+1] > t.max {
		return infinite
	}
	return sum(sum(m.key[k], m.node.cost), t.end(p+1, t.count(f.j)))
}

// declared is own in a declared name: keys lo..hi-1 are possible, k bytes are there.
func (t *objectType) declared(f *frame, lo, hi, k int32) int32 {
	least := infinite
	for _, p := range t.order[lo:hi] {
		least = min(least, t.take(f, p, k))
	}
	return least
}

// undeclared is own at the beginning of an undeclared name, infinite if there may be
// none.
func (t *objectType) undeclared(m *machine, f *frame) int32 {
	n := int32(len(t.props))
	if t.other == nil || t.next[f.i] != n || f.j+1 > t.max || f.names != nil && f.names.count >= MaxUndeclared {
		return infinite
	}
	return sum(t.other.name(m, 0, "", f.names), t.end(n, t.count(f.j)))
}

// key is own before the quote of a name.
func (t *objectType) key(m *machine, f *frame) int32 {
	// Declared ones that may be next are those up to the first that must be.
	least := infinite
	for p := f.i; p <= t.next[f.i] && int(p) < len(t.props); p++ {
		least = min(least, t.take(f, p, 0))
	}
	return sum(1, min(least, t.undeclared(m, f)))
}

func (t *objectType) mayEnd(f *frame) bool {
	return int(t.next[f.i]) == len(t.props) && f.j >= t.min
}

func (t *objectType) own(m *machine, f *frame) int32 {
	switch f.phase {
	case objectOpen:
		return t.open()
	case objectKey:
		return t.declared(f, int32(f.n>>32), int32(f.n&0xffffffff), f.k)
	case objectName, objectFree:
		if f.space != strText && !m.v.continues {
			return infinite
		}
		return sum(t.other.rest(m, f, m.text), t.end(f.i, t.count(f.j)))
	case objectColon:
		return sum(sum(1, t.other.nodes[f.k].cost), t.end(f.i, f.j))
	case objectValue:
		return sum(t.props[f.i-1].node.cost, t.end(f.i, f.j))
	case objectOther:
		return sum(t.other.nodes[f.k].cost, t.end(f.i, f.j))
	case objectNext:
		return t.key(m, f)
	}
	if f.space > 0 {
		return 1
	}
	return t.end(f.i, f.j)
}

func (t *objectType) step(m *machine, f frame, b byte, out []frame) []frame {
	switch f.phase {
	case objectKey:
		return t.stepKey(f, b, out)
	case objectName, objectFree:
		if g, ok := t.other.step(m, f, b); ok {
			if g.phase == objectColon {
				g.j = t.count(g.j)
			}
			out = append(out, g)
		}
		return out
	case objectColon:
		if b == ':' {
			f.phase = objectOther
			out = append(out, f)
		}
		return out
	}
	if isSpace(b) {
		if g, ok := addSpace(f, b); ok && (f.phase != objectAfter || t.mayEnd(&f)) {
			out = append(out, g)
		}
		return out
	}
	switch f.phase {
	case objectValue, objectOther:
		n := t.props
		var sub *node
		if f.phase == objectValue {
			sub = n[f.i-1].node
		} else {
			sub = t.other.nodes[f.k]
		}
		f.phase, f.space, f.k = objectAfter, 0, 0
		return m.value(f, sub, b, out)
	case objectAfter:
		if b == ',' && f.space == 0 {
			f.phase = objectNext
			if t.key(m, &f) < infinite {
				out = append(out, f)
			}
			return out
		}
	case objectOpen, objectNext:
		if b == '"' {
			return t.begin(m, f, out)
		}
	}
	if b == '}' && f.phase != objectNext && t.mayEnd(&f) {
		return append(out, *f.below)
	}
	return out
}

// begin takes the quote before a name.
func (t *objectType) begin(m *machine, f frame, out []frame) []frame {
	f.space = 0
	n := int32(len(t.order))
	if t.declared(&f, 0, n, 0) < infinite {
		g := f
		g.phase, g.k, g.n = objectKey, 0, int64(n)
		out = append(out, g)
	}
	if t.undeclared(m, &f) < infinite {
		f.phase, f.i, f.k, f.n = objectName, int32(len(t.props)), 0, int64(len(m.text)+1)
		if len(t.other.declared) == 0 && f.names == nil {
			f.phase = objectFree
		}
		out = append(out, f)
	}
	return out
}

func (t *objectType) stepKey(f frame, b byte, out []frame) []frame {
	lo, hi := t.keys.narrow(int32(f.n>>32), int32(f.n&0xffffffff), f.k, b)
	f.n = int64(lo)<<32 | int64(hi)
	f.k++
	// In the middle of a token the rest may have no spelling; the whole must.
	if lo == hi || t.declared(&f, lo, hi, 0) >= infinite {
		return out
	}
	if t.keys.complete(lo, f.k) { // no key is the beginning of another
		f.i = t.order[lo] + 1
		f.j = t.count(f.j)
		f.phase, f.k, f.n = objectValue, 0, 0
	}
	return append(out, f)
}

// maxClosing bounds the table of an object.
const maxClosing = 1 << 18

// check refuses counts that no object can have, or whose table would be huge.
func (t *objectType) check() error {
	if most := len(t.props) + MaxUndeclared; int(t.min) > most {
		return &Error{t.path, fmt.Sprintf("minProperties is above %d, what it names and %d more", most, MaxUndeclared)}
	}
	if (int(t.min)+1)*(len(t.props)+1) > maxClosing {
		return &Error{t.path, "minProperties with so many properties takes too much memory"}
	}
	return nil
}
