package llama_test

import (
	"sync/atomic"
	"testing"

	"github.com/parley-ai/parley/engine/llama"
)

func TestPool_Run(t *testing.T) {
	t.Parallel()
	for _, threads := range []int{1, 2, 4} {
		p := llama.NewPool(threads)
		for round := range 300 {
			n := round % 40
			ran := make([]atomic.Int32, n)
			p.Run(n, func(worker, i int) {
				if worker < 0 || worker >= threads {
					t.Errorf("worker %d of %d", worker, threads)
				}
				ran[i].Add(1)
			})
			for i := range ran {
				if got := ran[i].Load(); got != 1 {
					t.Fatalf("%d threads: chunk %d of %d ran %d times", threads, i, n, got)
				}
			}
		}
		p.Close()
	}
}

func TestPool_Run_Panic(t *testing.T) {
	t.Parallel()
	p := llama.NewPool(2)
	defer p.Close()
	for range 50 {
		var others atomic.Int32
		func() {
			defer func() {
				if e, ok := recover().(*llama.Panic); !ok || e.Value != "chunk 7" || len(e.Stack) == 0 {
					t.Errorf("Run panicked with %v, want a *Panic of chunk 7", e)
				}
			}()
			p.Run(20, func(_, i int) {
				if i == 7 {
					panic("chunk 7")
				}
				others.Add(1)
			})
		}()
		if others.Load() != 19 {
			t.Fatalf("%d of 19 other chunks ran", others.Load())
		}
	}
}
