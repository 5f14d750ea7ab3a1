package llama

import (
	"slices"

	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/quant"
)

// inputs are what a matrix is multiplied by: n columns of k values, and behind
// them the twins of some, quantised in tiles.
type inputs struct {
	x       []byte
	k, n    int
	twins   [][2]int // a column and the place of its twin, both rising
	threads int
}

// Twinned is how many positions at the beginning of a sequence are computed with
// inputs of 15 bits instead of 8: what rounding to 8 bits leaves of a column's
// inputs goes through the matrices as a column of its own, its twin, whose
// products are added to the column's.
//
// A sequence's first token has massive activations (in SmolLM2-135M up to 3065 at
// the input of layer 11's ffn_down, 2371 in layer 28, elsewhere below 480), so that
// 8 bits leave nothing of the 31 values that share the outlier's block; and all
// later positions attend to the keys and values of the first ones. Four twins would do
// for those. The others are for the first positions themselves, where few keys average
// out what rounding moves: a page of them, which a prompt of 256 takes 4.6 % longer for.
//
// The last layer's ffn_down takes twins of all columns that are left there, those
// that want logits: that takes 5 % off the mean KL32, in layer 28 it would be 1 %.
// The output matrix, a fifth of the weights, takes none.
//
// Measured on SmolLM2-135M (168 positions of logits.jsonl, 7,300 of corpus.bin):
//
//	positions             mean KL64  worst   top-1   greedy misses  mean KL32
//	1                     2.87e-3    0.0377  97.6 %  32             2.37e-3
//	4                     2.71e-3    0.0296  96.4 %  31             2.29e-3
//	8                     2.21e-3    0.0296  96.4 %  33             2.25e-3
//	12                    1.99e-3    0.0214  95.8 %  24             2.23e-3
//	16                    1.75e-3    0.0137  98.2 %  30             2.13e-3
//	32                    1.40e-3    0.0130  98.2 %  31             2.06e-3
//	all, in all matrices  3.9e-7     1e-5    100 %
//
// Of misses and top-1 a few either way are chance: kernels that differed from these in the
// order of their roundings only had 26 to 38 and 94.6 to 99.4 % with four positions.
const Twinned = kernel.Page

// pair sets the columns, and gives twins to those at positions below end.
func (in *inputs) pair(cols []Column, end int) {
	in.n, in.twins = len(cols), in.twins[:0]
	for i, c := range cols {
		if c.Pos < end {
			in.twins = append(in.twins, [2]int{i, len(cols) + len(in.twins)})
		}
	}
}

// place says where input off, off%32 == 0, of column i lies. Tiles are four
// columns wide, but a last one of a single column is one wide.
func (in *inputs) place(i, off int) (tile *byte, cols, col int) {
	cols = tileCols(in.n+len(in.twins), i/4)
	blocks := i/4*4*(in.k/kernel.Cols) + cols*(off/kernel.Cols)
	return &in.x[blocks*kernel.XBlock], cols, i % 4
}

func tileCols(n, t int) int {
	if n-4*t == 1 {
		return 1
	}
	return 4
}

// quantise writes x as the inputs from off on, off%32 == 0, of column i, and what
// that rounds away as those of its twin, if it has one. It may change x.
func (in *inputs) quantise(k *kernel.Table, i, off int, x []float32) {
	tile, cols, col := in.place(i, off)
	k.Quantise(&x[0], len(x), tile, cols, col)
	if twin, ok := in.twin(i); ok {
		kernel.Residue(x, tile, cols, col)
		tile, cols, col = in.place(twin, off)
		k.Quantise(&x[0], len(x), tile, cols, col)
	}
}

// twin is the place of column i's twin, if it has one.
func (in *inputs) twin(i int) (place int, ok bool) {
	if len(in.twins) == 0 || i > in.twins[len(in.twins)-1][0] {
		return 0, false // most columns
	}
	t, ok := slices.BinarySearchFunc(in.twins, i, func(t [2]int, i int) int { return t[0] - i })
	return in.n + t, ok
}

