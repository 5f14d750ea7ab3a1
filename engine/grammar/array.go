package grammar

// arrayType is arrays that a schema allows. A frame on it has i items, counted up to
// full where more make no difference.
type arrayType struct {
	prefix    []*node
	items     *node // after the prefix
	min, most int32 // of the schema; most noLimit: any number
	max       int32 // of what items there can be
	// tail, by number of items up to len(prefix), is the fewest tokens that complete
	// the array after an item.
	tail []int32
}

// Phases of an array.
const (
	arrayOpen  uint8 = iota // after the bracket
	arrayAfter              // after an item
	arrayNext               // after a comma
)

// item returns the node of the i-th item, nil if there may be none.
func (t *arrayType) item(i int32) *node {
	switch {
	case i >= t.max:
		return nil
	case int(i) < len(t.prefix):
		return t.prefix[i]
	}
	return t.items
}

// full is the number of items from which on the count makes no difference.
func (t *arrayType) full() int32 {
	if t.max < noLimit {
		return noLimit
	}
	return max(t.min, int32(len(t.prefix)))
}

// settle works out max and the tails from the costs of the nodes.
func (t *arrayType) settle() {
	t.max = t.most
	for i, n := range t.prefix {
		if n.cost >= infinite {
			t.max = min(t.max, int32(i))
		}
	}
	if t.items.cost >= infinite {
		t.max = min(t.max, int32(len(t.prefix)))
	}
	t.tail = make([]int32, len(t.prefix)+1)
	for i := len(t.prefix); i >= 0; i-- {
		count := int32(i)
		switch {
		case count >= t.min:
			t.tail[i] = 1
		case t.item(count) == nil:
			t.tail[i] = infinite
		case i < len(t.prefix):
			t.tail[i] = sum(sum(1, t.prefix[i].cost), t.tail[i+1])
		default:
			t.tail[i] = t.repeat(t.min - count)
		}
	}
}

// repeat is the cost of n more items after the prefix, and of the bracket.
func (t *arrayType) repeat(n int32) int32 {
	if n <= 0 {
		return 1
	}
	return int32(min(int64(n)*int64(sum(1, t.items.cost))+1, int64(infinite)))
}

// after is own after i items.
func (t *arrayType) after(i int32) int32 {
	if int(i) < len(t.prefix) {
		return t.tail[i]
	}
	return t.repeat(t.min - i)
}

// cost is the fewest tokens of a whole array.
func (t *arrayType) cost() int32 {
	t.settle()
	if t.max < t.min {
		return infinite
	}
	if t.min == 0 {
		return 2
	}
	return t.tail[0] // one comma less, one bracket more
}

func (t *arrayType) own(f *frame) int32 {
	switch {
	case f.phase == arrayAfter && f.space > 0:
		return 1
	case f.phase == arrayAfter:
		return t.after(f.i)
	case f.phase == arrayOpen && t.min == 0:
		return 1
	}
	return sum(t.item(f.i).cost, t.after(f.i+1))
}

func (t *arrayType) step(m *machine, f frame, b byte, out []frame) []frame {
	mayEnd := f.phase == arrayOpen && t.min == 0 || f.phase == arrayAfter && f.i >= t.min
	if isSpace(b) {
		// After an item a line feed only leads to the end: nobody writes it before a comma.
		if g, ok := addSpace(f, b); ok && (mayEnd || f.phase != arrayAfter) {
			return append(out, g)
		}
		return out
	}
	if b == ']' {
		if mayEnd {
			return append(out, *f.below)
		}
		return out
	}
	next := t.item(f.i)
	if next == nil {
		return out
	}
	if f.phase == arrayAfter {
		if b == ',' && f.space == 0 {
			f.phase = arrayNext
			return append(out, f)
		}
		return out
	}
	f.phase, f.space = arrayAfter, 0
	f.i = min(f.i+1, t.full())
	return m.value(f, next, b, out)
}
