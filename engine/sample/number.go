package sample

import (
	"math"
	"math/bits"
)

// philox is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC11): a counter and a key in, random bits out.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		hi0, lo0 := bits.Mul32(0xd2511f53, counter[0])
		hi1, lo1 := bits.Mul32(0xcd9e8d57, counter[2])
		counter = [4]uint32{hi1 ^ counter[1] ^ key[0], lo1, hi0 ^ counter[3] ^ key[1], lo0}
		key[0] += 0x9e3779b9
		key[1] += 0xbb67ae85
	}
	return counter
}

// uniform returns a number in [0, 1) of 53 bits for the position.
func uniform(seed, position uint64) float64 {
	r := philox([4]uint32{uint32(position), uint32(position >> 32)}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(r[0])<<32|uint64(r[1]))>>11) * 0x1p-53
}

// steps of a power of two that powers tabulates.
const steps = 64

// powers computes e^x. It holds 2^(i/steps), so that the series is short: a pick
// from flat logits takes 49,152 of these.
type powers [steps]float64

func newPowers() *powers {
	var p powers
	for i := range p {
		p[i] = series(float64(i)*(math.Ln2/steps), 18)
	}
	return &p
}

// series is the Taylor series of e^r. The conversions here and below keep the
// compiler from fusing multiply and add, which only some processors can.
func series(r float64, terms int) float64 {
	sum := 1.0
	for i := terms; i > 0; i-- {
		sum = float64(sum*(r/float64(i))) + 1
	}
	return sum
}

// exp is e^x for x <= 0, within 2 units of the last place. The library's has
// assembly that rounds otherwise on other processors.
func (p *powers) exp(x float64) float64 {
	if !(x > -708) {
		return 0
	}
	// ln 2 / steps in two parts, so that n times the first is exact.
	const hi, lo = 6.93147180369123816490e-01 / steps, 1.90821492927058770002e-10 / steps
	n := int64(float64(x*(steps/math.Ln2)) - 0.5)
	r := (x - float64(float64(n)*hi)) - float64(float64(n)*lo)
	// |r| < 0.0055, so the first term left out is below 1e-16.
	s := float64(r*(1.0/120)) + 1.0/24
	s = float64(s*r) + 1.0/6
	s = float64(s*r) + 0.5
	s = float64(s*r) + 1
	t := p[n&(steps-1)]
	// n>>6 rounds down; the exponent field is never 0 above -708.
	return (t + float64(t*float64(s*r))) * math.Float64frombits(uint64(n>>6+1023)<<52)
}
