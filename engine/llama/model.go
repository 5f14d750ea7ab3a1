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

// buffers of a step of up to n columns, twins included.
type buffers struct {
	n, logitsN, twinsN int
	x, h, q, k, v, att []float32 // [n][width]
	logits             []float32 // [logitsN][padded vocabulary]
	qx                 []byte    // tiles of Dim inputs
	fx                 []byte    // tiles of FFN inputs
	lanes              []lanes   // of each worker
	bands              []band
	half               []uint16 // [n][2][KVHeads*HeadDim]
	kept               []Column
	twins              [2][][2]int
	rows               [][]float32
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
	logits, twins := 0, 0
	for _, c := range cols {
		if c.ID < 0 || int(c.ID) >= m.Vocab || c.Pos < 0 || c.Pos >= m.context || c.Pos/kernel.Page >= len(c.Pages) {
			return fmt.Errorf("llama: step: token %d at position %d with %d pages", c.ID, c.Pos, len(c.Pages))
		}
		if c.Logits {
			logits++
		}
		if c.Pos < Twinned {
			twins++
		}
	}
	if b := &m.b; len(cols) > b.n-b.twinsN || twins > b.twinsN || logits > b.logitsN {
		return fmt.Errorf("llama: step: %d columns, %d below position %d, %d with logits; room for %d, %d and %d", len(cols), twins, Twinned, logits, b.n-b.twinsN, b.twinsN, b.logitsN)
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
	in, hidden := m.inputs(m.b.qx, d), m.inputs(m.b.fx, m.FFN)
	in.twins, hidden.twins = m.b.twins[0], m.b.twins[1]
	in.pair(cols, Twinned)
	for i := range m.layers {
		l, pages := &m.layers[i], m.cache.Layer(i)
		m.normalise(l.attnNorm, in)
		m.project(l, in)
		m.pool.run(n, func(_, c int) { m.store(pages, cols[c], c) })
		exact := Twinned
		if i == len(m.layers)-1 {
			cols, exact = m.keep(cols), m.context
			in.pair(cols, Twinned)
		}
		hidden.pair(cols, exact)
		m.attention(pages, cols, in)
		m.residual(l.o, in)
		m.normalise(l.ffnNorm, in)
		m.gate(l, in, hidden)
		m.residual(l.down, hidden)
	}
	return m.head(len(cols)), nil
}

// inputs are those of a matrix of k columns, none yet, in the buffer x.
func (m *Model) inputs(x []byte, k int) inputs {
	return inputs{x: x, k: k, threads: m.pool.n}
}

// keep moves together the columns that want logits: for the others, the last
// layer's keys and values were all.
func (m *Model) keep(cols []Column) []Column {
	b, d := &m.b, m.Dim
	b.kept = b.kept[:0]
	for i, c := range cols {
		if c.Logits {
			j := len(b.kept)
			copy(b.x[j*d:][:d], b.x[i*d:])
			copy(b.q[j*d:][:d], b.q[i*d:])
			b.kept = append(b.kept, c)
		}
	}
	return b.kept
}

// normalise makes inputs of the normalised columns.
func (m *Model) normalise(w []float32, in inputs) {
	b, d := &m.b, m.Dim
	m.pool.run(in.n, func(_, i int) {
		h := b.h[i*d:][:d]
		m.k.RMSNorm(&h[0], &b.x[i*d], &w[0], d, m.Eps)
		in.quantise(m.k, i, 0, h)
	})
}

// project computes queries, keys and values.
func (m *Model) project(l *layer, in inputs) {
	ws, outs := [...]*quant.Matrix{l.q, l.k, l.v}, [...][]float32{m.b.q, m.b.k, m.b.v}
	in.each(m.pool, func(_, matrix int, p part) {
		w := ws[matrix]
		in.multiply(m.k, w, p, outs[matrix][p.c0*w.Padded+p.r0:], w.Padded)
	}, ws[:]...)
}

// residual adds w * inputs to x.
func (m *Model) residual(w *quant.Matrix, in inputs) {
	b, d := &m.b, m.Dim
	in.each(m.pool, func(worker, _ int, p part) {
		out, rows := b.lanes[worker].gate, p.r1-p.r0
		in.multiply(m.k, w, p, out, rows)
		for c := range p.c1 - p.c0 {
			m.k.Add(&b.x[(p.c0+c)*d+p.r0], &out[c*rows], rows)
		}
	}, w)
}

// gate computes SiLU(gate) * up and quantises it, chunk by chunk: a chunk is whole
// blocks of 32 rows, which are whole blocks of the next product's inputs.
func (m *Model) gate(l *layer, in, hidden inputs) {
	in.each(m.pool, func(worker, _ int, p part) {
		gate, up := m.b.lanes[worker].gate, m.b.lanes[worker].up
		rows, cols := p.r1-p.r0, p.c1-p.c0
		in.multiply(m.k, l.gate, p, gate, rows)
		in.multiply(m.k, l.up, p, up, rows)
		m.k.SiLUMul(&gate[0], &up[0], cols*rows)
		for c := range cols {
			hidden.quantise(m.k, p.c0+c, p.r0, gate[c*rows:][:rows])
		}
	}, l.gate)
}

// head computes the logits of the n columns that want them.
func (m *Model) head(n int) [][]float32 {
	b, padded := &m.b, m.output.Padded
	b.rows = b.rows[:0]
	if n == 0 {
		return b.rows
	}
	in := m.inputs(b.qx, m.Dim)
	in.n = n
	m.normalise(m.norm, in)
	in.each(m.pool, func(_, _ int, p part) {
		in.multiply(m.k, m.output, p, b.logits[p.c0*padded+p.r0:], padded)
	}, m.output)
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

func halves(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), len(b)/2)
}
