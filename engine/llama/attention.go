package llama

import (
	"math"
	"unsafe"

	"github.com/parley-ai/parley/engine/kernel"
)

func minusInf() float32 { return float32(math.Inf(-1)) }

// stride is the floats between the score rows of two lanes that have n positions: a
// row takes whole pairs of pages, and no more, so that the rows of short sequences stay
// in the first cache. Rows 4 KiB apart would fight for one set of it.
func stride(n int) int {
	floats := pairs(n) * kernel.Page
	if floats%1024 == 0 {
		floats += kernel.Page
	}
	return floats
}

// lanes are a worker's buffers: for one call of the attention kernels, and for what
// it makes of a chunk's products at once.
type lanes struct {
	scores   []float32 // [Wide][stride(positions)]
	q        []float32 // [HeadDim][WideRow]
	out      []float32 // [Wide][HeadDim]
	inv      []float32 // [Wide]
	counts   []int32   // [Wide]
	ask      kernel.Ask
	gate, up []float32 // [columns][rows] of a chunk
}

// band is neighbouring columns of one sequence, whose query heads on a KV head are
// the lanes of one call.
type band struct{ first, n int }

// cut makes bands of the columns, as wide as the level's kernels take.
func (m *Model) cut(cols []Column) []band {
	limit := 1
	if m.k.ScoresWide != nil {
		limit = kernel.Wide / (m.Heads / m.KVHeads)
	}
	bs := m.b.bands[:0]
	for i, c := range cols {
		if b := len(bs) - 1; b >= 0 && bs[b].n < limit && &c.Pages[0] == &cols[i-1].Pages[0] && c.Pos == cols[i-1].Pos+1 {
			bs[b].n++
		} else {
			bs = append(bs, band{i, 1})
		}
	}
	m.b.bands = bs
	return bs
}

// attention computes every column's heads, whose keys and values are stored, and
// makes inputs of them.
func (m *Model) attention(pages []byte, cols []Column, in inputs) {
	b := &m.b
	width := m.Heads / m.KVHeads * m.HeadDim // the query heads of a KV head
	bands := m.cut(cols)
	m.pool.run(len(bands)*m.KVHeads, func(worker, u int) {
		w, e := bands[u/m.KVHeads], u%m.KVHeads
		if w.n == 1 {
			m.foretell(pages, cols, u+1, &b.lanes[worker].ask)
			m.attend(pages, cols[w.first], w.first, e, &b.lanes[worker])
		} else {
			m.attendWide(pages, cols[w.first:][:w.n], w.first, e, &b.lanes[worker])
		}
		for i := w.first; i < w.first+w.n; i++ {
			in.quantise(m.k, i, e*width, b.att[i*m.Dim+e*width:][:width])
		}
	})
}

// foretell says what the call after this one will read: that of unit u, a KV head of a
// band, if there is one.
func (m *Model) foretell(pages []byte, cols []Column, u int, ask *kernel.Ask) {
	*ask = kernel.Ask{}
	if w := u / m.KVHeads; w < len(m.b.bands) {
		next := &cols[m.b.bands[w].first]
		*ask = kernel.Ask{KV: &pages[u%m.KVHeads*m.cache.Shape().HeadBytes()], Pages: &next.Pages[0], N: pairs(next.Pos + 1)}
	}
}

// store rotates column i's queries and keys, and puts keys and values into the page.
func (m *Model) store(pages []byte, c Column, i int) {
	b, hd := &m.b, m.HeadDim
	kvw := m.KVHeads * hd
	q, k, v := b.q[i*m.Dim:][:m.Dim], b.k[i*kvw:][:kvw], b.v[i*kvw:][:kvw]
	cos, sin := &m.cos[c.Pos*hd], &m.sin[c.Pos*hd]
	m.k.Rotate(&q[0], cos, sin, m.Heads, hd)
	m.k.Rotate(&k[0], cos, sin, m.KVHeads, hd)
	half := b.half[i*2*kvw:][:2*kvw]
	m.k.ToF16(&half[0], &k[0], kvw)
	m.k.ToF16(&half[kvw], &v[0], kvw)
	shape := m.cache.Shape()
	page := halves(pages[int(c.Pages[c.Pos/kernel.Page])*shape.Stride():][:shape.PageBytes()])
	p := c.Pos % kernel.Page
	for e := range m.KVHeads {
		head := page[e*shape.HeadBytes()/2:][:shape.HeadBytes()/2]
		for j, f := range half[e*hd:][:hd] {
			head[j*kernel.Page+p] = f
		}
		copy(head[kernel.Page*hd+p*hd:], half[kvw+e*hd:][:hd])
	}
}

