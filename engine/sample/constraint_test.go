package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// only allows some ids and counts how it is used.
type only struct {
	Constraint
	mask   []uint64
	masked int
}

func onlyIDs(ids ...int) *only {
	o := &only{mask: make([]uint64, 8)}
	for _, id := range ids {
		o.mask[id/64] |= 1 << (id % 64)
	}
	return o
}

func (o *only) Allows(id int32, _ int) bool { return o.mask[id/64]>>(id%64)&1 == 1 }

func (o *only) Mask(int) []uint64 {
	o.masked++
	return o.mask
}

// To draw, and draw again among what is allowed after a miss, is to draw among what is
// allowed.
func TestConstraint_Distribution(t *testing.T) {
	t.Parallel()
	logits := []float32{1, 3, 2, -1, 2, -30, 0.5}
	for _, c := range []struct {
		topP float64
		ids  []int
		want []float64 // weights by id
	}{
		{1, []int{0, 2, 4, 6}, []float64{math.E, 0, math.Exp(2), 0, math.Exp(2), 0, math.Exp(0.5)}},
		{1, []int{0, 1, 2, 3, 4, 5, 6}, []float64{math.E, math.Exp(3), math.Exp(2), math.Exp(-1), math.Exp(2), 0, math.Exp(0.5)}},
		{0.9, []int{0, 4, 6}, []float64{math.E, 0, 0, 0, math.Exp(2), 0, 0}}, // the nucleus is 1, 2, 4, 0
		{0.5, []int{0, 6}, []float64{math.E, 0, 0, 0, 0, 0, math.Exp(0.5)}},  // nothing of it is allowed
		{0.5, []int{5}, []float64{0, 0, 0, 0, 0, 1, 0}},
	} {
		must := onlyIDs(c.ids...)
		s := New(best(t), Options{Temperature: 1, TopP: c.topP, Seed: 3, Constraint: must})
		const n = 50000
		counts := make([]int, len(logits))
		for i := range n {
			counts[s.Pick(logits, i, 9)]++
		}
		total := 0.0
		for _, w := range c.want {
			total += w
		}
		for id, got := range counts {
			p := c.want[id] / total
			if math.Abs(float64(got)-p*n) > 5*math.Sqrt(p*(1-p)*n)+1e-6 {
				t.Errorf("top_p %v, only %v: token %d picked %d times, want %.0f", c.topP, c.ids, id, got, p*n)
			}
		}
		if all := len(c.ids) == len(logits); (must.masked == 0) != all {
			t.Errorf("only %v: %d masks for %d picks", c.ids, must.masked, n)
		}
	}
}

func TestConstraint_Edges(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	r := rand.New(rand.NewPCG(2, 3))
	odd := []float32{nan, -inf, inf, 0, 1, -1, 80, -200}
	for range 20000 {
		logits := make([]float32, 1+r.IntN(100))
		for i := range logits {
			logits[i] = odd[r.IntN(len(odd))]
		}
		var ids []int
		for i := range logits {
			if r.IntN(4) == 0 {
				ids = append(ids, i)
			}
		}
		o := Options{
			Temperature: []float64{0, 1, 1e-9}[r.IntN(3)], TopP: []float64{1, 0.5}[r.IntN(2)], Seed: r.Uint64(), Constraint: onlyIDs(ids...),
			Bias: map[int32]float64{3: 5, 1000: 1},
		}
		got := New(best(t), o).Pick(logits, r.IntN(9), 1)
		if len(ids) == 0 && got != -1 || len(ids) > 0 && !slices.Contains(ids, int(got)) {
			t.Fatalf("%+v: Pick(%v) = %d, only %v are allowed", o, logits, got, ids)
		}
	}
	// The best that is allowed, the lowest of equals.
	if got := New(best(t), Options{Constraint: onlyIDs(1, 3, 4)}).Pick([]float32{9, 2, 9, 5, 5}, 0, 1); got != 3 {
		t.Errorf("greedy pick %d, want 3", got)
	}
}

// Bias and penalties are as if the logits were others.
func TestPick_Adjusted(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 9))
	for range 300 {
		logits := peaked(r, 300)
		o := Options{Temperature: float64(r.IntN(2)), TopP: []float64{1, 0.9}[r.IntN(2)], Seed: r.Uint64()}
		plain := New(best(t), o)
		o.Bias = map[int32]float64{0: -100, 7: 1.5, 299: 2}
		o.FrequencyPenalty, o.PresencePenalty = 0.5, -0.25
		s := New(best(t), o)
		other := slices.Clone(logits)
		other[0] -= 100
		other[7] += 1.5
		other[299] += 2
		counts := map[int32]int{}
		for position := range 20 {
			adjusted := slices.Clone(other)
			for id, n := range counts {
				adjusted[id] -= float32(0.5*float64(n) - 0.25)
			}
			want, got := plain.Pick(adjusted, position, 0), s.Pick(logits, position, 0)
			if got != want {
				t.Fatalf("%+v after %v: %d, want %d", o, counts, got, want)
			}
			counts[got]++
			s.Accept(got)
		}
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 5))
	s := NewScorer(best(t))
	for _, n := range []int{1, 5, 49152} {
		logits := peaked(r, n)
		sum := 0.0
		for _, l := range logits {
			sum += math.Exp(float64(l))
		}
		order := make([]int32, n)
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			switch {
			case logits[a] > logits[b]:
				return -1
			case logits[a] < logits[b]:
				return 1
			}
			return 0
		})
		for _, top := range []int{0, 1, 3, 20} {
			id := int32(r.IntN(n))
			own, got := s.Score(logits, id, top)
			if own.ID != id || len(got) != min(top, n) {
				t.Fatalf("Score of %d with %d gives %+v and %d", id, top, own, len(got))
			}
			for i, c := range append(got, own) {
				if want := float64(logits[c.ID]) - math.Log(sum); math.Abs(float64(c.Logprob)-want) > 1e-5*math.Abs(want)+1e-5 {
					t.Errorf("log-probability of %d is %v, want %v", c.ID, c.Logprob, want)
				}
				if i < len(got) && c.ID != order[i] {
					t.Errorf("place %d of %d is %d, want %d", i, top, c.ID, order[i])
				}
			}
		}
	}
	own, got := s.Score([]float32{float32(math.NaN()), 1, float32(math.Inf(-1)), 1}, 0, 5)
	if own.Logprob != LeastLogprob || len(got) != 2 || got[0].ID != 1 || math.Abs(float64(got[1].Logprob)+math.Ln2) > 1e-6 {
		t.Errorf("with NaN and the impossible: %v, %v", own, got)
	}
	if own, _ := s.Score([]float32{0, float32(math.Inf(-1))}, 1, 0); own.Logprob != LeastLogprob {
		t.Errorf("the impossible has %v", own)
	}
}

func BenchmarkScore(b *testing.B) {
	logits := peaked(rand.New(rand.NewPCG(1, 2)), 49152)
	s := NewScorer(best(b))
	for b.Loop() {
		s.Score(logits, 7, 20)
	}
}
