package sample

import "math/bits"

// Constraint is what a generation must keep to, such as a grammar. It belongs to one
// sequence and follows it token by token; one goroutine at a time uses it.
//
// left is how many tokens the sequence may still have, the one in question included:
// a constraint that promises a whole value allows only what leaves room to end it.
type Constraint interface {
	// Allows reports whether id may be the next token. The end-of-text token is one
	// like any other here.
	Allows(id int32, left int) bool
	// Mask returns all tokens that Allows allows: bit id%64 of word id/64. It is read
	// until the next call of any method.
	Mask(left int) []uint64
	// Accept says that id is the next token; Allows would have allowed it. It is not
	// told of the end-of-text token.
	Accept(id int32)
	// Done reports that what was accepted is whole and nothing may follow.
	Done() bool
}

// allowed reports whether the mask has id.
func allowed(mask []uint64, id int32) bool {
	return int(id/64) < len(mask) && mask[id/64]>>(id%64)&1 == 1
}

// again picks among the tokens of the mask, after a first pick that is not among them:
// together that is the same as to pick among them at once, and most steps need no
// mask. It draws from what of the nucleus is allowed; where that is nothing, from all
// that is allowed. It returns -1 when the mask is empty.
func (s *Sampler) again(logits []float32, position int, mask []uint64) int32 {
	if s.drawn {
		u := uniform(s.Seed, place{position: uint64(position), choice: uint32(s.Choice), draw: 1})
		if id := s.redraw(u, mask); id >= 0 {
			return id
		}
	}
	s.load(logits)
	best := int32(-1)
	for id := range each(mask, len(logits)) {
		if best < 0 || s.weights[id] > s.weights[best] || s.weights[best] != s.weights[best] {
			best = id
		}
	}
	return best
}

// redraw draws from what of the nucleus, or else of all tokens, the mask has, by the
// weights of the last pick. It returns -1 when nothing of that weighs anything.
func (s *Sampler) redraw(u float64, mask []uint64) int32 {
	s.work = s.work[:0]
	for _, e := range s.all {
		if !s.last.above(e) && allowed(mask, e.id) {
			s.work = append(s.work, e)
		}
	}
	if len(s.work) == 0 {
		for id := range each(mask, len(s.weights)) {
			if w := s.weights[id]; w > floor {
				s.work = append(s.work, entry{float64(w), id})
			}
		}
	}
	sum := 0.0
	for _, e := range s.work {
		sum += e.weight
	}
	x, id := float64(u*sum), int32(-1)
	sum = 0
	for _, e := range s.work {
		id = e.id
		if sum += e.weight; sum > x {
			break
		}
	}
	return id
}

// each yields the ids of the mask below n in rising order.
func each(mask []uint64, n int) func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		for i, word := range mask {
			for ; word != 0; word &= word - 1 {
				id := 64*i + bits.TrailingZeros64(word)
				if id >= n || !yield(int32(id)) {
					return
				}
			}
		}
	}
}
