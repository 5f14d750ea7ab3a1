package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
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

	decoder  *decoder
	runes    wire.RuneJoiner // of the text
	thoughts wire.RuneJoiner // of the reasoning
	stops    *upstream.StopFilter
	tools    toolCalls
	meter    meter
	whole    *strings.Builder // the text so far, when its form must be checked

	begun    bool // an event was yielded
	yieldErr error
	finish   wire.FinishReason
	usage    *wire.Usage
}

func newStream(call *upstream.Call, counter Counter, words *words, fingerprint string, w *watch, yield func(upstream.Event) error) *stream {
	s := &stream{
		call: call, fingerprint: fingerprint, watch: w, yield: yield,
		stops: upstream.NewStopFilter(call.Request.Stop), meter: meter{counter: counter, words: words}, words: words,
	}
	s.tools = newToolCalls(call.Request, s.emitTool)
	if call.Request.ResponseFormat.Kind != wire.FormatText {
		s.whole = new(strings.Builder)
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
		s.watch.cancel(nil)
		return s.end()
	}
	if err != nil {
		return err
	}
	s.watch.await(endWait)
	_, _ = io.CopyN(io.Discard, body, maxEnd)
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
	case s.finish != "" && !errors.Is(err, sse.ErrTooLong):
		return nil
	case errors.Is(err, io.EOF):
		return errors.New("the stream ended without a reason")
	}
	return err
}

// take yields what one chunk says.
func (s *stream) take(c *chunk) error {
	if len(c.reasoning) > 0 {
		if err := s.emit(upstream.Event{Reasoning: s.thoughts.Join(s.words.text(c.reasoning))}); err != nil {
			return err
		}
	}
	if len(c.text) > 0 {
		text, stopped := s.stops.Push(s.runes.Join(s.words.text(c.text)))
		if err := s.emit(upstream.Event{Text: text}); err != nil {
			return err
		}
		if stopped {
			s.finish = wire.FinishStop
			return errStopped
		}
	}
	for _, p := range c.tools {
		if err := s.tools.add(p); err != nil {
			return err
		}
	}
	if len(c.finish) > 0 {
		reason, ok := finishReason(c.finish)
		if !ok {
			return fmt.Errorf("%w: finish_reason %.*q", errAnswer, maxNames, c.finish)
		}
		s.finish = reason
		s.watch.await(min(usageWait, s.watch.limits.Idle))
	}
	if c.hasUsage && s.finish != "" {
		// Counts that come earlier are of a part of the answer.
		s.usage = new(c.usage)
	}
	if s.meter.total() > runaway(s.call.MaxTokens) {
		// It ignores its bound, and the hold covers no more.
		s.finish = wire.FinishLength
		return errStopped
	}
	return nil
}

// runaway is how many tokens by our count are certainly more than bound by any other.
func runaway(bound int) int { return 2*bound + 64 }

// emit yields an event that says something. The time that yield takes is not the
// provider's.
func (s *stream) emit(e upstream.Event) error {
	switch {
	case e.Tool != nil:
		s.meter.add(e.Tool.Name)
		s.meter.add(e.Tool.Arguments)
	case e.Text != "":
		s.meter.add(e.Text)
		if s.whole != nil {
			s.whole.WriteString(e.Text)
		}
	case e.Reasoning != "":
		s.meter.add(e.Reasoning)
	case e.Finish == "":
		return nil
	}
	if !s.begun {
		s.begun = true
		s.watch.await(s.watch.limits.Idle)
	}
	e.Completion = min(s.meter.total(), s.call.MaxTokens)
	e.Fingerprint = s.fingerprint
	s.watch.pause()
	s.yieldErr = s.yield(e)
	s.watch.touch()
	return s.yieldErr
}

func (s *stream) emitTool(d upstream.ToolDelta) error { return s.emit(upstream.Event{Tool: &d}) }

// end yields what was held back and the last event.
func (s *stream) end() error {
	if err := s.emit(upstream.Event{Reasoning: s.thoughts.Flush()}); err != nil {
		return err
	}
	text, stopped := s.stops.Push(s.runes.Flush())
	if !stopped {
		text += s.stops.Flush()
	}
	if err := s.emit(upstream.Event{Text: text}); err != nil {
		return err
	}
	if err := s.tools.shut(s.finish == wire.FinishLength); err != nil {
		return err
	}
	switch {
	case s.tools.count > 0 && s.finish == wire.FinishStop:
		s.finish = wire.FinishToolCalls
	case s.tools.count == 0 && s.finish == wire.FinishToolCalls:
		s.finish = wire.FinishStop
	}
	// A tool call wins over the form of the text.
	if s.whole != nil && s.tools.count == 0 {
		if err := upstream.CheckJSON(s.call.Request.ResponseFormat.Kind, s.whole.String()); err != nil {
			return fmt.Errorf("%w: %w", errForm, err)
		}
	}
	if s.usage != nil {
		// The hold covers no more, whatever the provider says.
		u := s.usage
		u.CompletionTokens = min(u.CompletionTokens, s.call.MaxTokens)
		u.ReasoningTokens = min(u.ReasoningTokens, u.CompletionTokens)
	}
	return s.emit(upstream.Event{Finish: s.finish, Usage: s.usage})
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
