// Package kv keeps the keys and values of sequences in pages of 16 positions, and
// promises them: a sequence takes the pages of its whole budget before it starts,
// so none runs out of room on the way.
//
// A page holds its positions for one KV head of one layer as
//
//	K [head size][16] float16   positions side by side: scores need no horizontal sums
//	V [16][head size] float16
//
// the KV heads of a layer follow each other, and the layers of a page: so a page is
// one stretch of memory, and what is never used is never touched. Pages are not
// cleared between sequences.
//
// A full page can be published under the [Key] of all tokens up to its end. Sequences
// that begin with the same tokens then share it, and it outlives those that hold it
// until its room is needed: the page that was given back longest ago goes first.
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

// Cache is the memory of all pages and the books about who holds them. One
// goroutine at a time may use it.
type Cache struct {
	shape Shape
	mem   *arena.Arena
	data  []byte

	pages  []page
	free   []int32       // held by nobody and not published
	named  map[Key]int32 // the published pages
	unheld lru           // the published pages that nobody holds
}

type page struct {
	refs      int // tables that hold it
	published bool
	key       Key
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
	c := &Cache{
		shape: s, mem: mem, data: mem.Bytes(int(total * each)),
		pages: make([]page, total), free: make([]int32, total), named: map[Key]int32{}, unheld: newLRU(int(total)),
	}
	for i := range c.free { // low numbers are taken first: memory is touched as it is needed
		c.free[i] = int32(int(total) - 1 - i)
	}
	return c, nil
}

// Shape returns what the cache was made for.
func (c *Cache) Shape() Shape { return c.shape }

// Total returns the number of pages.
func (c *Cache) Total() int { return len(c.pages) }

// Free returns how many pages hold nothing.
func (c *Cache) Free() int { return len(c.free) }

// Cached returns how many pages nobody holds, but could be found again.
func (c *Cache) Cached() int { return c.unheld.n }

// Held returns how many pages tables hold. Total is the sum of the three.
func (c *Cache) Held() int { return c.Total() - c.Free() - c.Cached() }

// Table is the pages of one sequence in the order of its positions, and the last
// one again where their number is odd, because [kernel.Table.Scores] takes pages
// in pairs.
type Table []int32

// pages is the pages of the table, each once.
func (t Table) pages() Table {
	if n := len(t); n > 1 && t[n-1] == t[n-2] {
		return t[:n-1]
	}
	return t
}

// Need is what sequences that begin alike ask for.
type Need struct {
	// Prefix is the keys of the full pages that they begin with and that may be
	// found in the cache, in order.
	Prefix []Key
	// Shared is how many of their first positions are the same, at least
	// [kernel.Page] for each key of Prefix. They have the full pages of these in
	// common.
	Shared int
	// Length is the positions of each, more than Shared; Tables how many they are, at
	// least 1.
	Length, Tables int
	// Spare is how many pages must be left.
	Spare int
}

// found returns the pages of the longest part of a prefix that is there.
func (c *Cache) found(prefix []Key) (pages []int32, unheld int) {
	for _, k := range prefix {
		p, ok := c.named[k]
		if !ok {
			break
		}
		if c.pages[p].refs == 0 {
			unheld++
		}
		pages = append(pages, p)
	}
	return pages, unheld
}

// Reserve takes the pages for n > 0 positions. ok is false, and nothing taken,
// when not as many are free or could be made so.
func (c *Cache) Reserve(n int) (t Table, ok bool) {
	tables, _ := c.Admit(Need{Length: n, Tables: 1})
	if len(tables) == 0 {
		return nil, false
	}
	return tables[0], true
}

// Admit takes pages for as many of the tables of n as pages are free or can be made
// so, and says how many positions at their beginning need not be computed, because
// the first pages were found. Without room for one nothing changes.
func (c *Cache) Admit(n Need) (tables []Table, cached int) {
	hit, unheld := c.found(n.Prefix)
	all, common := Pages(n.Length), n.Shared/kernel.Page
	room := len(c.free) + c.unheld.n - unheld - n.Spare - (common - len(hit))
	if room < all-common {
		return nil, 0
	}
	for i := range min(n.Tables, room/(all-common)) {
		t := make(Table, 0, all+1)
		if i == 0 {
			t = append(t, hit...)
		} else {
			t = append(t, tables[0][:common]...)
		}
		for _, p := range t {
			if c.pages[p].refs++; c.pages[p].refs == 1 {
				c.unheld.remove(p)
			}
		}
		for len(t) < all {
			t = append(t, c.take())
		}
		if all%2 == 1 {
			t = append(t, t[all-1])
		}
		tables = append(tables, t)
	}
	return tables, len(hit) * kernel.Page
}

// Missing says how many pages are not there for one table of n; 0 or less is none.
func (c *Cache) Missing(n Need) int {
	hit, unheld := c.found(n.Prefix)
	return Pages(n.Length) - len(hit) + n.Spare - (len(c.free) + c.unheld.n - unheld)
}

// Sole returns how many pages nobody but the tables holds.
func (c *Cache) Sole(tables []Table) (n int) {
	held := map[int32]int{}
	for _, t := range tables {
		for _, p := range t.pages() {
			held[p]++
		}
	}
	for p, refs := range held {
		if c.pages[p].refs == refs {
			n++
		}
	}
	return n
}

// take returns a page that nobody holds; there is one.
func (c *Cache) take() int32 {
	var p int32
	if n := len(c.free); n > 0 {
		p, c.free = c.free[n-1], c.free[:n-1]
	} else {
		p = c.unheld.oldest()
		c.unheld.remove(p)
		delete(c.named, c.pages[p].key)
		c.pages[p].published = false
	}
	c.pages[p].refs = 1
	return p
}

// Publish lets other sequences find page i of t by k. All its positions must have
// been computed, of the tokens that k was made of, and it is not written to any
// more. Where there is such a page already, that one stays and t keeps its own.
func (c *Cache) Publish(t Table, i int, k Key) {
	p := &c.pages[t[i]]
	if _, ok := c.named[k]; ok || p.published {
		return
	}
	c.named[k] = t[i]
	p.published, p.key = true, k
}

// Copy makes page i of dst the same as page i of src.
func (c *Cache) Copy(dst, src Table, i int) {
	n := c.shape.Stride()
	copy(c.data[int(dst[i])*n:][:n], c.data[int(src[i])*n:][:n])
}

// Release gives the pages of a table back. The table must not be used after it,
// and each table is released once. Of what was published the beginning is kept
// longest, because the rest is not found without it.
func (c *Cache) Release(t Table) {
	t = t.pages()
	for i := range t {
		id := t[len(t)-1-i]
		p := &c.pages[id]
		switch p.refs--; {
		case p.refs > 0:
		case p.published:
			c.unheld.add(id)
		default:
			c.free = append(c.free, id)
		}
	}
}

// Layer returns the memory from page 0 of layer i on; its page p is at
// p*Stride, PageBytes long.
func (c *Cache) Layer(i int) []byte { return c.data[i*c.shape.PageBytes():] }

// Close gives the memory back to the system; the cache must not be used after it.
func (c *Cache) Close() error { return c.mem.Close() }
