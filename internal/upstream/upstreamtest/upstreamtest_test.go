package upstreamtest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

func TestGenerate(t *testing.T) {
	t.Parallel()
	usage := wire.Usage{PromptTokens: 3, CompletionTokens: 9}
	p := upstreamtest.New(
		upstreamtest.Script{upstreamtest.Text("Hel", "lo"), upstreamtest.FinishUsage(wire.FinishStop, usage)},
		upstreamtest.Script{{}, upstreamtest.Event(upstream.Event{Text: "many", Completion: 5}), upstreamtest.Text("!"), upstreamtest.Fail(upstream.Cut), upstreamtest.Text("never")},
		upstreamtest.Script{upstreamtest.Text("x")},
	)
	p.Fingerprint = "fp_test"
	for _, c := range []struct {
		want  []upstream.Event
		class upstream.Class
	}{
		{[]upstream.Event{
			{Text: "Hel", Completion: 1, Fingerprint: "fp_test"},
			{Text: "lo", Completion: 2, Fingerprint: "fp_test"},
			{Completion: 2, Finish: wire.FinishStop, Usage: &usage, Fingerprint: "fp_test"},
		}, ""},
		{[]upstream.Event{{Text: "many", Completion: 5}, {Text: "!", Completion: 6, Fingerprint: "fp_test"}}, upstream.Cut},
		{[]upstream.Event{{Text: "x", Completion: 1, Fingerprint: "fp_test"}}, upstream.Cut},
		{[]upstream.Event{{Text: "x", Completion: 1, Fingerprint: "fp_test"}}, upstream.Cut}, // the last goes on
	} {
		var got []upstream.Event
		err := p.Generate(context.Background(), &upstream.Call{Model: "m"}, func(e upstream.Event) error {
			got = append(got, e)
			return nil
		})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("events differ (-want +got):\n%s", diff)
		}
		f, failed := errors.AsType[*upstream.Failure](err)
		if failed != (c.class != "") || failed && f.Class != c.class || !failed && err != nil {
			t.Errorf("Generate gives %v, want class %q", err, c.class)
		}
	}
	calls := p.Calls()
	if len(calls) != 4 || calls[0].Model != "m" || calls[0].Events != 3 || calls[0].Err != nil || !calls[0].Ended || calls[1].Events != 2 || calls[1].Err == nil {
		t.Errorf("Calls = %+v", calls)
	}
}

// An error of yield ends the call and comes back as it is; so does the cause of ctx.
func TestGenerate_CallerLeaves(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	p := upstreamtest.New(upstreamtest.Script{upstreamtest.Text("a", "b", "c"), upstreamtest.Finish(wire.FinishStop)})
	n := 0
	err := p.Generate(context.Background(), &upstream.Call{}, func(upstream.Event) error {
		if n++; n == 2 {
			return gone
		}
		return nil
	})
	if err != gone || n != 2 {
		t.Errorf("Generate gives %v after %d events, want the error of yield after 2", err, n)
	}
	for name, step := range map[string]upstreamtest.Step{
		"text": upstreamtest.Text("a"), "hang": upstreamtest.Hang(), "sleep": upstreamtest.Sleep(time.Hour),
		"signal": upstreamtest.Signal(make(chan struct{})), "finish": upstreamtest.Finish(wire.FinishStop),
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(gone)
		err := upstreamtest.New(upstreamtest.Script{step}).Generate(ctx, &upstream.Call{}, func(upstream.Event) error {
			t.Errorf("%s: an event after the caller left", name)
			return nil
		})
		if err != gone {
			t.Errorf("%s: Generate gives %v, want the cause of ctx", name, err)
		}
	}
}

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := upstreamtest.New(upstreamtest.Script{upstreamtest.Sleep(time.Hour), upstreamtest.Finish(wire.FinishStop)})
		start := time.Now()
		if err := p.Generate(t.Context(), &upstream.Call{}, func(upstream.Event) error { return nil }); err != nil || time.Since(start) != time.Hour {
			t.Errorf("Generate gives %v after %v, want an hour", err, time.Since(start))
		}
	})
}

func TestWaitAndSignal(t *testing.T) {
	t.Parallel()
	reached, goOn := make(chan struct{}), make(chan struct{})
	p := upstreamtest.New(upstreamtest.Script{upstreamtest.Text("a"), upstreamtest.Signal(reached), upstreamtest.Wait(goOn), upstreamtest.Finish(wire.FinishStop)})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Generate(context.Background(), &upstream.Call{}, func(upstream.Event) error { return nil }); err != nil {
			t.Errorf("Generate: %v", err)
		}
	})
	<-reached
	if c := p.Calls(); len(c) != 1 || c[0].Ended {
		t.Errorf("Calls during a call = %+v", c)
	}
	close(goOn)
	wg.Wait()
	if c := p.Calls(); !c[0].Ended || c[0].Events != 2 {
		t.Errorf("Calls after it = %+v", c)
	}
}

func TestPanicAndReturn(t *testing.T) {
	t.Parallel()
	p := upstreamtest.New(upstreamtest.Script{upstreamtest.Return(nil)}, upstreamtest.Script{upstreamtest.Panic("bug")})
	if err := p.Generate(context.Background(), &upstream.Call{}, nil); err != nil {
		t.Errorf("Return(nil) gives %v", err)
	}
	defer func() {
		if v := recover(); v != "bug" || !p.Calls()[1].Ended {
			t.Errorf("recovered %v, call %+v", v, p.Calls()[1])
		}
	}()
	_ = p.Generate(context.Background(), &upstream.Call{}, nil)
	t.Error("Panic returns")
}

func TestCountPrompt(t *testing.T) {
	t.Parallel()
	p := upstreamtest.New()
	p.Prompt, p.Estimated = 10, true
	if n, err := p.CountPrompt(nil, 7); n.Tokens != 7 || n.Exact || err != nil {
		t.Errorf("CountPrompt = %+v, %v, want 7 and an estimate", n, err)
	}
}
