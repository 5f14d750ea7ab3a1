package grammar_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/parley-ai/parley/engine/grammar"
)

const person = `{"type":"object","properties":{
	"name":{"type":"string","maxLength":80},
	"email":{"type":"string","format":"email"},
	"age":{"type":"integer","minimum":0,"maximum":150},
	"tags":{"type":"array","items":{"enum":["red","green","blue"]},"maxItems":5},
	"address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string","pattern":"^\\d{5}$"}},"required":["street","zip"],"additionalProperties":false},
	"note":{"type":["string","null"]}},
	"required":["name","email","age","address"],"additionalProperties":false}`

// BenchmarkMask is the time of a mask for every token of answers whose tokens are
// drawn from it at random: the worst case, since a sampler asks only when its own
// choice is not allowed. Each answer's grammar is compiled anew in cold, so that its
// cache is empty; in warm, requests share it.
func BenchmarkMask(b *testing.B) {
	v, _ := weights(b)
	for _, tt := range []struct{ name, schema string }{{"json", `{"type":"object"}`}, {"schema", person}} {
		for _, cold := range []bool{true, false} {
			name := tt.name + "/warm"
			if cold {
				name = tt.name + "/cold"
			}
			b.Run(name, func(b *testing.B) {
				g, err := grammar.Schema(v, []byte(tt.schema))
				if err != nil {
					b.Fatal(err)
				}
				r := rand.New(rand.NewPCG(1, 1))
				var times []time.Duration
				for b.Loop() {
					if cold {
						if g, err = grammar.Schema(v, []byte(tt.schema)); err != nil {
							b.Fatal(err)
						}
					}
					m := g.NewMatcher()
					for left := g.Least() + 150; !m.MustEnd(); left-- {
						start := time.Now()
						mask := m.Mask(left)
						times = append(times, time.Since(start))
						id := nth(mask, r.IntN(count(mask)))
						if v.IsEnd(id) || !m.Accept(id) {
							break
						}
					}
				}
				slices.Sort(times)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "ns/median")
				b.ReportMetric(float64(times[len(times)*9/10].Nanoseconds()), "ns/p90")
				b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "ns/p99")
			})
		}
	}
}

// BenchmarkAllows is the usual case: look at the token drawn, and accept it.
func BenchmarkAllows(b *testing.B) {
	v, tk := weights(b)
	g, err := grammar.JSON(v)
	if err != nil {
		b.Fatal(err)
	}
	ids := tk.Encode(`{"name": "Ada Lovelace", "age": 36, "langs": ["en", "fr"], "address": {"street": "12 St James's Square", "city": "London"}}`, false)
	for b.Loop() {
		m := g.NewMatcher()
		for i, id := range ids {
			if !m.Allows(id, 1000-i) || !m.Accept(id) {
				b.Fatal("not allowed")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ids)), "ns/token")
}

func BenchmarkCompile(b *testing.B) {
	v, _ := weights(b)
	b.Run("json", func(b *testing.B) {
		for b.Loop() {
			if _, err := grammar.JSON(v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("schema", func(b *testing.B) {
		for b.Loop() {
			if _, err := grammar.Schema(v, []byte(person)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("vocab", func(b *testing.B) {
		for b.Loop() {
			if _, err := grammar.NewVocab(v.Size(), v.Piece, v.IsEnd); err != nil {
				b.Fatal(err)
			}
		}
	})
}
