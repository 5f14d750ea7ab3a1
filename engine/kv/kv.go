// Package kv keeps the keys and values of running sequences in pages of 16
// positions, and promises them: a sequence takes the pages of its whole budget
// before it starts, so none runs out of room on the way.
//
// A page holds its positions for one KV head of one layer as
//
//	K [head size][16] float16   positions side by side: scores need no horizontal sums
//	V [16][head size] float16
//
// the KV heads of a layer follow each other, and the layers of a page: so a page is
// one stretch of memory, and what is never used is never touched. Pages are not
// cleared between sequences.
package kv

import (
	"fmt"

	"github.com/parley-ai/parley/engine/internal/arena"
	"github.com/parley-ai/parley/engine/kernel"
)

// Shape is what a model keeps for a position.
type Shape struct {
	Layers, KVHeads, HeadDim int
}

// HeadBytes is a page of one KV head: K, then V in the second half.
func (s Shape) HeadBytes() int { return 2 * 2 * kernel.Page * s.HeadDim }

// PageBytes is a page in one layer.
func (s Shape) PageBytes() int { return s.KVHeads * s.HeadBytes() }

// Stride is a page of all layers: page p of a layer lies p*Stride bytes after its
// page 0.
func (s Shape) Stride() int { return s.Layers * s.PageBytes() }

// Pages is how many pages n positions need.
func Pages(n int) int { return (n + kernel.Page - 1) / kernel.Page }

// Cache is the memory of all pages and the list of the free ones. One goroutine
// at a time may use it.
type Cache struct {
	shape Shape
	total int
	mem   *arena.Arena
	data  []byte
	free  []int32
}

// New maps room for as many pages as fit into size bytes, at least least of
// them, else it is an error that says how many bytes those would take.
func New(s Shape, size int64, least int) (*Cache, error) {
	each := int64(s.Stride())
	if each <= 0 {
		return nil, fmt.Errorf("kv: impossible shape %+v", s)
	}
	total := min(size/each, 1<<30)
	if total < int64(least) || total < 1 {
		return nil, fmt.Errorf("kv: %d bytes hold %d pages of %d positions, one full context takes %d pages, %d bytes",
			size, total, kernel.Page, least, each*int64(max(least, 1)))
	}
	mem, err := arena.New(int(total * each))
	if err != nil {
		return nil, fmt.Errorf("kv: map %d bytes: %w", total*each, err)
	}
	c := &Cache{shape: s, total: int(total), mem: mem, data: mem.Bytes(int(total * each)), free: make([]int32, total)}
	for i := range c.free { // low numbers are taken first: memory is touched as it is needed
		c.free[i] = int32(int(total) - 1 - i)
	}
	return c, nil
}

// Shape returns what the cache was made for.
func (c *Cache) Shape() Shape { return c.shape }

// Total returns the number of pages, Free how many nobody holds.
func (c *Cache) Total() int { return c.total }

// Free returns how many pages nobody holds.
func (c *Cache) Free() int { return len(c.free) }

// Table is the pages of one sequence in the order of its positions, and the last
// one again where their number is odd, because [kernel.Table.Scores] takes pages
// in pairs.
type Table []int32

// Reserve takes the pages for n > 0 positions. ok is false, and nothing taken,
// when not as many are free.
func (c *Cache) Reserve(n int) (t Table, ok bool) {
	need := Pages(n)
	if need > len(c.free) {
		return nil, false
	}
	t = make(Table, need, need+1)
	at := len(c.free) - need
	for i := range t {
		t[i] = c.free[len(c.free)-1-i]
	}
	c.free = c.free[:at]
	if need%2 == 1 {
		t = append(t, t[need-1])
	}
	return t, true
}

// Release gives the pages of a table back. The table must not be used after it,
// and each table is released once.
func (c *Cache) Release(t Table) {
	if n := len(t); n > 1 && t[n-1] == t[n-2] {
		t = t[:n-1]
	}
	for i := range t {
		c.free = append(c.free, t[len(t)-1-i])
	}
}

// Layer returns the memory from page 0 of layer i on; its page p is at
// p*Stride, PageBytes long.
func (c *Cache) Layer(i int) []byte { return c.data[i*c.shape.PageBytes():] }

// Close gives the memory back to the system; the cache must not be used after it.
func (c *Cache) Close() error { return c.mem.Close() }
