package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/sse"
	"github.com/parley-ai/parley/internal/wire"
)

// chatCompletions checks in the order of the contract: key, drain, media type, size,
// body; the line does the rest.
func (s *server) chatCompletions(x *exchange, _ string) error {
	caller, err := s.Keys.Authenticate(x.r.Header["Authorization"], x.now)
	if err != nil {
		return err
	}
	x.caller = caller
	if s.Draining() {
		return chat.ErrShutdown
	}
	if e := checkMedia(x.r.Header); e != nil {
		return e
	}
	var req *wire.ChatRequest
	err = s.withBody(x, func(body []byte) (e *wire.Error) {
		req, e = wire.DecodeChat(body)
		return e
	})
	if err != nil {
		return err
	}
	x.model, x.stream = req.Model, req.Stream
	var emit chat.Emitter = &whole{x: x}
	if req.Stream {
		emit = &stream{x: x, usage: req.IncludeUsage}
	}
	x.call, err = s.Chat.Complete(x.r.Context(), chat.Call{RequestID: x.id, Caller: caller, Request: req, Now: x.now}, emit)
	return err
}

// whole collects an answer and sends it when it is complete and charged.
type whole struct {
	x    *exchange
	head wire.Head
	text []byte
}

func (w *whole) Start(h wire.Head) error {
	w.head = h
	return nil
}

func (w *whole) Text(s string) error {
	w.text = append(w.text, s...)
	return nil
}

func (w *whole) Finish(reason wire.FinishReason, u wire.Usage) error {
	c := wire.Completion{Head: w.head, Usage: u, Choices: []wire.Choice{{Content: string(w.text), Finish: reason}}}
	return w.x.json(http.StatusOK, c.AppendJSON(nil))
}

const eventStream = "text/event-stream; charset=utf-8"

// stream sends an answer as it comes, one event a write.
type stream struct {
	x     *exchange
	usage bool // the caller wants a chunk with it
	rc    *http.ResponseController
	out   *sse.Writer
	enc   *wire.ChunkEncoder
	buf   []byte
	runes wire.RuneJoiner
}

// Start sends the headers and the chunk with the role.
func (s *stream) Start(h wire.Head) error {
	s.rc = http.NewResponseController(s.x.w)
	s.out = sse.NewWriter(s.x.w, s.rc.Flush)
	s.enc = wire.NewChunkEncoder(h, s.usage)
	header := s.x.w.Header()
	header["Content-Type"] = []string{eventStream}
	header["Cache-Control"] = []string{"no-cache, no-transform"}
	header["X-Accel-Buffering"] = []string{"no"}
	s.x.status = http.StatusOK
	s.x.w.WriteHeader(http.StatusOK)
	return s.send(s.enc.AppendRole(s.buf[:0], 0))
}

// Text sends whole runes only: a provider may cut its pieces anywhere, and half a
// rune is no JSON.
func (s *stream) Text(text string) error { return s.text(s.runes.Join(text)) }

func (s *stream) text(text string) error {
	for text != "" {
		var head string
		head, text = wire.SplitDelta(text)
		if err := s.send(s.enc.AppendContent(s.buf[:0], 0, head)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) Finish(reason wire.FinishReason, u wire.Usage) error {
	if err := s.text(s.runes.Flush()); err != nil {
		return err
	}
	if err := s.send(s.enc.AppendFinish(s.buf[:0], 0, reason)); err != nil {
		return err
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
	return s.out.Send(event)
}

// breakOff tells of an error in a stream that has begun. After it the connection must
// be aborted: most clients take a stream that just stops for a whole one.
func (x *exchange) breakOff(e *wire.Error) {
	if x.w.Header().Get("Content-Type") != eventStream {
		return
	}
	x.writeBy(time.Second)
	_ = sse.NewWriter(x.w, http.NewResponseController(x.w).Flush).Send(e.AppendJSON(nil)) // the reader may be the one who is gone
}
