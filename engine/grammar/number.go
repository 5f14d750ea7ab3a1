package grammar

import (
	"math/big"
)

// maxDigits is the digits of a number with bounds: what an int64 holds for sure.
const maxDigits = 18

// Digits of a number without bounds before and after the point; exponents have two.
const freeDigits = 15

// numberType is numbers that a schema allows. Those with bounds are written without
// an exponent and handled as integers scaled by a power of ten.
type numberType struct {
	free  bool // any number, exponents too; the rest is not set
	scale int32
	// whole is the digits before the point, at most.
	whole int32
	// sides are the magnitudes of the numbers that are not negative, and of those
	// that are; never -0.
	sides [2]magnitudes
	// step[f] divides every magnitude that f digits after the point can write.
	step [maxDigits + 1]int64
}

// magnitudes is a range of scaled integers, empty if lo > hi.
type magnitudes struct{ lo, hi int64 }

// tens are the powers of ten up to maxDigits.
var tens = func() (t [maxDigits + 1]int64) {
	t[0] = 1
	for i := 1; i < len(t); i++ {
		t[i] = t[i-1] * 10
	}
	return t
}()

// lower raises the minimum to r.
func (s *schema) lower(r *big.Rat, exclusive bool) {
	if s.min == nil || r.Cmp(s.min) > 0 {
		s.min, s.exclusiveMin = r, exclusive
	} else if r.Cmp(s.min) == 0 {
		s.exclusiveMin = s.exclusiveMin || exclusive
	}
}

// upper lowers the maximum to r.
func (s *schema) upper(r *big.Rat, exclusive bool) {
	if s.max == nil || r.Cmp(s.max) < 0 {
		s.max, s.exclusiveMax = r, exclusive
	} else if r.Cmp(s.max) == 0 {
		s.exclusiveMax = s.exclusiveMax || exclusive
	}
}

// scaled returns the fewest decimals, at most most, that write r exactly.
func scaled(r *big.Rat, most int) (decimals int, ok bool) {
	x := new(big.Rat).Set(r)
	ten := big.NewRat(10, 1)
	for ; decimals <= most; decimals++ {
		if x.IsInt() {
			return decimals, true
		}
		x.Mul(x, ten)
	}
	return most, false
}

// wholeDigits is the digits of r's magnitude before the point, at most maxDigits.
func wholeDigits(r *big.Rat) int {
	q := new(big.Int).Quo(new(big.Int).Abs(r.Num()), r.Denom())
	return min(len(q.String()), maxDigits)
}

// newNumber merges the bounds of the schemas. It returns nil if no number is left,
// and reports a multipleOf that cannot be kept with so large bounds.
func newNumber(of []*schema, fraction bool) (t *numberType, lost *schema) {
	var b schema
	var step *big.Rat
	for _, s := range of {
		if s.min != nil {
			b.lower(s.min, s.exclusiveMin)
		}
		if s.max != nil {
			b.upper(s.max, s.exclusiveMax)
		}
		if s.multiple != nil {
			step = lcm(step, s.multiple)
		}
	}
	if b.min == nil && b.max == nil && step == nil && fraction {
		return &numberType{free: true}, nil
	}
	need, want, must := 1, 0, 0
	if fraction {
		want = 6
	} else {
		need = freeDigits
		if step != nil { // an integer is a multiple of 1.5 if it is one of 3
			step = new(big.Rat).SetInt(step.Num())
		}
	}
	for _, r := range []*big.Rat{b.min, b.max} {
		if r != nil {
			need = max(need, wholeDigits(r))
			if fraction {
				d, _ := scaled(r, maxDigits)
				want = max(want, d)
			}
		}
	}
	if !fraction && b.min != nil && b.max != nil {
		need = max(wholeDigits(b.min), wholeDigits(b.max))
	}
	if step != nil {
		d, ok := scaled(step, maxDigits)
		if must = d; !ok || need+must > maxDigits {
			must, step = 0, nil
			for _, s := range of {
				if s.multiple != nil {
					lost = s
				}
			}
		}
	}
	scale := min(max(want, must), maxDigits-need)
	t = &numberType{scale: int32(scale), whole: int32(maxDigits - scale)}
	if !fraction {
		t.whole = int32(need)
	}
	if !t.bound(&b) || !t.divide(step) || t.cost() >= infinite {
		return nil, lost
	}
	return t, lost
}

