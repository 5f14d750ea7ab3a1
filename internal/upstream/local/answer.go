package local

import (
	"crypto/rand"
	"strings"

	"github.com/parley-ai/parley/engine/grammar"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// answer is one choice that is held to a form, on its way out.
type answer struct {
	form  *form
	stops *upstream.StopFilter
	emit  func(upstream.Event) error

	marker  string // that calls may still begin behind
	held    string // text that may begin the marker
	pushed  int    // bytes of text that the model has written, but for calls
	shown   int    // of these, those that were emitted
	scores  []score
	text    strings.Builder
	scanner *grammar.CallScanner // once calls have begun
	calls   []call
}

// score is a token's log-probability that was not yet emitted.
type score struct {
	wire.Logprob
	at  int // where in what the model has written its text begins
	end int // and that of those that came with it ends
}

// call is what has come of a call.
type call struct {
	name      string
	arguments strings.Builder
}

func newAnswer(f *form, stops []string) *answer {
	a := &answer{form: f, stops: upstream.NewStopFilter(stops), marker: f.marker}
	if f.calls != nil && f.marker == "" {
		a.scanner = grammar.NewCallScanner(*f.calls)
	}
	return a
}

// push takes the next part of what the model writes. stopped means that a stop string
// has ended the answer, which is then complete.
func (a *answer) push(text string, logprobs []wire.Logprob) (stopped bool, err error) {
	if a.scanner != nil {
		return false, a.scan(text)
	}
	for _, l := range logprobs {
		a.scores = append(a.scores, score{l, a.pushed, a.pushed + len(text)})
	}
	a.pushed += len(text)
	if a.form.value != nil && text != "" && a.held == "" && text[0] != callOpen[0] {
		a.marker = "" // a value has begun, which may have the marker in its strings
	}
	if a.marker == "" {
		return a.say(text)
	}
	a.held += text
	before, after, found := strings.Cut(a.held, a.marker)
	if !found {
		keep := begins(a.held, a.marker)
		before, a.held = a.held[:len(a.held)-keep], a.held[len(a.held)-keep:]
		return a.say(before)
	}
	a.held = ""
	if stopped, err := a.say(before); stopped || err != nil {
		return stopped, err
	}
	if err := a.show(a.stops.Flush()); err != nil {
		return false, err
	}
	a.scanner = grammar.NewCallScanner(*a.form.calls)
	if a.form.calls.Open != "" {
		after = a.marker + after
	}
	return false, a.scan(after)
}

// begins returns how many bytes at the end of text may begin the marker.
func begins(text, marker string) int {
	for n := min(len(text), len(marker)-1); n > 0; n-- {
		if strings.HasSuffix(text, marker[:n]) {
			return n
		}
	}
	return 0
}

// say shows text up to a stop string. A value is then closed: what was asked for as
// JSON is JSON wherever it ends.
func (a *answer) say(text string) (stopped bool, err error) {
	shown, stopped := a.stops.Push(text)
	if err := a.show(shown); err != nil {
		return false, err
	}
	if stopped && a.form.value != nil {
		if end, ok := a.form.value.Complete([]byte(a.text.String())); ok {
			return true, a.write(string(end))
		}
	}
	return stopped, nil
}

// show emits the next part of what the model has written.
func (a *answer) show(text string) error {
	a.shown += len(text)
	return a.write(text)
}

// write emits text, with the log-probabilities of the tokens of which the beginning was
// shown; a token without text goes with what is before it. So a stop string's have none.
func (a *answer) write(text string) error {
	e := upstream.Event{Text: text}
	for len(a.scores) > 0 && (a.scores[0].at < a.shown || a.scores[0].end <= a.shown) {
		e.Logprobs = append(e.Logprobs, a.scores[0].Logprob)
		a.scores = a.scores[1:]
	}
	if text == "" && len(e.Logprobs) == 0 {
		return nil
	}
	a.text.WriteString(text)
	return a.emit(e)
}

// scan takes the next part of calls.
func (a *answer) scan(text string) error {
	for _, piece := range a.scanner.Push(text) {
		d := upstream.ToolDelta{Index: piece.Index, Name: piece.Name, Arguments: piece.Arguments}
		if piece.Name != "" {
			d.ID = "call_" + rand.Text()[:24]
			a.calls = append(a.calls, call{name: piece.Name})
		} else {
			a.calls[piece.Index].arguments.WriteString(piece.Arguments)
		}
		if err := a.emit(upstream.Event{Tool: &d}); err != nil {
			return err
		}
	}
	return nil
}

// end shows what was held back and returns why the answer has ended, for which the
// engine has a reason of its own.
func (a *answer) end(reason wire.FinishReason) (wire.FinishReason, error) {
	if a.scanner != nil {
		if len(a.calls) > 0 {
			reason = wire.FinishToolCalls
		}
		return reason, nil
	}
	stopped, err := a.say(a.held)
	if err == nil && !stopped {
		err = a.show(a.stops.Flush())
	}
	if stopped {
		reason = wire.FinishStop
	}
	return reason, err
}
