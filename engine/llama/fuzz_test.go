package llama_test

import (
	"maps"
	"testing"

	"github.com/parley-ai/parley/engine/enginetest"
	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/kv"
	"github.com/parley-ai/parley/engine/llama"
)

// Whatever sizes the file claims, and whatever a tensor of it holds, loading gives
// an error or a model that can step.
func FuzzLoad(f *testing.F) {
	k, err := kernel.Find("")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(2), uint32(96), uint32(128), uint32(3), uint32(1), uint32(64), float32(1e-5), float32(1e4), uint8(0), uint32(96), uint32(96), uint16(0), uint8(0))
	f.Add(uint32(1), uint32(192), uint32(64), uint32(6), uint32(2), uint32(1), float32(0), float32(1), uint8(3), uint32(192), uint32(0), uint16(3), uint8(0xff))
	f.Fuzz(func(t *testing.T, layers, dim, ffn, heads, kvHeads, context uint32, eps, base float32, which uint8, width, height uint32, at uint16, value uint8) {
		model := enginetest.NewModel(1)
		maps.Copy(model.Meta, map[string]any{
			"llama.block_count": layers, "llama.embedding_length": dim, "llama.feed_forward_length": ffn,
			"llama.attention.head_count": heads, "llama.attention.head_count_kv": kvHeads, "llama.context_length": context,
			"llama.attention.layer_norm_rms_epsilon": eps, "llama.rope.freq_base": base,
		})
		w := model.Tensors[int(which)%len(model.Tensors)]
		w.Data[int(at)%len(w.Data)] = value
		if len(w.Dims) == 2 {
			w.Dims = []int{int(width), int(height)}
		}
		file, err := gguf.Parse(model.Bytes())
		if err != nil {
			return
		}
		p, err := llama.ReadParams(file)
		if err != nil {
			return
		}
		cache, err := kv.New(p.KVShape(), 1<<20, 1)
		if err != nil {
			return
		}
		defer cache.Close()
		m, err := llama.Load(file, p, llama.Options{Kernel: k, Cache: cache, Threads: 1, Context: 32, Columns: 4, Logits: 1})
		if err != nil {
			return
		}
		defer m.Close()
		pages, ok := cache.Reserve(4)
		if !ok {
			t.Fatal("an empty cache has no page")
		}
		rows, err := m.Step([]llama.Column{{ID: 0, Pages: pages}, {ID: int32(m.Vocab - 1), Pos: 1, Pages: pages, Logits: true}})
		if err != nil {
			t.Fatal(err)
		}
		if id := m.Argmax(rows[0]); id < 0 || int(id) >= m.Vocab {
			t.Fatalf("Argmax = %d of %d", id, m.Vocab)
		}
	})
}
