package routing_test

import (
	"testing"

	"github.com/parley-ai/parley/internal/upstream"
)

// What a call costs that is answered by its first target.
func BenchmarkGenerate(b *testing.B) {
	f := newFarm(2, 2)
	call := &upstream.Call{Request: plain}
	yield := func(upstream.Event) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Generate(b.Context(), f.model, call, yield); err != nil {
			b.Fatal(err)
		}
	}
}
