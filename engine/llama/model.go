// Package llama is the graph of the llama family: RMS norm, grouped-query
// attention with rotary positions on adjacent pairs, a gated SiLU network.
//
// A [Model] steps columns: a column is one token of one sequence at one position,
// and a step takes any mixture of them. Every column's arithmetic has its own
// fixed order, so neither its company in the step, nor the number of threads, nor
// the kernel level changes a bit of its logits.
package llama

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/internal/arena"
	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/kv"
	"github.com/parley-ai/parley/engine/quant"
)

// Model is the weights of a file and the buffers of one step. One goroutine at a
// time may use it.
type Model struct {
	Params

	k       *kernel.Table
	context int

	embed, output *quant.Matrix
	norm          []float32
	layers        []layer
	cos, sin      []float32 // [context][HeadDim]; each cosine twice, sines as (-s, s)

	cache       *kv.Cache
	pool        *pool
	weights     *arena.Arena
	mem         *arena.Arena
	b           buffers
	source      gguf.Type
	weightBytes int
}

type layer struct {
	attnNorm, ffnNorm          []float32
	q, k, v, o, gate, up, down *quant.Matrix
}

// buffers of a step of up to n columns.
type buffers struct {
	n, logitsN                   int
	x, h, q, k, v, att, gate, up []float32 // [n][width]
	logits                       []float32 // [logitsN][padded vocabulary]
	qx                           []byte    // tiles of Dim inputs
	fx                           []byte    // tiles of FFN inputs
	q4                           []float32 // [n][KVHeads][HeadDim][4]: query heads, scaled, for Scores
	scratch                      []float32 // per worker: scores [4][stride], 4 inverses, 4 outputs of a head
	half                         []uint16  // [n][2][KVHeads*HeadDim]
	want                         []int
	rows                         [][]float32
}

// Column is one token of a step.
type Column struct {
	ID     int32
	Pos    int
	Pages  kv.Table // of its sequence, covering Pos
	Logits bool     // wanted
}

// Weights returns the bytes of packed weights and the type that most of them had
// in the file.
func (m *Model) Weights() (bytes int, source gguf.Type) { return m.weightBytes, m.source }

// Each calls f for the chunks [0, n) on the model's threads and returns when all
// are done; like Step it panics with a *[Panic] if one does.
func (m *Model) Each(n int, f func(chunk int)) {
	m.pool.run(n, func(_, i int) { f(i) })
}

// Close ends the workers and gives the memory back. The cache is its owner's.
func (m *Model) Close() error {
	if m.pool != nil {
		m.pool.close()
		m.pool = nil
	}
	return errors.Join(m.weights.Close(), m.mem.Close())
}

// check refuses columns that would leave the buffers or the pages.
func (m *Model) check(cols []Column) error {
	logits := 0
	for _, c := range cols {
		if c.ID < 0 || int(c.ID) >= m.Vocab || c.Pos < 0 || c.Pos >= m.context || c.Pos/kernel.Page >= len(c.Pages) {
			return fmt.Errorf("llama: step: token %d at position %d with %d pages", c.ID, c.Pos, len(c.Pages))
		}
		if c.Logits {
			logits++
		}
	}
	if len(cols) > m.b.n || logits > m.b.logitsN {
		return fmt.Errorf("llama: step: %d columns, %d with logits; room for %d and %d", len(cols), logits, m.b.n, m.b.logitsN)
	}
	return nil
}

// Step runs the columns through the model and returns the logits of those that
// want them, in order. A row holds Vocab values and has room for a multiple of 16,
// where the rest is -Inf; it is the caller's until the next step. Columns of one
// sequence come in the order of their positions, and all positions before them
// have been stepped, in this step or earlier.
func (m *Model) Step(cols []Column) ([][]float32, error) {
	if err := m.check(cols); err != nil || len(cols) == 0 {
		return nil, err
	}
	n, d := len(cols), m.Dim
	for i, c := range cols {
		m.embed.Row(int(c.ID), m.b.x[i*d:][:d])
	}
	for i := range m.layers {
		l := &m.layers[i]
		m.normalise(l.attnNorm, n)
		m.project(l, n)
		m.attention(m.cache.Layer(i), cols)
		m.residual(l.o, m.b.qx, n)
		m.normalise(l.ffnNorm, n)
		m.gate(l, n)
		m.residual(l.down, m.b.fx, n)
	}
	return m.head(cols), nil
}

// normalise makes tiles of the n normalised columns.
func (m *Model) normalise(w []float32, n int) {
	m.pool.run(n, func(_, i int) { m.normaliseOne(w, i, n, i) })
}

// normaliseOne normalises column from and writes it as column to of n.
func (m *Model) normaliseOne(w []float32, from, n, to int) {
	b, d := &m.b, m.Dim
	m.k.RMSNorm(&b.h[from*d], &b.x[from*d], &w[0], d, m.Eps)
	tile, cols, col := place(b.qx, d, n, to)
	m.k.Quantise(&b.h[from*d], d, tile, cols, col)
}

