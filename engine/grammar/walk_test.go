package grammar_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/grammar"
	"github.com/parley-ai/parley/engine/tokenizer"
)

// small is a vocabulary of all bytes and of tokens that straddle the parts of JSON;
// 256 ends, 257 is control.
var small = sync.OnceValue(func() *grammar.Vocab { return smallVocab(nil) })

// asciiOnly lacks the bytes that go on in a character, but has whole ones.
var asciiOnly = sync.OnceValue(func() *grammar.Vocab {
	return smallVocab(func(b byte) bool { return b >= 0x80 })
})

func smallVocab(without func(byte) bool) *grammar.Vocab {
	pieces := make([][]byte, 258)
	for b := range 256 {
		if without == nil || !without(byte(b)) {
			pieces[b] = []byte{byte(b)}
		}
	}
	for _, s := range []string{
		`{"`, `"}`, `":`, `": "`, `","`, `", "`, `",`, `"]`, `"},{"`, `"},`, `}}`, `]]`, `]}`, `},`, `[[`, `[]`, `{}`, `""`, `":"`, `":[`, `":{`,
		`":1,"a`, `":1,"`, `,"a`, `"a"`, `"a":`, `"b":1`, `:1}`, `1,`, `0,`, `,1`, `[1`, `10`, `12`, `00`, `-1`, `1.`, `.5`, `1e`, `e+`, `true`, `alse`, `nul`, `l,`,
		`aa`, `ab`, `abc`, `name`, `na`, `foo`, `kind`, ` "`, "\n  ", "\n    ", "  ", `: `, `, `, ` {`, ` [`, "{\n", "\",\n", "é", "日本", "😀", "\xf0\x9f", "\x98\x80", "\xe6\x97", "a\xc3",
		`\n`, `\"`, `\u`, `\u00`, `d83d`, `\ude00`, `\\`, `@a.`, `://`, `2024-`, `T00:00`, `"arguments": `, `{"name": "`, `}, {`,
	} {
		pieces = append(pieces, []byte(s))
	}
	v, err := grammar.NewVocab(len(pieces), func(id int32) []byte { return pieces[id] }, func(id int32) bool { return id == 256 })
	if err != nil {
		panic(err)
	}
	return v
}

// weights is the real vocabulary.
func weights(t testing.TB) (*grammar.Vocab, *tokenizer.Tokenizer) {
	t.Helper()
	f, err := gguf.Open("../../weights/SmolLM2-135M-Instruct.Q4_1.gguf")
	if err != nil {
		t.Skipf("make weights: %v", err)
	}
	defer f.Close()
	tk, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	v, err := grammar.NewVocab(tk.Size(), func(id int32) []byte {
		if tk.IsControl(id) {
			return nil
		}
		return tk.Piece(id)
	}, tk.IsEnd)
	if err != nil {
		t.Fatal(err)
	}
	return v, tk
}

// walker makes a text from a source of choices.
type walker struct {
	v      *grammar.Vocab
	choose func(n int) int // 0 to n-1
	what   string
	exact  bool // compare the mask with Allows for every token
}

func ids(mask []uint64) []int32 {
	var out []int32
	for w, x := range mask {
		for ; x != 0; x &= x - 1 {
			out = append(out, int32(w*64+bits.TrailingZeros64(x)))
		}
	}
	return out
}

// count is the number of tokens in a mask, nth the n-th of them.
func count(mask []uint64) (n int) {
	for _, x := range mask {
		n += bits.OnesCount64(x)
	}
	return n
}

func nth(mask []uint64, n int) int32 {
	for w, x := range mask {
		if c := bits.OnesCount64(x); n >= c {
			n -= c
			continue
		}
		for range n {
			x &= x - 1
		}
		return int32(w*64 + bits.TrailingZeros64(x))
	}
	return -1
}

