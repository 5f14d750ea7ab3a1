// Package money is integer arithmetic on credits.
//
// The unit of account is the IU; an [Amount] counts nano-IU, so that the price
// of one token is an integer whenever the price of 1,000 tokens has at most six
// decimals. Charges are products and sums of integers: nothing is ever rounded.
package money

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Amount is a sum of credit in nano-IU, 1e-9 IU. It holds ±9.2e9 IU.
type Amount int64

// IU is one unit of credit.
const IU Amount = 1_000_000_000

// decimals of an Amount written in IU.
const decimals = 9

// Limits of what configuration and operators may write.
const (
	// MaxAmount bounds an amount given by an operator: 1e9 IU, so that sums of
	// several grants stay far from the end of int64.
	MaxAmount = 1_000_000_000 * IU
	// MaxPerToken bounds a price: 1e6 IU per 1K tokens.
	MaxPerToken = 1_000 * IU
)

// Errors of this package.
var (
	// ErrSyntax means that a text is no plain decimal number.
	ErrSyntax = errors.New("not a decimal number")
	// ErrPrecision means more decimals than the unit can hold.
	ErrPrecision = errors.New("too many decimals")
	// ErrRange means a number below zero or above what the unit allows.
	ErrRange = errors.New("out of range")
	// ErrOverflow means that a result does not fit an Amount.
	ErrOverflow = errors.New("amount overflows")
)

// ParseAmount reads a non-negative decimal number of IU with at most nine
// decimals, such as "12.5". It fails with [ErrSyntax], [ErrPrecision] or, above
// [MaxAmount], [ErrRange].
func ParseAmount(s string) (Amount, error) {
	return parse(s, decimals, MaxAmount)
}

// ParsePerThousand reads a price in IU per 1,000 tokens with at most six
// decimals and returns the price of one token, an exact integer. It fails with
// [ErrSyntax], [ErrPrecision] or, above 1e6 IU, [ErrRange].
func ParsePerThousand(s string) (Amount, error) {
	// 1 IU per 1K tokens is 10^9/10^3 nano-IU a token: six decimals are left.
	return parse(s, 6, MaxPerToken)
}

// parse reads s as an integer of 10^-places.
func parse(s string, places int, limit Amount) (Amount, error) {
	whole, frac, point := strings.Cut(s, ".")
	if whole == "" || point && frac == "" || !digits(whole) || !digits(frac) {
		return 0, fmt.Errorf("%w: %q", ErrSyntax, clip(s))
	}
	if len(frac) > places {
		return 0, fmt.Errorf("%w: %q has %d, at most %d are possible", ErrPrecision, clip(s), len(frac), places)
	}
	n, err := strconv.ParseInt(whole+frac+strings.Repeat("0", places-len(frac)), 10, 64)
	if err != nil || Amount(n) > limit {
		return 0, fmt.Errorf("%w: %q", ErrRange, clip(s))
	}
	return Amount(n), nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func clip(s string) string { return s[:min(len(s), 40)] }

// String is the exact number of IU, with no more decimals than it needs: "12.5".
func (a Amount) String() string { return format(a, decimals) }

// PerThousand is the price of 1,000 tokens in IU where a is the price of one.
// It is the shortest exact decimal and a valid JSON number.
func (a Amount) PerThousand() string { return format(a, 6) }

func format(a Amount, places int) string {
	u := uint64(a)
	if a < 0 {
		u = -u
	}
	var b [24]byte // sign, 20 digits and point
	start := len(b)
	put := func(c byte) { start--; b[start] = c }
	for n := 0; u > 0 || n <= places; n++ {
		if n == places {
			put('.')
		}
		put('0' + byte(u%10))
		u /= 10
	}
	if a < 0 {
		put('-')
	}
	return strings.TrimSuffix(strings.TrimRight(string(b[start:]), "0"), ".")
}

// Display is a for people: at least two decimals, at most six, rounded down, and
// never 0 for an amount that is not: "285.62", "0.000025", "<0.000001".
func (a Amount) Display() string {
	if a < 0 {
		if a == math.MinInt64 {
			return a.String()
		}
		return "-" + (-a).Display()
	}
	const micro = IU / 1_000_000
	if a > 0 && a < micro {
		return "<0.000001"
	}
	s := format(a-a%micro, decimals)
	whole, frac, _ := strings.Cut(s, ".")
	return whole + "." + frac + strings.Repeat("0", max(0, 2-len(frac)))
}

// Add returns a+b, or [ErrOverflow].
func (a Amount) Add(b Amount) (Amount, error) {
	if s := a + b; (s > a) == (b > 0) {
		return s, nil
	}
	return 0, ErrOverflow
}

// Price is what one token costs, in nano-IU.
type Price struct {
	Input, CachedInput, Output Amount
}

// Tokens counts what a call used. Cached tokens are part of Prompt.
type Tokens struct {
	Prompt, Cached, Completion int
}

// Cost is the exact price of t, or [ErrOverflow]. Counts below zero and more
// cached than prompt tokens are [ErrRange].
func (p Price) Cost(t Tokens) (Amount, error) {
	if t.Prompt < 0 || t.Completion < 0 || t.Cached < 0 || t.Cached > t.Prompt {
		return 0, ErrRange
	}
	in, err1 := mul(p.Input, t.Prompt-t.Cached)
	cached, err2 := mul(p.CachedInput, t.Cached)
	out, err3 := mul(p.Output, t.Completion)
	sum, err4 := in.Add(cached)
	sum, err5 := sum.Add(out)
	return sum, errors.Join(err1, err2, err3, err4, err5)
}

// Free reports whether every token is free of charge.
func (p Price) Free() bool { return p == Price{} }

func mul(a Amount, n int) (Amount, error) {
	hi, lo := bits.Mul64(uint64(a), uint64(n))
	if a < 0 || hi != 0 || lo > math.MaxInt64 {
		return 0, ErrOverflow
	}
	return Amount(lo), nil
}
