package openai

import (
	"cmp"
	"fmt"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// choice is one of the answers of a stream.
type choice struct {
	stream *stream
	index  int

	runes    joiner // of the text
	thoughts joiner // of the reasoning
	refusal  joiner
	stops    upstream.StopFilter
	tools    toolCalls
	meter    meter
	guard    *upstream.JSONGuard // nil when any text will do
	scores   scores
	late     []wire.Logprob // of what the guard holds back

	refused bool
	stopped bool // by one of our stops
	finish  wire.FinishReason
}

func newChoice(s *stream, index int, m meter) choice {
	req := s.call.Request
	c := choice{stream: s, index: index, meter: m}
	if len(req.Stop) > 0 {
		c.stops = *upstream.NewStopFilter(req.Stop)
	}
	var emit func(upstream.ToolDelta) error // without tools, none of their calls is taken
	if len(req.Tools) > 0 {
		emit = func(d upstream.ToolDelta) error { return s.choices[index].emit(upstream.Event{Tool: &d}) }
	}
	c.tools = newToolCalls(req, emit)
	if req.ResponseFormat.Kind != wire.FormatText {
		c.guard = upstream.NewJSONGuard(&req.ResponseFormat)
	}
	return c
}

// take yields what a piece says.
func (c *choice) take(p *piece) error {
	if len(p.reasoning) > 0 {
		if err := c.emit(upstream.Event{Reasoning: c.thoughts.Join(c.stream.words.text(p.reasoning))}); err != nil {
			return err
		}
	}
	if len(p.refusal) > 0 {
		c.refused = true
		if err := c.emit(upstream.Event{Refusal: c.refusal.Join(c.stream.words.text(p.refusal))}); err != nil {
			return err
		}
	}
	if err := c.takeText(p); err != nil || c.stopped {
		return err
	}
	for _, t := range p.tools {
		if err := c.tools.add(t); err != nil {
			return err
		}
	}
	if len(p.finish) > 0 {
		reason, ok := finishReason(p.finish)
		if !ok {
			return fmt.Errorf("%w: finish_reason %.*q", errAnswer, maxNames, p.finish)
		}
		c.finish = reason
	}
	return nil
}

func (c *choice) takeText(p *piece) error {
	if c.stream.call.Request.Logprobs {
		if len(p.text) > 0 && c.scores.pushed == 0 && len(p.logprobs) == 0 {
			return fmt.Errorf("%w: it lacks log-probabilities", errAnswer)
		}
		if err := c.scores.push(p.logprobs, c.stream.call); err != nil {
			return err
		}
	}
	if len(p.text) == 0 {
		return nil
	}
	text, stopped := c.stops.Push(c.runes.Join(c.stream.words.text(p.text)))
	if stopped {
		c.stopped, c.finish = true, wire.FinishStop
	}
	return c.say(text, c.scores.release(len(text)))
}

// say counts text and yields what of it is for the caller.
func (c *choice) say(text string, logprobs []wire.Logprob) error {
	c.meter.add(text)
	if c.guard != nil {
		text = c.guard.Push(text)
		switch {
		case c.guard.Broken():
			return fmt.Errorf("%w: %w", errForm, upstream.ErrNotJSON)
		case c.guard.Blank() && c.finish == "":
			// It would go on to its bound, and the caller would pay for it.
			c.stopped, c.finish = true, wire.FinishLength
			if c.guard.Whole() {
				c.finish = wire.FinishStop
			}
		}
		switch {
		case text != "":
			logprobs, c.late = append(c.late, logprobs...), nil
		case c.guard.Open():
			logprobs, c.late = nil, append(c.late, logprobs...)
		default: // it stands around the value
			logprobs = nil
		}
	}
	return c.emit(upstream.Event{Text: text, Logprobs: logprobs})
}

// emit counts an event, but for its text, and yields it.
func (c *choice) emit(e upstream.Event) error {
	switch {
	case e.Tool != nil:
		c.meter.add(e.Tool.Name)
		c.meter.add(e.Tool.Arguments)
	case e.Reasoning != "":
		c.meter.add(e.Reasoning)
	case e.Refusal != "":
		c.meter.add(e.Refusal)
	}
	e.Choice = c.index
	return c.stream.emit(e)
}

// end yields what was held back and settles the reason.
func (c *choice) end() error {
	if err := c.emit(upstream.Event{Reasoning: c.thoughts.Flush()}); err != nil {
		return err
	}
	if err := c.emit(upstream.Event{Refusal: c.refusal.Flush()}); err != nil {
		return err
	}
	text, stopped := c.stops.Push(c.runes.Flush())
	if !stopped {
		text += c.stops.Flush()
	}
	logprobs := c.scores.release(len(text))
	if !stopped {
		logprobs = append(logprobs, c.scores.flush()...)
	}
	if err := c.say(text, logprobs); err != nil {
		return err
	}
	if err := c.tools.end(c.finish == wire.FinishLength || c.finish == wire.FinishContentFilter); err != nil {
		return err
	}
	switch {
	case c.tools.count > 0 && c.finish == wire.FinishStop:
		c.finish = wire.FinishToolCalls
	case c.tools.count == 0 && c.finish == wire.FinishToolCalls:
		c.finish = wire.FinishStop
	}
	return c.form()
}

// form gives the answer the form that was asked for. A tool call wins over it, and so
// does a refusal, but in JSON mode. What the model ended is not completed for it: only
// what a bound, a stop or a filter cut off.
func (c *choice) form() error {
	req := c.stream.call.Request
	switch {
	case c.guard == nil, c.guard.Whole(), c.tools.count > 0:
		return nil
	case c.refused && !c.guard.Begun() && req.ResponseFormat.Kind == wire.FormatJSONSchema:
		return nil
	}
	rest, ok := c.guard.Close()
	if cut := c.finish != wire.FinishStop || c.stopped || len(req.Stop) > 0; !cut || !ok {
		return fmt.Errorf("%w: %w", errForm, upstream.ErrNotJSON)
	}
	return c.emit(upstream.Event{Text: rest})
}

// scores holds log-probabilities until the text of their tokens is shown: what a stop
// hides has none.
type scores struct {
	held          []wire.Logprob
	begin         int // of the text of the first one held, in bytes
	pushed, shown int // entries, and bytes of text
	bytes         int // of what was pushed
}

// Log-probabilities may have no text, which is what the bound of the answer counts. So they
// are bounded by as many as there may be tokens, each with twenty others, and a little more.
const (
	scoreBytes  = 4 << 10
	spareScores = 1 << 20
)

func (s *scores) push(list []wire.Logprob, call *upstream.Call) error {
	for _, l := range list {
		s.bytes += logprobBytes(l)
		for _, other := range l.Top {
			s.bytes += logprobBytes(other)
		}
		l.Top = l.Top[:min(len(l.Top), call.Request.TopLogprobs)]
		s.held = append(s.held, l)
	}
	if s.pushed += len(list); s.bytes > spareScores+scoreBytes*call.MaxTokens {
		return fmt.Errorf("%w: %d bytes of log-probabilities", errAnswer, s.bytes)
	}
	return nil
}

// logprobBytes is about what an entry takes in memory.
func logprobBytes(l wire.Logprob) int { return 64 + len(l.Token) + len(l.Bytes) }

// release returns the entries of the next bytes of text.
func (s *scores) release(bytes int) (out []wire.Logprob) {
	s.shown += bytes
	for len(s.held) > 0 {
		l := s.held[0]
		n := cmp.Or(len(l.Bytes), len(l.Token))
		if s.begin >= s.shown && n > 0 || s.begin > s.shown {
			break
		}
		out, s.held = append(out, l), s.held[1:]
		s.begin += n
	}
	return out
}

// flush returns the rest.
func (s *scores) flush() []wire.Logprob {
	rest := s.held
	s.held = nil
	return rest
}
