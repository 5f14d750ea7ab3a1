package main

import (
	"slices"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/kv"
	"github.com/parley-ai/parley/engine/llama"
)

// ids are n ordinary tokens.
func ids(n, from int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(300 + (from+i)*7919%40000)
	}
	return out
}

// lab is a model with its cache.
type lab struct {
	m     *llama.Model
	cache *kv.Cache
}

// seq is a sequence in the lab.
type seq struct {
	pages kv.Table
	n     int
	next  int32
}

func (l *lab) start() *seq {
	t, _ := l.cache.Reserve(prefill + steps)
	return &seq{pages: t}
}

func (l *lab) prefill(s *seq, ids []int32) error {
	for c := range slices.Chunk(ids, chunk) {
		var cols []llama.Column
		for i, id := range c {
			cols = append(cols, llama.Column{ID: id, Pos: s.n, Pages: s.pages, Logits: i == len(c)-1})
			s.n++
		}
		rows, err := l.m.Step(cols)
		if err != nil {
			return err
		}
		s.next = l.m.Argmax(rows[0])
	}
	return nil
}

func (l *lab) steps(seqs []*seq) error {
	cols := make([]llama.Column, len(seqs))
	for range steps {
		for i, s := range seqs {
			cols[i] = llama.Column{ID: s.next, Pos: s.n, Pages: s.pages, Logits: true}
			s.n++
		}
		rows, err := l.m.Step(cols)
		if err != nil {
			return err
		}
		for i, s := range seqs {
			s.next = l.m.Argmax(rows[i])
		}
	}
	return nil
}

// model measures the graph alone: steps with the most likely token taken.
type model struct{ lab }

func params(weights string) (llama.Params, error) {
	f, err := gguf.Open(weights)
	if err != nil {
		return llama.Params{}, err
	}
	defer f.Close()
	return llama.ReadParams(f)
}

func openModel(weights string, s setting) (*model, error) {
	f, err := gguf.Open(weights)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := llama.ReadParams(f)
	if err != nil {
		return nil, err
	}
	k, err := kernel.Find(s.level)
	if err != nil {
		return nil, err
	}
	cache, err := kv.New(p.KVShape(), 512<<20, 1)
	if err != nil {
		return nil, err
	}
	m, err := llama.Load(f, p, llama.Options{Kernel: k, Cache: cache, Threads: s.threads, Context: p.Context, Columns: 16 + chunk, Logits: 16})
	if err != nil {
		cache.Close()
		return nil, err
	}
	return &model{lab{m, cache}}, nil
}

func (m *model) close() {
	m.m.Close()
	m.cache.Close()
}

func (m *model) prompt() (seconds float64, err error) {
	s := m.start()
	defer m.cache.Release(s.pages)
	return timed(func() error { return m.prefill(s, ids(prefill, 0)) })
}

func (m *model) decode(n int) (seconds float64, err error) {
	var seqs []*seq
	for i := range n {
		s := m.start()
		defer m.cache.Release(s.pages)
		if err := m.prefill(s, ids(behind, i)); err != nil {
			return 0, err
		}
		seqs = append(seqs, s)
	}
	return timed(func() error { return m.steps(seqs) })
}
