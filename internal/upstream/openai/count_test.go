package openai

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
	"pgregory.net/rapid"

	"github.com/parley-ai/parley/internal/wire"
)

func newTiktoken(t testing.TB) *Tiktoken {
	t.Helper()
	c, err := NewTiktoken(DefaultEncoding)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewTiktoken_Unknown(t *testing.T) {
	t.Parallel()
	if _, err := NewTiktoken("none"); !errors.Is(err, ErrOptions) {
		t.Errorf("NewTiktoken = %v, want ErrOptions", err)
	}
}

func TestTiktoken(t *testing.T) {
	t.Parallel()
	c := newTiktoken(t)
	whole, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{
		"", "hello", "Hello, wörld! 你好，世界。 12345 \n\n\t  x",
		strings.Repeat("The quick brown fox jumps over the lazy dog. ", 1000),
		strings.Repeat("func main() {\n\tfmt.Println(\"hi\", 12345)\n}\n\n", 500),
	}
	for _, text := range texts {
		got, err := c.Count(text, 1<<30)
		want, _ := whole.Count(text)
		if err != nil || got < want || got > want+want/50+1 {
			t.Errorf("Count of %d bytes = %d, %v; want %d", len(text), got, err, want)
		}
	}
	for _, text := range []string{strings.Repeat("a", 1<<20), strings.Repeat(" ", 1<<20), strings.Repeat("你", 1<<18), strings.Repeat("\xff", 1<<18), strings.Repeat("a b ", 1<<18)} {
		if n, err := c.Count(text, 100); err != nil || n <= 100 || n > 100+slabBytes {
			t.Errorf("Count of %d bytes up to 100 = %d, %v", len(text), n, err)
		}
	}
}

// Wherever a text is cut, the pieces are its whole.
func TestSlab(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"a", " ", "\n", "€", "word "}).Draw(t, "s"), rapid.IntRange(1, 700).Draw(t, "n"))
		})).Draw(t, "text"), "")
		for rest := text; rest != ""; {
			n := slab(rest)
			if n <= 0 || n > len(rest) || n > slabBytes+2*runBytes || !utf8.ValidString(rest[:n]) {
				t.Fatalf("slab = %d of %d bytes", n, len(rest))
			}
			rest = rest[n:]
		}
	})
}

// The meter follows the count of the whole text, however it arrives.
func TestMeter(t *testing.T) {
	t.Parallel()
	c := newTiktoken(t)
	for _, text := range []string{
		strings.Repeat("The quick brown fox jumps over the lazy dog, doesn't it?\n\n", 40),
		strings.Repeat("{\"name\": \"value\", \"list\": [1, 22, 333]}\n", 40),
		strings.Repeat("人工智能正在改变世界。", 60),
	} {
		want, err := c.Count(text, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 4, 30, len(text)} {
			m := meter{counter: c}
			var runes wire.RuneJoiner
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				m.add(runes.Join(rest[:n]))
				rest = rest[n:]
			}
			if got := m.total(); got < want-want/20 || got > want+want/10 {
				t.Errorf("meter of %.12q… in pieces of %d = %d, want about %d", text, size, got, want)
			}
		}
	}
}

type brokenCounter struct{}

func (brokenCounter) Count(string, int) (int, error) { return 0, errors.New("broken") }

func TestMeter_BrokenCounter(t *testing.T) {
	t.Parallel()
	m := meter{counter: brokenCounter{}}
	for range 100 {
		m.add("\x80\x80\x80\x80\x80")
	}
	if got := m.total(); got < 125 || got > 160 {
		t.Errorf("meter = %d, want a quarter of 500", got)
	}
}

func TestCountPrompt(t *testing.T) {
	t.Parallel()
	decode := func(body string) *wire.ChatRequest {
		req, refused := wire.DecodeChat([]byte(body))
		if refused != nil {
			t.Fatal(refused)
		}
		return req
	}
	p := &Provider{options: Options{Counter: newTiktoken(t)}}
	// The convention's own example: 3 for the answer, and for each message 3, its role
	// and its text.
	n, err := p.CountPrompt(decode(`{"model":"m","messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":"Hello"}]}`), 1<<20)
	if n.Tokens != 3+(3+1+4)+(3+1+1) || n.Exact || err != nil {
		t.Errorf("CountPrompt = %+v, %v; want 16, an estimate", n, err)
	}
	tools, err := p.CountPrompt(decode(`{"model":"m","messages":[{"role":"user","name":"ann","content":"Hello"},
		{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"x"}],
		"tools":[{"type":"function","function":{"name":"f","description":"does","parameters":{"type":"object"}}}],
		"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}}}`), 1<<20)
	if err != nil || tools.Tokens < 45 || tools.Tokens > 75 {
		t.Errorf("CountPrompt with tools = %+v, %v", tools, err)
	}
	long := decode(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 200000) + `"},{"role":"user","content":"` + strings.Repeat("word ", 200000) + `"}]}`)
	if n, err := p.CountPrompt(long, 8192); err != nil || n.Tokens <= 8192 || n.Tokens > 8192+slabBytes {
		t.Errorf("CountPrompt of a long prompt = %+v, %v; want a little over 8192", n, err)
	}
	broken := &Provider{options: Options{Counter: brokenCounter{}}}
	if _, err := broken.CountPrompt(long, 8192); err == nil {
		t.Error("CountPrompt with a broken counter has no error")
	}
}

func BenchmarkTiktoken(b *testing.B) {
	c := newTiktoken(b)
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 200)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := c.Count(text, 1<<30); err != nil {
			b.Fatal(err)
		}
	}
}

// Counting word by word is counting the whole, in every vocabulary.
func TestTiktoken_Words(t *testing.T) {
	t.Parallel()
	word := rapid.SampledFrom([]string{" ", "  ", "\n", "\t", "\u00a0", "\r\n", "hello", "Hello", "it's", "I'LL", "12345", "x1", "./", "/", "...", "é", "你好", "👍", "\x7f", "\xff", "camelCase", "{\"a\":", "-"})
	for _, encoding := range []string{"o200k_base", "cl100k_base", "p50k_base", "r50k_base"} {
		c, err := NewTiktoken(encoding)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			text := strings.Join(rapid.SliceOfN(word, 0, 30).Draw(t, "words"), "")
			got, err := c.countWords(text)
			want, wantErr := c.codec.Count(text)
			if got != want || err != nil || wantErr != nil {
				t.Fatalf("%s: %q is %d tokens, %v; whole %d, %v", encoding, text, got, err, want, wantErr)
			}
		})
	}
}
