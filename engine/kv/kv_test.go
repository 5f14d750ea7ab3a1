package kv_test

import (
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine/kv"
)

func open(t *testing.T, pages int) *kv.Cache {
	t.Helper()
	s := kv.Shape{Layers: 2, KVHeads: 3, HeadDim: 32}
	c, err := kv.New(s, int64(pages*s.Layers*s.PageBytes()), 1)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func TestCache_Reserve(t *testing.T) {
	t.Parallel()
	c := open(t, 10)
	var held []kv.Table
	seen := map[int32]bool{}
	for _, n := range []int{1, 16, 17, 48} { // 1 + 1 + 2 + 3 pages
		p, ok := c.Reserve(n)
		if !ok {
			t.Fatalf("Reserve(%d) refused with %d pages free", n, c.Free())
		}
		if len(p)%2 != 0 {
			t.Errorf("Reserve(%d) gave a table of %d entries, want pairs", n, len(p))
		}
		for _, id := range p[:kv.Pages(n)] {
			if seen[id] {
				t.Errorf("page %d is held twice", id)
			}
			seen[id] = true
		}
		held = append(held, p)
	}
	if c.Free() != 3 {
		t.Errorf("Free() = %d, want 3", c.Free())
	}
	if _, ok := c.Reserve(49); ok || c.Free() != 3 {
		t.Errorf("Reserve(49) with 3 pages free: ok = %v, then %d free", ok, c.Free())
	}
	for _, p := range held {
		c.Release(p)
	}
	if c.Free() != c.Total() {
		t.Errorf("after all releases %d of %d pages are free", c.Free(), c.Total())
	}
	all, ok := c.Reserve(160)
	if !ok || len(all) != 10 {
		t.Errorf("Reserve of everything: %v, %v", all, ok)
	}
}

func TestCache_PlacesDoNotOverlap(t *testing.T) {
	t.Parallel()
	c := open(t, 4)
	shape := c.Shape()
	for layer := range shape.Layers {
		for page := range c.Total() {
			b := c.Layer(layer)[page*shape.Stride():][:shape.PageBytes()]
			for i, v := range b {
				if v != 0 {
					t.Fatalf("layer %d page %d: byte %d was written through another", layer, page, i)
				}
				b[i] = 1
			}
		}
	}
}

func TestNew_TooSmall(t *testing.T) {
	t.Parallel()
	s := kv.Shape{Layers: 1, KVHeads: 1, HeadDim: 32}
	_, err := kv.New(s, int64(3*s.PageBytes()), 4)
	if err == nil || !strings.Contains(err.Error(), "8192 bytes") {
		t.Errorf("New with room for 3 of 4 pages: %v, want an error naming the 8192 bytes needed", err)
	}
}
