// Package kernel holds the inner loops of the engine: one table of functions
// per processor level, chosen at start-up and forceable by name.
//
// # Weights
//
// A matrix [rows][k] is cut into groups of 32 rows and blocks of 32 columns.
// Groups follow each other in memory, and inside a group its k/32 blocks; so one
// product reads the matrix as a single forward stream, which the prefetchers of the
// processor follow: two streams of 16 rows each take 1.5 times as long for four
// columns (Zen 4).
//
//	U4 block, 640 bytes: value = scale*(d*(q-8) + m), q in 0..15
//	  0     quants: 4 chunks p of 128 bytes; in chunk p, row r owns bytes 4r..4r+3;
//	        byte j of them: low half = column 4p+j, high half = column 16+4p+j
//	  512   32 pairs of int16, d and m of a row
//	and behind the blocks of a group
//	  0     scale: 32 float32, one a row
//	S8 block, 1088 bytes: value = d*q, q in -128..127
//	  0     quants: 8 chunks p of 128 bytes; row r owns bytes 4r..4r+3 = columns 4p..4p+3
//	  1024  d: 32 float16
//
// # Inputs
//
// Inputs are quantised to int8 in tiles of C columns (C = 1 or 4): value = d*q.
// A tile is k/32 blocks of 44*C bytes:
//
//	d [C]float32, s [C]int32 = 65536*sum(q) + 32768 - 8*sum(q), c [C]int32 = -128*sum(q), q [C][32]int8
//
// A U4 product of a block starts at s and adds up w*q of the unsigned w. Then its high
// half is sum(q), and its low half the sum of (w-8)*q plus 32768, which is at least 256,
// so that it borrows nothing. With its top bit turned it is a pair of int16, whose products
// with d and m are one instruction, exact in int32: at most 32767*(32512+4064). That takes
// 80 of a multiplier's cycles for 32 rows and four columns, where d and m as floats take
// 88 (Zen 4).
//
// # Arithmetic
//
// Every level computes the same bits. Integer dot products are exact. Floats are
// added in one fixed order, so the scalar twins, the tests and the golden files need no
// tolerance. Scores, Mix and exp multiply and add in one rounding (fused): a conversion
// from float16 takes the adders' place (Zen 4), so that 16 sequences decode 5 % faster.
// Nothing else does: it costs the four-column kernel 3.5 % in the cache (Zen 5) and gains
// nothing where memory is the limit. In Go the conversion float32(a*b) keeps the compiler
// from fusing.
//
// Sums over a vector keep 16 partial sums, lane l taking elements l, l+16, ...;
// then lanes l and l+8 are added, l and l+4, l and l+2, l and l+1.
package kernel

import (
	"fmt"
	"unsafe"
)

// Sizes of the layouts above.
const (
	Rows     = 32        // rows of a weight group
	Cols     = 32        // columns of a block
	U4Block  = 512 + 128 // bytes of a U4 block, 32 rows x 32 columns
	U4Scales = 128       // bytes of a U4 group's scales
	S8Block  = 1024 + 64 // bytes of an S8 block
	XBlock   = 44        // bytes of 32 quantised inputs of one column
	Page     = 16        // positions of a KV page
	Heads    = 4         // query heads that Scores and Mix take at once, at most
	Wide     = 12        // that ScoresWide and MixWide do: of 3 columns or more
	WideRow  = 16        // floats of a row of queries for ScoresWide
)

