// Package sample picks tokens from a model's logits and turns their pieces into
// text that may be shown.
//
// A pick depends on the logits, the seed and the position alone: random numbers
// are counted, not drawn from a stream, and the arithmetic has one order and no
// fused operations, so it is the same on every processor.
package sample

import (
	"math"
	"slices"
)

// Options of a request. Temperature 0 or TopP 0 means the most likely token
// always; TopP 1 means all tokens.
type Options struct {
	Temperature, TopP float64
	Seed              uint64
}

// Sampler picks tokens. It reuses its memory and serves one goroutine at a time.
type Sampler struct {
	Options
	*powers
	all, work []entry
	masses    [bins]float64
}

// entry is a token with its weight, e^((logit-max)/temperature).
type entry struct {
	weight float64
	id     int32
}

// New returns a sampler. A temperature or TopP that is not a positive number
// counts as 0.
func New(o Options) *Sampler {
	if !(o.Temperature > 0) {
		o.Temperature = 0
	}
	if !(o.TopP > 0) {
		o.TopP = 0
	}
	return &Sampler{Options: o, powers: newPowers()}
}

// near is how far below the best a scaled logit is certain to be looked at, and
// least is e^-near, rounded up. Further ones are weighed only if the pick could
// depend on them: 49,152 of them weigh 0.006 of the best at most.
const (
	near  = 16
	least = 1.1254e-7
)

// Pick returns the token for the position. The order of operations: temperature,
// then the nucleus (the fewest most likely tokens whose mass reaches TopP, lower
// ids first among equals), then a draw. NaN is never picked while there is
// another; where the best is infinite, so is the certainty. An empty slice gives 0.
func (s *Sampler) Pick(logits []float32, position int) int32 {
	best := argmax(logits)
	if s.Temperature == 0 || s.TopP == 0 || len(logits) == 0 {
		return best
	}
	top := float64(logits[best])
	if math.IsInf(top, 0) || math.IsNaN(top) {
		return best
	}
	u := uniform(s.Seed, uint64(position))
	s.gather(logits, top, near)
	rest := float64(len(logits)-len(s.all)) * least
	if s.TopP < 1 {
		if id, ok := s.nucleus(u, rest); ok {
			return id
		}
		s.gather(logits, top, math.Inf(1))
		id, _ := s.nucleus(u, 0)
		return id
	}
	return s.draw(logits, top, u, rest)
}

// gather collects the tokens at most width below the top, in the order of ids.
func (s *Sampler) gather(logits []float32, top, width float64) {
	s.all = s.all[:0]
	inverse := 1 / s.Temperature
	// A float32 bound keeps the scan cheap; the exact test follows.
	bound := float32(max(top-float64(width*s.Temperature), -math.MaxFloat32))
	bound = math.Nextafter32(bound, float32(math.Inf(-1)))
	for id, l := range logits {
		if l < bound || l != l {
			continue
		}
		if x := s.scale(float64(l)-top, inverse); x >= -width {
			s.all = append(s.all, entry{s.exp(x), int32(id)})
		}
	}
}

// scale divides by the temperature; the best stays 0 whatever that is.
func (s *Sampler) scale(x, inverse float64) float64 {
	if x == 0 {
		return 0
	}
	if math.IsInf(inverse, 0) || inverse == 0 {
		return x / s.Temperature
	}
	return x * inverse
}

// nucleus draws from the fewest tokens that reach TopP. It is not ok if the
// tokens not gathered, which weigh rest at most, could change the pick.
func (s *Sampler) nucleus(u, rest float64) (id int32, ok bool) {
	sum := 0.0
	for _, e := range s.all {
		sum += e.weight
	}
	last, mass := s.reach(float64(s.TopP * sum))
	// With nothing left out, less than the target is only rounding.
	if rest > 0 && mass < float64(s.TopP*(sum+rest)) {
		return 0, false
	}
	sum = 0
	for _, e := range s.all {
		if !last.above(e) {
			sum += e.weight
		}
	}
	x := float64(u * sum)
	sum = 0
	for _, e := range s.all {
		if last.above(e) {
			continue
		}
		if sum += e.weight; sum > x {
			return e.id, true
		}
		id = e.id
	}
	return id, true
}

