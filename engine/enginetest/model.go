// Package enginetest writes tiny models of random weights, for tests of the engine
// and of what is built on it.
package enginetest

import (
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/gguf/gguftest"
	"github.com/parley-ai/parley/engine/kernel"
)

// Name and Context are what every model written here calls itself and the
// positions it has.
const (
	Name    = "Tiny Random Llama"
	Context = 2048
)

// Sizes of the model: three query heads on one KV head, and a vocabulary that is
// no multiple of 16, so that what is padded inside the engine is exercised.
const (
	layers = 2
	width  = 96
	ffn    = 128
	heads  = 3
	kvDim  = 32
)

// template is SmolLM2's, with another default system message.
const template = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}" +
	"{{ '<|im_start|>system\nYou are tiny<|im_end|>\n' }}{% endif %}" +
	"{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// Tensor is one tensor of a [Model], its data in the file's own form.
type Tensor struct {
	Name string
	Type gguf.Type
	Dims []int
	Data []byte
}

// Model is a model that can be changed before it is written, to test how faults of
// a file are met. Values of Meta are those gguftest.Writer takes.
type Model struct {
	Meta    map[string]any
	Tensors []*Tensor
}

// Tensor returns the tensor of that name, or nil.
func (m *Model) Tensor(name string) *Tensor {
	for _, t := range m.Tensors {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Drop removes the tensor of that name.
func (m *Model) Drop(name string) {
	m.Tensors = slices.DeleteFunc(m.Tensors, func(t *Tensor) bool { return t.Name == name })
}

// Write writes the model as a GGUF file.
func (m *Model) Write(path string) error { return os.WriteFile(path, m.Bytes(), 0o666) }

// Bytes returns the model as a GGUF file.
func (m *Model) Bytes() []byte {
	var w gguftest.Writer
	for _, key := range slices.Sorted(maps.Keys(m.Meta)) {
		w.Set(key, m.Meta[key])
	}
	for _, t := range m.Tensors {
		w.Add(t.Name, t.Type, t.Data, t.Dims...)
	}
	return w.Bytes()
}

// WriteModel writes a llama of about 200 KB whose weights follow from seed alone,
// with a byte-level vocabulary and a chat template like SmolLM2's (roles and
// contents between <|im_start|> and <|im_end|>). Its text is random printable
// ASCII; it practically never ends by itself, so a generation runs to its
// MaxTokens or to a stop string.
func WriteModel(path string, seed uint64) error { return NewModel(seed).Write(path) }

// NewModel returns the model that [WriteModel] writes.
func NewModel(seed uint64) *Model {
	tokens, types, merges := vocabulary()
	m := &Model{Meta: map[string]any{
		"general.architecture":                   "llama",
		"general.name":                           Name,
		"llama.block_count":                      uint32(layers),
		"llama.context_length":                   uint32(Context),
		"llama.embedding_length":                 uint32(width),
		"llama.feed_forward_length":              uint32(ffn),
		"llama.attention.head_count":             uint32(heads),
		"llama.attention.head_count_kv":          uint32(1),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5),
		"llama.rope.freq_base":                   float32(10000),
		"tokenizer.ggml.model":                   "gpt2",
		"tokenizer.ggml.pre":                     "smollm",
		"tokenizer.ggml.tokens":                  tokens,
		"tokenizer.ggml.token_type":              types,
		"tokenizer.ggml.merges":                  merges,
		"tokenizer.ggml.bos_token_id":            uint32(1),
		"tokenizer.ggml.eos_token_id":            uint32(2),
		"tokenizer.ggml.unknown_token_id":        uint32(0),
		"tokenizer.ggml.add_bos_token":           false,
		"tokenizer.chat_template":                template,
	}}
	r := rand.New(rand.NewPCG(seed, 0x7061726c6579))
	for _, b := range []string{"blk.0.", "blk.1."} {
		m.add(b+"attn_norm.weight", gguf.F32, vector(r, width), width)
		m.add(b+"attn_q.weight", gguf.Q4_1, blocks(r, gguf.Q4_1, width, width), width, width)
		m.add(b+"attn_k.weight", gguf.Q4_0, blocks(r, gguf.Q4_0, width, kvDim), width, kvDim)
		m.add(b+"attn_v.weight", gguf.Q8_0, blocks(r, gguf.Q8_0, width, kvDim), width, kvDim)
		m.add(b+"attn_output.weight", gguf.Q4_1, blocks(r, gguf.Q4_1, width, width), width, width)
		m.add(b+"ffn_norm.weight", gguf.F32, vector(r, width), width)
		m.add(b+"ffn_gate.weight", gguf.Q4_1, blocks(r, gguf.Q4_1, width, ffn), width, ffn)
		m.add(b+"ffn_up.weight", gguf.Q4_1, blocks(r, gguf.Q4_1, width, ffn), width, ffn)
		m.add(b+"ffn_down.weight", gguf.Q8_0, blocks(r, gguf.Q8_0, ffn, width), ffn, width)
	}
	m.add("output_norm.weight", gguf.F32, vector(r, width), width)
	m.add("token_embd.weight", gguf.F16, rows(r, 1, tokens, func(string) float64 { return 3 }), width, len(tokens))
	// The first value of every embedding is the same, so the first column of the
	// output matrix works as a bias of the tokens: for printable ones, against the
	// others, and far against the control tokens.
	m.add("output.weight", gguf.F16, rows(r, 0.3, tokens, func(token string) float64 {
		switch {
		case strings.HasPrefix(token, "<|"):
			return -6
		case strings.ContainsFunc(strings.TrimPrefix(token, "Ġ"), func(c rune) bool { return c > '~' }):
			return -3
		}
		return 2
	}), width, len(tokens))
	return m
}

func (m *Model) add(name string, typ gguf.Type, data []byte, dims ...int) {
	m.Tensors = append(m.Tensors, &Tensor{Name: name, Type: typ, Dims: dims, Data: data})
}

// vocabulary is three control tokens, the 256 bytes in GPT-2's alphabet, and the
// products of a few merges.
func vocabulary() (tokens []string, types []int32, merges []string) {
	const control, normal = 3, 1
	tokens = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
	types = []int32{control, control, control}
	next := rune(256)
	for b := range rune(256) {
		c := b
		if b <= ' ' || b > '~' && b < '¡' || b == 0xad { // bytes that GPT-2 moves past 255
			c = next
			next++
		}
		tokens, types = append(tokens, string(c)), append(types, normal)
	}
	merges = []string{
		"t h", "th e", "Ġ the", "i n", "e r", "a n", "an d", "Ġ and", "o u", "y ou", "Ġ you",
		"Ġ a", "r e", "o n", "i t", "e n", "e s", "l l", "s t",
	}
	for _, m := range merges {
		tokens, types = append(tokens, strings.Replace(m, " ", "", 1)), append(types, normal)
	}
	return tokens, types, merges
}

// vector is n norm weights about 1.
func vector(r *rand.Rand, n int) []byte {
	var b []byte
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(1+0.1*r.NormFloat64())))
	}
	return b
}

