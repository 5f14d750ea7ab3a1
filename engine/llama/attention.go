package llama

import (
	"math"

	"github.com/parley-ai/parley/engine/kernel"
)

func minusInf() float32 { return float32(math.Inf(-1)) }

// stride is the floats between the score rows of two query heads: a row takes
// whole pairs of pages.
func (m *Model) stride() int { return m.context + 2*kernel.Page }

// attention computes every column's heads, whose keys and values are stored, and
// makes inputs of them.
func (m *Model) attention(pages []byte, cols []Column, in inputs) {
	b := &m.b
	width := m.Heads / m.KVHeads * m.HeadDim // the query heads of a KV head
	scratch := len(b.scratch) / m.pool.n
	m.pool.run(len(cols)*m.KVHeads, func(worker, u int) {
		i, e := u/m.KVHeads, u%m.KVHeads
		m.attend(pages, cols[i], i, e, b.scratch[worker*scratch:][:scratch])
		in.quantise(m.k, i, e*width, b.att[i*m.Dim+e*width:][:width])
	})
}

// store rotates column i's queries and keys, lays the queries out for Scores, and
// puts keys and values into the page.
func (m *Model) store(pages []byte, c Column, i int) {
	b, hd, per := &m.b, m.HeadDim, m.Heads/m.KVHeads
	kvw := m.KVHeads * hd
	q, k, v := b.q[i*m.Dim:][:m.Dim], b.k[i*kvw:][:kvw], b.v[i*kvw:][:kvw]
	cos, sin := &m.cos[c.Pos*hd], &m.sin[c.Pos*hd]
	m.k.Rotate(&q[0], cos, sin, m.Heads, hd)
	m.k.Rotate(&k[0], cos, sin, m.KVHeads, hd)
	scale := float32(1 / math.Sqrt(float64(hd)))
	// With fewer than four query heads on a KV head the last lanes stay zero.
	q4 := b.q4[i*kvw*kernel.Heads:][:kvw*kernel.Heads]
	for e := range m.KVHeads {
		for s := range per {
			h := q[(e*per+s)*hd:][:hd]
			o := q4[e*hd*kernel.Heads:][:hd*kernel.Heads]
			for j, f := range h {
				o[kernel.Heads*j+s] = f * scale
			}
		}
	}
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

// attend computes the query heads of KV head e for column i into att.
func (m *Model) attend(pages []byte, c Column, i, e int, scratch []float32) {
	b, hd, per := &m.b, m.HeadDim, m.Heads/m.KVHeads
	n := c.Pos + 1
	np := (n + kernel.Page - 1) / kernel.Page
	shape, stride := m.cache.Shape(), m.stride()
	sc, inv, out := scratch[:kernel.Heads*stride], scratch[kernel.Heads*stride:][:kernel.Heads], scratch[kernel.Heads*(stride+1):]
	m.k.Scores(&b.q4[(i*m.KVHeads+e)*hd*kernel.Heads], &pages[e*shape.HeadBytes()], &c.Pages[0], (np+1)&^1, shape.Stride(), hd, &sc[0], stride)
	for s := range per {
		// Positions past the end may hold another request's infinities.
		row := sc[s*stride:][:np*kernel.Page]
		for j := n; j < len(row); j++ {
			row[j] = minusInf()
		}
		inv[s] = m.k.SoftExp(&row[0], len(row))
	}
	for s := per; s < kernel.Heads; s++ { // heads that do not exist
		inv[s] = 0
	}
	m.k.Mix(&sc[0], stride, &pages[e*shape.HeadBytes()+shape.HeadBytes()/2], &c.Pages[0], n, shape.Stride(), hd, &inv[0], &out[0])
	copy(b.att[i*m.Dim+e*per*hd:][:per*hd], out)
}
