package openai

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
)

// newPipe is a provider on the clock of the bubble.
func newPipe(t *testing.T, script func(*upstreamtest.Exchange)) *Provider {
	t.Helper()
	s := upstreamtest.NewPipe(t, script)
	p := newProvider(t, s, func(o *Options) {
		o.Timeouts = Timeouts{FirstToken: 10 * time.Second, Idle: 4 * time.Second, Total: time.Minute}
	})
	p.transport.DialContext = s.Dial
	return p
}

func TestGenerate_Timeouts(t *testing.T) {
	t.Parallel()
	const second = time.Second
	wait := func(d time.Duration) { <-time.After(d) }
	endless := func(e *upstreamtest.Exchange, d time.Duration, bytes string) {
		for e.Bytes(bytes) {
			wait(d)
		}
	}
	hi := "data: " + text("a ") + "\n\n"
	tests := []struct {
		name   string
		script func(*upstreamtest.Exchange)
		class  string
		took   time.Duration
	}{
		{"no status", func(e *upstreamtest.Exchange) { <-e.Gone() }, "timeout retryable", 10 * second},
		{"slow headers", func(e *upstreamtest.Exchange) {
			e.Raw("HTTP/1.1 200 OK\r\n")
			for e.Raw("X-A: b\r\n") {
				wait(second)
			}
		}, "timeout retryable", 10 * second},
		{"only comments", func(e *upstreamtest.Exchange) { e.Stream(); endless(e, second, ": wait\n\n") }, "timeout retryable", 10 * second},
		{"only a role", func(e *upstreamtest.Exchange) { e.Stream(); e.Event(role); <-e.Gone() }, "timeout retryable", 10 * second},
		{"slow error body", func(e *upstreamtest.Exchange) {
			e.Raw("HTTP/1.1 500 No\r\n\r\n")
			for e.Raw("x") {
				wait(second)
			}
		}, "failed retryable", 10 * second},
		{"first token in time", func(e *upstreamtest.Exchange) { e.Stream(); wait(9 * second); e.Event(text("a")); <-e.Gone() }, "timeout", 13 * second},
		{"comments keep it alive", func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Event(text("a"))
			for range 5 {
				e.Bytes(": wait\n\n")
				wait(3 * second)
			}
			e.Event(finish("stop"))
			e.Done()
		}, "", 15 * second},
		{"idle", func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Bytes(hi)
			wait(3 * second)
			e.Bytes(hi)
			<-e.Gone()
		}, "timeout", 7 * second},
		{"total", func(e *upstreamtest.Exchange) { e.Stream(); endless(e, 3*second, hi) }, "timeout", 60 * second},
		{"no usage in time", func(e *upstreamtest.Exchange) { e.Stream(); e.Bytes(hi); e.Event(finish("stop")); <-e.Gone() }, "", 4 * second},
		{"no usage, but comments", func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Bytes(hi)
			e.Event(finish("stop"))
			endless(e, second, ": wait\n\n")
		}, "", 4 * second},
		{"no usage, but empty chunks", func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Bytes(hi)
			e.Event(finish("stop"))
			endless(e, second, "data: "+role+"\n\n")
		}, "", 4 * second},
		{"more behind the reason", func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Event(finish("stop"))
			for range 5 {
				e.Bytes(hi)
				wait(3 * second)
			}
			e.Event(usage)
			e.Done()
		}, "", 15 * second},
		{"an end that drips", func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Bytes(hi)
			e.Event(finish("stop"))
			e.Event("[DONE]")
			endless(e, endWait*4/5, "\n")
		}, "", endWait},
		{"no end", func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Bytes(hi)
			e.Event(finish("stop"))
			e.Event("[DONE]")
			<-e.Gone()
		}, "", endWait},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipe(t, tt.script)
				start := time.Now()
				_, err := generate(t.Context(), p, newCall(t, ""))
				if took := time.Since(start); class(err) != tt.class || took != tt.took {
					t.Errorf("Generate = %v (%s) after %v, want %q after %v", err, class(err), took, tt.class, tt.took)
				}
			})
		})
	}
}

// An answer that is complete waits for its usage, but not as long as for a token.
func TestGenerate_UsageWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(t, func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Event(text("a"))
			e.Event(finish("stop"))
			<-e.Gone()
		})
		p.options.Timeouts.Idle = time.Minute
		start := time.Now()
		if _, err := generate(t.Context(), p, newCall(t, "")); err != nil || time.Since(start) != usageWait {
			t.Errorf("Generate = %v after %v, want nil after %v", err, time.Since(start), usageWait)
		}
	})
}

// A caller that is slow to take its events costs the provider no time.
func TestGenerate_SlowCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(t, events(text("a "), text("b "), finish("stop"), usage))
		err := p.Generate(t.Context(), newCall(t, ""), func(upstream.Event) error { <-time.After(15 * time.Second); return nil })
		if err != nil {
			t.Errorf("Generate = %v", err)
		}
	})
}

// TestGenerate_Cancel leaves at every stage and waits until the provider has learned
// of it: no time passes on the bubble's clock.
func TestGenerate_Cancel(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	stages := map[string]func(*upstreamtest.Exchange){
		"before the status": func(*upstreamtest.Exchange) {},
		"in the headers":    func(e *upstreamtest.Exchange) { e.Raw("HTTP/1.1 200 OK\r\nX-A: b\r\n") },
		"before an event":   (*upstreamtest.Exchange).Stream,
		"in an event":       func(e *upstreamtest.Exchange) { e.Stream(); e.Bytes("data: {") },
		"after an event":    func(e *upstreamtest.Exchange) { e.Stream(); e.Event(text("a")) },
		"in an error":       func(e *upstreamtest.Exchange) { e.Raw("HTTP/1.1 500 No\r\n\r\nx") },
	}
	for name, stage := range stages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reached, left := make(chan struct{}), make(chan struct{})
				p := newPipe(t, func(e *upstreamtest.Exchange) {
					stage(e)
					close(reached)
					<-e.Gone()
					close(left)
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					<-reached
					synctest.Wait()
					cancel(gone)
				}()
				start := time.Now()
				_, err := generate(ctx, p, newCall(t, ""))
				<-left
				if !errors.Is(err, gone) || errors.Is(err, upstream.ErrNotStarted) || time.Since(start) != 0 {
					t.Errorf("Generate = %v, and the provider learned of it after %v", err, time.Since(start))
				}
			})
		})
	}
}

// An error of yield comes back as it is, and ends the provider's work.
func TestGenerate_YieldFails(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	left := make(chan struct{})
	s := upstreamtest.NewHTTP(t, func(e *upstreamtest.Exchange) {
		e.Stream()
		e.Event(text("a"))
		<-e.Gone()
		close(left)
	})
	err := newProvider(t, s, nil).Generate(t.Context(), newCall(t, ""), func(upstream.Event) error { return full })
	<-left
	if err != full {
		t.Errorf("Generate = %v, want the error of yield", err)
	}
}

// The provider is cancelled before the caller learns that a stop was found.
func TestGenerate_StopCancels(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	s := upstreamtest.NewHTTP(t, func(e *upstreamtest.Exchange) {
		e.Stream()
		e.Event(text("aENDb"))
		<-e.Gone()
		close(left)
	})
	finished := false
	err := newProvider(t, s, nil).Generate(t.Context(), newCall(t, `,"stop":"END"`), func(e upstream.Event) error {
		if e.Finish != "" {
			<-left
			finished = true
		}
		return nil
	})
	if err != nil || !finished {
		t.Errorf("Generate = %v, finished %v", err, finished)
	}
}
