package sample

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

func TestText_Golden(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/decode.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(b) {
		var c struct {
			Name   string
			IDs    []int32
			Pieces []string `json:"pieces_hex"`
			Stream []string
			Tail   string
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		n++
		x := NewText(nil)
		for i, p := range c.Pieces {
			piece, err := hex.DecodeString(p)
			if err != nil {
				t.Fatal(err)
			}
			if c.IDs[i] < 17 { // this vocabulary's control tokens, which are not text
				piece = nil
			}
			if got, stopped := x.Push(piece); got != c.Stream[i] || stopped {
				t.Errorf("%s: token %d shows %q, want %q", c.Name, i, got, c.Stream[i])
			}
		}
		if got := x.Flush(); got != c.Tail {
			t.Errorf("%s: Flush = %q, want %q", c.Name, got, c.Tail)
		}
	}
	if n != 65 {
		t.Errorf("%d cases, want 65", n)
	}
}

func TestText_Stop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stops  []string
		pieces []string
		want   []string // what each piece shows; the last is Flush
		at     int      // the piece that stops, -1 for none
	}{
		"across tokens":   {[]string{"STOP"}, []string{"a S", "T", "OP b", "c"}, []string{"a ", "", "", "", ""}, 2},
		"false start":     {[]string{"STOP"}, []string{"ST", "ST", "xOP"}, []string{"", "ST", "STxOP", ""}, -1},
		"held at end":     {[]string{"STOP"}, []string{"a", "STO"}, []string{"a", "", "STO"}, -1},
		"itself":          {[]string{"aab"}, []string{"aa", "a", "b"}, []string{"", "a", "", ""}, 2},
		"first complete":  {[]string{"abcd", "bc"}, []string{"xab", "cd"}, []string{"x", "a", ""}, 1},
		"longer of two":   {[]string{"c", "abc"}, []string{"xa", "bc"}, []string{"x", "", ""}, 1},
		"within a piece":  {[]string{"\n\n"}, []string{"one\n\ntwo\n\n"}, []string{"one", ""}, 0},
		"part of a rune":  {[]string{"é"}, []string{"caf\xc3", "\xa9!"}, []string{"caf", "", ""}, 1},
		"rune begins so":  {[]string{"é"}, []string{"caf\xc3", "\xa8!"}, []string{"caf", "è!", ""}, -1},
		"empty and none":  {[]string{""}, []string{"a", "b"}, []string{"a", "b", ""}, -1},
		"bad byte before": {[]string{"!"}, []string{"a\xe2\x82", "!"}, []string{"a", "\ufffd", ""}, 1},
	} {
		x := NewText(c.stops)
		for i, p := range c.pieces {
			got, stopped := x.Push([]byte(p))
			if got != c.want[i] || stopped != (c.at >= 0 && i >= c.at) {
				t.Errorf("%s: Push %d = %q, %v, want %q", name, i, got, stopped, c.want[i])
			}
		}
		if got := x.Flush(); got != c.want[len(c.pieces)] {
			t.Errorf("%s: Flush = %q", name, got)
		}
	}
}

// maximal converts to UTF-8 by the rule of the Unicode standard, spelled out:
// strings.ToValidUTF8 of one character at a time would take each byte for bad.
func maximal(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		n := 1
		for k := 4; k >= 1; k-- {
			if k > len(b) {
				continue
			}
			if c := string(b[:k]); strings.ToValidUTF8(c, "") == c && len([]rune(c)) == 1 {
				out.WriteString(c)
				n = 0
				b = b[k:]
				break
			}
		}
		if n == 0 {
			continue
		}
		// The longest part that some bytes complete to a character.
		for k := min(3, len(b)); k > 1; k-- {
			if completes(b[:k]) {
				n = k
				break
			}
		}
		out.WriteRune('\ufffd')
		b = b[n:]
	}
	return out.String()
}

func completes(part []byte) bool {
	for _, more := range []string{"\x80", "\x80\x80", "\x90\x80", "\xa0\x80", "\xa0", "\x90"} {
		if c := string(part) + more; len([]rune(c)) == 1 && strings.ToValidUTF8(c, "") == c {
			return true
		}
	}
	return false
}

// However a text is cut into pieces, what is shown is the text up to the first
// stop string.
func TestText_Twin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	abc := []string{"a", "b", "ab", "é", "漢", "😀", "\xc3", "\xa9", "\xf0", "\x9f", "\xe6", "\xbc", "\xed", "\xa0", "\x80", "\xff"}
	word := func(n int) (s string) {
		for range 1 + r.IntN(n) {
			s += abc[r.IntN(len(abc))]
		}
		return s
	}
	for range 30000 {
		text := []byte(word(14))
		var stops []string
		for range r.IntN(3) {
			stops = append(stops, word(3))
		}
		end, cut := len(text)+1, len(text)
		for _, s := range stops {
			if i := bytes.Index(text, []byte(s)); i >= 0 && (i+len(s) < end || i+len(s) == end && i < cut) {
				end, cut = i+len(s), i
			}
		}
		x := NewText(stops)
		got, stopped := "", false
		for rest := text; len(rest) > 0; {
			n := 1 + r.IntN(min(4, len(rest)))
			var out string
			out, stopped = x.Push(rest[:n])
			got += out
			rest = rest[n:]
		}
		got += x.Flush()
		if want := maximal(text[:cut]); got != want || stopped != (end <= len(text)) {
			t.Fatalf("%q with stops %q shows %q (%v), want %q", text, stops, got, stopped, want)
		}
	}
}
