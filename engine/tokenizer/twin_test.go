package tokenizer_test

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/gguf/gguftest"
	"github.com/parley-ai/parley/engine/tokenizer"
)

// twin encodes the slow, plain way: the words by regular expressions, the
// merges on strings by looking through all pairs.
type twin struct {
	ids    map[string]int32
	rank   map[[2]string]int
	runeOf map[byte]string
	re, ws *regexp.Regexp
}

func newTwin(t testing.TB, f *gguf.File) *twin {
	t.Helper()
	tokens, _ := f.Strings("tokenizer.ggml.tokens")
	types, _ := f.Ints("tokenizer.ggml.token_type")
	merges, _ := f.Strings("tokenizer.ggml.merges")
	w := &twin{ids: map[string]int32{}, rank: map[[2]string]int{}, runeOf: map[byte]string{}}
	w.re, w.ws = regexp.MustCompile(word), regexp.MustCompile("^["+spaces+"]+")
	for i, s := range tokens {
		if types[i] == 1 {
			w.ids[s] = int32(i)
		}
	}
	for i, s := range merges {
		a, b, _ := strings.Cut(s, " ")
		w.rank[[2]string{a, b}] = i
	}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if b < 33 || b > 126 && b < 161 || b == 173 {
			r = next
			next++
		}
		w.runeOf[byte(b)] = string(r)
	}
	return w
}

// Go's \s is ASCII only, and it has no lookahead: `\s+(?!\S)` is done by hand.
const (
	spaces = "\\s\\v\u0085\\p{Z}"
	word   = `^(?:'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}\x{2ebf0}-\x{2ee5d}]+| ?\p{N}+| ?[^` + spaces + `\p{L}\x{2ebf0}-\x{2ee5d}\p{N}]+)`
)

func (w *twin) encode(text string) (out []int32) {
	var part []rune
	flush := func() {
		out = w.part(out, string(part))
		part = part[:0]
	}
	for _, r := range text { // bad bytes arrive as U+FFFD
		if unicode.IsNumber(r) {
			flush()
			out = w.part(out, string(r))
			continue
		}
		part = append(part, r)
	}
	flush()
	return out
}

func (w *twin) part(out []int32, s string) []int32 {
	for s != "" {
		n := len(w.re.FindString(s))
		if n == 0 {
			n = len(w.ws.FindString(s))
			if n == 0 {
				panic("no rule for " + s)
			}
			if _, last := utf8.DecodeLastRuneInString(s[:n]); n < len(s) && n > last {
				n -= last
			}
		}
		out = w.merge(out, s[:n])
		s = s[n:]
	}
	return out
}

func (w *twin) merge(out []int32, s string) []int32 {
	var p []string
	for i := range len(s) {
		p = append(p, w.runeOf[s[i]])
	}
	for {
		best, at := len(w.rank), -1
		for i := range len(p) - 1 {
			if r, ok := w.rank[[2]string{p[i], p[i+1]}]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			break
		}
		p[at] += p[at+1]
		p = slices.Delete(p, at+1, at+2)
	}
	for _, x := range p {
		if id, ok := w.ids[x]; ok {
			out = append(out, id)
		}
	}
	return out
}

// mixed makes text of everything that the rules treat differently.
func mixed(r *rand.Rand, n int) string {
	const abc = "etaoin shrdlu ETAOIN'sS'tT'reve'llmd  \t\n\r\n0123456789½²٣.,;:!?-_=/<>|*#(){}[]éüßñ漢字かなカナहिन्दीрусский😀👩\u200d👩\u00a0\u2003\u3000\u0085\u0004\u001d\U0002ebf0\U000e0100\U00050000"
	runes := []rune(abc)
	var b strings.Builder
	for b.Len() < n {
		switch x := runes[r.IntN(len(runes))]; r.IntN(24) {
		case 0:
			b.WriteString(strings.Repeat(string(x), 1+r.IntN(60)))
		case 1:
			b.WriteByte(byte(r.IntN(256)))
		case 2:
			b.WriteString([]string{"the", " the", "ing", " of", "tion", "<|im_end|>", "'s", "    ", "http://"}[r.IntN(9)])
		default:
			b.WriteRune(x)
		}
	}
	return b.String()
}

func TestEncode_Twin(t *testing.T) {
	t.Parallel()
	f := gguftest.Open(t)
	tk, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	w := newTwin(t, f)
	r := rand.New(rand.NewPCG(1, 2))
	for range 1500 {
		s := mixed(r, 1+r.IntN(120))
		if got, want := tk.Encode(s, false), w.encode(s); !slices.Equal(got, want) {
			t.Fatalf("Encode(%q) = %v, want %v", s, got, want)
		}
	}
	// Long words go another way than short ones.
	for range 60 {
		s := []byte(strings.Repeat("etaoinshrdlu", 20))
		r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		if got, want := tk.Encode(string(s), false), w.encode(string(s)); !slices.Equal(got, want) {
			t.Fatalf("Encode(%q) = %v, want %v", s, got, want)
		}
	}
}

// tiny has all bytes but one and merges that pile up.
func tiny(t testing.TB) (*gguf.File, *tokenizer.Tokenizer) {
	t.Helper()
	var tokens []string
	for r := rune(33); r < 0x144; r++ {
		if r != 'q' && (r < 127 || r > 160) && r != 173 {
			tokens = append(tokens, string(r))
		}
	}
	merges := []string{"a a", "aa aa", "a b", "aa b", "Ġ a", "Ġa aa", "- -", "-- --", "i n", "t h", "th in", "e e"}
	for _, m := range merges {
		tokens = append(tokens, strings.Replace(m, " ", "", 1))
	}
	tokens = append(tokens, "<x>", "<xy>", "<x>>")
	types := make([]int32, len(tokens))
	for i := range types {
		types[i] = 1
		if i >= len(tokens)-3 {
			types[i] = 3
		}
	}
	w := new(gguftest.Writer).Set("tokenizer.ggml.model", "gpt2").Set("tokenizer.ggml.pre", "smollm")
	w.Set("tokenizer.ggml.tokens", tokens).Set("tokenizer.ggml.token_type", types).Set("tokenizer.ggml.merges", merges)
	f, err := gguf.Parse(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	tk, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	return f, tk
}

// Without special tokens Encode equals the twin; with them no text is lost but
// the bytes without a token.
func FuzzEncode(f *testing.F) {
	file, tk := tiny(f)
	w := newTwin(f, file)
	for _, s := range []string{"", "aaaaab  a  1", "it's <x>> thin\xff\n\n", "q\u00a0\U0002ebf0", strings.Repeat("aab", 30)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 300 {
			return
		}
		got := tk.Encode(s, false)
		if want := w.encode(s); !slices.Equal(got, want) {
			t.Fatalf("Encode(%q) = %v, want %v", s, got, want)
		}
		want := strings.ReplaceAll(string([]rune(s)), "q", "")
		if back := string(tk.Decode(tk.Encode(s, true))); back != want && !strings.Contains(s, "<") {
			t.Fatalf("Decode = %q, want %q", back, want)
		}
		for _, limit := range []int{1, len(got)} {
			ids, ok := tk.EncodeLimit(nil, s, false, limit)
			if limit > 0 && (ok != (len(got) <= limit) || len(ids) > limit || !slices.Equal(ids, got[:len(ids)])) {
				t.Fatalf("EncodeLimit(%q, %d) = %v, %v of %v", s, limit, ids, ok, got)
			}
		}
	})
}
