package quant

import (
	"encoding/binary"
	"fmt"
	"math"

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
func (m *Matrix) Group() int {
	if m.U4 {
		return m.blocks()*kernel.U4Block + kernel.U4Scales
	}
	return m.blocks() * kernel.S8Block
}

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
	row := make([]float32, m.K) // of U4, the scales take the beginning
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
		packQ4x0(dst, src, row, r)
		return packScales(dst, row[:2*m.blocks()], r)
	case gguf.Q4_1:
		packQ4x1(dst, src, row, r)
		return packScales(dst, row[:2*m.blocks()], r)
	case gguf.Q4_K:
		packQ4K(dst, src, row, r)
		return packScales(dst, row[:2*m.blocks()], r)
	case gguf.Q5_0:
		return packQ5x0(dst, src, r)
	case gguf.Q8_0:
		return packQ8(dst, src, r)
	}
	floats(m.src.Type, src, row)
	return finite(row) && packS8(dst, row, r)
}

// The functions for U4 lay down the quants, and put each block's d and m, of the value
// d*(q-8) + m, into scales.

// packQ4x1: d, m and 16 bytes, of which byte j holds columns j and 16+j. That is
// the U4 order, so quants move 4 bytes at a time. The value is d*q + m.
func packQ4x1(dst, src []byte, scales []float32, r int) {
	for b := range len(src) / 20 {
		in, out := (*[20]byte)(src[20*b:]), (*[kernel.U4Block]byte)(dst[kernel.U4Block*b:])
		for p := range 4 {
			copy(out[128*p+4*r:][:4], in[4+4*p:])
		}
		scales[2*b], scales[2*b+1] = half(in[:]), half(in[2:])+8*half(in[:])
	}
}

// packQ4x0: d and 16 bytes. The value is d*(q-8).
func packQ4x0(dst, src []byte, scales []float32, r int) {
	for b := range len(src) / 18 {
		in, out := (*[18]byte)(src[18*b:]), (*[kernel.U4Block]byte)(dst[kernel.U4Block*b:])
		for p := range 4 {
			copy(out[128*p+4*r:][:4], in[2+4*p:])
		}
		scales[2*b], scales[2*b+1] = half(in[:]), 0
	}
}

// packQ4K: 256 columns, d and dmin float16, 12 bytes of 6-bit scales and minima,
// then 4 runs of 32 bytes, each 32 columns in the low and the next 32 in the high
// halves. The value is d*scale*q - dmin*minimum.
func packQ4K(dst, src []byte, scales []float32, r int) {
	for sb := range len(src) / 144 {
		in := src[144*sb:][:144]
		d, dmin, sc, q := half(in), half(in[2:]), in[4:16], in[16:]
		for j := range 8 {
			b := 8*sb + j
			out := dst[kernel.U4Block*b:][:kernel.U4Block]
			nib := func(c int) byte { return q[32*(j/2)+c] >> (4 * (j % 2)) & 15 }
			for p := range 4 {
				for i := range 4 {
					out[128*p+4*r+i] = nib(4*p+i) | nib(16+4*p+i)<<4
				}
			}
			s, m := scale6(sc, j)
			scales[2*b] = d * float32(s)
			scales[2*b+1] = 8*scales[2*b] - dmin*float32(m)
		}
	}
}

// packScales rounds d and m of a row's blocks to 16 bits of their greatest; it reports
// whether all are finite.
func packScales(dst []byte, scales []float32, r int) bool {
	if !finite(scales) {
		return false
	}
	top := float32(0)
	for _, v := range scales {
		top = max(top, v, -v)
	}
	if top == 0 {
		return true
	}
	for i, v := range scales {
		q := int16(math.Round(float64(v) / float64(top) * math.MaxInt16))
		binary.LittleEndian.PutUint16(dst[kernel.U4Block*(i/2)+512+4*r+2*(i%2):], uint16(q))
	}
	trailer := dst[len(scales)/2*kernel.U4Block:]
	binary.LittleEndian.PutUint32(trailer[4*r:], math.Float32bits(top/math.MaxInt16))
	return true
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
			d, mn := pair(blk[512+4*r:])
			scale := math.Float32frombits(binary.LittleEndian.Uint32(g[m.blocks()*kernel.U4Block+4*r:]))
			for c := range 16 {
				v := blk[c/4*128+4*r+c%4]
				o[c], o[16+c] = scale*float32(d*(int32(v&15)-8)+mn), scale*float32(d*(int32(v>>4)-8)+mn)
			}
			continue
		}
		d := half(blk[1024+2*r:])
		for c := range o {
			o[c] = d * float32(int8(blk[c/4*128+4*r+c%4]))
		}
	}
}

// pair reads d and m of a row of a U4 block.
func pair(b []byte) (d, m int32) {
	return int32(int16(binary.LittleEndian.Uint16(b))), int32(int16(binary.LittleEndian.Uint16(b[2:])))
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
