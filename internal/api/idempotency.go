package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/idempotency"
	"github.com/parley-ai/parley/internal/wire"
)

// once answers a call that its caller has named, so that sending it again charges
// nothing.
func (s *server) once(x *exchange, call chat.Call, keys []string, body []byte) error {
	if len(keys) != 1 {
		return idempotency.ErrKey
	}
	ticket, err := s.Idempotency.Begin(x.r.Context(), x.caller.Account.ID, keys[0], body, x.now)
	if done, ok := errors.AsType[*idempotency.CompletedError](err); ok && done.Answer != nil {
		x.call.CompletionID = done.CompletionID
		x.w.Header()["Idempotent-Replayed"] = []string{"true"}
		s.peek(x)
		return x.json(http.StatusOK, done.Answer)
	}
	if err != nil {
		return err
	}
	charged := false
	defer func() { ticket.End(charged) }()
	call.Idempotency = ticket.Record()
	emit := x.emitter(call.Request)
	ctx := x.r.Context()
	if w, ok := emit.(*whole); ok {
		call.Answer = func(reasons []wire.FinishReason, u wire.Usage) ([]byte, error) {
			return ticket.Seal(x.id, w.answer(reasons, u))
		}
		// The call goes on when its caller's connection breaks: the answer is there when
		// the caller comes back for it.
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(s.Base)
		defer cancel()
	}
	x.call, err = s.Chat.Complete(ctx, call, emit)
	charged = err == nil || errors.Is(err, chat.ErrClientGone)
	return err
}
