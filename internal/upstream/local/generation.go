package local

import (
	"context"
	"errors"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// generation is one call of the engine.
type generation struct {
	*Provider
	request engine.Request
	form    *form    // nil: plain text
	stops   []string // that the form keeps; those of plain text are the engine's

	answers []*answer // by choice, where there is a form
}

// run yields the events of all choices. own is the tokens of the event's choice so far,
// its Completion those of all.
func (g *generation) run(ctx context.Context, yield func(e upstream.Event, own int) error) error {
	g.answers = make([]*answer, g.request.Choices)
	counts := make([]int, len(g.answers))
	over := make([]bool, len(g.answers))
	total, left := 0, len(g.answers)
	for t, err := range g.engine.Generate(ctx, g.request) {
		if err != nil {
			return failure(ctx, err)
		}
		i := t.Choice
		if over[i] {
			continue // a stop has ended it before the engine knew
		}
		total += t.Generated - counts[i]
		counts[i] = t.Generated
		emit := func(e upstream.Event) error {
			e.Choice, e.Completion, e.Cached, e.Fingerprint = i, total, t.Cached, g.fingerprint
			return yield(e, counts[i])
		}
		var reason wire.FinishReason
		if g.form == nil {
			reason, err = finish(t.Finish), emit(upstream.Event{Text: t.Text, Logprobs: logprobs(t.Logprobs), Finish: finish(t.Finish)})
		} else {
			if g.answers[i] == nil {
				g.answers[i] = newAnswer(g.form, g.stops)
			}
			g.answers[i].emit = emit
			reason, err = g.answers[i].take(&t)
			if err == nil {
				err = emit(upstream.Event{Finish: reason})
			}
		}
		if err != nil {
			return err
		}
		if reason != "" {
			over[i] = true
			if left--; left == 0 {
				return nil
			}
		}
	}
	return &upstream.Failure{Class: upstream.Cut, Err: errors.New("the engine ended without a finish")}
}

// take takes a token of the engine and returns why the answer has ended, "" if it has not.
func (a *answer) take(t *engine.Token) (wire.FinishReason, error) {
	stopped, err := a.push(t.Text, logprobs(t.Logprobs))
	switch {
	case err != nil:
		return "", err
	case stopped:
		return wire.FinishStop, nil
	case t.Finish == "":
		return "", nil
	}
	return a.end(finish(t.Finish))
}

func finish(f engine.Finish) wire.FinishReason {
	switch f {
	case engine.FinishStop:
		return wire.FinishStop
	case engine.FinishLength:
		return wire.FinishLength
	}
	return ""
}

// attempts is how often an answer is made whose schema has keywords that the grammar
// does not enforce: the first that is valid counts, or else the last.
const attempts = 4

// draft is a choice that was made and not shown.
type draft struct {
	*answer
	events []upstream.Event
	tokens []int // of the choice, by event
	valid  bool
}

// again changes the request so that it may have another answer. What takes the most
// likely tokens would say the same; it draws, always alike.
func (g *generation) again() {
	if g.request.Temperature == 0 || g.request.TopP == 0 {
		g.request.Temperature, g.request.TopP, g.request.Seed = 1, 1, 0
	}
	g.request.Seed++
}

func busy(err error) bool {
	f, ok := errors.AsType[*upstream.Failure](err)
	return ok && f.Class == upstream.Busy
}

// runChecked makes all choices before it yields any: what was shown cannot be made
// again. Only the answers that are yielded are counted.
func (g *generation) runChecked(ctx context.Context, yield func(upstream.Event) error) error {
	best := make([]draft, g.request.Choices)
	cached := -1 // by an earlier call: another attempt finds the whole prompt
	for left, attempt := len(best), 0; left > 0 && attempt < attempts; attempt++ {
		drafts := make([]draft, len(best))
		err := g.run(ctx, func(e upstream.Event, own int) error {
			if cached < 0 {
				cached = e.Cached
			}
			d := &drafts[e.Choice]
			d.events, d.tokens = append(d.events, e), append(d.tokens, own)
			return nil
		})
		if attempt > 0 && busy(err) {
			break // what there is has to do
		}
		if attempt > 0 && errors.Is(err, upstream.ErrNotStarted) {
			return context.Cause(ctx) // the attempt has not, the call had
		}
		if err != nil {
			return err
		}
		for i := range best {
			if best[i].valid {
				continue
			}
			best[i] = drafts[i]
			best[i].answer = g.answers[i]
			if best[i].valid = g.form.checks.passes(g.answers[i].text.String(), g.answers[i].calls); best[i].valid {
				left--
			}
		}
		g.again()
	}
	before := 0
	for _, d := range best {
		for i, e := range d.events {
			e.Completion, e.Cached = before+d.tokens[i], cached
			if err := yield(e); err != nil {
				return err
			}
		}
		before += d.tokens[len(d.tokens)-1]
	}
	return nil
}