// walk writes a text with a budget, and checks on the way what a matcher promises.
func (w *walker) walk(t testing.TB, g *grammar.Grammar, budget int) string {
	t.Helper()
	m := g.NewMatcher()
	var text []byte
	for left := budget; !m.MustEnd(); left-- {
		if m.Distance() > left {
			t.Fatalf("after %q the distance is %d with %d tokens left", text, m.Distance(), left)
		}
		mask := m.Mask(left)
		allowed := count(mask)
		if allowed == 0 {
			t.Fatalf("after %q nothing is allowed with %d tokens left, distance %d%s", text, left, m.Distance(), w.what)
		}
		if w.exact {
			w.compare(t, m, text, ids(mask), left)
		}
		id := nth(mask, w.choose(allowed))
		if w.choose(3) == 0 { // a token drawn blindly
			if any := int32(w.choose(w.v.Size())); m.Allows(any, left) {
				id = any
			}
		}
		if !m.Allows(id, left) {
			t.Fatalf("after %q token %d %q is in the mask but not allowed with %d left", text, id, w.v.Piece(id), left)
		}
		if !m.Accept(id) {
			t.Fatalf("after %q token %d %q is allowed but not accepted", text, id, w.v.Piece(id))
		}
		if w.v.IsEnd(id) {
			break
		}
		text = append(text, w.v.Piece(id)...)
	}
	if !m.Done() {
		t.Fatalf("%q ends before it is complete", text)
	}
	return string(text)
}

// compare checks that the mask is what Allows says of each token.
func (w *walker) compare(t testing.TB, m *grammar.Matcher, text []byte, mask []int32, left int) {
	t.Helper()
	for id := range int32(w.v.Size()) {
		_, in := slices.BinarySearch(mask, id)
		if m.Allows(id, left) != in {
			t.Fatalf("after %q with %d left token %d %q: Allows says %t, the mask %t%s", text, left, id, w.v.Piece(id), !in, in, w.what)
		}
	}
}

// accepts reports whether the grammar has the whole text.
func accepts(v *grammar.Vocab, g *grammar.Grammar, text string) bool {
	m := g.NewMatcher()
	for _, b := range []byte(text) {
		if !m.Allows(int32(b), 1<<20) || !m.Accept(int32(b)) {
			return false
		}
	}
	return m.Done()
}

// library compiles a schema with the library that holds the last word; ok is false
// if it does not take it.
func library(schema []byte) (*jsonschema.Schema, bool) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, false
	}
	c := jsonschema.NewCompiler()
	// The grammar holds written text to a format, not what the schema itself gives.
	if !bytes.Contains(schema, []byte(`"enum"`)) && !bytes.Contains(schema, []byte(`"const"`)) {
		c.AssertFormat()
	}
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing but what is given
	if err := c.AddResource("mem:///schema.json", doc); err != nil {
		return nil, false
	}
	s, err := c.Compile("mem:///schema.json")
	return s, err == nil
}

// valid is the library's verdict.
func valid(s *jsonschema.Schema, text string) error {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("it does not parse: %w", err)
	}
	return s.Validate(v)
}

// check walks a grammar several times with budgets from its least upwards.
func check(t testing.TB, v *grammar.Vocab, schema []byte, walks int, r *rand.Rand) {
	t.Helper()
	g, err := grammar.Schema(v, schema)
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	lib, ok := library(schema)
	if !ok {
		t.Fatalf("the library does not take %s", schema)
	}
	w := walker{v: v, choose: r.IntN, what: "\nof " + string(schema), exact: v.Size() < 1000 && r.IntN(8) == 0}
	for i := range walks {
		budget := g.Least() + i*i
		text := w.walk(t, g, budget)
		if !json.Valid([]byte(text)) {
			t.Fatalf("%s: %q does not parse", schema, text)
		}
		if len(g.Unknown()) > 0 {
			continue
		}
		if err := valid(lib, text); err != nil {
			t.Fatalf("%s\nhas the text %q\nwhich is not valid: %v", schema, text, err)
		}
	}
}
