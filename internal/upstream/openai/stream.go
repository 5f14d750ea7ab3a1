package openai

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/sse"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

const (
	// maxEventBytes bounds a line of a provider; its memory is about twice that.
	maxEventBytes = 4 << 20
	// usageWait is how long an answer that is complete waits for its usage.
	usageWait = 5 * time.Second
	// endWait is how long a connection is waited for that may be used again.
	endWait = 50 * time.Millisecond
	maxEnd  = 4 << 10
	// maxNames bounds the text that names the reasons to finish.
	maxNames = 64
)

// errStopped ends the reading of an answer of which no more is wanted.
var errStopped = errors.New("stopped")

// stream turns one answer of a provider into events.
type stream struct {
	call        *upstream.Call
	fingerprint string
	watch       *watch
	words       *words
	yield       func(upstream.Event) error

	decoder *decoder
	choices []choice

	begun    bool // an event was yielded
	yieldErr error
	usage    *wire.Usage
}

func newStream(call *upstream.Call, counter Counter, words *words, fingerprint string, w *watch, yield func(upstream.Event) error) *stream {
	s := &stream{
		call: call, fingerprint: fingerprint, watch: w, yield: yield, words: words,
		choices: make([]choice, max(call.Request.N, 1)),
	}
	for i := range s.choices {
		s.choices[i] = newChoice(s, i, meter{counter: counter, words: words})
	}
	return s
}

// run reads the answer with r and yields its events, the last one included.
func (s *stream) run(body io.Reader, r *reader) error {
	r.events.Reset(body)
	s.decoder = r.decoder
	err := s.read(r.events)
	if errors.Is(err, errStopped) {
		// The provider learns of it before the caller does.
		s.watch.end(nil)
		return s.end()
	}
	if err != nil {
		return err
	}
	s.watch.within(endWait)
	for n := 0; n < maxEnd; {
		more, err := body.Read(r.rest[:])
		if n += more; err != nil {
			break // the answer is whole: only its connection may be lost
		}
	}
	return s.end()
}

// read takes events until the answer is complete.
func (s *stream) read(events *sse.Reader) error {
	for {
		e, err := events.Next()
		if err != nil {
			return s.ended(err)
		}
		if e.Done() {
			return s.ended(io.EOF)
		}
		if len(bytes.TrimSpace(e.Data)) == 0 {
			continue
		}
		if string(e.Name) == "error" {
			return &faultError{body: bytes.Clone(e.Data)}
		}
		c, err := s.decoder.decode(e.Data)
		if err != nil {
			return err
		}
		if c.fault {
			return &faultError{body: bytes.Clone(e.Data)}
		}
		if err := s.take(c); err != nil {
			return err
		}
	}
}

// ended says whether an answer that ends by err is complete: it has told why it ended,
// whatever became of its usage and its connection after that.
func (s *stream) ended(err error) error {
	switch {
	case s.complete() && !errors.Is(err, sse.ErrTooLong):
		return nil
	case errors.Is(err, io.EOF) && slices.ContainsFunc(s.choices, func(c choice) bool { return c.finish != "" }):
		return fmt.Errorf("%w: not all of %d choices came", errForm, len(s.choices))
	case errors.Is(err, io.EOF):
		return errors.New("the stream ended without a reason")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the connection ended within the answer: %w", err)
	}
	return err
}

// complete says whether every choice has told why it ended.
func (s *stream) complete() bool {
	return !slices.ContainsFunc(s.choices, func(c choice) bool { return c.finish == "" })
}

// take yields what one chunk says. Choices that were not asked for are left out.
func (s *stream) take(c *chunk) error {
	for i := range c.pieces {
		p := &c.pieces[i]
		if p.index < 0 || p.index >= len(s.choices) || s.choices[p.index].stopped {
			continue
		}
		done := s.complete()
		if err := s.choices[p.index].take(p); err != nil {
			return err
		}
		// Only more of the answer puts it off, not comments and chunks that say nothing.
		if s.complete() && (!done || p.says()) {
			s.watch.within(min(usageWait, s.watch.limits.Idle))
		}
	}
	if s.complete() && slices.ContainsFunc(s.choices, func(c choice) bool { return c.stopped }) {
		// What the provider counts has tokens that nobody gets.
		return errStopped
	}
	if c.hasUsage && s.complete() {
		// Counts that come earlier are of a part of the answer.
		s.usage = new(c.usage)
	}
	if s.tokens() > runaway(s.bound()) {
		// It ignores its bound, and the hold covers no more.
		for i := range s.choices {
			s.choices[i].finish = cmp.Or(s.choices[i].finish, wire.FinishLength)
		}
		return errStopped
	}
	return nil
}

// tokens is how many there are by our count, bound how many there may be.
func (s *stream) tokens() (n int) {
	for i := range s.choices {
		n += s.choices[i].meter.total()
	}
	return n
}

func (s *stream) bound() int { return s.call.MaxTokens * len(s.choices) }

// runaway is how many tokens by our count are certainly more than bound by any other.
func runaway(bound int) int { return 2*bound + 64 }

// emit yields an event that says something. The time that yield takes is not the
// provider's.
func (s *stream) emit(e upstream.Event) error {
	if e.Tool == nil && e.Text == "" && e.Reasoning == "" && e.Refusal == "" && len(e.Logprobs) == 0 && e.Finish == "" {
		return nil
	}
	if !s.begun {
		s.begun = true
		s.watch.await(s.watch.limits.Idle)
	}
	e.Completion = min(s.tokens(), s.bound())
	e.Fingerprint = s.fingerprint
	s.watch.pause()
	s.yieldErr = s.yield(e)
	s.watch.touch()
	return s.yieldErr
}

// end yields what was held back and the last event of each choice.
func (s *stream) end() error {
	for i := range s.choices {
		if err := s.choices[i].end(); err != nil {
			return err
		}
	}
	if s.usage != nil {
		// The hold covers no more, whatever the provider says.
		u := s.usage
		u.CompletionTokens = min(u.CompletionTokens, s.bound())
		u.ReasoningTokens = min(u.ReasoningTokens, u.CompletionTokens)
	}
	for i := range s.choices {
		e := upstream.Event{Choice: i, Finish: s.choices[i].finish}
		if i == len(s.choices)-1 {
			e.Usage = s.usage
		}
		if err := s.emit(e); err != nil {
			return err
		}
	}
	return nil
}

// finishReason knows the convention's reasons and the names that some servers have for
// them. Reasons that mean a failure, and unknown ones, are none.
func finishReason(name []byte) (wire.FinishReason, bool) {
	switch string(name) {
	case "stop", "eos", "eos_token", "stop_sequence", "end_turn":
		return wire.FinishStop, true
	case "length", "max_tokens", "model_length":
		return wire.FinishLength, true
	case "tool_calls", "function_call", "tool_use":
		return wire.FinishToolCalls, true
	case "content_filter":
		return wire.FinishContentFilter, true
	}
	return "", false
}