// lcm returns the least common multiple; nil is none.
func lcm(a, b *big.Rat) *big.Rat {
	if a == nil {
		return b
	}
	gcd := func(x, y *big.Int) *big.Int { return new(big.Int).GCD(nil, nil, x, y) }
	num := new(big.Int).Mul(a.Num(), b.Num())
	num.Quo(num, gcd(a.Num(), b.Num()))
	return new(big.Rat).SetFrac(num, gcd(a.Denom(), b.Denom()))
}

// bound sets the sides from the bounds, rounded inwards.
func (t *numberType) bound(b *schema) bool {
	most := tens[t.whole+t.scale] - 1
	lo, hi := big.NewInt(-most), big.NewInt(most)
	unit := new(big.Rat).SetInt64(tens[t.scale])
	if b.min != nil {
		x := new(big.Rat).Mul(b.min, unit)
		r := floor(new(big.Rat).Neg(x))
		r.Neg(r) // the ceiling
		if b.exclusiveMin && x.IsInt() {
			r.Add(r, big.NewInt(1))
		}
		if r.Cmp(lo) > 0 {
			lo = r
		}
	}
	if b.max != nil {
		x := new(big.Rat).Mul(b.max, unit)
		r := floor(x)
		if b.exclusiveMax && x.IsInt() {
			r.Sub(r, big.NewInt(1))
		}
		if r.Cmp(hi) < 0 {
			hi = r
		}
	}
	if lo.Cmp(hi) > 0 || !lo.IsInt64() || !hi.IsInt64() {
		return false
	}
	t.sides[0] = magnitudes{max(lo.Int64(), 0), hi.Int64()}
	t.sides[1] = magnitudes{max(-hi.Int64(), 1), -lo.Int64()}
	return true
}

func floor(r *big.Rat) *big.Int {
	q := new(big.Int)
	q.DivMod(r.Num(), r.Denom(), new(big.Int)) // rounds down for a positive divisor
	return q
}

// divide works out the steps from multipleOf, or nil.
func (t *numberType) divide(multiple *big.Rat) bool {
	unit := new(big.Rat).SetInt64(tens[t.scale])
	for f := range t.scale + 1 {
		step := big.NewRat(tens[t.scale-f], 1)
		if multiple != nil {
			step = lcm(step, new(big.Rat).Mul(multiple, unit))
		}
		if !step.IsInt() {
			return false
		}
		t.step[f] = 1<<63 - 1 // only 0 is a multiple
		if step.Num().IsInt64() {
			t.step[f] = step.Num().Int64()
		}
	}
	return true
}

// Phases of a number.
const (
	numSign  uint8 = iota // after the minus
	numInt                // i digits
	numPoint              // after the point
	numFrac               // j digits
	numE                  // after the e
	numESign              // after its sign
	numExp                // j digits
)

// cost is the fewest bytes of a number.
func (t *numberType) cost() int32 {
	if t.free {
		return 1
	}
	least := infinite
	for d := range int64(10) {
		f := frame{phase: numInt, i: 1, n: d}
		least = min(least, sum(1, t.own(&f)))
		f.k = 1
		least = min(least, sum(2, t.own(&f)))
	}
	return least
}

