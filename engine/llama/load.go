package llama

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/internal/arena"
	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/kv"
	"github.com/parley-ai/parley/engine/quant"
)

// Options are what [Load] needs beside the file.
type Options struct {
	Kernel  *kernel.Table
	Cache   *kv.Cache // of the file's shape; the model writes it, the caller owns it
	Threads int       // at least 1
	Context int       // positions a sequence may have
	Columns int       // the most columns of a step
	Logits  int       // the most columns of a step that want logits; as many sequences may begin in a step
	// Progress, if not nil, is called with the bytes of packed weights, from the
	// goroutine that called Load.
	Progress func(done, total int64)
}

// loader collects the tensors of a file and keeps the first error.
type loader struct {
	f        *gguf.File
	used     map[string]bool
	matrices []*quant.Matrix
	err      error
}

func (l *loader) tensor(name string, dims ...int) *gguf.Tensor {
	l.used[name] = true
	t := l.f.Tensor(name)
	switch {
	case l.err != nil:
		return nil
	case t == nil:
		l.err = fmt.Errorf("llama: tensor %q is missing", name)
		return nil
	case !slices.Equal(t.Dims, dims):
		l.err = fmt.Errorf("llama: tensor %q (%v, at byte %d) has shape %v, want %v", name, t.Type, t.Offset, t.Dims, dims)
		return nil
	}
	return t
}

func (l *loader) matrix(name string, k, rows int) *quant.Matrix {
	t := l.tensor(name, k, rows)
	if t == nil {
		return nil
	}
	m, err := quant.Plan(t)
	if err != nil {
		l.err = fmt.Errorf("llama: %w", err)
		return nil
	}
	l.matrices = append(l.matrices, m)
	return m
}

func (l *loader) vector(name string, n int) []float32 {
	t := l.tensor(name, n)
	if t == nil {
		return nil
	}
	v, err := quant.Vector(t)
	if err != nil {
		l.err = fmt.Errorf("llama: %w", err)
	}
	return v
}

// Load packs the weights of f, which p describes, with all cores whatever Threads is,
// because there is nothing to be served yet, and starts the workers. f may be closed
// afterwards. Errors name the tensor: missing, of another shape, of a
// type that is not supported, with values that are not finite, or one that the
// graph has no use for, because then this would be another model.
func Load(f *gguf.File, p Params, o Options) (*Model, error) {
	if o.Threads < 1 || o.Context < 1 || o.Columns < 1 || o.Logits < 1 || o.Logits > o.Columns || o.Kernel == nil || o.Cache == nil || o.Cache.Shape() != p.KVShape() {
		return nil, errors.New("llama: Load: impossible options")
	}
	l := &loader{f: f, used: map[string]bool{}}
	m := &Model{Params: p, k: o.Kernel, cache: o.Cache, context: o.Context}
	m.collect(l)
	for _, t := range f.Tensors() {
		if l.err == nil && !l.used[t.Name] {
			l.err = fmt.Errorf("llama: tensor %q (%v, at byte %d) is not part of a plain llama", t.Name, t.Type, t.Offset)
		}
	}
	if l.err != nil {
		return nil, l.err
	}
	m.count(l.matrices)
	if err := m.pack(l.matrices, runtime.GOMAXPROCS(0), o.Progress); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if err := m.buffers(o); err != nil {
		return nil, errors.Join(fmt.Errorf("llama: map buffers: %w", err), m.Close())
	}
	m.pool = newPool(o.Threads)
	return m, nil
}

func (m *Model) collect(l *loader) {
	d, kvw := m.Dim, m.KVHeads*m.HeadDim
	for i := range m.Layers {
		if l.err != nil {
			return
		}
		b := fmt.Sprintf("blk.%d.", i)
		m.layers = append(m.layers, layer{
			attnNorm: l.vector(b+"attn_norm.weight", d),
			q:        l.matrix(b+"attn_q.weight", d, d),
			k:        l.matrix(b+"attn_k.weight", d, kvw),
			v:        l.matrix(b+"attn_v.weight", d, kvw),
			o:        l.matrix(b+"attn_output.weight", d, d),
			ffnNorm:  l.vector(b+"ffn_norm.weight", d),
			gate:     l.matrix(b+"ffn_gate.weight", d, m.FFN),
			up:       l.matrix(b+"ffn_up.weight", d, m.FFN),
			down:     l.matrix(b+"ffn_down.weight", m.FFN, d),
		})
	}
	m.norm = l.vector("output_norm.weight", d)
	m.embed = l.matrix("token_embd.weight", d, m.Vocab)
	m.output = m.embed // a file without an output matrix ties the two
	if l.f.Tensor("output.weight") != nil {
		m.output = l.matrix("output.weight", d, m.Vocab)
	}
}

// count finds the type that holds most of the weights, by which people call the file.
func (m *Model) count(ms []*quant.Matrix) {
	values := map[gguf.Type]int{}
	for _, w := range ms {
		values[w.Source()] += w.Rows * w.K
		m.weightBytes += w.Bytes()
		if values[w.Source()] > values[m.source] {
			m.source = w.Source()
		}
	}
}

