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

	"github.com/parley-ai/parley/engine/kernel"
)

// Options of a request. Temperature 0 or TopP 0 means the most likely token
// always; TopP 1 means all tokens.
type Options struct {
	Temperature, TopP float64
	Seed              uint64
	Choice            int // of several answers to one prompt, each with numbers of its own
	// Bias is added to the logits of tokens, by their ids.
	Bias map[int32]float64
	// Lead is added too, until a token was accepted.
	Lead map[int32]float64
	// FrequencyPenalty is taken from a token's logit once for each time that it was
	// accepted, PresencePenalty once for all.
	FrequencyPenalty, PresencePenalty float64
	Constraint                        Constraint // nil: none
}

// Sampler picks tokens. It reuses its memory and serves one goroutine at a time.
type Sampler struct {
	Options
	k         *kernel.Table
	counts    map[int32]int // how often tokens were accepted, where that matters
	weights   []float32     // of all tokens, e^((logit-max)/temperature); zeros to a multiple of 16
	sums      []float64     // of the weights of each run of tokens
	ids       []int32
	all, work []entry
	last      entry // of the nucleus
	drawn     bool  // the last pick was, and left weights, all and last as it found them
	masses    [bins]float64
}

// entry is a token with its weight.
type entry struct {
	weight float64
	id     int32
}

// New returns a sampler that computes with k; its picks are the same with any. A
// temperature or TopP that is not a positive number counts as 0.
func New(k *kernel.Table, o Options) *Sampler {
	if !(o.Temperature > 0) {
		o.Temperature = 0
	}
	if !(o.TopP > 0) {
		o.TopP = 0
	}
	s := &Sampler{Options: o, k: k}
	if o.FrequencyPenalty != 0 || o.PresencePenalty != 0 {
		s.counts = map[int32]int{}
	}
	return s
}

// Pick returns the token for the position. The order of operations: bias and
// penalties, temperature, then the nucleus (the fewest most likely tokens whose mass
// reaches TopP, lower ids first among equals), the constraint, then a draw. NaN is
// never picked while there is another; where the best is infinite, so is the
// certainty. An empty slice gives 0. Weights have the precision of float32, and below
// 2^-125 of the greatest they count as 0.
//
// left is what the constraint is told. Where it allows nothing, Pick returns -1.
func (s *Sampler) Pick(logits []float32, position, left int) int32 {
	if len(logits) == 0 {
		return 0
	}
	id := s.pick(logits, position)
	if s.Constraint == nil || s.Constraint.Allows(id, left) {
		return id
	}
	return s.again(logits, position, s.Constraint.Mask(left))
}

// Accept says that id was picked, and is not the end of the text.
func (s *Sampler) Accept(id int32) {
	s.Lead = nil
	if s.counts != nil {
		s.counts[id]++
	}
	if s.Constraint != nil {
		s.Constraint.Accept(id)
	}
}

// pick picks without regard to the constraint.
func (s *Sampler) pick(logits []float32, position int) int32 {
	s.drawn = false
	if s.Temperature == 0 || s.TopP == 0 {
		if len(s.Bias) == 0 && len(s.Lead) == 0 && len(s.counts) == 0 {
			return argmax(logits)
		}
		s.load(logits)
		return argmax(s.weights[:len(logits)])
	}
	s.load(logits)
	top := s.k.Max(&s.weights[0], len(s.weights))
	if !s.scale(top) {
		// There is a NaN, beside which Max promises nothing.
		s.load(logits)
		best := argmax(s.weights[:len(logits)])
		if top = s.weights[best]; math.IsInf(float64(top), 0) || top != top {
			return best
		}
		s.scale(top)
	}
	s.k.SoftExp(&s.weights[0], len(s.weights))
	s.drawn, s.all = true, s.all[:0]
	sum := s.add()
	u := uniform(s.Seed, place{position: uint64(position), choice: uint32(s.Choice)})
	if s.TopP < 1 {
		return s.nucleus(u, sum, len(logits))
	}
	return s.draw(float64(u * sum))
}

// load copies the logits, adds bias and takes penalties off, and fills up to a
// multiple of 16.
func (s *Sampler) load(logits []float32) {
	s.weights = pad(s.weights, logits)
	for _, bias := range []map[int32]float64{s.Bias, s.Lead} {
		for id, b := range bias {
			if uint32(id) < uint32(len(logits)) {
				s.weights[id] += float32(b)
			}
		}
	}
	for id, n := range s.counts {
		s.weights[id] -= float32(float64(float64(n)*s.FrequencyPenalty) + s.PresencePenalty)
	}
}

