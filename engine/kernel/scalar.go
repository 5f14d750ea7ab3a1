package kernel

import "unsafe"

// scalarTable is the level for processors without assembly. Its functions are
// also the meaning of every kernel: they are written to be read first.
func scalarTable() Table {
	return Table{
		Name: "scalar",
		U4x1: u4x1, S8x1: s8x1, U4x4: u4x4, S8x4: s8x4,
		Quantise: quantise, RMSNorm: rmsNorm, Add: add, SiLUMul: siluMul, Rotate: rotate, ToF16: toF16,
		Spread: spread, Scores: scores, SoftExp: softExp, Mix: mix, Max: maxOf, AtLeast: atLeast,
	}
}

// at is p[i].
func at[T any](p *T, i int) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(p), i*int(unsafe.Sizeof(*p))))
}
func f32at(p *byte, off int) float32 { return *(*float32)(unsafe.Pointer(at(p, off))) }
func f16at(p *byte, off int) float32 { return FromHalf(*(*uint16)(unsafe.Pointer(at(p, off)))) }