// pack gives every matrix its place in one arena and repacks them with n goroutines.
func (m *Model) pack(ms []*quant.Matrix, n int, progress func(done, total int64)) error {
	total := 0
	for _, w := range ms {
		total += arena.Size(w.Bytes())
	}
	var err error
	if m.weights, err = arena.New(total); err != nil {
		return fmt.Errorf("llama: map %d bytes for weights: %w", total, err)
	}
	type span struct {
		w      *quant.Matrix
		g0, g1 int
	}
	var spans []span
	for _, w := range ms {
		w.Data = m.weights.Bytes(w.Bytes())
		for g := 0; g < w.Groups(); g += 64 {
			spans = append(spans, span{w, g, min(g+64, w.Groups())})
		}
	}
	type result struct {
		span int
		err  error
	}
	results := make(chan result, len(spans)) // room for all: no worker waits for Progress
	var next atomic.Int64
	for range n {
		go func() {
			for i := int(next.Add(1)) - 1; i < len(spans); i = int(next.Add(1)) - 1 {
				s := spans[i]
				results <- result{i, s.w.Pack(s.g0, s.g1)}
			}
		}()
	}
	var done int64
	firstBad := len(spans)
	for range spans {
		r := <-results
		if r.err != nil && r.span < firstBad { // whichever thread found one first, the same is reported
			firstBad, err = r.span, fmt.Errorf("llama: %w", r.err)
		}
		done += int64((spans[r.span].g1 - spans[r.span].g0) * spans[r.span].w.Group())
		if progress != nil && err == nil {
			progress(done, int64(m.weightBytes))
		}
	}
	for _, w := range ms {
		w.Done()
	}
	return err
}

// buffers takes the memory of a step, so that none is taken later.
func (m *Model) buffers(o Options) error {
	b := &m.b
	columns := (o.Columns + 3) &^ 3 // tiles are four columns
	b.logitsN = (o.Logits + 3) &^ 3
	b.twinsN = min(columns, Twinned*b.logitsN)
	b.n = columns + b.twinsN
	kvw, hd := m.KVHeads*m.HeadDim, m.HeadDim
	type vector struct {
		p *[]float32
		n int
	}
	vectors := []vector{
		{&b.x, b.n * m.Dim},
		{&b.h, b.n * m.Dim},
		{&b.q, (b.n + 1) * m.Dim}, // spread reads on behind the last heads
		{&b.att, b.n * m.Dim},
		{&b.k, b.n * kvw},
		{&b.v, b.n * kvw},
		{&b.logits, b.logitsN * m.output.Padded},
		{&m.cos, m.context * hd},
		{&m.sin, m.context * hd},
	}
	chunk := b.n * max(m.Dim, m.FFN) // products of a chunk, at most
	if o.Threads > 1 {
		chunk = max((b.n+8)*kernel.Rows, 4*max(m.Dim, m.FFN)) // two groups have half of the columns, in whole tiles
	}
	b.lanes = make([]lanes, o.Threads)
	for i := range b.lanes {
		l := &b.lanes[i]
		vectors = append(vectors, vector{&l.scores, kernel.Wide * (m.context + 3*kernel.Page)}, vector{&l.q, kernel.WideRow * hd}, vector{&l.out, kernel.Wide * hd}, vector{&l.inv, kernel.Wide})
		vectors = append(vectors, vector{&l.gate, chunk}, vector{&l.up, chunk})
		l.counts = make([]int32, kernel.Wide)
	}
	qx, fx, half := b.n*m.Dim/kernel.Cols*kernel.XBlock, b.n*m.FFN/kernel.Cols*kernel.XBlock, b.n*kvw*2*2
	total := arena.Size(qx) + arena.Size(fx) + arena.Size(half)
	for _, v := range vectors {
		total += arena.Size(4 * v.n)
	}
	var err error
	if m.mem, err = arena.New(total); err != nil {
		return err
	}
	for _, v := range vectors {
		*v.p = m.mem.Floats(v.n)
	}
	b.qx, b.fx, b.half = m.mem.Bytes(qx), m.mem.Bytes(fx), halves(m.mem.Bytes(half))
	b.rows = make([][]float32, 0, b.logitsN)
	b.bands = make([]band, 0, columns)
	b.kept = make([]Column, 0, b.logitsN)
	b.twins = [2][][2]int{make([][2]int, 0, b.twinsN), make([][2]int, 0, b.twinsN)}
	m.rotary()
	return nil
}

// rotary fills the tables of angles: position p turns pair i by p * base^(-2i/hd).
func (m *Model) rotary() {
	hd := m.HeadDim
	step := make([]float64, hd/2)
	for i := range step {
		step[i] = math.Pow(m.RopeBase, -2*float64(i)/float64(hd))
	}
	for p := range m.context {
		cos, sin := m.cos[p*hd:][:hd], m.sin[p*hd:][:hd]
		for i, w := range step {
			s, c := math.Sincos(float64(p) * w)
			cos[2*i], cos[2*i+1], sin[2*i], sin[2*i+1] = float32(c), float32(c), float32(-s), float32(s)
		}
	}
}
