package kernel

import "math"

// FromHalf converts a float16 to float32, exactly.
func FromHalf(h uint16) float32 {
	s, e, m := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&1023)
	switch e {
	case 0: // zero or subnormal: m * 2^-24
		return math.Float32frombits(math.Float32bits(float32(m)*(1.0/(1<<24))) | s)
	case 31:
		return math.Float32frombits(s | 0xff<<23 | m<<13)
	}
	return math.Float32frombits(s | (e+112)<<23 | m<<13)
}

// ToHalf rounds to float16, ties to even; too large gives infinity.
func ToHalf(f float32) uint16 {
	b := math.Float32bits(f)
	s, b := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case b > 0x7f800000: // NaN, quiet, as the hardware does
		return s | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000: // rounds to 65536 or more
		return s | 0x7c00
	case b < 0x38800000: // subnormal: let the float adder round at 2^-24
		return s | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	b += 0xfff + b>>13&1
	return s | uint16(b>>13-112<<10)
}
