package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/engine"
)

// Sixteen clients come, leave at any moment or stay: every answer is what it is alone,
// and no page is lost.
func TestGenerate_Storm(t *testing.T) {
	t.Parallel()
	path := tiny(t)
	for name, o := range map[string]engine.Options{
		"room":  {Threads: 2, KVBytes: 8 << 20, QueueWait: time.Hour},
		"tight": {Threads: 2, MaxSequences: 5, Context: 256, KVBytes: 20 * 2 * 2 * 2 * 16 * 32, PrefillChunk: 24, QueueWait: time.Hour},
	} {
		e, alone := open(t, path, o), open(t, path, small())
		var want sync.Map // by request
		expect := func(r engine.Request) []string {
			key := fmt.Sprint(r)
			if w, ok := want.Load(key); ok {
				return w.([]string)
			}
			w := texts(t, alone.Generate(t.Context(), r), max(1, r.Choices))
			want.Store(key, w)
			return w
		}
		var wg sync.WaitGroup
		for client := range 16 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(client), 1))
				for range 12 {
					r := engine.Request{
						Owner: fmt.Sprint(client % 5), Prompt: prompt(1+rnd.IntN(120), 100*rnd.IntN(2)), MaxTokens: 1 + rnd.IntN(60),
						Choices: rnd.IntN(4), Temperature: float64(rnd.IntN(2)), TopP: 1, Seed: uint64(rnd.IntN(3)),
					}
					ctx, cancel := context.WithCancel(t.Context())
					leaveAt, by := -1, rnd.IntN(4)
					if by < 2 {
						leaveAt = rnd.IntN(r.MaxTokens + 1)
					}
					got, left := make([]string, max(1, r.Choices)), false
					var failed error
					seen := 0
					for tok, err := range e.Generate(ctx, r) {
						if failed = err; err != nil {
							break
						}
						got[tok.Choice] += tok.Text
						if seen++; seen == leaveAt {
							if left = true; by == 0 {
								break
							}
							cancel()
						}
					}
					cancel()
					switch {
					case failed != nil && !(left && errors.Is(failed, context.Canceled)):
						t.Errorf("%s: %+v: %v", name, r, failed)
					case !left && !slices.Equal(got, expect(r)):
						t.Errorf("%s: %+v: %q, alone %q", name, r, got, expect(r))
					}
				}
			})
		}
		wg.Wait()
		until(t, "all is quiet", func() bool { s := e.Stats(); return s.Running == 0 && s.Waiting == 0 && s.PagesUsed == 0 })
	}
}