// project computes queries, keys and values.
func (m *Model) project(l *layer, n int) {
	b := &m.b
	cq, ck, cv := chunks(l.q), chunks(l.k), chunks(l.v)
	m.pool.run(cq+ck+cv, func(_, i int) {
		w, out := l.q, b.q
		switch {
		case i >= cq+ck:
			w, out, i = l.v, b.v, i-cq-ck
		case i >= cq:
			w, out, i = l.k, b.k, i-cq
		}
		g0, g1 := part(w, i)
		m.mulAll(w, b.qx, n, g0, g1, out)
	})
}

// residual adds w * inputs to x.
func (m *Model) residual(w *quant.Matrix, in []byte, n int) {
	b, d := &m.b, m.Dim
	m.pool.run(chunks(w), func(_, i int) {
		g0, g1 := part(w, i)
		m.mulAll(w, in, n, g0, g1, b.h)
		for c := range n {
			o := c*d + g0*kernel.Rows
			m.k.Add(&b.x[o], &b.h[o], (g1-g0)*kernel.Rows)
		}
	})
}

// gate computes SiLU(gate) * up and quantises it, chunk by chunk: a chunk is whole
// blocks of 32 rows, which are whole blocks of the next product's inputs.
func (m *Model) gate(l *layer, n int) {
	b := &m.b
	m.pool.run(chunks(l.gate), func(_, i int) {
		g0, g1 := part(l.gate, i)
		m.mulAll(l.gate, b.qx, n, g0, g1, b.gate)
		m.mulAll(l.up, b.qx, n, g0, g1, b.up)
		r0, rows := g0*kernel.Rows, (g1-g0)*kernel.Rows
		for c := range n {
			o := c*m.FFN + r0
			m.k.SiLUMul(&b.gate[o], &b.up[o], rows)
			tile, cols, col := place(b.fx, m.FFN, n, c)
			m.k.Quantise(&b.gate[o], rows, skip(tile, r0, cols), cols, col)
		}
	})
}

// head computes the logits of the columns that want them, packed together.
func (m *Model) head(cols []Column) [][]float32 {
	b := &m.b
	b.want = b.want[:0]
	for i, c := range cols {
		if c.Logits {
			b.want = append(b.want, i)
		}
	}
	n, padded := len(b.want), m.output.Padded
	b.rows = b.rows[:0]
	if n == 0 {
		return b.rows
	}
	m.pool.run(n, func(_, j int) { m.normaliseOne(m.norm, b.want[j], n, j) })
	m.pool.run(chunks(m.output), func(_, i int) {
		g0, g1 := part(m.output, i)
		m.mulAll(m.output, b.qx, n, g0, g1, b.logits)
	})
	for j := range n {
		row := b.logits[j*padded:][:padded]
		for i := m.Vocab; i < padded; i++ {
			row[i] = minusInf()
		}
		b.rows = append(b.rows, row[:m.Vocab:(m.Vocab+15)&^15])
	}
	return b.rows
}

// Argmax returns the token with the greatest logit in a row that Step returned,
// the lowest of equal ones.
func (m *Model) Argmax(row []float32) int32 {
	var scratch int32
	return m.k.Argmax(row[:cap(row)], &scratch)
}

// tileCols: tile t of n columns is four wide, but a last one of a single column is
// one wide.
func tileCols(n, t int) int {
	if n-4*t == 1 {
		return 1
	}
	return 4
}

// place says where column i of n lies in tiles of k inputs.
func place(x []byte, k, n, i int) (tile *byte, cols, col int) {
	return &x[i/4*4*k/kernel.Cols*kernel.XBlock], tileCols(n, i/4), i % 4
}

// skip is a tile from input i on, i%32 == 0.
func skip(tile *byte, i, cols int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(tile), i/kernel.Cols*kernel.XBlock*cols))
}

// mulAll multiplies groups [g0, g1) of w by all n columns. Two groups at a time
// stay in the first cache while the columns pass.
func (m *Model) mulAll(w *quant.Matrix, x []byte, n, g0, g1 int, out []float32) {
	step := 2
	if n <= 4 {
		step = g1 - g0
	}
	tile := 4 * w.K / kernel.Cols * kernel.XBlock
	for g := g0; g < g1; g += step {
		for t := 0; 4*t < n; t++ {
			w.Mul(m.k, &x[t*tile], tileCols(n, t), g, g+step, out[4*t*w.Padded:], t == 0)
		}
	}
}

// chunkGroups is how many groups make a chunk of work: an even number, about
// 24 KiB of weights, 0.3 to 0.6 µs for up to four columns.
func chunkGroups(w *quant.Matrix) int { return max(2, 24<<10/w.Group()&^1) }

func chunks(w *quant.Matrix) int { return (w.Groups() + chunkGroups(w) - 1) / chunkGroups(w) }

// part gives the groups of chunk i.
func part(w *quant.Matrix, i int) (g0, g1 int) {
	return i * chunkGroups(w), min((i+1)*chunkGroups(w), w.Groups())
}

func halves(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), len(b)/2)
}
