package upstream_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/parley-ai/parley/internal/upstream"
)

// untilStop is what a filter must do, said plainly: the shortest head of text that ends
// in a stop, without the longest stop it ends in.
func untilStop(text string, stops []string) (string, bool) {
	for end := 1; end <= len(text); end++ {
		longest := 0
		for _, stop := range stops {
			if strings.HasSuffix(text[:end], stop) {
				longest = max(longest, len(stop))
			}
		}
		if longest > 0 {
			return text[:end-longest], true
		}
	}
	return text, false
}

func TestStopFilter_Twin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Few letters make many near misses.
		letter := rapid.SampledFrom([]rune(rapid.SampledFrom([]string{"ab", "ab€"}).Draw(t, "letters")))
		piece := rapid.StringOfN(letter, 0, 30, -1)
		stops := rapid.SliceOfN(rapid.StringOfN(letter, 1, 9, -1), 0, 3).Draw(t, "stops")
		pieces := rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces")
		f := upstream.NewStopFilter(stops)
		longest := 0
		for _, stop := range stops {
			longest = max(longest, len(stop))
		}
		got, sent, stopped := "", 0, false
		for _, p := range pieces {
			sent += len(p)
			var text string
			text, stopped = f.Push(p)
			if got += text; stopped {
				break
			}
			if held := sent - len(got); held > 0 && held >= longest {
				t.Fatalf("%d bytes held back, stops %q", held, stops)
			}
		}
		got += f.Flush()
		want, wantStopped := untilStop(strings.Join(pieces, ""), stops)
		if got != want || stopped != wantStopped {
			t.Fatalf("filter of %q by %q = %q, %v; want %q, %v", pieces, stops, got, stopped, want, wantStopped)
		}
		if !stopped {
			return
		}
		if text, again := f.Push("a"); text != "" || !again {
			t.Fatalf("Push after a stop = %q, %v", text, again)
		}
	})
}

func TestStopFilter(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, pieces, stops string // separated by |
		want                string // what each Push and the last Flush return
	}{
		{"none", "a|b", "", "a|b|"},
		{"inside", "xENDy", "END", "x|"},
		{"across pieces", "xE|N|Dy", "END", "x|||"},
		{"false start", "xE|Nx", "END", "x|ENx|"},
		{"held to the end", "xEN", "END", "x|EN"},
		{"fall back", "aababx", "aabx", "aababx|"},
		{"fall back and match", "aabaabx", "aabx", "aab|"},
		{"overlap", "aab", "ab", "a|"},
		{"first complete", "abcd", "abcd|bc", "a|"},
		{"longest of those", "xabc", "bc|abc", "x|"},
		{"rune across pieces", "x\xe2\x82|\xac", "€", "x||"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stops []string
			if tt.stops != "" {
				stops = strings.Split(tt.stops, "|")
			}
			f := upstream.NewStopFilter(stops)
			var got []string
			for p := range strings.SplitSeq(tt.pieces, "|") {
				text, _ := f.Push(p)
				got = append(got, text)
			}
			got = append(got, f.Flush())
			if g := strings.Join(got, "|"); g != tt.want {
				t.Errorf("filter of %q by %q = %q, want %q", tt.pieces, tt.stops, g, tt.want)
			}
		})
	}
}

func BenchmarkStopFilter(b *testing.B) {
	stops := make([]string, 64)
	for i := range stops {
		stops[i] = strings.Repeat("a", 255) + "b"
	}
	f := upstream.NewStopFilter(stops)
	b.ReportAllocs()
	for b.Loop() {
		f.Push("aaaa")
	}
}
