package api

import (
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/wire"
)

// Limits sets the headers by which a caller sees its limits. They belong to every
// answer after authentication; a limit that is not set has none.
func (x *exchange) Limits(s ratelimit.Status) {
	x.limited = true
	for _, l := range []struct {
		window                  ratelimit.Window
		limit, remaining, reset string
	}{
		{s.Requests, "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
		{s.Tokens, "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	} {
		if l.window.Limit == 0 {
			continue
		}
		x.set(l.limit, strconv.FormatInt(l.window.Limit, 10))
		x.set(l.remaining, strconv.FormatInt(l.window.Remaining, 10))
		// Whole milliseconds: shorter times would print with a letter outside ASCII.
		x.set(l.reset, l.window.Reset.Round(time.Millisecond).String())
	}
}

// peek sets the headers of a caller whose call did not come as far as the limits.
func (s *server) peek(x *exchange) {
	if x.caller != nil && !x.limited {
		x.Limits(s.Limiter.Peek(time.Now(), chat.Claim(x.caller, 0)))
	}
}

// limited words a refusal by a limit.
func limited(e *chat.LimitError) *wire.Error {
	limit, used, requested := int(e.Limit), int(e.Used), int(e.Requested)
	switch {
	case e.Never:
		return wire.TooLargeForLimit(e.Model, limit, requested)
	case e.Kind == ratelimit.Requests:
		return wire.RequestsPerMinute(e.Model, limit, used, e.RetryAfter)
	case e.Kind == ratelimit.Tokens:
		return wire.TokensPerMinute(e.Model, limit, used, requested, e.RetryAfter)
	}
	return wire.TooManyRunning(e.Model, limit)
}