// own is the fewest bytes that complete the number.
func (t *numberType) own(f *frame) int32 {
	if t.free {
		switch f.phase {
		case numInt, numFrac, numExp:
			return 0
		}
		return 1
	}
	switch f.phase {
	case numSign:
		least := infinite
		for d := range int64(10) {
			g := frame{phase: numInt, i: 1, k: 1, n: d}
			least = min(least, sum(1, t.moreInt(&g)))
		}
		return least
	case numInt:
		return t.moreInt(f)
	}
	return t.moreFrac(f)
}

// moreInt is own while digits before the point are written: i of them, together n.
func (t *numberType) moreInt(f *frame) int32 {
	side, least := t.sides[f.k], infinite
	lo, hi := f.n, f.n
	for more := int32(0); f.i+more <= t.whole && more < least; more++ {
		if more > 0 {
			if f.n == 0 {
				break // no digit follows a leading 0
			}
			lo, hi = lo*10, hi*10+9
		}
		from, to := max(lo*tens[t.scale], side.lo), min(hi*tens[t.scale]+tens[t.scale]-1, side.hi)
		for d := range t.scale + 1 {
			if multiple(from, to, t.step[d]) {
				cost := more + d
				if d > 0 {
					cost++ // the point
				}
				least = min(least, cost)
				break
			}
		}
	}
	return least
}

// moreFrac is own while j digits after the point are written.
func (t *numberType) moreFrac(f *frame) int32 {
	side := t.sides[f.k]
	from := f.n * tens[t.scale-f.j]
	to := from + tens[t.scale-f.j] - 1
	from, to = max(from, side.lo), min(to, side.hi)
	for d := max(f.j, 1); d <= t.scale; d++ {
		if multiple(from, to, t.step[d]) {
			return d - f.j
		}
	}
	return infinite
}

// multiple reports whether a multiple of step lies in from..to.
func multiple(from, to, step int64) bool { return from <= to && to/step*step >= from }

// first begins a number with b.
func (t *numberType) first(f frame, b byte) (frame, bool) {
	if b == '-' {
		f.phase, f.k = numSign, 1
		return f, t.free || t.own(&f) < infinite
	}
	f.phase = numInt
	return t.digit(f, b)
}

// digit adds a digit before the point.
func (t *numberType) digit(f frame, b byte) (frame, bool) {
	limit := t.whole
	if t.free {
		limit = freeDigits
	}
	if b < '0' || b > '9' || f.i == limit || f.i > 0 && f.n == 0 {
		return f, false
	}
	f.phase = numInt
	f.i++
	f.n = f.n*10 + int64(b-'0')
	if t.free {
		f.n = min(f.n, 1) // only a leading 0 matters
	}
	return f, t.free || t.moreInt(&f) < infinite
}

// next adds b, if the number can go on with it.
func (t *numberType) next(f frame, b byte) (frame, bool) {
	switch f.phase {
	case numSign:
		return t.digit(f, b)
	case numInt:
		if b == '.' {
			f.phase = numPoint
			return f, t.free || t.scale > 0 && t.moreFrac(&f) < infinite
		}
		if t.free && b|0x20 == 'e' {
			f.phase = numE
			return f, true
		}
		return t.digit(f, b)
	case numPoint, numFrac:
		if t.free && f.phase == numFrac && b|0x20 == 'e' {
			f.phase, f.j = numE, 0
			return f, true
		}
		return t.fraction(f, b)
	}
	if f.phase == numE && (b == '+' || b == '-') {
		f.phase = numESign
		return f, true
	}
	if b < '0' || b > '9' || f.j == 2 {
		return f, false
	}
	f.phase = numExp
	f.j++
	return f, true
}

// fraction adds a digit after the point.
func (t *numberType) fraction(f frame, b byte) (frame, bool) {
	limit := t.scale
	if t.free {
		limit = freeDigits
	}
	if b < '0' || b > '9' || f.j == limit {
		return f, false
	}
	f.phase = numFrac
	f.j++
	if t.free {
		return f, true
	}
	f.n = f.n*10 + int64(b-'0')
	return f, t.moreFrac(&f) < infinite
}
