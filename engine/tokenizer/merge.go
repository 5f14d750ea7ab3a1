package tokenizer

// none is the rank of two neighbours that do not merge.
const none = int32(1<<31 - 1)

// pairs maps two neighbouring tokens to the rank of their merge and its token.
// It is an open-addressing table: a Go map costs twice the time here.
type pairs struct {
	keys  []uint64 // 0 is empty: the key is stored plus one
	vals  []uint64
	shift uint
}

func newPairs(n int) pairs {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	return pairs{keys: make([]uint64, 1<<bits), vals: make([]uint64, 1<<bits), shift: 64 - bits}
}

func (p *pairs) slot(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> p.shift }

// add keeps the first of two merges of the same pair.
func (p *pairs) add(a, b, rank, id int32) {
	key := uint64(a)<<32 | uint64(b) + 1
	i := p.slot(key)
	for ; p.keys[i] != 0; i = (i + 1) & uint64(len(p.keys)-1) {
		if p.keys[i] == key {
			return
		}
	}
	p.keys[i], p.vals[i] = key, uint64(rank)<<32|uint64(id)
}

func (p *pairs) get(a, b int32) (rank, id int32) {
	key := uint64(a)<<32 | uint64(b) + 1
	for i := p.slot(key); ; i = (i + 1) & uint64(len(p.keys)-1) {
		switch p.keys[i] {
		case key:
			return int32(p.vals[i] >> 32), int32(uint32(p.vals[i]))
		case 0:
			return none, -1
		}
	}
}

// merger holds the scratch space of merges. The zero value is ready.
type merger struct {
	nodes []node
	heap  []uint64
}

// node is a token of a word in the making: prev and next are its neighbours,
// rank and into the merge with the next.
type node struct {
	id, prev, next, rank, into int32
}

// small is the length up to which looking through all ranks beats a heap.
const small = 40

// merge appends the tokens of a word whose bytes all have one.
func (m *merger) merge(tk *Tokenizer, out []int32, w []byte) []int32 {
	if len(w) <= small {
		return mergeSmall(tk, out, w)
	}
	m.start(tk, w)
	for len(m.heap) > 0 {
		top := m.pop()
		at, rank := int32(uint32(top)), int32(top>>32)
		n := &m.nodes[at]
		// A rank names one pair, so an equal rank means the entry still holds.
		if n.rank != rank {
			continue
		}
		gone := &m.nodes[n.next]
		n.id, n.next = n.into, gone.next
		gone.rank = none
		m.rank(tk, at)
		if n.next >= 0 {
			m.nodes[n.next].prev = at
		}
		if n.prev >= 0 {
			m.rank(tk, n.prev)
		}
	}
	for at := int32(0); at >= 0; at = m.nodes[at].next {
		out = append(out, m.nodes[at].id)
	}
	// One huge word must not keep its memory for the rest of a long text.
	if len(w) > 1<<16 {
		m.nodes, m.heap = nil, nil
	}
	return out
}

// start makes each byte a node.
func (m *merger) start(tk *Tokenizer, w []byte) {
	m.heap = m.heap[:0]
	if cap(m.nodes) < len(w) {
		m.nodes = make([]node, len(w))
	}
	m.nodes = m.nodes[:len(w)]
	for i, b := range w {
		m.nodes[i] = node{id: tk.byteID[b], prev: int32(i) - 1, next: int32(i) + 1}
	}
	m.nodes[len(w)-1].next = -1
	for i := range m.nodes {
		m.rank(tk, int32(i))
	}
}

// rank finds the merge of the node with its next and queues it.
func (m *merger) rank(tk *Tokenizer, at int32) {
	n := &m.nodes[at]
	n.rank = none
	if n.next < 0 {
		return
	}
	if n.rank, n.into = tk.merges.get(n.id, m.nodes[n.next].id); n.rank != none {
		m.push(uint64(n.rank)<<32 | uint64(at))
	}
}

func (m *merger) push(x uint64) {
	h := append(m.heap, x)
	i := len(h) - 1
	for i > 0 && h[(i-1)/4] > x {
		h[i] = h[(i-1)/4]
		i = (i - 1) / 4
	}
	h[i] = x
	m.heap = h
}

func (m *merger) pop() uint64 {
	h := m.heap
	top, x := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	m.heap = h
	if len(h) == 0 {
		return top
	}
	for i := 0; ; {
		best, least := -1, x
		for c := 4*i + 1; c < min(4*i+5, len(h)); c++ {
			if h[c] < least {
				best, least = c, h[c]
			}
		}
		if best < 0 {
			h[i] = x
			return top
		}
		h[i], i = least, best
	}
}

func mergeSmall(tk *Tokenizer, out []int32, w []byte) []int32 {
	var ids, ranks, into [small]int32
	n := len(w)
	for i, b := range w {
		ids[i] = tk.byteID[b]
		if ids[i] < 0 { // only when a vocabulary's own tokens are tried
			return out
		}
	}
	for i := range n - 1 {
		ranks[i], into[i] = tk.merges.get(ids[i], ids[i+1])
	}
	for {
		best, at := none, -1
		for i, r := range ranks[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return append(out, ids[:n]...)
		}
		ids[at] = into[at]
		n--
		copy(ids[at+1:n], ids[at+2:n+1])
		if at+1 < n {
			copy(ranks[at+1:n-1], ranks[at+2:n])
			copy(into[at+1:n-1], into[at+2:n])
			ranks[at], into[at] = tk.merges.get(ids[at], ids[at+1])
		}
		if at > 0 {
			ranks[at-1], into[at-1] = tk.merges.get(ids[at-1], ids[at])
		}
	}
}
