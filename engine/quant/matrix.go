package quant

import (
	"encoding/binary"
	"fmt"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/kernel"
)

// Matrix is a packed weight matrix of Rows x K values. Its memory is the
// caller's; between [Matrix.Pack] and the end of that memory it may be read from
// many goroutines.
type Matrix struct {
	Rows, K int
	Padded  int  // Rows rounded up to 32; the rows between are zero
	U4      bool // else S8
	Data    []byte

	src *gguf.Tensor
}

// Plan says how the tensor will be packed: types of the form d*q+m with 4 bits
// as U4, all others as S8. Nothing is read yet. Errors name the tensor:
// [ErrType], or a shape that is not a matrix of whole blocks of 32 columns.
func Plan(t *gguf.Tensor) (*Matrix, error) {
	if !Supported(t.Type) {
		return nil, fault(t, ErrType)
	}
	if len(t.Dims) != 2 || t.Dims[0]%kernel.Cols != 0 {
		return nil, fault(t, fmt.Errorf("shape %v is not a matrix of whole blocks of %d columns", t.Dims, kernel.Cols))
	}
	m := &Matrix{K: t.Dims[0], Rows: t.Dims[1], src: t}
	m.Padded = (m.Rows + 31) &^ 31
	m.U4 = t.Type == gguf.Q4_0 || t.Type == gguf.Q4_1 || t.Type == gguf.Q4_K
	return m, nil
}

// Source is the type of the tensor that was packed.
func (m *Matrix) Source() gguf.Type { return m.src.Type }

func (m *Matrix) blocks() int { return m.K / kernel.Cols }

func (m *Matrix) block() int {
	if m.U4 {
		return kernel.U4Block
	}
	return kernel.S8Block
}

// Group is the bytes of 32 rows.
func (m *Matrix) Group() int { return m.blocks() * m.block() }

// Groups is how many groups of 32 rows there are.
func (m *Matrix) Groups() int { return m.Padded / kernel.Rows }

// Tile is the bytes of four columns of inputs.
func (m *Matrix) Tile() int { return m.blocks() * 4 * kernel.XBlock }

// Bytes is what Data must hold, zeroed, before Pack.
func (m *Matrix) Bytes() int { return m.Groups() * m.Group() }

// Pack fills the groups [g0, g1) of Data from the tensor. Different groups may be
// packed at the same time. The error names the tensor: a scale or value in it is
// not finite.
func (m *Matrix) Pack(g0, g1 int) error {
	values, size := m.src.Type.Block()
	rowBytes := m.K / values * size
	row := make([]float32, m.K)
	for g := g0; g < g1; g++ {
		dst := m.Data[g*m.Group():][:m.Group()]
		for r := range min(kernel.Rows, m.Rows-g*kernel.Rows) {
			src := m.src.Data[(g*kernel.Rows+r)*rowBytes:][:rowBytes]
			if !m.packRow(dst, src, row, r) {
				return fault(m.src, errNotFinite)
			}
		}
	}
	return nil
}

// packRow packs row r of a group; it reports whether all its scales are finite.
func (m *Matrix) packRow(dst, src []byte, row []float32, r int) bool {
	switch m.src.Type {
	case gguf.Q4_0:
		return packQ4x0(dst, src, r)
	case gguf.Q4_1:
		return packQ4x1(dst, src, r)
	case gguf.Q4_K:
		return packQ4K(dst, src, r)
	case gguf.Q5_0:
		return packQ5x0(dst, src, r)
	case gguf.Q8_0:
		return packQ8(dst, src, r)
	}
	floats(m.src.Type, src, row)
	return finite(row) && packS8(dst, row, r)
}

// packQ4x1: d, m and 16 bytes, of which byte j holds columns j and 16+j. That is
// the U4 order, so quants move 4 bytes at a time.
func packQ4x1(dst, src []byte, r int) bool {
	ok := true
	for b := range len(src) / 20 {
		in, out := (*[20]byte)(src[20*b:]), (*[kernel.U4Block]byte)(dst[kernel.U4Block*b:])
		for p := range 4 {
			copy(out[128*p+4*r:][:4], in[4+4*p:])
		}
		copy(out[512+2*r:][:2], in[:])
		copy(out[576+2*r:][:2], in[2:])
		ok = ok && finiteHalf(in[:]) && finiteHalf(in[2:])
	}
	return ok
}

// packQ4x0: d and 16 bytes. The value is d*(q-8), so m = -8d, exact in float16 as
// long as that does not overflow.
func packQ4x0(dst, src []byte, r int) bool {
	ok := true
	for b := range len(src) / 18 {
		in, out := (*[18]byte)(src[18*b:]), (*[kernel.U4Block]byte)(dst[kernel.U4Block*b:])
		for p := range 4 {
			copy(out[128*p+4*r:][:4], in[2+4*p:])
		}
		copy(out[512+2*r:][:2], in[:])
		putHalf(out[576+2*r:], -8*half(in[:]))
		ok = ok && finiteHalf(in[:]) && finiteHalf(out[576+2*r:])
	}
	return ok
}

