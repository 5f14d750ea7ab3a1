package llama

import (
	"fmt"
	"math"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/kv"
)

// Params are the hyper-parameters of a file, checked: every size is positive,
// divides what it must, and is small enough to multiply.
type Params struct {
	Layers, Dim, FFN        int
	Heads, KVHeads, HeadDim int
	Context                 int     // positions the model was made for
	Vocab                   int     // rows of the embedding
	Eps                     float32 // of the root mean square norms
	RopeBase                float64
}

// KVShape is what the model keeps for a position.
func (p Params) KVShape() kv.Shape {
	return kv.Shape{Layers: p.Layers, KVHeads: p.KVHeads, HeadDim: p.HeadDim}
}

// Limits far above any llama of today. They keep a hostile file's sizes from
// overflowing or from taking all memory before a tensor is looked at.
const (
	maxLayers  = 1 << 10
	maxDim     = 1 << 16
	maxFFN     = 1 << 20
	maxHeadDim = 512
	maxContext = 1 << 22
)

// reader takes metadata and keeps the first error.
type reader struct {
	f   *gguf.File
	err error
}

func (r *reader) fail(key, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("llama: %s: %s", key, fmt.Sprintf(format, args...))
	}
}

// present reports whether the key is there with a value of another type.
func (r *reader) present(key string) bool {
	_, text := r.f.String(key)
	_, number := r.f.Float(key)
	_, truth := r.f.Bool(key)
	_, list := r.f.Ints(key)
	_, texts := r.f.Strings(key)
	return text || number || truth || list || texts
}

// count reads an integer in [1, limit]; a fallback above 0 stands for an absent key.
func (r *reader) count(key string, limit, fallback int) int {
	v, ok := r.f.Int(key)
	if !ok && !r.present(key) && fallback > 0 {
		return fallback
	}
	switch {
	case !ok:
		r.fail(key, "missing or not an integer")
	case v < 1 || v > limit:
		r.fail(key, "%d is not in 1..%d", v, limit)
	default:
		return v
	}
	return 1
}

// number reads a float in [lo, hi]; a fallback above 0 stands for an absent key.
func (r *reader) number(key string, lo, hi, fallback float64) float64 {
	v, ok := r.f.Float(key)
	if !ok && !r.present(key) && fallback > 0 {
		return fallback
	}
	switch {
	case !ok:
		r.fail(key, "missing or not a number")
	case !(v >= lo && v <= hi): // NaN is outside too
		r.fail(key, "%v is not in %v..%v", v, lo, hi)
	}
	return v
}

// ReadParams reads and checks the metadata. An error names the key that is
// missing, absurd, or asks for what this engine does not compute.
func ReadParams(f *gguf.File) (Params, error) {
	const arch = "general.architecture"
	r := &reader{f: f}
	if a, ok := f.String(arch); !ok || a != "llama" {
		r.fail(arch, "%q is not llama", a)
		return Params{}, r.err
	}
	p := Params{
		Layers:   r.count("llama.block_count", maxLayers, 0),
		Dim:      r.count("llama.embedding_length", maxDim, 0),
		FFN:      r.count("llama.feed_forward_length", maxFFN, 0),
		Heads:    r.count("llama.attention.head_count", maxDim, 0),
		Context:  r.count("llama.context_length", maxContext, 0),
		Eps:      float32(r.number("llama.attention.layer_norm_rms_epsilon", 1e-12, 0.1, 0)),
		RopeBase: r.number("llama.rope.freq_base", 1, 1e12, 10000), // 10000 is llama's own
	}
	p.KVHeads = r.count("llama.attention.head_count_kv", p.Heads, p.Heads)
	if r.err == nil {
		p.shapes(r)
	}
	if r.err == nil {
		p.unsupported(r)
	}
	if r.err != nil {
		return Params{}, r.err
	}
	return p, nil
}

// shapes checks what must divide what; the kernels work on whole blocks.
func (p *Params) shapes(r *reader) {
	if p.Dim%kernel.Cols != 0 {
		r.fail("llama.embedding_length", "%d is no multiple of %d", p.Dim, kernel.Cols)
	}
	if p.FFN%kernel.Cols != 0 {
		r.fail("llama.feed_forward_length", "%d is no multiple of %d", p.FFN, kernel.Cols)
	}
	if p.Dim%p.Heads != 0 {
		r.fail("llama.attention.head_count", "%d does not divide the width %d", p.Heads, p.Dim)
		return
	}
	p.HeadDim = p.Dim / p.Heads
	if p.HeadDim%kernel.Cols != 0 || p.HeadDim > maxHeadDim {
		r.fail("llama.attention.head_count", "heads of %d values; supported are multiples of %d up to %d", p.HeadDim, kernel.Cols, maxHeadDim)
	}
	if p.Heads%p.KVHeads != 0 || p.Heads/p.KVHeads > kernel.Heads {
		r.fail("llama.attention.head_count_kv", "%d query heads on %d; supported are up to %d on each", p.Heads, p.KVHeads, kernel.Heads)
	}
	t := r.f.Tensor("token_embd.weight")
	if t == nil || len(t.Dims) != 2 {
		r.fail("token_embd.weight", "missing or not a matrix")
		return
	}
	p.Vocab = t.Dims[1]
	if p.Vocab > math.MaxInt32/p.Dim {
		r.fail("token_embd.weight", "%d rows are too many", p.Vocab)
	}
	if n := r.count("llama.vocab_size", math.MaxInt32, p.Vocab); n != p.Vocab {
		r.fail("llama.vocab_size", "%d, but token_embd.weight has %d rows", n, p.Vocab)
	}
}

// unsupported refuses variants of the architecture that would compute silently
// wrong numbers.
func (p *Params) unsupported(r *reader) {
	for _, key := range []string{"llama.rope.dimension_count", "llama.attention.key_length", "llama.attention.value_length"} {
		if n := r.count(key, maxDim, p.HeadDim); n != p.HeadDim {
			r.fail(key, "%d, supported is only the head size %d", n, p.HeadDim)
		}
	}
	if s, ok := r.f.String("llama.rope.scaling.type"); ok && s != "none" {
		r.fail("llama.rope.scaling.type", "%q is not supported", s)
	}
	for _, key := range []string{"llama.rope.scaling.factor", "llama.rope.scale_linear"} {
		if v, ok := r.f.Float(key); ok && v != 1 && v != 0 {
			r.fail(key, "%v is not supported", v)
		}
	}
	if n, ok := r.f.Int("llama.expert_count"); ok && n != 0 {
		r.fail("llama.expert_count", "mixtures of experts are not supported")
	}
}
