package api

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ledger"
)

// Observation is what is known of a request at its end, for whoever measures.
type Observation struct {
	Route  string // a name of the route table, "preflight" or "unknown"
	Model  string // on offer, or empty: never a client's own text
	Stream bool
	Status int
	Code   string // of the error, or empty
	Took   time.Duration
	Call   chat.Summary
}

// observe hands the end of a request to who measures.
func (s *server) observe(x *exchange) {
	if s.Observe == nil {
		return
	}
	o := Observation{Route: x.route, Stream: x.stream, Status: x.status, Took: time.Since(x.now), Call: x.call}
	if x.err != nil {
		status, code := Describe(x.err)
		if o.Code = code; o.Status == 0 {
			o.Status = status
		}
	}
	if m, ok := s.Catalog.Lookup(x.model, x.now); ok {
		o.Model = m.ID
	}
	s.Observe(o)
}

// log writes the line of a request: who, what, how much and how long. Prompts, answers
// and secrets are never in it. What is our fault is an error and carries its text;
// what is the caller's is information.
func (s *server) log(x *exchange) {
	status, code, level := x.status, "", slog.LevelInfo
	if x.err != nil {
		var given int
		given, code = Describe(x.err)
		if status == 0 {
			status = given
		}
		// A charge that was not written is our fault whoever left meanwhile.
		if given >= http.StatusInternalServerError && !errors.Is(x.err, chat.ErrShutdown) || errors.Is(x.err, ledger.ErrUnavailable) {
			level = slog.LevelError
		}
	}
	now := time.Now()
	line := s.Log.Begin(now, level, "request")
	line.String("request_id", x.id)
	line.String("route", x.route)
	line.String("method", clip(x.r.Method, 16))
	if x.err != nil {
		line.String("code", code)
		if level == slog.LevelError {
			line.String("error", x.err.Error())
		}
		if _, bug := errors.AsType[*panicError](x.err); bug {
			line.String("stack", string(debug.Stack()))
		}
	}
	line.Int("status", status)
	if x.caller != nil {
		line.String("account", x.caller.Account.ID)
		line.String("key", x.caller.KeyID)
	}
	if x.model != "" {
		line.String("model", clip(x.model, 64))
		line.Bool("stream", x.stream)
	}
	if c := &x.call; c.CompletionID != "" {
		line.String("completion_id", c.CompletionID)
		line.String("target", c.Target)
		line.String("ending", string(c.Ending))
		line.Int("prompt_tokens", c.Usage.PromptTokens)
		line.Int("completion_tokens", c.Usage.CompletionTokens)
		line.String("charge", c.Charge.String())
		line.Float("first_token_ms", ms(c.FirstToken))
	}
	if id := x.r.Header.Get("X-Client-Request-Id"); id != "" {
		line.String("client_request_id", clip(id, 64))
	}
	if n := x.r.Header.Get("X-Stainless-Retry-Count"); n != "" && n != "0" {
		line.String("retry", clip(n, 4))
	}
	line.Float("duration_ms", ms(now.Sub(x.now)))
	line.End()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func clip(s string, n int) string { return s[:min(len(s), n)] }
