package engine_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/sample"
)

// run is all tokens of a request for one choice.
func run(t *testing.T, e *engine.Engine, r engine.Request) (tokens []engine.Token) {
	t.Helper()
	for tok, err := range e.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, tok)
	}
	return tokens
}

func TestSampling_Penalties(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	distinct := func(r engine.Request) (n int) {
		r.Prompt, r.MaxTokens = prompt(10, 0), 200
		seen := map[int32]bool{}
		for _, tok := range run(t, e, r) {
			seen[tok.ID] = true
		}
		return len(seen)
	}
	plain, penalised := distinct(engine.Request{}), distinct(engine.Request{FrequencyPenalty: 2, PresencePenalty: 2})
	if rewarded := distinct(engine.Request{FrequencyPenalty: -2}); penalised <= plain || rewarded > plain {
		t.Errorf("of 200 tokens %d are different, with penalties %d, with rewards %d", plain, penalised, rewarded)
	}
}

func TestSampling_Bias(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	r := engine.Request{Prompt: prompt(10, 0), MaxTokens: 30, Temperature: 1, TopP: 0.9, LogitBias: map[int32]float64{77: 100}}
	for _, tok := range run(t, e, r) {
		if tok.ID != 77 {
			t.Errorf("token %d in spite of the bias to 77", tok.ID)
		}
	}
	r.LogitBias, r.Temperature = nil, 0
	first := run(t, e, r)[0].ID
	r.LogitBias = map[int32]float64{first: -100}
	for _, tok := range run(t, e, r) {
		if tok.ID == first {
			t.Errorf("token %d, which is ruled out", first)
		}
	}
}

