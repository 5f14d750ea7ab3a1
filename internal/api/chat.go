package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/sse"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// chatCompletions checks in the order of the contract: key and its rights, drain, media type, size,
// body; the line does the rest.
func (s *server) chatCompletions(x *exchange, _ string) error {
	if err := s.authorize(x, account.ScopeChat); err != nil {
		return err
	}
	if s.Draining() {
		return chat.ErrShutdown
	}
	if e := checkMedia(x.r.Header); e != nil {
		return e
	}
	body, free, err := s.readBody(x)
	defer free()
	if err != nil {
		return err
	}
	req, invalid := wire.DecodeChat(body)
	if invalid != nil {
		return invalid
	}
	x.model, x.stream, x.maxTokens = req.Model, req.Stream, req.MaxTokens
	call := chat.Call{RequestID: x.id, Caller: x.caller, Request: req, Now: x.now}
	if keys := x.r.Header["Idempotency-Key"]; keys != nil {
		return s.once(x, call, keys, body)
	}
	x.call, err = s.Chat.Complete(x.r.Context(), call, x.emitter(req))
	return err
}

// emitter is who sends the answer.
func (x *exchange) emitter(req *wire.ChatRequest) chat.Emitter {
	if req.Stream {
		return &stream{exchange: x, usage: req.IncludeUsage, runes: make([]wire.RuneJoiner, req.N)}
	}
	return newWhole(x, req)
}

// authorize finds the caller and refuses a key that may not be used from where it is or
// not for what scope names. It comes before the body is read: what is wrong with a key does not depend on it.
func (s *server) authorize(x *exchange, scope account.Scopes) error {
	caller, err := s.Keys.Authenticate(x.r.Header["Authorization"], x.now)
	if err != nil {
		return err
	}
	x.caller = caller
	if caller.Networks != nil && !within(caller.Networks, ClientAddress(x.r, s.Proxies)) {
		return wire.AddressNotAllowed()
	}
	if !caller.Scopes.Has(scope) {
		return wire.ScopeMissing(scope.String())
	}
	return nil
}

// whole collects an answer and sends it when it is complete and charged.
type whole struct {
	*exchange
	head    wire.Head
	choices []collected
	body    []byte // of the answer, once it was asked for
}

// collected is a choice so far.
type collected struct {
	text, reasoning, refusal strings.Builder
	wire.Choice
}

func newWhole(x *exchange, req *wire.ChatRequest) *whole {
	w := &whole{exchange: x, choices: make([]collected, req.N)}
	if req.Logprobs {
		for i := range w.choices {
			w.choices[i].Logprobs = []wire.Logprob{}
		}
	}
	return w
}

func (w *whole) Start(h wire.Head) error {
	w.head = h
	return nil
}

// Alive has nothing to send: an answer that is sent whole begins with its end.
func (w *whole) Alive() error { return nil }

func (w *whole) Text(choice int, s string, logprobs []wire.Logprob) error {
	c := &w.choices[choice]
	c.text.WriteString(s)
	c.Logprobs = append(c.Logprobs, logprobs...)
	return nil
}

func (w *whole) Reasoning(choice int, s string) error {
	w.choices[choice].reasoning.WriteString(s)
	return nil
}

func (w *whole) Refusal(choice int, s string) error {
	w.choices[choice].refusal.WriteString(s)
	return nil
}

func (w *whole) Tool(choice int, d *upstream.ToolDelta) error {
	c := &w.choices[choice]
	if d.Index == len(c.ToolCalls) {
		c.ToolCalls = append(c.ToolCalls, wire.ToolCall{ID: d.ID, Name: d.Name})
	}
	c.ToolCalls[d.Index].Arguments += d.Arguments
	return nil
}

// bodies are those of answers that have been sent: they are the largest part of what an
// answer takes.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// keptBody is how large one may be to be kept.
const keptBody = 16 << 10

func (w *whole) Finish(reasons []wire.FinishReason, u wire.Usage) error {
	if w.body != nil {
		return w.json(http.StatusOK, w.body)
	}
	kept := bodies.Get().(*[]byte) //nolint:forcetypeassert // there is nothing else
	body := w.encode((*kept)[:0], reasons, u)
	err := w.json(http.StatusOK, body)
	if cap(body) <= keptBody {
		*kept = body
		bodies.Put(kept)
	}
	if err != nil {
		return err
	}
	// Its caller need not wait for the line in the log and for what is measured.
	if err := http.NewResponseController(w.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", chat.ErrClientGone, err)
	}
	return nil
}

// answer is the body of the answer before Finish, which then sends it.
func (w *whole) answer(reasons []wire.FinishReason, u wire.Usage) []byte {
	w.body = w.encode(nil, reasons, u)
	return w.body
}

