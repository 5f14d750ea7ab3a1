//go:build !arm64

package kernel

import "math"

// fma is x*y + z, rounded once. The product is exact in float64; their sum is rounded to
// odd there, so that rounding it again gives what one rounding gives (Boldo and Melquiond,
// "Emulation of FMA and correctly rounded sums", 2008).
func fma(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	b := s - p
	rest := (p - (s - b)) + (c - b) // what s lacks, exactly; NaN beside infinities
	bits := math.Float64bits(s)
	if even := bits&1 == 0; even && (rest > 0 && s > 0 || rest < 0 && s < 0) {
		bits++
	} else if even && (rest > 0 || rest < 0) {
		bits--
	}
	return float32(math.Float64frombits(bits))
}
