package grammar

import (
	"encoding/binary"
	"sync"
)

// cache keeps what walks found, by state. It is emptied when it is full: the states
// that matter are soon there again.
type cache struct {
	mu    sync.Mutex
	lists map[string]found
	size  int
}

// found is what a walk found. alone tells that it followed one thread only.
type found struct {
	list  []gain
	alone bool
}

// maxCache bounds a grammar's cache, in bytes.
const maxCache = 1 << 20

func (c *cache) get(key []byte) (found, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.lists[string(key)]
	return f, ok
}

func (c *cache) put(key []byte, f found) {
	size := len(key) + 100
	for _, g := range f.list {
		size += 56 + 4*cap(g.ids) + 8*cap(g.bits)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size+size > maxCache || c.lists == nil {
		c.lists, c.size = map[string]found{}, 0
	}
	if size <= maxCache {
		c.lists[string(key)] = f
		c.size += size
	}
}

// appendKey writes what the next token's gain depends on: the state without the
// frames that no token reaches, and with counts only as far as a token can count.
func (m *Matcher) appendKey(key []byte) []byte {
	for i := range m.threads {
		f := &m.threads[i]
		// How far threads are apart decides which one is the nearest afterwards.
		key = binary.AppendVarint(key, int64(sum(m.own(f), f.rest)-m.dist))
		// The top frame may be a scalar; each further one takes a closer to be left,
		// and one more is where the last closer leads.
		n := min(int(f.depth)+1, m.v.closers+3)
		key = binary.AppendUvarint(key, uint64(n))
		for range n {
			key = m.appendFrame(key, f)
			f = f.below
		}
	}
	return key
}

func (m *Matcher) appendFrame(key []byte, f *frame) []byte {
	id := int32(0)
	if f.alt != nil {
		id = f.alt.id
	}
	key = binary.AppendUvarint(key, uint64(id))
	key = append(key, f.phase, f.space)
	i, j, k, n := f.i, f.j, f.k, f.n
	if f.alt != nil {
		switch f.alt.kind {
		case kindString:
			if t := f.alt.str; t.dfa == nil {
				i, j = m.clamp(t.min, t.max, i)
			}
		case kindArray:
			if t := f.alt.array; int(i) >= len(t.prefix) {
				i, j = m.clamp(t.min, t.max, i)
			}
		case kindObject:
			return m.appendObject(key, f)
		}
	}
	for _, x := range []int32{i, j, k} {
		key = binary.AppendVarint(key, int64(x))
	}
	return binary.AppendVarint(key, n)
}

// clamp is what a token can tell of a count between bounds: what is needed and what
// there is room for.
func (m *Matcher) clamp(least, most, count int32) (need, room int32) {
	far := int32(m.v.longest) + 1
	room = far
	if most < noLimit {
		room = min(most-count, far)
	}
	return min(max(least-count, 0), far), room
}

// appendObject writes the frame of an object. Its undeclared names decide about the
// next one.
func (m *Matcher) appendObject(key []byte, f *frame) []byte {
	t := f.alt.object
	room := int32(0)
	if t.max < noLimit {
		room = t.max - f.j
	}
	for _, x := range []int32{f.i, max(t.min-f.j, 0), room, f.k} {
		key = binary.AppendVarint(key, int64(x))
	}
	switch {
	case f.phase == objectName, f.phase == objectFree && m.v.renames:
		// Where the name begins in the text does not matter, what is there does.
		key = appendName(key, m.text[f.n:])
	case f.phase == objectKey:
		key = binary.AppendVarint(key, f.n)
	}
	if f.names == nil {
		return append(key, 0)
	}
	key = binary.AppendUvarint(key, uint64(f.names.count))
	for n := f.names; n != nil; n = n.before {
		key = appendName(key, m.text[n.start:n.end])
	}
	return key
}

func appendName(key, name []byte) []byte {
	return append(binary.AppendUvarint(key, uint64(len(name))), name...)
}
