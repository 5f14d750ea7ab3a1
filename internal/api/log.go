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
	level := slog.LevelInfo
	attrs := x.attrs[:0]
	add := func(a ...slog.Attr) { attrs = append(attrs, a...) }
	add(slog.String("request_id", x.id), slog.String("route", x.route), slog.String("method", clip(x.r.Method, 16)))
	status := x.status
	if x.err != nil {
		given, code := Describe(x.err)
		if status == 0 {
			status = given
		}
		add(slog.String("code", code))
		// A charge that was not written is our fault whoever left meanwhile.
		ours := given >= http.StatusInternalServerError && !errors.Is(x.err, chat.ErrShutdown) || errors.Is(x.err, ledger.ErrUnavailable)
		if ours {
			level = slog.LevelError
			add(slog.String("error", x.err.Error()))
		}
		if _, bug := errors.AsType[*panicError](x.err); bug {
			add(slog.String("stack", string(debug.Stack())))
		}
	}
	add(slog.Int("status", status))
	if x.caller != nil {
		add(slog.String("account", x.caller.Account.ID), slog.String("key", x.caller.KeyID))
	}
	if x.model != "" {
		add(slog.String("model", clip(x.model, 64)), slog.Bool("stream", x.stream))
	}
	if c := &x.call; c.CompletionID != "" {
		add(slog.String("completion_id", c.CompletionID), slog.String("target", c.Target), slog.String("ending", string(c.Ending)),
			slog.Int("prompt_tokens", c.Usage.PromptTokens), slog.Int("completion_tokens", c.Usage.CompletionTokens),
			slog.String("charge", c.Charge.String()), slog.Float64("first_token_ms", ms(c.FirstToken)))
	}
	if id := x.r.Header.Get("X-Client-Request-Id"); id != "" {
		add(slog.String("client_request_id", clip(id, 64)))
	}
	if n := x.r.Header.Get("X-Stainless-Retry-Count"); n != "" && n != "0" {
		add(slog.String("retry", clip(n, 4)))
	}
	add(slog.Float64("duration_ms", ms(time.Since(x.now))))
	// Straight to the handler: a logger would look for its caller in the stack each time.
	if h := s.Log.Handler(); h.Enabled(x.r.Context(), level) {
		r := slog.NewRecord(time.Now(), level, "request", 0)
		r.AddAttrs(attrs...)
		_ = h.Handle(x.r.Context(), r) // there is nobody to tell
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func clip(s string, n int) string { return s[:min(len(s), n)] }
