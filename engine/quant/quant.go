// Package quant turns GGUF's block types into float32, and at load into the two
// packed formats the kernels multiply (their layouts: package kernel).
//
// Q5_0 and Q8_0 keep their values exactly. Of Q4_0, Q4_1 and Q4_K the quants stay, and the
// scale and middle of a block are rounded to 16 bits of the greatest in their row: a weight
// moves by at most 9/65534 of that, which the golden data of engine/llama do not show.
// Q5_1, Q5_K, Q6_K, Q3_K, Q2_K, F16, BF16 and F32 are rounded to 8 bits with a scale for
// each 32 columns.
package quant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/kernel"
)

// ErrType is wrapped by the error for a tensor of a type that is not supported.
var ErrType = errors.New("type is not supported")

// Supported reports whether tensors of the type can be read.
func Supported(t gguf.Type) bool { return decoder(t) != nil }

// fault is an error that says which tensor it is about and where that lies.
func fault(t *gguf.Tensor, err error) error {
	return fmt.Errorf("tensor %q (%v, at byte %d): %w", t.Name, t.Type, t.Offset, err)
}

// errNotFinite: an infinity in one scale would spread over the whole logits.
var errNotFinite = errors.New("a value or scale is not finite")

// Vector reads all values of a tensor into the heap. Errors name the tensor:
// [ErrType], or a value that is not finite.
func Vector(t *gguf.Tensor) ([]float32, error) {
	if !Supported(t.Type) {
		return nil, fault(t, ErrType)
	}
	n := 1
	for _, d := range t.Dims {
		n *= d
	}
	v := make([]float32, n)
	floats(t.Type, t.Data, v)
	if !finite(v) {
		return nil, fault(t, errNotFinite)
	}
	return v, nil
}

func finite(v []float32) bool {
	for _, f := range v {
		if math.Float32bits(f)&0x7f800000 == 0x7f800000 {
			return false
		}
	}
	return true
}

func half(b []byte) float32       { return kernel.FromHalf(binary.LittleEndian.Uint16(b)) }
func putHalf(b []byte, f float32) { binary.LittleEndian.PutUint16(b, kernel.ToHalf(f)) }

// finiteHalf reports whether the float16 at b is neither infinite nor NaN.
func finiteHalf(b []byte) bool { return b[1]&0x7c != 0x7c }

// floats gives len(dst) values, whole blocks, as the file means them.
func floats(typ gguf.Type, src []byte, dst []float32) {
	n, size := typ.Block()
	decode := decoder(typ)
	for len(dst) > 0 {
		decode(src, dst)
		src, dst = src[size:], dst[n:]
	}
}
