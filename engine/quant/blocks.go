package quant

import (
	"encoding/binary"
	"math"

	"github.com/parley-ai/parley/engine/gguf"
)

// decoder returns the function that gives one block's values as the file means them,
// or nil for a type that is not supported. The layouts are ggml's; every product is
// rounded to float32 where ggml's own reference rounds it.
func decoder(t gguf.Type) func(in []byte, out []float32) {
	switch t {
	case gguf.F32:
		return func(in []byte, out []float32) { out[0] = math.Float32frombits(binary.LittleEndian.Uint32(in)) }
	case gguf.F16:
		return func(in []byte, out []float32) { out[0] = half(in) }
	case gguf.BF16:
		return func(in []byte, out []float32) {
			out[0] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(in)) << 16)
		}
	case gguf.Q4_0:
		return decodeQ4x0
	case gguf.Q4_1:
		return decodeQ4x1
	case gguf.Q5_0:
		return decodeQ5x0
	case gguf.Q5_1:
		return decodeQ5x1
	case gguf.Q8_0:
		return decodeQ8x0
	case gguf.Q2_K:
		return decodeQ2K
	case gguf.Q3_K:
		return decodeQ3K
	case gguf.Q4_K:
		return decodeQ4K
	case gguf.Q5_K:
		return decodeQ5K
	case gguf.Q6_K:
		return decodeQ6K
	}
	return nil
}

// scaled is the value of a quant without, and with, an offset.
func scaled(d float32, q int) float32            { return d * float32(q) }
func offset(d float32, q int, m float32) float32 { return float32(d*float32(q)) + m }

// In blocks of 32, byte j of 16 holds columns j and 16+j in its halves.

func decodeQ4x0(in []byte, out []float32) {
	d, q := half(in), in[2:18]
	for j, b := range q {
		out[j], out[16+j] = scaled(d, int(b&15)-8), scaled(d, int(b>>4)-8)
	}
}

func decodeQ4x1(in []byte, out []float32) {
	d, m, q := half(in), half(in[2:]), in[4:20]
	for j, b := range q {
		out[j], out[16+j] = offset(d, int(b&15), m), offset(d, int(b>>4), m)
	}
}

// five takes quant j and 16+j of 32 with five bits: bit j of high is the fifth of
// column j.
func five(high uint32, b byte, j int) (lo, hi int) {
	return int(b&15) | int(high>>j&1)<<4, int(b>>4) | int(high>>(16+j)&1)<<4
}

func decodeQ5x0(in []byte, out []float32) {
	d, high, q := half(in), binary.LittleEndian.Uint32(in[2:]), in[6:22]
	for j, b := range q {
		lo, hi := five(high, b, j)
		out[j], out[16+j] = scaled(d, lo-16), scaled(d, hi-16)
	}
}

func decodeQ5x1(in []byte, out []float32) {
	d, m, high, q := half(in), half(in[2:]), binary.LittleEndian.Uint32(in[4:]), in[8:24]
	for j, b := range q {
		lo, hi := five(high, b, j)
		out[j], out[16+j] = offset(d, lo, m), offset(d, hi, m)
	}
}

func decodeQ8x0(in []byte, out []float32) {
	d, q := half(in), in[2:34]
	for j, b := range q {
		out[j] = scaled(d, int(int8(b)))
	}
}

// In blocks of 256, run j is 32 columns.

// decodeQ2K: 16 bytes of 4-bit scales and minima, one for 16 columns; 64 bytes, of
// which each half holds four runs in its pairs of bits; d, dmin.
func decodeQ2K(in []byte, out []float32) {
	sc, q, d, dmin := in[:16], in[16:80], half(in[80:]), half(in[82:])
	for j := range 8 {
		for c := range 32 {
			s := sc[2*j+c/16]
			v := q[j/4*32+c] >> (2 * (j % 4)) & 3
			out[32*j+c] = offset(scaled(d, int(s&15)), int(v), -scaled(dmin, int(s>>4)))
		}
	}
}

// decodeQ3K: 32 bytes, of which bit j of byte c says that 4 is not taken from column
// c of run j; 64 bytes of pairs of bits as in Q2_K; 12 bytes of 6-bit scales, one for
// 16 columns; d.
func decodeQ3K(in []byte, out []float32) {
	high, q, sc, d := in[:32], in[32:96], in[96:108], half(in[108:])
	for j := range 8 {
		for c := range 32 {
			k := 2*j + c/16
			s := int(sc[k%8]>>(k/8*4)&15|sc[8+k%4]>>(k/4*2)&3<<4) - 32
			v := int(q[j/4*32+c]>>(2*(j%4))&3) - 4*int(^high[c]>>j&1)
			out[32*j+c] = scaled(scaled(d, s), v)
		}
	}
}

// decodeQ4K: d, dmin, 12 bytes of 6-bit scales and minima, one for a run; 4 times 32
// bytes, which hold two runs in their halves.
func decodeQ4K(in []byte, out []float32) {
	d, dmin, q := half(in), half(in[2:]), in[16:144]
	for j := range 8 {
		s, m := scale6(in[4:16], j)
		ds, dm := scaled(d, int(s)), -scaled(dmin, int(m))
		for c := range 32 {
			out[32*j+c] = offset(ds, int(q[j/2*32+c]>>(j%2*4)&15), dm)
		}
	}
}

// decodeQ5K: Q4_K with 32 bytes before the quants, of which bit j of byte c is the
// fifth bit of column c of run j.
func decodeQ5K(in []byte, out []float32) {
	d, dmin, high, q := half(in), half(in[2:]), in[16:48], in[48:176]
	for j := range 8 {
		s, m := scale6(in[4:16], j)
		ds, dm := scaled(d, int(s)), -scaled(dmin, int(m))
		for c := range 32 {
			v := q[j/2*32+c]>>(j%2*4)&15 | high[c]>>j&1<<4
			out[32*j+c] = offset(ds, int(v), dm)
		}
	}
}

// decodeQ6K: 2 times 64 bytes of low halves, 2 times 32 bytes of high pairs of bits,
// 16 scales of 8 bits, one for 16 columns; d. Four runs are a half of the block.
func decodeQ6K(in []byte, out []float32) {
	low, high, sc, d := in[:128], in[128:192], in[192:208], half(in[208:])
	for j := range 8 {
		n, r := j/4, j%4
		for c := range 32 {
			v := int(low[64*n+32*(r%2)+c]>>(r/2*4)&15|high[32*n+c]>>(2*r)&3<<4) - 32
			out[32*j+c] = scaled(scaled(d, int(int8(sc[2*j+c/16]))), v)
		}
	}
}

// scale6 takes the 6-bit scale and minimum of run j out of the 12 bytes of Q4_K and
// Q5_K.
func scale6(sc []byte, j int) (s, m byte) {
	if j < 4 {
		return sc[j] & 63, sc[j+4] & 63
	}
	return sc[j+4]&15 | sc[j-4]>>6<<4, sc[j+4]>>4 | sc[j]>>6<<4
}
