package wire

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func itoa(i int) string { return strconv.Itoa(i) }

// misread are the words by which clients take an error for another one,
// whatever its status.
var misread = regexp.MustCompile(`(?i)(rate)[\s_-]*(limit)|(invalid)_(request_error)`)

// maxClip is how many bytes of a client's text a message may repeat.
const maxClip = 64

// clip makes text from outside fit for a message: valid, printable, at most
// 64 bytes, and free of the words clients misread.
func clip(s string) string {
	cut := len(s) > maxClip
	if cut {
		s = s[:maxClip]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		// The last rune may have lost its tail.
		if r, n := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && n == 1 {
			s = s[:len(s)-1]
		}
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if strings.ContainsAny(s, "tT") && misread.MatchString(s) {
		s = misread.ReplaceAllString(s, "$1$3*$2$4")
	}
	if cut {
		s += "..."
	}
	return s
}
