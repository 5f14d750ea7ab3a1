package wire

import (
	"bytes"
	"math"
	"strconv"
)

// number is the exact reading of a JSON number as an integer. Floating point
// would accept 1.00000000000000000001 as 1 and turn 1e400 into infinity.
type number struct {
	integral bool  // the value has no fractional part
	over     int   // -1 or 1 when it lies below or above int64
	value    int64 // valid when integral and over is 0
}

// readNumber reads raw, which must be a number in JSON syntax.
func readNumber(raw []byte) number {
	if v, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return number{integral: true, value: v}
	}
	neg := raw[0] == '-'
	mantissa, exponent := bytes.TrimPrefix(raw, []byte("-")), 0
	if i := bytes.IndexAny(mantissa, "eE"); i >= 0 {
		exponent = readExponent(mantissa[i+1:])
		mantissa = mantissa[:i]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	fraction = bytes.TrimRight(fraction, "0")
	exponent -= len(fraction)
	digits := bytes.TrimLeft(append(bytes.Clone(whole), fraction...), "0")
	if len(digits) == 0 {
		return number{integral: true}
	}
	trimmed := bytes.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	if exponent < 0 {
		return number{}
	}
	n := number{integral: true, over: 1}
	if neg {
		n.over = -1
	}
	// int64 has at most 19 digits.
	if len(trimmed)+exponent > 19 {
		return n
	}
	text := append(trimmed, bytes.Repeat([]byte("0"), exponent)...)
	if neg {
		text = append([]byte("-"), text...)
	}
	if v, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return number{integral: true, value: v}
	}
	return n
}

// readExponent reads a signed exponent and keeps it within +-2^30: a body has
// fewer digits than that, so nothing beyond it can matter.
func readExponent(text []byte) int {
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		v = math.MaxInt64
		if text[0] == '-' {
			v = math.MinInt64
		}
	}
	return int(max(-1<<30, min(v, 1<<30)))
}
