package chat_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// scene is what the steps of a case act on.
type scene struct {
	line *line
	end  context.CancelCauseFunc // of the caller's context
}

// leaves is a caller who hangs up while the provider computes.
func (s *scene) leaves() upstreamtest.Step {
	return upstreamtest.Do(func(context.Context) error { s.end(context.Canceled); return nil })
}

// stops is a server whose patience with running calls has ended.
func (s *scene) stops() upstreamtest.Step {
	return upstreamtest.Do(func(context.Context) error { s.end(chat.ErrShutdown); return nil })
}

func (s *scene) diskFails() upstreamtest.Step {
	return upstreamtest.Do(func(context.Context) error { s.line.disk.fail(); return nil })
}

// want is how a call ends in one mode. The receipt reads: state, ending, status, code,
// prompt+answer tokens, source of the count, charge.
type want struct {
	emitted string
	err     error // nil, or what errors.Is finds
	receipt string
}

func script(steps ...upstreamtest.Step) func(*scene) []upstreamtest.Step {
	return func(*scene) []upstreamtest.Step { return steps }
}

var failed = &upstream.Failure{}

// endings is every way in which an admitted call can end.
var endings = []struct {
	name          string
	script        func(*scene) []upstreamtest.Step
	leave         string // where the caller's connection is found dead
	change        func(*wire.ChatRequest)
	whole, stream want
}{
	{
		name:   "stop",
		script: script(upstreamtest.Text("Hel", "lo"), upstreamtest.Finish(wire.FinishStop)),
		whole:  want{"start,Hel,lo,stop 10+2", nil, "settled stop 200 - 10+2 counted 140"},
		stream: want{"start,Hel,lo,stop 10+2", nil, "settled stop 200 - 10+2 counted 140"},
	}, {
		name:   "length",
		script: script(upstreamtest.Text("a", "b", "c"), upstreamtest.Finish(wire.FinishLength)),
		change: func(r *wire.ChatRequest) { r.MaxTokens = 3 },
		whole:  want{"start,a,b,c,length 10+3", nil, "settled length 200 - 10+3 counted 160"},
		stream: want{"start,a,b,c,length 10+3", nil, "settled length 200 - 10+3 counted 160"},
	}, {
		name:   "empty answer",
		script: script(upstreamtest.Finish(wire.FinishStop)),
		whole:  want{"start,stop 10+0", nil, "settled stop 200 - 10+0 counted 100"},
		stream: want{"start,stop 10+0", nil, "settled stop 200 - 10+0 counted 100"},
	}, {
		name:   "usage of the provider",
		script: script(upstreamtest.Text("a"), upstreamtest.FinishUsage(wire.FinishStop, wire.Usage{PromptTokens: 10, CachedTokens: 8, CompletionTokens: 4})),
		whole:  want{"start,a,stop 10+4", nil, "settled stop 200 - 10+4 provider 140"}, // 2·10 + 8·5 + 4·20
		stream: want{"start,a,stop 10+4", nil, "settled stop 200 - 10+4 provider 140"},
	}, {
		name:   "usage of zero is zero",
		script: script(upstreamtest.Text("a"), upstreamtest.FinishUsage(wire.FinishStop, wire.Usage{})),
		whole:  want{"start,a,stop 0+0", nil, "settled stop 200 - 0+0 provider 0"},
		stream: want{"start,a,stop 0+0", nil, "settled stop 200 - 0+0 provider 0"},
	}, {
		name:   "usage that cannot be",
		script: script(upstreamtest.Text("a"), upstreamtest.FinishUsage(wire.FinishStop, wire.Usage{CompletionTokens: -1})),
		whole:  want{"start,a,stop 10+1", nil, "settled stop 200 - 10+1 counted 120"},
		stream: want{"start,a,stop 10+1", nil, "settled stop 200 - 10+1 counted 120"},
	}, {
		name:   "more cached than there were",
		script: script(upstreamtest.Text("a"), upstreamtest.FinishUsage(wire.FinishStop, wire.Usage{CachedTokens: 11, CompletionTokens: 1})),
		whole:  want{"start,a,stop 10+1", nil, "settled stop 200 - 10+1 counted 120"},
		stream: want{"start,a,stop 10+1", nil, "settled stop 200 - 10+1 counted 120"},
	}, {
		name:   "usage beyond the window",
		script: script(upstreamtest.Text("a"), upstreamtest.FinishUsage(wire.FinishStop, wire.Usage{CompletionTokens: 1 << 62})),
		whole:  want{"start,a,stop 10+1", nil, "settled stop 200 - 10+1 counted 120"},
		stream: want{"start,a,stop 10+1", nil, "settled stop 200 - 10+1 counted 120"},
	}, {
		name:   "gone before anything was computed",
		script: func(s *scene) []upstreamtest.Step { return []upstreamtest.Step{s.leaves(), notStarted} },
		whole:  want{"", chat.ErrClientGone, "voided client_gone 499 client_gone 0+0 none 0"},
		stream: want{"", chat.ErrClientGone, "voided client_gone 499 client_gone 0+0 none 0"},
	}, {
		name:   "gone before the first event",
		script: func(s *scene) []upstreamtest.Step { return []upstreamtest.Step{s.leaves(), upstreamtest.Text("a")} },
		whole:  want{"", chat.ErrClientGone, "settled client_gone 499 client_gone 10+0 counted 100"},
		stream: want{"", chat.ErrClientGone, "settled client_gone 499 client_gone 10+0 counted 100"},
	}, {
		name: "gone in the middle",
		script: func(s *scene) []upstreamtest.Step {
			return []upstreamtest.Step{upstreamtest.Text("a", "b"), s.leaves(), upstreamtest.Text("c")}
		},
		whole:  want{"start,a,b", chat.ErrClientGone, "settled client_gone 499 client_gone 10+2 counted 140"},
		stream: want{"start,a,b", chat.ErrClientGone, "settled client_gone 200 client_gone 10+2 counted 140"},
	}, {
		name:   "found gone at the first byte",
		script: script(upstreamtest.Text("a", "b"), upstreamtest.Finish(wire.FinishStop)),
		leave:  "start",
		whole:  want{"", chat.ErrClientGone, "settled client_gone 499 client_gone 10+1 counted 120"},
		stream: want{"", chat.ErrClientGone, "settled client_gone 200 client_gone 10+1 counted 120"},
	}, {
		name:   "found gone in the middle",
		script: script(upstreamtest.Text("a", "b", "c"), upstreamtest.Finish(wire.FinishStop)),
		leave:  "b",
		whole:  want{"start,a", chat.ErrClientGone, "settled client_gone 499 client_gone 10+2 counted 140"},
		stream: want{"start,a", chat.ErrClientGone, "settled client_gone 200 client_gone 10+2 counted 140"},
	}, {
		name:   "found gone at the start of an empty answer",
		script: script(upstreamtest.Finish(wire.FinishStop)),
		leave:  "start",
		whole:  want{"", chat.ErrClientGone, "settled client_gone 499 client_gone 10+0 counted 100"},
		stream: want{"", chat.ErrClientGone, "settled client_gone 200 client_gone 10+0 counted 100"},
	}, {
		name:   "found gone at the finish",
		script: script(upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop)),
		leave:  "stop",
		whole:  want{"start,a", chat.ErrClientGone, "settled stop 200 - 10+1 counted 120"},
		stream: want{"start,a", chat.ErrClientGone, "settled stop 200 - 10+1 counted 120"},
	}, {
		name:   "provider fails before the first event",
		script: script(upstreamtest.Fail(upstream.Failed)),
		whole:  want{"", failed, "voided upstream_error 502 upstream_error 0+0 none 0"},
		stream: want{"", failed, "voided upstream_error 502 upstream_error 0+0 none 0"},
	}, {
		name:   "provider fails after the first event",
		script: script(upstreamtest.Text("a", "b"), upstreamtest.Fail(upstream.Timeout)),
		whole:  want{"start,a,b", failed, "voided upstream_error 502 upstream_timeout 0+0 none 0"},
		stream: want{"start,a,b", failed, "settled upstream_cut 200 upstream_timeout 10+2 counted 140"},
	}, {
		name:   "provider ends without a finish",
		script: script(upstreamtest.Text("a"), upstreamtest.Return(nil)),
		whole:  want{"start,a", failed, "voided upstream_error 502 upstream_error 0+0 none 0"},
		stream: want{"start,a", failed, "settled upstream_cut 200 upstream_error 10+1 counted 120"},
	}, {
		name:   "provider ends without anything",
		script: script(upstreamtest.Return(nil)),
		whole:  want{"", failed, "voided upstream_error 502 upstream_error 0+0 none 0"},
		stream: want{"", failed, "voided upstream_error 502 upstream_error 0+0 none 0"},
	}, {
		name:   "busy",
		script: script(upstreamtest.Fail(upstream.Busy)),
		whole:  want{"", failed, "voided upstream_error 503 server_is_overloaded 0+0 none 0"},
		stream: want{"", failed, "voided upstream_error 503 server_is_overloaded 0+0 none 0"},
	}, {
		name:   "busy and not started",
		script: script(busyNotStarted),
		whole:  want{"", failed, "voided upstream_error 503 server_is_overloaded 0+0 none 0"},
		stream: want{"", failed, "voided upstream_error 503 server_is_overloaded 0+0 none 0"},
	}, {
		name:   "shutdown before the first event",
		script: func(s *scene) []upstreamtest.Step { return []upstreamtest.Step{s.stops(), upstreamtest.Text("a")} },
		whole:  want{"", chat.ErrShutdown, "voided shutdown 503 server_is_overloaded 0+0 none 0"},
		stream: want{"", chat.ErrShutdown, "voided shutdown 503 server_is_overloaded 0+0 none 0"},
	}, {
		name: "shutdown in the middle",
		script: func(s *scene) []upstreamtest.Step {
			return []upstreamtest.Step{upstreamtest.Text("a"), s.stops(), upstreamtest.Text("b")}
		},
		whole:  want{"start,a", chat.ErrShutdown, "voided shutdown 503 server_is_overloaded 0+0 none 0"},
		stream: want{"start,a", chat.ErrShutdown, "settled shutdown 200 server_is_overloaded 10+1 counted 120"},
	}, {
		name:   "JSON that is none",
		script: script(upstreamtest.Text(`{"a":`, `1]`), upstreamtest.Finish(wire.FinishStop)),
		change: wantJSON,
		whole:  want{`start,{"a":,1]`, failed, "voided upstream_error 502 upstream_error 0+0 none 0"},
		stream: want{`start,{"a":,1]`, failed, "settled upstream_cut 200 upstream_error 10+2 counted 140"},
	}, {
		name:   "JSON that is no object",
		script: script(upstreamtest.Text(`[]`), upstreamtest.Finish(wire.FinishStop)),
		change: wantJSON,
		whole:  want{"start,[]", failed, "voided upstream_error 502 upstream_error 0+0 none 0"},
		stream: want{"start,[]", failed, "settled upstream_cut 200 upstream_error 10+1 counted 120"},
	}, {
		name:   "JSON",
		script: script(upstreamtest.Text(` {"a":`, `1}`), upstreamtest.Finish(wire.FinishLength)),
		change: wantJSON,
		whole:  want{`start, {"a":,1},length 10+2`, nil, "settled length 200 - 10+2 counted 140"},
		stream: want{`start, {"a":,1},length 10+2`, nil, "settled length 200 - 10+2 counted 140"},
	}, {
		name: "the disk fails before the first byte",
		script: func(s *scene) []upstreamtest.Step {
			return []upstreamtest.Step{upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop)}
		},
		leave: "", // its disk fails from the beginning: see TestEndings
		whole: want{"start,a", ledger.ErrUnavailable, ""}, stream: want{"", ledger.ErrUnavailable, ""},
	}, {
		name: "the disk fails at settle",
		script: func(s *scene) []upstreamtest.Step {
			return []upstreamtest.Step{upstreamtest.Text("a"), s.diskFails(), upstreamtest.Finish(wire.FinishStop)}
		},
		whole: want{"start,a", ledger.ErrUnavailable, ""}, stream: want{"start,a", ledger.ErrUnavailable, ""},
	},
}