// pad copies logits into buffer and fills up to a multiple of 16.
func pad(buffer, logits []float32) []float32 {
	n := (len(logits) + 15) &^ 15
	buffer = slices.Grow(buffer[:0], n)[:n]
	for i := copy(buffer, logits); i < n; i++ {
		buffer[i] = float32(math.Inf(-1))
	}
	return buffer
}

// scale subtracts top and divides by the temperature. It reports whether top is
// finite and no value is NaN or above it; those become -Inf.
func (s *Sampler) scale(top float32) bool {
	// Bounds keep 0 and infinities what they are.
	inverse := float32(min(max(1/s.Temperature, 1e-37), 1e37))
	ok := top-top == 0
	for i, l := range s.weights {
		x := float32((l - top) * inverse)
		if !(x <= 0) {
			x, ok = float32(math.Inf(-1)), false
		}
		s.weights[i] = x
	}
	return ok
}

// run is how many tokens' weights make one of the sums.
const run = 64

// floor is what SoftExp makes of anything below -87, and of -Inf.
const floor = 0x1p-125

// add sums the weights of all tokens.
func (s *Sampler) add() (sum float64) {
	s.sums = s.sums[:0]
	w := s.weights
	for ; len(w) > 0; w = w[min(run, len(w)):] {
		var a, b, c, d float64 // one sum would wait for every addition
		for r := w[:min(run, len(w))]; len(r) >= 4; r = r[4:] {
			a, b, c, d = a+float64(r[0]), b+float64(r[1]), c+float64(r[2]), d+float64(r[3])
		}
		s.sums = append(s.sums, a+b+(c+d))
		sum += s.sums[len(s.sums)-1]
	}
	return sum
}

// draw returns the token at x of the sum of all weights.
func (s *Sampler) draw(x float64) (id int32) {
	acc, i := 0.0, 0
	for i < len(s.sums)-1 && acc+s.sums[i] <= x {
		acc += s.sums[i]
		i++
	}
	// The sums are added in another order than here, so that rounding may end the
	// run before x is reached.
	id = -1
	for j, w := range s.weights[i*run : min((i+1)*run, len(s.weights))] {
		if w < floor {
			continue
		}
		id = int32(i*run + j)
		if acc += float64(w); acc > x {
			break
		}
	}
	if id < 0 { // x is one end of all, and there nothing weighs anything
		s.k.AtLeast(&s.weights[0], len(s.weights), 1, &id, 1)
	}
	return id
}

// nucleus draws from the fewest of the n tokens that reach TopP of the sum.
func (s *Sampler) nucleus(u, sum float64, n int) (id int32) {
	// All tokens below least together weigh less than what TopP leaves out; half
	// of that is far more than rounding can change.
	least := max(float32((1-s.TopP)*sum/float64(n)/2), floor)
	s.ids = slices.Grow(s.ids[:0], len(s.weights))[:len(s.weights)]
	count := s.k.AtLeast(&s.weights[0], len(s.weights), least, &s.ids[0], len(s.ids))
	s.all = slices.Grow(s.all[:0], count)
	for _, id := range s.ids[:count] {
		s.all = append(s.all, entry{float64(s.weights[id]), id})
	}
	s.last = s.reach(float64(s.TopP * sum))
	last := s.last
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
		id = e.id
		if sum += e.weight; sum > x {
			break
		}
	}
	return id
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
// target.
func (s *Sampler) reach(target float64) entry {
	clear(s.masses[:])
	mass := 0.0
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
func pick(w []entry, target, mass float64) entry {
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
	return last
}

// split moves the entries that come before a pivot to the front and returns
// their number, at least 1 and less than all.
func split(w []entry) int {
	a, b, c := w[0], w[len(w)/2], w[len(w)-1]
	if b.above(a) {
		a, b = b, a
	}
	if c.above(a) {
		c = a
	}
	if c.above(b) {
		b = c
	}
	// b is the median: of the three, one is above it and one below.
	n := 0
	for i := range w {
		if w[i].above(b) {
			w[n], w[i] = w[i], w[n]
			n++
		}
	}
	return n
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
