package sample

import (
	"math"
	"slices"

	"github.com/parley-ai/parley/engine/kernel"
)

// Scored is a token with its log-probability.
type Scored struct {
	ID      int32
	Logprob float32
}

// LeastLogprob stands for a probability of 0, as the convention has it.
const LeastLogprob = -9999

// Scorer computes log-probabilities: those of the model itself, before bias, penalties,
// temperature and all that follows. It reuses its memory and serves one goroutine at a
// time.
type Scorer struct {
	k       *kernel.Table
	weights []float32
}

// NewScorer returns a scorer that computes with k.
func NewScorer(k *kernel.Table) *Scorer { return &Scorer{k: k} }

// Score returns the log-probability of id and the n most likely tokens, in the order
// of their likelihood, lower ids first among equals. NaN counts as impossible.
func (s *Scorer) Score(logits []float32, id int32, n int) (own Scored, best []Scored) {
	s.weights = pad(s.weights, logits)
	for i, l := range s.weights {
		if l != l {
			s.weights[i] = float32(math.Inf(-1))
		}
	}
	top := float64(s.k.Max(&s.weights[0], len(s.weights)))
	s.k.SoftExp(&s.weights[0], len(s.weights))
	var a, b, c, d float64 // one sum would wait for every addition
	for w := s.weights; len(w) >= 4; w = w[4:] {
		a, b, c, d = a+float64(w[0]), b+float64(w[1]), c+float64(w[2]), d+float64(w[3])
	}
	norm := top + math.Log(a+b+(c+d))
	score := func(id int32) Scored {
		p := float64(logits[id]) - norm
		if !(p >= LeastLogprob) { // NaN too
			p = LeastLogprob
		}
		return Scored{id, float32(min(p, 0))}
	}
	for _, id := range highest(logits, n) {
		best = append(best, score(id))
	}
	return score(id), best
}

// highest returns the n ids with the greatest logits. NaN and what is impossible are
// left out.
func highest(logits []float32, n int) []int32 {
	ids := make([]int32, 0, n+1)
	least := float32(math.Inf(-1))
	if n == 0 {
		return ids
	}
	for i, l := range logits {
		if !(l > least) {
			continue
		}
		at := len(ids)
		for at > 0 && logits[ids[at-1]] < l {
			at--
		}
		if ids = slices.Insert(ids, at, int32(i)); len(ids) > n {
			ids = ids[:n]
		}
		if len(ids) == n {
			least = logits[ids[n-1]]
		}
	}
	return ids
}