func wantJSON(r *wire.ChatRequest) { r.ResponseFormat.Kind = wire.FormatJSONObject }

// A count that fits the window, and that no amount can pay for, is not charged either, and the
// hold does not stay.
func TestComplete_UsageBeyondAllAmounts(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		l := open(t, money.MaxAmount, provider(upstreamtest.Text("a"), upstreamtest.FinishUsage(wire.FinishStop, wire.Usage{PromptTokens: 10, CompletionTokens: 9_500_000})))
		out := &recorder{}
		_, err := l.Complete(t.Context(), l.call(stream, func(r *wire.ChatRequest) { r.Model = "dear" }), out)
		if err != nil || out.String() != "start,a,stop 10+1" {
			t.Errorf("Complete = %v, %s", err, out)
		}
		if b := l.Ledger.Balance(l.caller.Account.ID); b.Held != 0 || b.Running != 0 || b.Posted != money.MaxPerToken {
			t.Errorf("Balance = %+v", b)
		}
		l.verify(t)
	}
}

// notStarted ends a call that waited in a queue.
var notStarted = upstreamtest.Do(func(ctx context.Context) error {
	return errors.Join(context.Cause(ctx), upstream.ErrNotStarted)
})

var busyNotStarted = upstreamtest.Return(errors.Join(&upstream.Failure{Class: upstream.Busy, Err: upstreamtest.ErrScripted}, upstream.ErrNotStarted))

