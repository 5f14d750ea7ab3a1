package llama_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine/enginetest"
	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/kv"
	"github.com/parley-ai/parley/engine/llama"
)

// config says how a test wants its model loaded.
type config struct {
	level           string
	threads         int
	context         int
	columns, logits int
	pages           int
}

// load opens the file at path for the length of the test.
func load(t testing.TB, path string, c config) (*llama.Model, *kv.Cache) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := llama.ReadParams(f)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kernel.Find(c.level)
	if err != nil {
		t.Fatal(err)
	}
	s := p.KVShape()
	cache, err := kv.New(s, int64(c.pages)*int64(s.Layers)*int64(s.PageBytes()), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	m, err := llama.Load(f, p, llama.Options{Kernel: k, Cache: cache, Threads: c.threads, Context: c.context, Columns: c.columns, Logits: c.logits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return m, cache
}

func tiny(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := enginetest.WriteModel(path, 1); err != nil {
		t.Fatal(err)
	}
	return path
}

// sequence feeds tokens of one sequence.
type sequence struct {
	t     testing.TB
	m     *llama.Model
	pages kv.Table
	n     int
}

func start(t testing.TB, m *llama.Model, c *kv.Cache, positions int) *sequence {
	t.Helper()
	p, ok := c.Reserve(positions)
	if !ok {
		t.Fatalf("no pages for %d positions", positions)
	}
	return &sequence{t, m, p, 0}
}

// columns are those of ids from the sequence's end on; the last wants logits.
func (s *sequence) columns(ids ...int32) []llama.Column {
	var cs []llama.Column
	for i, id := range ids {
		cs = append(cs, llama.Column{ID: id, Pos: s.n, Pages: s.pages, Logits: i == len(ids)-1})
		s.n++
	}
	return cs
}

// feed steps ids in chunks and returns a copy of the last logits.
func (s *sequence) feed(chunk int, ids ...int32) []float32 {
	s.t.Helper()
	var last []float32
	for c := range slices.Chunk(ids, chunk) {
		rows, err := s.m.Step(s.columns(c...))
		if err != nil {
			s.t.Fatalf("Step: %v", err)
		}
		last = slices.Clone(rows[len(rows)-1])
	}
	return last
}

func ids(n, from int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(3 + (from+i*37)%250)
	}
	return out
}

func equalBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// The logits of a sequence have the same bits however its prompt is cut, whatever
// else is in the step, on every level and with any number of threads.
func TestModel_Step_Invariant(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	prompt := ids(75, 0)
	var want []float32
	for _, level := range kernel.Levels() {
		counts, cuts, companies := []int{1, 2, 3}, []int{1, 5, 16, 37, 64, 75}, []int{1, 2, 3, 4, 7, 15}
		if level == "scalar" { // slow under the race detector
			counts, cuts, companies = []int{2}, []int{1, 37, 75}, []int{3, 15}
		}
		for _, threads := range counts {
			m, cache := load(t, path, config{level: level, threads: threads, context: 256, columns: 96, logits: 16, pages: 200})
			for _, chunk := range cuts {
				s := start(t, m, cache, 80)
				got := s.feed(chunk, prompt...)
				if want == nil {
					want = got
				}
				if !equalBits(got, want) {
					t.Errorf("%s, %d threads, chunks of %d: other logits", level, threads, chunk)
				}
				cache.Release(s.pages)
			}
			for _, others := range companies {
				s := start(t, m, cache, 80)
				s.feed(64, prompt[:74]...)
				var cols []llama.Column
				for i := range others {
					o := start(t, m, cache, 80)
					o.feed(64, ids(1+5*i, i)...)
					cols = append(cols, o.columns(int32(3+i))...)
				}
				at := others / 2
				cols = slices.Insert(cols, at, s.columns(prompt[74])...)
				extra := start(t, m, cache, 80) // a prompt beside them
				cols = append(cols, extra.columns(ids(20, 5)...)[:19]...)
				rows, err := m.Step(cols)
				if err != nil {
					t.Fatal(err)
				}
				if len(rows) != others+1 || !equalBits(rows[at], want) {
					t.Errorf("%s, %d threads, beside %d others: other logits", level, threads, others)
				}
				for _, c := range cols {
					if c.Logits {
						cache.Release(c.Pages)
					}
				}
				cache.Release(extra.pages)
			}
			if cache.Free() != cache.Total() {
				t.Fatalf("the test lost %d pages", cache.Total()-cache.Free())
			}
		}
	}
	top := slices.Max(want)
	if math.IsInf(float64(top), 0) || top == slices.Min(want) {
		t.Errorf("the logits are no logits: %v", want[:8])
	}
}

// A page that held infinities and NaN must not reach the next sequence.
func TestModel_Step_DirtyPages(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	for _, level := range kernel.Levels() {
		m, cache := load(t, path, config{level: level, threads: 1, context: 128, columns: 64, logits: 1, pages: 8})
		s := start(t, m, cache, 40)
		want := s.feed(64, ids(37, 0)...)
		cache.Release(s.pages)
		all := cache.Layer(0)
		for j := range all {
			all[j] = []byte{0x00, 0x7c, 0xff, 0xff}[j%4] // +Inf, NaN
		}
		s = start(t, m, cache, 40)
		if got := s.feed(64, ids(37, 0)...); !equalBits(got, want) {
			t.Errorf("%s: logits differ on pages that held infinities", level)
		}
	}
}

func TestModel_Step_Refuses(t *testing.T) {
	t.Parallel()
	m, cache := load(t, tiny(t), config{threads: 1, context: 64, columns: 8, logits: 4, pages: 8})
	p, _ := cache.Reserve(32)
	many := slices.Repeat([]llama.Column{{ID: 3, Pages: p}}, 9)
	loud := slices.Repeat([]llama.Column{{ID: 3, Pages: p, Logits: true}}, 5)
	for name, cols := range map[string][]llama.Column{
		"negative token":     {{ID: -1, Pages: p}},
		"token past the end": {{ID: int32(m.Vocab), Pages: p}},
		"position past end":  {{ID: 3, Pos: 64, Pages: p}},
		"no page":            {{ID: 3, Pos: 33, Pages: p}},
		"too many columns":   many,
		"too many logits":    loud,
	} {
		if _, err := m.Step(cols); err == nil {
			t.Errorf("Step with %s: no error", name)
		}
	}
}

func TestModel_Argmax(t *testing.T) {
	t.Parallel()
	m, cache := load(t, tiny(t), config{threads: 1, context: 64, columns: 8, logits: 4, pages: 8})
	s := start(t, m, cache, 16)
	rows, err := m.Step(s.columns(ids(3, 0)...))
	if err != nil {
		t.Fatal(err)
	}
	want := int32(slices.Index(rows[0], slices.Max(rows[0])))
	if got := m.Argmax(rows[0]); got != want {
		t.Errorf("Argmax = %d, want %d", got, want)
	}
	for i := range rows[0] { // every real logit below zero: what pads the row must not win
		rows[0][i] = -5 - float32(i)
	}
	if got := m.Argmax(rows[0]); got != 0 {
		t.Errorf("Argmax of falling logits = %d, want 0", got)
	}
}

func TestLoad_Faults(t *testing.T) {
	t.Parallel()
	set := func(key string, v any) func(*enginetest.Model) {
		return func(m *enginetest.Model) { m.Meta[key] = v }
	}
	del := func(key string) func(*enginetest.Model) {
		return func(m *enginetest.Model) { delete(m.Meta, key) }
	}
	for _, c := range []struct {
		name   string
		change func(*enginetest.Model)
		want   []string // all in the error
	}{
		{"architecture", set("general.architecture", "mamba"), []string{"general.architecture", "mamba"}},
		{"no architecture", del("general.architecture"), []string{"general.architecture"}},
		{"no layers", del("llama.block_count"), []string{"llama.block_count", "missing"}},
		{"zero layers", set("llama.block_count", uint32(0)), []string{"llama.block_count"}},
		{"absurd layers", set("llama.block_count", uint32(1<<31)), []string{"llama.block_count"}},
		{"text for a number", set("llama.block_count", "two"), []string{"llama.block_count"}},
		{"more layers than there are", set("llama.block_count", uint32(3)), []string{"blk.2.attn_norm.weight", "missing"}},
		{"fewer layers than there are", set("llama.block_count", uint32(1)), []string{"blk.1.", "not part"}},
		{"width", set("llama.embedding_length", uint32(100)), []string{"llama.embedding_length"}},
		{"huge width", set("llama.embedding_length", uint64(1)<<62), []string{"llama.embedding_length"}},
		{"no width", del("llama.embedding_length"), []string{"llama.embedding_length"}},
		{"ffn", set("llama.feed_forward_length", uint32(129)), []string{"llama.feed_forward_length"}},
		{"other ffn", set("llama.feed_forward_length", uint32(160)), []string{"blk.0.ffn_gate.weight", "shape"}},
		{"no ffn", del("llama.feed_forward_length"), []string{"llama.feed_forward_length"}},
		{"heads", set("llama.attention.head_count", uint32(5)), []string{"llama.attention.head_count"}},
		{"zero heads", set("llama.attention.head_count", uint32(0)), []string{"llama.attention.head_count"}},
		{"short heads", set("llama.attention.head_count", uint32(6)), []string{"llama.attention.head_count"}},
		{"kv heads", set("llama.attention.head_count_kv", uint32(2)), []string{"llama.attention.head_count_kv"}},
		{"kv heads of another kind", set("llama.attention.head_count_kv", []int32{1, 1}), []string{"llama.attention.head_count_kv"}},
		{"zero kv heads", set("llama.attention.head_count_kv", uint32(0)), []string{"llama.attention.head_count_kv"}},
		{"context", set("llama.context_length", int32(-1)), []string{"llama.context_length"}},
		{"no context", del("llama.context_length"), []string{"llama.context_length"}},
		{"epsilon", set("llama.attention.layer_norm_rms_epsilon", float32(math.NaN())), []string{"layer_norm_rms_epsilon"}},
		{"no epsilon", del("llama.attention.layer_norm_rms_epsilon"), []string{"layer_norm_rms_epsilon"}},
		{"rope base", set("llama.rope.freq_base", float32(math.Inf(1))), []string{"llama.rope.freq_base"}},
		{"rope dimensions", set("llama.rope.dimension_count", uint32(16)), []string{"llama.rope.dimension_count"}},
		{"rope scaling", set("llama.rope.scaling.type", "yarn"), []string{"llama.rope.scaling.type", "yarn"}},
		{"rope factor", set("llama.rope.scaling.factor", float32(4)), []string{"llama.rope.scaling.factor"}},
		{"experts", set("llama.expert_count", uint32(8)), []string{"llama.expert_count"}},
		{"vocabulary", set("llama.vocab_size", uint32(12)), []string{"llama.vocab_size"}},
		{"no embedding", func(m *enginetest.Model) { m.Drop("token_embd.weight") }, []string{"token_embd.weight"}},
		{"no norm", func(m *enginetest.Model) { m.Drop("output_norm.weight") }, []string{"output_norm.weight", "missing"}},
		{"bias", func(m *enginetest.Model) {
			m.Tensors = append(m.Tensors, &enginetest.Tensor{Name: "blk.0.attn_q.bias", Type: gguf.F32, Dims: []int{96}, Data: make([]byte, 384)})
		}, []string{"blk.0.attn_q.bias", "not part"}},
		{"shape", func(m *enginetest.Model) { m.Tensor("blk.1.attn_k.weight").Dims = []int{32, 96} }, []string{"blk.1.attn_k.weight", "[32 96]", "[96 32]"}},
		{"type", func(m *enginetest.Model) {
			w := m.Tensor("blk.1.ffn_up.weight")
			w.Type, w.Data = gguf.IQ4_NL, make([]byte, 96*128/32*18)
		}, []string{"blk.1.ffn_up.weight", "IQ4_NL"}},
		{"scale", func(m *enginetest.Model) { copy(m.Tensor("blk.1.ffn_up.weight").Data, "\xff\x7f") }, []string{"blk.1.ffn_up.weight", "finite"}},
		{"norm weight", func(m *enginetest.Model) { copy(m.Tensor("blk.1.ffn_norm.weight").Data, "\xff\xff\xff\x7f") }, []string{"blk.1.ffn_norm.weight", "finite"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := enginetest.NewModel(1)
			c.change(m)
			path := filepath.Join(t.TempDir(), "bad.gguf")
			if err := m.Write(path); err != nil {
				t.Fatal(err)
			}
			err := tryLoad(path)
			if err == nil {
				t.Fatal("it loads")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not contain %q", err, w)
				}
			}
		})
	}
}