// packQ4K: 256 columns, d and dmin float16, 12 bytes of 6-bit scales and minima,
// then 4 runs of 32 bytes, each 32 columns in the low and the next 32 in the high
// halves. d*scale has 17 bits and is rounded to float16.
func packQ4K(dst, src []byte, r int) bool {
	ok := true
	for sb := range len(src) / 144 {
		in := src[144*sb:][:144]
		d, dmin, sc, q := half(in), half(in[2:]), in[4:16], in[16:]
		for j := range 8 {
			s, m := scale6(sc, j)
			out := dst[kernel.U4Block*(8*sb+j):][:kernel.U4Block]
			nib := func(c int) byte { return q[32*(j/2)+c] >> (4 * (j % 2)) & 15 }
			for p := range 4 {
				for i := range 4 {
					out[128*p+4*r+i] = nib(4*p+i) | nib(16+4*p+i)<<4
				}
			}
			putHalf(out[512+2*r:], d*float32(s))
			putHalf(out[576+2*r:], -dmin*float32(m))
			ok = ok && finiteHalf(out[512+2*r:]) && finiteHalf(out[576+2*r:])
		}
	}
	return ok
}

// packQ5x0: d*(q-16) is an 8-bit value already.
func packQ5x0(dst, src []byte, r int) bool {
	ok := true
	for b := range len(src) / 22 {
		in, out := src[22*b:][:22], (*[kernel.S8Block]byte)(dst[kernel.S8Block*b:])
		high := binary.LittleEndian.Uint32(in[2:])
		for j, v := range in[6:] {
			lo, hi := five(high, v, j)
			out[j/4*128+4*r+j%4], out[(j/4+4)*128+4*r+j%4] = byte(lo-16), byte(hi-16)
		}
		copy(out[1024+2*r:][:2], in)
		ok = ok && finiteHalf(in)
	}
	return ok
}

func packQ8(dst, src []byte, r int) bool {
	ok := true
	for b := range len(src) / 34 {
		in, out := (*[34]byte)(src[34*b:]), (*[kernel.S8Block]byte)(dst[kernel.S8Block*b:])
		for p := range 8 {
			copy(out[128*p+4*r:][:4], in[2+4*p:])
		}
		copy(out[1024+2*r:][:2], in[:])
		ok = ok && finiteHalf(in[:])
	}
	return ok
}

func packS8(dst []byte, row []float32, r int) bool {
	ok := true
	for b := range len(row) / kernel.Cols {
		in, out := row[kernel.Cols*b:][:kernel.Cols], dst[kernel.S8Block*b:][:kernel.S8Block]
		top := float32(0)
		for _, v := range in {
			top = max(top, v, -v)
		}
		putHalf(out[1024+2*r:], top/127)
		ok = ok && finiteHalf(out[1024+2*r:])
		inv := float32(0)
		if d := half(out[1024+2*r:]); d > 0 { // the scale as it is stored, not as it should be
			inv = 1 / d
		}
		for c, v := range in {
			const magic = 3 << 22 // adding it rounds to an integer
			q := min(max(float32(float32(v*inv)+magic)-magic, -127), 127)
			out[c/4*128+4*r+c%4] = byte(int8(q))
		}
	}
	return ok
}

// Row unpacks row i into dst[:K]: the embedding lookup.
func (m *Matrix) Row(i int, dst []float32) {
	g, r := m.Data[i/kernel.Rows*m.Group():], i%kernel.Rows
	for b := range m.blocks() {
		blk, o := g[b*m.block():], dst[kernel.Cols*b:][:kernel.Cols]
		if m.U4 {
			d, mn := half(blk[512+2*r:]), half(blk[576+2*r:])
			for c := range 16 {
				v := blk[c/4*128+4*r+c%4]
				o[c], o[16+c] = float32(d*float32(v&15))+mn, float32(d*float32(v>>4))+mn
			}
			continue
		}
		d := half(blk[1024+2*r:])
		for c := range o {
			o[c] = d * float32(int8(blk[c/4*128+4*r+c%4]))
		}
	}
}

// Mul multiplies the groups [g0, g1) by the n columns in the tiles at x, of four
// columns each but for a last one of a single column, into out[c*stride + row], rows
// counted from the first of group g0. While
// the tiles compute they ask for the weights that follow, each for its share.
func (m *Matrix) Mul(k *kernel.Table, x []byte, n, g0, g1 int, out []float32, stride int) {
	w, groups, nb := &m.Data[g0*m.Group()], g1-g0, m.blocks()
	x1, x4 := k.S8x1, k.S8x4
	if m.U4 {
		x1, x4 = k.U4x1, k.U4x4
	}
	tiles := (n + 2) / 4
	if tiles > 0 {
		ahead, lines := m.Group(), m.block()/64
		if tiles == 1 && k.Ahead > 0 {
			ahead = k.Ahead
		}
		x4(w, &x[0], nb, groups, &out[0], stride, tiles, ahead, (lines+tiles-1)/tiles)
	}
	if n%4 == 1 {
		x1(w, &x[tiles*m.Tile()], nb, groups, &out[4*tiles*stride])
	}
}

// Done forgets the tensor, whose file may be closed after it.
func (m *Matrix) Done() {
	m.src = &gguf.Tensor{Name: m.src.Name, Type: m.src.Type, Offset: m.src.Offset}
}