func TestEndings(t *testing.T) {
	t.Parallel()
	const credit = 100_000
	for _, tt := range endings {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", tt.name, stream), func(t *testing.T) {
				t.Parallel()
				ctx, end := context.WithCancelCause(t.Context())
				defer end(nil)
				s := &scene{end: end}
				p := provider(tt.script(s)...)
				p.Can = wire.Capabilities{JSONObject: true}
				l := open(t, credit, p)
				s.line = l
				if tt.name == "the disk fails before the first byte" {
					l.disk.fail()
				}
				w := tt.whole
				if stream {
					w = tt.stream
				}
				out := &recorder{leave: tt.leave}
				var changes []func(*wire.ChatRequest)
				if tt.change != nil {
					changes = append(changes, tt.change)
				}
				c := l.call(stream, changes...)
				sum, err := l.Complete(ctx, c, out)
				if got := out.String(); got != w.emitted {
					t.Errorf("emitted %q, want %q", got, w.emitted)
				}
				if w.err == error(failed) {
					if _, ok := errors.AsType[*upstream.Failure](err); !ok {
						t.Errorf("Complete gives %v, want a failure of the provider", err)
					}
				} else if !errors.Is(err, w.err) || (err == nil) != (w.err == nil) {
					t.Errorf("Complete gives %v, want %v", err, w.err)
				}
				if n := len(p.Calls()); n > 1 {
					t.Errorf("the provider had %d calls", n)
				}
				if w.receipt == "" {
					if b := l.Ledger.Balance(l.caller.Account.ID); b.Posted != 0 {
						t.Errorf("Balance = %+v, want nothing posted", b)
					}
					return
				}
				r := l.receipt(t)
				if got := text(r); got != w.receipt {
					t.Errorf("receipt %q, want %q", got, w.receipt)
				}
				if r.RequestID != c.RequestID || r.Target != "fake/x" || r.Attempts != 1 || r.CompletionID != sum.CompletionID || sum.Ending != r.Ending || sum.Charge != r.Charge {
					t.Errorf("receipt %+v does not fit summary %+v of %s", r, sum, c.RequestID)
				}
				if got, want := l.Ledger.Balance(l.caller.Account.ID), (ledger.Balance{Granted: credit, Posted: r.Charge}); got != want {
					t.Errorf("Balance = %+v, want %+v", got, want)
				}
				l.verify(t)
			})
		}
	}
}

