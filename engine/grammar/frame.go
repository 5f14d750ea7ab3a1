package grammar

// infinite is the cost of what cannot be completed. Sums of two costs fit an int32.
const infinite int32 = 1 << 29

// sum adds costs.
func sum(a, b int32) int32 { return min(a+b, infinite) }

// node is a place for a value: the schemas that apply there, and what they leave.
type node struct {
	path    string
	schemas []*schema
	alts    []*alt
	cost    int32 // of the cheapest value
	starts  [classes][]*alt
	users   []*node // those whose cost depends on this one's
	queued  bool
}

// kind is the form of an alternative.
type kind uint8

const (
	kindWords kind = iota
	kindString
	kindNumber
	kindArray
	kindObject
	kindCalls
)

// alt is one form a value may take; the part for its kind is set.
type alt struct {
	id     int32
	kind   kind
	cost   int32 // of the cheapest value, all its bytes
	words  *words
	str    *stringType
	num    *numberType
	array  *arrayType
	object *objectType
	calls  *callsType
}

// Classes of the first bytes of values.
const classes = 8

func class(b byte) int {
	switch {
	case b == '"':
		return 0
	case b == '{':
		return 1
	case b == '[':
		return 2
	case b == '-' || b >= '0' && b <= '9':
		return 3
	case b == 't':
		return 4
	case b == 'f':
		return 5
	case b == 'n':
		return 6
	}
	return 7
}

// frame is how far a value is written. The top frame of a thread is a value of its
// own; those below are shared and do not change, and stand where they go on once
// the one above is complete.
type frame struct {
	alt   *alt   // nil: the whole text
	below *frame // nil under the whole text
	names *names // of an object: its undeclared properties
	rest  int32  // tokens that complete everything below
	depth uint16 // frames below
	phase uint8
	space uint8 // white space so far, see addSpace
	// i, j, k and n depend on the kind; its file says how.
	i, j, k int32
	n       int64
}

// names is a list of properties that an object has got, as places in the text.
type names struct {
	before     *names
	start, end int32
	count      int32
}

// oneSpace in frame.space: one blank, after which there is no more. Else it counts: a line feed, and
// columns.
const oneSpace = 255

// addSpace takes white space between two parts of a value: nothing, one blank, or a
// line feed with an indentation. That is what people and json.dumps write; a model
// cannot run away in it: one that begins to indent by tabs tends not to end.
func addSpace(f frame, b byte) (frame, bool) {
	switch {
	case f.space == 0 && b == ' ':
		f.space = oneSpace
	case f.space == 0 && b == '\n':
		f.space = 1
	case f.space > 0 && f.space <= MaxIndent && b == ' ':
		f.space++
	case f.space > 0 && f.space <= MaxIndent-3 && b == '\t':
		f.space += 4
	default:
		return f, false
	}
	return f, true
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// machine steps frames. Its text is all bytes before the next one: names of
// properties are compared there.
type machine struct {
	v    *Vocab
	root *node
	text []byte
	work int // steps taken, each some 50 ns
}

// Phases of the whole text.
const (
	textBegin uint8 = iota
	textEnd
)

// own is the fewest tokens that complete the frame itself.
func (m *machine) own(f *frame) int32 {
	if f.alt == nil {
		if f.phase == textBegin {
			return m.root.cost
		}
		return 0
	}
	switch f.alt.kind {
	case kindWords:
		return f.alt.words.own(f)
	case kindString:
		return f.alt.str.own(m.v, f)
	case kindNumber:
		return f.alt.num.own(f)
	case kindArray:
		return f.alt.array.own(f)
	case kindObject:
		return f.alt.object.own(m, f)
	}
	return f.alt.calls.own(f)
}

// distance is the fewest tokens that complete the text, infinite in the middle of a
// character that single bytes cannot complete.
func (m *machine) distance(threads []frame) int32 {
	least := infinite
	for i := range threads {
		f := &threads[i]
		if f.rest < least {
			least = min(least, sum(m.own(f), f.rest))
		}
	}
	return least
}

// feed steps all threads by one byte, which it adds to the text, and appends what
// becomes of them to out, which must not share memory with threads.
func (m *machine) feed(threads []frame, b byte, out []frame) []frame {
	n := len(m.text)
	m.work += len(threads)
	for i := range threads {
		out = m.step(threads[i], b, out)
		// Each of many threads may begin as many values.
		if len(out) > 4*maxThreads {
			m.text = append(m.text, b)
			out = m.thin(out)
			m.text = m.text[:n]
		}
	}
	m.text = append(m.text, b)
	if len(out) > 1 {
		out = m.thin(out)
	}
	return out
}

// thin drops threads that are like another, and those too many: fewer texts are then
// allowed, but the cheapest way to close stays.
func (m *machine) thin(threads []frame) []frame {
	const compares = 32 // in a step
	out := threads[:1]
	for _, f := range threads[1:] {
		m.work += len(out) / compares
		twice := false
		for i := range out {
			if out[i].alt == f.alt && out[i] == f {
				twice = true
				break
			}
		}
		if !twice {
			out = append(out, f)
		}
	}
	if len(out) > maxThreads {
		best, least := 0, infinite
		for i := range out {
			if d := sum(m.own(&out[i]), out[i].rest); d < least {
				best, least = i, d
			}
		}
		if best >= maxThreads {
			out[maxThreads-1] = out[best]
		}
		out = out[:maxThreads]
	}
	return out
}

// step appends to out the threads that f becomes with b: none, one, or several where
// alternatives begin alike.
func (m *machine) step(f frame, b byte, out []frame) []frame {
	if f.alt == nil {
		if f.phase != textBegin {
			return out
		}
		f.phase = textEnd
		return m.value(f, m.root, b, out)
	}
	switch f.alt.kind {
	case kindWords:
		return f.alt.words.step(m, f, b, out)
	case kindString:
		if g, ok := f.alt.str.step(f, b); ok {
			if g.phase == strEnd {
				return append(out, *f.below)
			}
			return append(out, g)
		}
	case kindNumber:
		if g, ok := f.alt.num.next(f, b); ok {
			return append(out, g)
		}
		if f.alt.num.own(&f) == 0 {
			return m.step(*f.below, b, out)
		}
	case kindArray:
		return f.alt.array.step(m, f, b, out)
	case kindObject:
		return f.alt.object.step(m, f, b, out)
	case kindCalls:
		return f.alt.calls.step(m, f, b, out)
	}
	return out
}

// value begins a value of n with b. after is the frame that holds it, as it goes on
// when the value is complete.
func (m *machine) value(after frame, n *node, b byte, out []frame) []frame {
	alts := n.starts[class(b)]
	if len(alts) == 0 {
		return out
	}
	held := after // only what holds something moves to the heap
	below := &held
	rest := sum(after.rest, m.own(below))
	m.work += len(alts)
	for _, a := range alts {
		f := frame{alt: a, below: below, rest: rest, depth: after.depth + 1}
		switch a.kind {
		case kindWords:
			f.j = int32(len(a.words.texts))
			out = a.words.step(m, f, b, out)
		case kindString, kindArray, kindObject:
			out = append(out, f) // the byte said it all
		case kindNumber:
			if g, ok := a.num.first(f, b); ok {
				out = append(out, g)
			}
		case kindCalls:
			out = a.calls.step(m, f, b, out)
		}
	}
	return out
}