// encode appends the body of the answer to dst, which is empty.
func (w *whole) encode(dst []byte, reasons []wire.FinishReason, u wire.Usage) []byte {
	completion := wire.Completion{Head: w.head, Usage: u, Choices: make([]wire.Choice, len(w.choices))}
	for i := range w.choices {
		c := &w.choices[i]
		c.Content, c.Choice.Reasoning, c.Choice.Refusal, c.Choice.Finish = c.text.String(), c.reasoning.String(), c.refusal.String(), reasons[i]
		completion.Choices[i] = c.Choice
	}
	size := 1 << 10 // what stands around the texts
	for i := range completion.Choices {
		size += len(completion.Choices[i].Content)
	}
	return completion.AppendJSON(slices.Grow(dst, size))
}

const eventStream = "text/event-stream; charset=utf-8"

// stream sends an answer as it comes, one event a write and one choice an event.
type stream struct {
	*exchange
	usage bool // the caller wants a chunk with it
	rc    *http.ResponseController
	out   *sse.Writer
	enc   *wire.ChunkEncoder
	buf   []byte
	runes []wire.RuneJoiner // by choice
}

// Start sends the headers and the chunks with the roles: clients count on the choices
// to appear in order.
func (s *stream) Start(h wire.Head) error {
	s.rc = http.NewResponseController(s.w)
	s.out = sse.NewWriter(s.w, s.rc.Flush)
	s.enc = wire.NewChunkEncoder(h, s.usage)
	header := s.w.Header()
	header["Content-Type"] = []string{eventStream}
	header["Cache-Control"] = []string{"no-cache, no-transform"}
	header["X-Accel-Buffering"] = []string{"no"}
	s.status = http.StatusOK
	s.w.WriteHeader(http.StatusOK)
	for choice := range s.runes {
		if err := s.send(s.enc.AppendRole(s.buf[:0], choice)); err != nil {
			return err
		}
	}
	return nil
}

// Alive sends a chunk without content: the one thing that keeps a connection busy
// and that every client reads past.
func (s *stream) Alive() error { return s.send(s.enc.AppendKeepAlive(s.buf[:0], 0)) }

// Text sends whole runes only: a provider may cut its pieces anywhere, and half a
// rune is no JSON.
func (s *stream) Text(choice int, text string, logprobs []wire.Logprob) error {
	return s.text(choice, s.runes[choice].Join(text), logprobs)
}

func (s *stream) text(choice int, text string, logprobs []wire.Logprob) error {
	for text != "" || len(logprobs) > 0 {
		var head string
		var entries []wire.Logprob
		head, text = wire.SplitDelta(text)
		entries, logprobs = wire.SplitLogprobs(logprobs)
		if err := s.send(s.enc.AppendContentLogprobs(s.buf[:0], choice, head, entries)); err != nil {
			return err
		}
	}
	return nil
}

// Reasoning is sent beside the answer, as the field's name for it has become.
func (s *stream) Reasoning(choice int, text string) error {
	return s.pieces(s.enc.AppendReasoning, choice, text)
}

func (s *stream) Refusal(choice int, text string) error {
	return s.pieces(s.enc.AppendRefusal, choice, text)
}

// pieces sends text by as many chunks as it needs.
func (s *stream) pieces(appendChunk func(dst []byte, choice int, text string) []byte, choice int, text string) error {
	for text != "" {
		var head string
		head, text = wire.SplitDelta(text)
		if err := s.send(appendChunk(s.buf[:0], choice, head)); err != nil {
			return err
		}
	}
	return nil
}

// Tool sends id and name of a call once, and then its arguments as they come.
func (s *stream) Tool(choice int, d *upstream.ToolDelta) error {
	if d.ID != "" {
		return s.send(s.enc.AppendToolCall(s.buf[:0], choice, d.Index, d.ID, d.Name, false))
	}
	for rest := d.Arguments; rest != ""; {
		var head string
		head, rest = wire.SplitDelta(rest)
		if err := s.send(s.enc.AppendToolArguments(s.buf[:0], choice, d.Index, head)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) Finish(reasons []wire.FinishReason, u wire.Usage) error {
	for choice, reason := range reasons {
		if err := s.text(choice, s.runes[choice].Flush(), nil); err != nil {
			return err
		}
		if err := s.send(s.enc.AppendFinish(s.buf[:0], choice, reason)); err != nil {
			return err
		}
	}
	if s.usage {
		if err := s.send(s.enc.AppendUsage(s.buf[:0], u)); err != nil {
			return err
		}
	}
	return s.out.Done()
}

// send writes one event. A reader that takes nothing for writeTimeout is gone.
func (s *stream) send(event []byte) error {
	s.buf = event
	if err := s.rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if s.hurried.Load() {
		s.writeBy(hurriedTimeout)
	}
	return s.out.Send(event)
}

// breakOff tells of an error in a stream that has begun. After it the connection must
// be aborted: most clients take a stream that just stops for a whole one.
func (x *exchange) breakOff(e *wire.Error) {
	if x.w.Header().Get("Content-Type") != eventStream {
		return
	}
	x.writeBy(hurriedTimeout)
	_ = sse.NewWriter(x.w, http.NewResponseController(x.w).Flush).Send(e.AppendJSON(nil)) // the reader may be the one who is gone
}