func text(r ledger.Receipt) string {
	code := r.ErrorCode
	if code == "" {
		code = "-"
	}
	return fmt.Sprintf("%s %s %d %s %d+%d %s %d", r.State, r.Ending, r.Status, code, r.PromptTokens, r.CompletionTokens, r.UsageSource, int64(r.Charge))
}

// A bug in the provider, or below the line anywhere, still closes the books.
func TestPanic(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		stream  bool
		steps   []upstreamtest.Step
		receipt string
	}{
		{false, []upstreamtest.Step{upstreamtest.Panic("bug")}, "voided upstream_error 500 internal_error 0+0 none 0"},
		{true, []upstreamtest.Step{upstreamtest.Panic("bug")}, "voided upstream_error 500 internal_error 0+0 none 0"},
		{false, []upstreamtest.Step{upstreamtest.Text("a"), upstreamtest.Panic("bug")}, "voided upstream_error 500 internal_error 0+0 none 0"},
		{true, []upstreamtest.Step{upstreamtest.Text("a"), upstreamtest.Panic("bug")}, "settled upstream_cut 200 internal_error 10+1 counted 120"},
	} {
		l := open(t, 100_000, provider(tt.steps...))
		func() {
			defer func() {
				if p := recover(); p != "bug" {
					t.Errorf("stream %v: recovered %v, want the provider's panic", tt.stream, p)
				}
			}()
			sum, err := l.Complete(t.Context(), l.call(tt.stream), &recorder{})
			t.Errorf("stream %v: Complete = %+v, %v, want a panic", tt.stream, sum, err)
		}()
		r := l.receipt(t)
		if got := text(r); got != tt.receipt {
			t.Errorf("stream %v: receipt %q, want %q", tt.stream, got, tt.receipt)
		}
		if got, want := l.Ledger.Balance(l.caller.Account.ID), (ledger.Balance{Granted: 100_000, Posted: r.Charge}); got != want {
			t.Errorf("stream %v: Balance = %+v, want %+v", tt.stream, got, want)
		}
		l.verify(t)
	}
}