// spread lays column i's query heads on KV head e, scaled, into rows of q. Beyond them
// it writes lanes of no meaning, those of heads that do not exist.
func (m *Model) spread(q []float32, i, e, row int) {
	hd, per := m.HeadDim, m.Heads/m.KVHeads
	scale := float32(1 / math.Sqrt(float64(hd)))
	m.k.Spread(&m.b.q[i*m.Dim+e*per*hd], hd, scale, &q[0], row)
}

// attend computes the query heads of KV head e for column i into att.
func (m *Model) attend(pages []byte, c Column, i, e int, l *lanes) {
	b, hd, per := &m.b, m.HeadDim, m.Heads/m.KVHeads
	n, shape, stride := c.Pos+1, m.cache.Shape(), stride(c.Pos+1)
	m.spread(l.q, i, e, kernel.Heads)
	keys := pages[e*shape.HeadBytes():]
	m.k.Scores(&l.q[0], &keys[0], &c.Pages[0], pairs(n), shape.Stride(), hd, &l.scores[0], stride, per, &l.ask)
	clear(l.inv) // of heads that do not exist
	for s := range per {
		l.inv[s] = m.softmax(l.scores[s*stride:], n)
	}
	if l.ask.N > 0 {
		l.ask.KV = (*byte)(unsafe.Add(unsafe.Pointer(l.ask.KV), shape.HeadBytes()/2))
	}
	m.k.Mix(&l.scores[0], stride, &keys[shape.HeadBytes()/2], &c.Pages[0], n, shape.Stride(), hd, &l.inv[0], &l.out[0], per, &l.ask)
	copy(b.att[i*m.Dim+e*per*hd:][:per*hd], l.out)
}

// attendWide computes the query heads of KV head e for columns first and following,
// a band, into att. What the lanes beyond the band's hold is of no use to anybody.
func (m *Model) attendWide(pages []byte, cols []Column, first, e int, l *lanes) {
	b, hd, per := &m.b, m.HeadDim, m.Heads/m.KVHeads
	last := cols[len(cols)-1]
	n, shape, stride := last.Pos+1, m.cache.Shape(), stride(last.Pos+1)
	for i := range cols {
		m.spread(l.q[i*per:], first+i, e, kernel.WideRow) // the next one writes over what is too much
	}
	keys := pages[e*shape.HeadBytes():]
	m.k.ScoresWide(&l.q[0], &keys[0], &last.Pages[0], pairs(n), shape.Stride(), hd, &l.scores[0], stride)
	for lane := range kernel.Wide {
		l.counts[lane] = int32(n)
		if lane < len(cols)*per {
			l.counts[lane] = int32(cols[lane/per].Pos + 1)
			l.inv[lane] = m.softmax(l.scores[lane*stride:], cols[lane/per].Pos+1)
		}
	}
	m.k.MixWide(&l.scores[0], stride, &keys[shape.HeadBytes()/2], &last.Pages[0], &l.counts[0], shape.Stride(), hd, &l.inv[0], &l.out[0])
	for i := range cols {
		copy(b.att[(first+i)*m.Dim+e*per*hd:][:per*hd], l.out[i*per*hd:])
	}
}

// pairs is how many pages the kernels for scores read for n positions.
func pairs(n int) int { return 2 * ((n + 2*kernel.Page - 1) / (2 * kernel.Page)) }

// softmax makes weights of the scores of n positions and returns the factor that
// makes them sum to 1. Positions past the end may hold another request's infinities.
func (m *Model) softmax(scores []float32, n int) float32 {
	row := scores[:(n+kernel.Page-1)&^(kernel.Page-1)]
	for j := n; j < len(row); j++ {
		row[j] = minusInf()
	}
	return m.k.SoftExp(&row[0], len(row))
}