func tryLoad(path string) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	p, err := llama.ReadParams(f)
	if err != nil {
		return err
	}
	k, err := kernel.Find("scalar")
	if err != nil {
		return err
	}
	cache, err := kv.New(p.KVShape(), 1<<20, 1)
	if err != nil {
		return err
	}
	defer cache.Close()
	m, err := llama.Load(f, p, llama.Options{Kernel: k, Cache: cache, Threads: 2, Context: 64, Columns: 8, Logits: 4})
	if err != nil {
		return err
	}
	return m.Close()
}

func TestLoad_Progress(t *testing.T) {
	t.Parallel()
	f, err := gguf.Open(tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := llama.ReadParams(f)
	if err != nil {
		t.Fatal(err)
	}
	k, _ := kernel.Find("")
	cache, err := kv.New(p.KVShape(), 1<<20, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	var last, all int64
	m, err := llama.Load(f, p, llama.Options{Kernel: k, Cache: cache, Threads: 2, Context: 64, Columns: 8, Logits: 4, Progress: func(done, total int64) {
		if done <= last || done > total {
			t.Errorf("Progress(%d, %d) after %d", done, total, last)
		}
		last, all = done, total
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if bytes, source := m.Weights(); last != all || all != int64(bytes) || source != gguf.Q4_1 {
		t.Errorf("progress ended at %d of %d; Weights() = %d, %v", last, all, bytes, source)
	}
}