// A call that costs nothing needs no credit.
func TestFree(t *testing.T) {
	t.Parallel()
	l := open(t, 0, provider(upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop)))
	out := &recorder{}
	if _, err := l.Complete(t.Context(), l.call(true, func(r *wire.ChatRequest) { r.Model = "free" }), out); err != nil {
		t.Fatal(err)
	}
	if r := l.receipt(t); r.Charge != money.Amount(0) || out.String() != "start,a,stop 10+1" {
		t.Errorf("emitted %q, receipt %+v", out, r)
	}
}

// Credit does not bound an answer that costs nothing.
func TestFree_Output(t *testing.T) {
	t.Parallel()
	l := open(t, 0, provider(upstreamtest.Text("a"), upstreamtest.Finish(wire.FinishStop)))
	if _, err := l.Complete(t.Context(), l.call(true, func(r *wire.ChatRequest) { r.Model = "free" }), &recorder{}); err != nil {
		t.Fatal(err)
	}
	if got := l.receipt(t).OutputLimit; got != 50 {
		t.Errorf("a free answer may have %d tokens, want all 50 of the model", got)
	}
}

// A provider that fails has computed nothing to be charged, also when the caller leaves
// in the same moment.
func TestFailedAndGone(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{&upstream.Failure{Class: upstream.Failed, Err: errors.New("500")}, &upstream.Rejected{Answer: wire.Internal(), Err: errors.New("400")}} {
		for _, stream := range []bool{false, true} {
			ctx, leave := context.WithCancelCause(t.Context())
			l := open(t, 100_000, provider(upstreamtest.Do(func(context.Context) error { leave(context.Canceled); return cause })))
			if _, err := l.Complete(ctx, l.call(stream), &recorder{}); !errors.Is(err, cause) {
				t.Errorf("%T, stream %t: Complete gives %v", cause, stream, err)
			}
			if r := l.receipt(t); r.State != ledger.Voided || r.Charge != 0 {
				t.Errorf("%T, stream %t: the receipt is %s %s, charge %v", cause, stream, r.State, r.Ending, r.Charge)
			}
		}
	}
}