// blocks is a matrix of random quants whose values have about the deviation
// 1/sqrt(k), so that products stay of the size of their inputs.
func blocks(r *rand.Rand, typ gguf.Type, k, n int) []byte {
	values, size := typ.Block()
	b := make([]byte, k*n/values*size)
	for i := 0; i < len(b); i += size {
		blk := b[i:][:size]
		for j := range blk {
			blk[j] = byte(r.Uint32())
		}
		// Deviations of uniform quants: 4.6 of 16 steps, 74 of 256.
		d := (0.8 + 0.4*r.Float64()) / math.Sqrt(float64(k))
		if typ == gguf.Q8_0 {
			putHalf(blk, d/74)
			continue
		}
		putHalf(blk, d/4.6)
		if typ == gguf.Q4_1 {
			putHalf(blk[2:], -7.5*d/4.6)
		}
	}
	return b
}

// rows is a float16 matrix of one row a token: first of it, then random values of
// the deviation sd.
func rows(r *rand.Rand, sd float64, tokens []string, first func(token string) float64) []byte {
	b := make([]byte, 2*width*len(tokens))
	for i, t := range tokens {
		putHalf(b[2*width*i:], first(t))
		for j := 1; j < width; j++ {
			putHalf(b[2*(width*i+j):], sd*r.NormFloat64())
		}
	}
	return b
}

func putHalf(b []byte, v float64) { binary.LittleEndian.PutUint16(b, kernel.ToHalf(float32(v))) }