// Log-probabilities are the model's own, whatever is made of them, and whether the
// prompt was computed or found.
func TestSampling_Logprobs(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	r := engine.Request{Owner: "a", Prompt: prompt(40, 0), MaxTokens: 25, Logprobs: true, TopLogprobs: 5}
	all := func(tokens []engine.Token) (list []engine.Logprob, text string) {
		for _, tok := range tokens {
			list, text = append(list, tok.Logprobs...), text+tok.Text
		}
		return list, text
	}
	tokens := run(t, e, r)
	want, text := all(tokens)
	if len(want) != 25 {
		t.Fatalf("%d entries for 25 tokens", len(want))
	}
	var spelt strings.Builder
	for i, l := range want {
		if l.ID != tokens[i].ID || len(l.Top) != 5 || l.ID != l.Top[0].ID || l.Logprob != l.Top[0].Logprob {
			t.Errorf("token %d is %d: %+v", i, tokens[i].ID, l)
		}
		sum := 0.0
		for j, c := range l.Top {
			sum += math.Exp(float64(c.Logprob))
			if j > 0 && c.Logprob > l.Top[j-1].Logprob {
				t.Errorf("alternatives out of order: %+v", l.Top)
			}
		}
		if sum > 1 || l.Logprob > 0 {
			t.Errorf("%+v: probabilities of %v in all", l, sum)
		}
		spelt.Write(l.Bytes)
	}
	if strings.ToValidUTF8(spelt.String(), "\ufffd") != strings.ToValidUTF8(text, "\ufffd") && !strings.Contains(text, "\ufffd") {
		t.Errorf("the bytes spell %q, the text is %q", spelt.String(), text)
	}
	same := func(a, b engine.Candidate) bool { return a.ID == b.ID && a.Logprob == b.Logprob }
	for name, change := range map[string]func(*engine.Request){
		"found in the cache": func(*engine.Request) {},
		"computed again":     func(r *engine.Request) { r.Owner = "b" },
		"in company":         func(r *engine.Request) { r.Choices = 3 },
		// The same tokens by another way.
		"biased": func(r *engine.Request) { r.LogitBias = map[int32]float64{want[0].ID: 1e-9} },
		"narrow": func(r *engine.Request) { r.Temperature, r.TopP = 2, 1e-9 },
	} {
		q := r
		change(&q)
		var mine []engine.Token
		for _, tok := range run(t, e, q) {
			if tok.Choice == 0 {
				mine = append(mine, tok)
			}
		}
		if got, _ := all(mine); !slices.EqualFunc(got, want, func(a, b engine.Logprob) bool {
			return same(a.Candidate, b.Candidate) && slices.EqualFunc(a.Top, b.Top, same)
		}) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// What is not shown has no log-probabilities, and what is shown later gets them later.
func TestSampling_LogprobsStop(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	r := engine.Request{Prompt: prompt(10, 0), MaxTokens: 60, Logprobs: true}
	var whole []engine.Token
	text := ""
	for _, tok := range run(t, e, r) {
		whole, text = append(whole, tok), text+tok.Text
	}
	// A stop of several tokens in the middle.
	var stop strings.Builder
	for _, tok := range whole[20:24] {
		stop.WriteString(tok.Text)
	}
	r.Stop = []string{stop.String()}
	shown, entries := "", 0
	for _, tok := range run(t, e, r) {
		shown += tok.Text
		for _, l := range tok.Logprobs {
			if entries++; !strings.Contains(shown, string(l.Bytes)) {
				t.Errorf("%q comes before its text; shown is %q", l.Bytes, shown)
			}
		}
	}
	if want := text[:strings.Index(text, stop.String())]; shown != want {
		t.Fatalf("shown %q, want %q", shown, want)
	}
	length := 0
	for i, tok := range whole {
		if length >= len(shown) {
			if entries != i {
				t.Errorf("%d entries for %q, want %d", entries, shown, i)
			}
			break
		}
		length += len(tok.Logprobs[0].Bytes)
	}
}

// digits allows tokens of one byte that is a digit, and is done after some.
type digits struct {
	e    *engine.Engine
	want int
	got  []int32
	mask []uint64
}

func (d *digits) Allows(id int32, left int) bool {
	return left >= d.want-len(d.got) && d.mask[id/64]>>(id%64)&1 == 1
}
func (d *digits) Mask(int) []uint64 { return d.mask }
func (d *digits) Accept(id int32)   { d.got = append(d.got, id) }
func (d *digits) Done() bool        { return len(d.got) == d.want }

func TestSampling_Constraint(t *testing.T) {
	t.Parallel()
	e := open(t, tiny(t), small())
	ids := map[string]int32{} // of digits
	for id := range int32(e.Info().Vocab) {
		r := engine.Request{Prompt: prompt(3, 0), MaxTokens: 1, LogitBias: map[int32]float64{id: 100}, Logprobs: true}
		if tok := run(t, e, r)[0]; tok.Finish == engine.FinishLength && len(tok.Text) == 1 && strings.Contains("0123456789", tok.Text) {
			ids[tok.Text] = tok.ID
		}
		if len(ids) == 10 {
			break
		}
	}
	mask := make([]uint64, e.Info().Vocab/64+1)
	for _, id := range ids {
		mask[id/64] |= 1 << (id % 64)
	}
	var made []*digits
	r := engine.Request{
		Prompt: prompt(10, 0), MaxTokens: 30, Choices: 3, Temperature: 1, TopP: 0.9, Seed: 1,
		Constraint: func() sample.Constraint {
			d := &digits{e: e, want: 5 + len(made), mask: mask}
			made = append(made, d)
			return d
		},
	}
	for i, text := range texts(t, e.Generate(t.Context(), r), 3) {
		if len(text) != 5+i || strings.Trim(text, "0123456789") != "" || len(made[i].got) != 5+i {
			t.Errorf("choice %d is %q, want %d digits", i, text, 5+i)
		}
	}
	for tok, err := range e.Generate(t.Context(), engine.Request{Prompt: prompt(10, 0), MaxTokens: 4, Constraint: func() sample.Constraint {
		return &digits{e: e, want: 4, mask: mask}
	}}) {
		if err != nil || tok.Finish == engine.FinishLength {
			t.Errorf("a constraint done with the last token: %+v, %v", tok, err)
		}
	}
	_, _, err := collect(e.Generate(t.Context(), engine.Request{Prompt: prompt(10, 0), MaxTokens: 9, Constraint: func() sample.Constraint {
		return &digits{e: e, want: 4, mask: make([]uint64, len(mask))}
	}}))
	if !errors.Is(err, engine.ErrConstraint) {
		t.Errorf("a constraint that allows nothing: %v", err)
	}
}