// Table is the set of kernels of one level. The functions trust their arguments:
// the callers in the engine own the lengths. (Calls through function values make
// pointer arguments escape, so callers use buffers that live on the heap anyway.)
type Table struct {
	Name string // "scalar", "avx2" or "avx512"

	// U4x1 and S8x1 multiply groups*32 rows by one column of nb blocks: out[groups*32].
	U4x1 func(w, x *byte, nb, groups int, out *float32)
	S8x1 func(w, x *byte, nb, groups int, out *float32)
	// U4x4 and S8x4 do tiles of four columns: out[c*stride+row]. Each group meets all
	// tiles before the next group comes. With each block they ask the cache for so many
	// lines of 64 bytes, from ahead bytes behind the group's beginning on, as many bytes
	// as a group has.
	U4x4 func(w, x *byte, nb, groups int, out *float32, stride, tiles, ahead, lines int)
	S8x4 func(w, x *byte, nb, groups int, out *float32, stride, tiles, ahead, lines int)
	// Ahead is how many bytes they like to be asked for ahead of time; 0 is a group,
	// for a level that passes over each group more than once.
	Ahead int

	// Quantise writes n floats (n%32 == 0) as column col of the tile x of cols columns.
	Quantise func(x *float32, n int, tile *byte, cols, col int)
	// RMSNorm: dst = x / sqrt(mean(x²)+eps) * w, n%16 == 0.
	RMSNorm func(dst, x, w *float32, n int, eps float32)
	// Add: x += y, n%16 == 0.
	Add func(x, y *float32, n int)
	// SiLUMul: g = g/(1+exp(-g)) * u, n%16 == 0.
	SiLUMul func(g, u *float32, n int)
	// Rotate turns adjacent pairs; cos and sin hold hd values, each doubled, sin as (-s, s).
	Rotate func(x, cos, sin *float32, heads, hd int)
	// ToF16 rounds n floats to float16, n%16 == 0.
	ToF16 func(dst *uint16, src *float32, n int)

	// Spread lays Heads query heads side by side, and scales them, hd%8 == 0:
	// dst[j*stride+h] = q[h*hd+j]*scale.
	Spread func(q *float32, hd int, scale float32, dst *float32, stride int)
	// Scores: the first heads <= Heads query heads against the K halves of pages,
	// pageBytes apart. q [hd][Heads], K page [hd][16] float16, out[h*stride+16*page+i].
	// npages and ask.N are even. The rows of out beyond heads may be written, with
	// values of no meaning; so may those of Mix.
	Scores func(q *float32, kv *byte, pages *int32, npages, pageBytes, hd int, out *float32, stride, heads int, ask *Ask)
	// SoftExp: x = exp(x-max), n%16 == 0; returns 1/sum.
	SoftExp func(x *float32, n int) float32
	// Mix: out[h][hd] = inv[h] * sum over n positions of p[h*stride+i] * V[i].
	// V page [16][hd] float16, hd%32 == 0.
	Mix func(p *float32, stride int, kv *byte, pages *int32, n, pageBytes, hd int, inv, out *float32, heads int, ask *Ask)

	// ScoresWide is Scores of Wide lanes, q [hd][WideRow], which read the same pages: query
	// heads of neighbouring columns of a sequence. nil: the level has none.
	ScoresWide func(q *float32, kv *byte, pages *int32, npages, pageBytes, hd int, out *float32, stride int)
	// MixWide is Mix of Wide lanes, of which lane l has n[l] positions and reads no
	// further; the counts do not fall from lane to lane.
	MixWide func(p *float32, stride int, kv *byte, pages, n *int32, pageBytes, hd int, inv, out *float32)

	// Max of n floats, n%16 == 0.
	Max func(x *float32, n int) float32
	// AtLeast writes the indices i with x[i] >= t in rising order, at most limit; returns how many.
	AtLeast func(x *float32, n int, t float32, dst *int32, limit int) int
}

// Ask is what Scores and Mix ask the second cache for while they compute: with the
// lines of their i-th page, i < N, the same lines of page Pages[i] of KV. It is what the
// next call reads: pages lie scattered, which no hardware prefetcher follows.
type Ask struct {
	KV    *byte
	Pages *int32
	N     int
}

// Levels names the levels that this processor can run, worst first.
func Levels() []string {
	var names []string
	for _, t := range tables() {
		names = append(names, t.Name)
	}
	return names
}

// Find returns the table of the level of that name, or of the best level this
// processor can run for "". The table is the caller's to read, from any
// goroutine. An error names the levels there are.
func Find(name string) (*Table, error) {
	ts := tables()
	if name == "" {
		return &ts[len(ts)-1], nil
	}
	for i := range ts {
		if ts[i].Name == name {
			return &ts[i], nil
		}
	}
	return nil, fmt.Errorf("kernel: no level %q on this processor (have %v)", name, Levels())
}

// tables lists the levels that this processor can run, worst first.
func tables() []Table { return append([]Table{scalarTable()}, simdTables()...) }

// Argmax returns the lowest index of the greatest value of x, whose length is a
// multiple of 16; scratch has room for one index. It returns 0 for a row of NaN.
func (t *Table) Argmax(x []float32, scratch *int32) int32 {
	if t.AtLeast(&x[0], len(x), t.Max(&x[0], len(x)), scratch, 1) == 0 {
		return 0
	}
	return *scratch
}

// Residue takes from x, whose length is a multiple of 32, what column col of the
// tile, quantised from it, holds of it. Like the kernels it gives the same bits on
// every processor; it has no level because it runs once a sequence.
func Residue(x []float32, tile *byte, cols, col int) {
	for b := range len(x) / Cols {
		xb := at(tile, b*XBlock*cols)
		d := f32at(xb, 4*col)
		q := (*[Cols]int8)(unsafe.Pointer(at(xb, 12*cols+Cols*col)))
		for i, v := range q {
			x[b*Cols+i] -= float32(d * float32(v))
		}
	}
}