// part is what a chunk of work computes of a product: rows r0 up to r1 of columns c0
// up to c1. Rows are whole groups, columns whole tiles, but for the last column.
type part struct{ r0, r1, c0, c1 int }

// multiply multiplies a part of w by its columns into out, of which a column has stride
// floats, and adds the twins' products to their columns'.
func (in *inputs) multiply(k *kernel.Table, w *quant.Matrix, p part, out []float32, stride int) {
	end := p.c1
	if end == in.n {
		end += len(in.twins)
	}
	w.Mul(k, in.x[p.c0/4*w.Tile():], end-p.c0, p.r0/kernel.Rows, p.r1/kernel.Rows, out, stride)
	rows := p.r1 - p.r0
	for i := 0; i < len(in.twins); {
		n := 1 // neighbours whose rows lie side by side
		for stride == rows && i+n < len(in.twins) && in.twins[i+n][0] == in.twins[i][0]+n {
			n++
		}
		k.Add(&out[in.twins[i][0]*stride], &out[in.twins[i][1]*stride], n*rows)
		i += n
	}
}

// columns is how many columns, twins included, a chunk of work has: all, or if each thread
// can have 16, columns of its own, so that it need not fetch from another's cache what
// that has written; that each reads all weights then takes less time than computing with
// them. But twins are added to columns that may be another part's, so with them there is
// one part.
func (in *inputs) columns() int {
	n := in.n + len(in.twins)
	if in.threads > 1 && len(in.twins) == 0 && n >= 16*in.threads {
		return ((n+in.threads-1)/in.threads + 3) &^ 3
	}
	return max(1, n)
}

// parts is how many chunks all columns take.
func (in *inputs) parts() int {
	return (in.n + len(in.twins) + in.columns() - 1) / in.columns()
}

// groups is how many groups make a chunk of work. For up to four columns that is about 24
// KiB of weights, 0.3 to 1 µs; for more of them one, and for a part of the columns two, some
// 7 µs (14 for two matrices at once), so that threads end together. With
// nobody to share with, longer stretches of memory are read faster (one column: 1.16
// times) and what is done to each chunk's rows costs less; they still end soon enough for
// the collector, which cannot stop a kernel.
func (in *inputs) groups(w *quant.Matrix) int {
	n := in.n + len(in.twins)
	switch {
	case in.threads == 1:
		return max(1, min(384<<10, (6<<20)/max(1, n))/w.Group())
	case n <= 4:
		return max(1, (24<<10)/w.Group())
	case in.parts() > 1:
		return 2
	}
	return 1
}

// chunks is how many chunks each part of the columns has, a product with w.
func (in *inputs) chunks(w *quant.Matrix) int {
	return (w.Groups() + in.groups(w) - 1) / in.groups(w)
}

// part gives chunk i of the columns' part number column.
func (in *inputs) part(w *quant.Matrix, column, i int) part {
	g, c := i*in.groups(w), column*in.columns()
	return part{g * kernel.Rows, min(g+in.groups(w), w.Groups()) * kernel.Rows, c, min(c+in.columns(), in.n)}
}

// each calls f with all parts of the products with the matrices ws, of which f gets the
// number. The parts of a column come one after the other, and those of a matrix.
func (in *inputs) each(p *pool, f func(worker, matrix int, part part), ws ...*quant.Matrix) {
	total := 0
	for _, w := range ws {
		total += in.chunks(w)
	}
	p.run(in.parts()*total, func(worker, i int) {
		column, i := i/total, i%total
		matrix := 0
		for ; i >= in.chunks(ws[matrix]); matrix++ {
			i -= in.chunks(ws[matrix])
		}
		f(worker, matrix, in.part(ws[matrix], column, i))
	})
}