// above reports whether e comes before f in the order of likelihood.
func (e entry) above(f entry) bool {
	return e.weight > f.weight || e.weight == f.weight && e.id < f.id
}

// Weights fall into bins of 1/16 of a power of two; the last takes all below
// 2^-64. One pass over the bins finds where the nucleus ends, whereas selecting
// among all tokens would mispredict a branch for every other one.
const bins = 64 * 16

func bin(weight float64) int {
	const one = 1023 * 16
	return min(one-int(math.Float64bits(weight)>>48), bins-1)
}

// reach returns the last of the fewest most likely tokens that weigh at least
// target, and what they weigh.
func (s *Sampler) reach(target float64) (last entry, mass float64) {
	clear(s.masses[:])
	for _, e := range s.all {
		s.masses[bin(e.weight)] += e.weight
	}
	in := 0
	for in < bins-1 && mass+s.masses[in] < target {
		mass += s.masses[in]
		in++
	}
	w := s.work[:0]
	for _, e := range s.all {
		if bin(e.weight) == in {
			w = append(w, e)
		}
	}
	s.work = w
	return pick(w, target, mass)
}

// pick is a quickselect by weight among w, above which lies mass.
func pick(w []entry, target, mass float64) (entry, float64) {
	for round := 0; len(w) > 1; round++ {
		// Unlucky pivots must not make it quadratic.
		if len(w) <= 12 || round > 40 {
			slices.SortFunc(w, func(a, b entry) int {
				if a.above(b) {
					return -1
				}
				return 1
			})
			break
		}
		n := split(w)
		sum := 0.0
		for _, e := range w[:n] {
			sum += e.weight
		}
		if mass+sum >= target {
			w = w[:n]
			continue
		}
		mass += sum
		w = w[n:]
	}
	var last entry
	for _, e := range w {
		last = e
		if mass += e.weight; mass >= target {
			break
		}
	}
	return last, mass
}

// split moves the entries that come before a pivot to the front and returns
// their number, at least 1 and less than all.
func split(w []entry) int {
	a, b, c := w[0], w[len(w)/2], w[len(w)-1]
	if b.above(a) {
		a, b = b, a
	}
	if c.above(a) {
		a, c = c, a
	}
	if c.above(b) {
		b = c
	}
	// b is the median: a is above it and one is below.
	n := 0
	for i := range w {
		if w[i].above(b) {
			w[n], w[i] = w[i], w[n]
			n++
		}
	}
	return n
}

// draw picks from all tokens: those gathered come first, the others after.
func (s *Sampler) draw(logits []float32, top, u, rest float64) int32 {
	sum := 0.0
	for _, e := range s.all {
		sum += e.weight
	}
	find := func(x float64) int32 {
		sum := 0.0
		for _, e := range s.all {
			if sum += e.weight; sum > x {
				return e.id
			}
		}
		return -1
	}
	low := find(float64(u * sum))
	if high := find(float64(u * (sum + rest))); low == high && low >= 0 {
		return low
	}
	// Now the others' weight matters: add it up, then look among them too.
	inverse := 1 / s.Temperature
	far := 0.0
	x, id := math.Inf(1), int32(-1)
	for pass := range 2 {
		acc := 0.0
		for i, l := range logits {
			d := s.scale(float64(l)-top, inverse)
			if !(d < -near) {
				continue
			}
			if acc += s.exp(d); pass == 1 {
				id = int32(i)
				if acc > x {
					return id
				}
			}
		}
		if pass == 0 {
			far = acc
			x = float64(u * (sum + far))
			if got := find(x); got >= 0 {
				return got
			}
			if x -= sum; far == 0 {
				return s.all[len(s.all)-1].id
			}
		}
	}
	return id
}

// argmax returns the lowest id of the largest logit. NaN is passed over.
func argmax(logits []float32) int32 {
	best, at := float32(math.Inf(-1)), -1
	for i, l := range logits {
		if l > best {
			best, at = l, i
		}
	}
	if at >= 0 {
		return int32(at)
	}
	for i, l := range logits {
		if l == l {
			return int32(i)
		}
	}
	return 0
}
