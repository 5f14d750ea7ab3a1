package regex_test

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/parley-ai/parley/engine/grammar/regex"
)

const work = 1 << 22

func compile(t testing.TB, pattern string) *regex.DFA {
	t.Helper()
	d, err := regex.Compile(pattern, &regex.Budget{Left: work})
	if err != nil {
		t.Fatalf("%q: %v", pattern, err)
	}
	return d
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern string
		yes, no []string
	}{
		{``, []string{"", "a"}, nil},
		{`a`, []string{"a", "xax"}, []string{"", "b"}},
		{`^a$`, []string{"a"}, []string{"aa", "a\n", ""}},
		{`^$`, []string{""}, []string{"a"}},
		{`$^`, []string{""}, []string{"a"}},
		{`a$b|c`, []string{"c"}, []string{"ab"}},
		{`(^a|b)c`, []string{"ac", "xbc"}, []string{"xac"}},
		{`^(a|b)+?$`, []string{"a", "abba"}, []string{"", "abc"}},
		{`^a{2}b{1,}c{0,2}d{,3}$`, []string{"aabd{,3}", "aabbccd{,3}"}, []string{"aab", "aabcccd{,3}"}},
		{`^[a-c-]$`, []string{"a", "c", "-"}, []string{"d"}},
		{`^[^a-c]$`, []string{"d", "日", "\n"}, []string{"a", ""}},
		{`^[\]\\^-]$`, []string{"]", `\`, "^", "-"}, []string{"a"}},
		{`^\d\D\w\W\s\S$`, []string{"1aa- a"}, []string{"aaaa a"}},
		{`^.$`, []string{"a", "😀"}, []string{"\n", "\r", "\u2028", ""}},
		{`^[\s\S]$`, []string{"a", "\n", "\u2003"}, nil},
		{`^[\\s\S]$`, []string{"a", `\`, "s"}, []string{" ", "\u2003"}},
		{`^\s$`, []string{" ", "\t"}, []string{"\u2003", "\v"}}, // not a space for Go
		{`^\S$`, []string{"a"}, []string{" ", "\u2003"}},
		{`^[^\s]$`, []string{"a"}, []string{" ", "\u2003"}},
		{`^[^\S]$`, []string{" "}, []string{"a", "\u2003"}},
		{`^\x41\u0042\u{43}\ud83d\ude00\t\/$`, []string{"ABC😀\t/"}, []string{"ABC"}},
		{`^(?:a(?<n>b))c$`, []string{"abc"}, []string{"ab"}},
		{`^{a}$`, []string{"{a}"}, nil},
		{`^(a*)*$`, []string{"", "aaa"}, []string{"b"}},
		{`^(a+)+$`, []string{"a", "aaa"}, []string{"", "aab"}},
		{`^(|a)b$`, []string{"b", "ab"}, []string{"a"}},
	} {
		d := compile(t, tt.pattern)
		for _, s := range tt.yes {
			if !d.Match(s) {
				t.Errorf("%q does not match %q", tt.pattern, s)
			}
		}
		for _, s := range tt.no {
			if d.Match(s) {
				t.Errorf("%q matches %q", tt.pattern, s)
			}
		}
	}
}

func TestCompile_Errors(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		`(`, `)`, `[`, `[]`, `[a`, `a)`, `*`, `a**`, `^*`, `(?=a)`, `(?!a)`, `(?<=a)`, `(?i)a`, `\b`, `\B`, `(a)\1`, `\k<n>`, `\p{L}`, `\z`, `\`, `\x4`, `\u12`,
		`\u{110000}`, `\ud83d`, `\ude00`, `a{3,2}`, `[b-a]`, `[a-\d]x`, `[\d-x]`, `[[:alpha:]]`, `\c`, `{1}`, `a$b`, `a^b`,
	} {
		if _, err := regex.Compile(pattern, &regex.Budget{Left: work}); !errors.Is(err, regex.ErrUnsupported) {
			t.Errorf("%q: error %v, want ErrUnsupported", pattern, err)
		}
	}
	for _, pattern := range []string{
		`(a{1000}){1000}`, `a{99999999999999999999}`, `(a|b)*a(a|b){20}`, strings.Repeat("(", 100) + strings.Repeat(")", 100), `(.{200}){200}`,
	} {
		if _, err := regex.Compile(pattern, &regex.Budget{Left: work}); !errors.Is(err, regex.ErrTooLarge) {
			t.Errorf("%q: error %v, want ErrTooLarge", pattern, err)
		}
	}
	if _, err := regex.Compile(`^\w{1,64}$`, &regex.Budget{Left: 100}); !errors.Is(err, regex.ErrTooLarge) {
		t.Errorf("with little budget: error %v, want ErrTooLarge", err)
	}
}

// Every state but Dead leads to something that is accepted.
func TestStates(t *testing.T) {
	t.Parallel()
	d := compile(t, `^(ab|cd{2,3})*x$`)
	for q := range int32(d.States()) {
		seen := map[int32]bool{q: true}
		for work := []int32{q}; len(work) > 0; {
			p := work[0]
			work = work[1:]
			if d.Accepts(p) {
				seen = nil
				break
			}
			for c := range d.Classes() {
				if to := d.StepClass(p, c); to != regex.Dead && !seen[to] {
					seen[to] = true
					work = append(work, to)
				}
			}
		}
		if seen != nil {
			t.Errorf("state %d leads nowhere", q)
		}
	}
}

func TestAnd(t *testing.T) {
	t.Parallel()
	a, b := compile(t, `^[a-m]+$`), compile(t, `^.{2,3}$`)
	d, err := regex.And(a, b, &regex.Budget{Left: work})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"", "a", "ab", "abc", "abcd", "xy", "日本"} {
		if got, want := d.Match(s), a.Match(s) && b.Match(s); got != want {
			t.Errorf("Match(%q) = %t, want %t", s, got, want)
		}
	}
	if d, err := regex.And(compile(t, `^a$`), compile(t, `^b$`), &regex.Budget{Left: work}); d != nil || err != nil {
		t.Errorf("nothing in common: %v, %v", d, err)
	}
}

func TestPartition(t *testing.T) {
	t.Parallel()
	of := []*regex.DFA{compile(t, `^a`), compile(t, `b$`), compile(t, `^.{3}$`)}
	d, err := regex.Partition(of, &regex.Budget{Left: work})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"", "a", "ab", "xb", "axb", "zzz", "q\n"} {
		q, want := int32(0), uint64(0)
		for _, r := range s {
			q = d.Step(q, r)
		}
		for i, o := range of {
			if o.Match(s) {
				want |= 1 << i
			}
		}
		if got := d.Label(q); got != want {
			t.Errorf("Label(%q) = %b, want %b", s, got, want)
		}
	}
}

// agree checks that what the automaton accepts matches by Go's regexp, and where
// dialects do not differ the other way round too.
func agree(t *testing.T, pattern string, texts []string) {
	t.Helper()
	d, err := regex.Compile(pattern, &regex.Budget{Left: work})
	if err != nil {
		return
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return
	}
	same := !strings.Contains(pattern, ".") && !strings.Contains(pattern, `\`)
	for _, s := range texts {
		got, want := d.Match(s), re.MatchString(s)
		if got && !want || same && got != want {
			t.Errorf("%q on %q: %t, regexp says %t", pattern, s, got, want)
		}
	}
}

func TestRandom(t *testing.T) {
	t.Parallel()
	parts := []string{"a", "b", "c", "(", ")", "|", "*", "+", "?", "{2}", "{1,2}", "{0,}", "^", "$", ".", "[ab]", "[^a]", `\d`, `\s`, `\S`, "(?:", "é", "-", ""}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var pattern strings.Builder
		for range 1 + r.IntN(8) {
			pattern.WriteString(parts[r.IntN(len(parts))])
		}
		var texts []string
		for range 20 {
			var s strings.Builder
			for range r.IntN(6) {
				s.WriteString([]string{"a", "b", "c", "1", " ", "\n", "é", "-"}[r.IntN(8)])
			}
			texts = append(texts, s.String())
		}
		agree(t, pattern.String(), texts)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`^(a|b)+$`, "abba")
	f.Add(`[^\s]{2,3}?x|\u{1F600}`, "😀")
	f.Add(`(a+)+$`, "aaab")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if !utf8.ValidString(text) || !utf8.ValidString(pattern) || len(text) > 1000 {
			return
		}
		if strings.Contains(pattern, "{0") || strings.Contains(pattern, ",0") {
			return // x{00} is x{0} in ECMA-262, and five characters to regexp
		}
		b := regex.Budget{Left: work}
		_, err := regex.Compile(pattern, &b)
		if err != nil && !errors.Is(err, regex.ErrUnsupported) && !errors.Is(err, regex.ErrTooLarge) {
			t.Fatalf("%q: %v", pattern, err)
		}
		if b.Left < -1<<20 {
			t.Fatalf("%q: %d steps over the budget", pattern, -b.Left)
		}
		agree(t, pattern, []string{"", text, text + "a", strings.ToUpper(text)})
	})
}
