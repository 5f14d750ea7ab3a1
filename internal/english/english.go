// Package english writes numbers of things as people read them.
package english

import (
	"strconv"
	"strings"
)

// Group puts commas into the whole part of a decimal number: "-1,904,771.25".
func Group(decimal string) string {
	digits, negative := strings.CutPrefix(decimal, "-")
	whole, fraction, point := strings.Cut(digits, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + fraction
	}
	if negative {
		return "-" + whole
	}
	return whole
}

// Count is n with commas: "1,904,771".
func Count[T int | int64](n T) string { return Group(strconv.FormatInt(int64(n), 10)) }

// Plural is n of what noun names one of, a regular noun of more than one letter:
// "1 entry", "1,200 entries", "0 days".
func Plural[T int | int64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		noun = stem + "ie"
	}
	return Count(n) + " " + noun + "s"
}

// Bytes is a size of n bytes, at least 0, in the largest binary unit of which it has one, with one
// decimal where that is not 0, rounded down: "512 B", "40.7 GiB".
func Bytes[T int64 | uint64](n T) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for i < len(units)-1 && n>>(10*(i+1)) > 0 {
		i++
	}
	unit := T(1) << (10 * i)
	text := Count(int64(n / unit))
	if tenth := n % unit * 10 / unit; tenth > 0 {
		text += "." + strconv.FormatInt(int64(tenth), 10)
	}
	return text + " " + units[i]
}
