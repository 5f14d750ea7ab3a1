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
