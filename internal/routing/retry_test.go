package routing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/routing"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// provider fails with its errors one after another, then answers.
type provider struct {
	upstream.Provider
	can    wire.Capabilities
	errs   []error
	begins bool // an event comes before each error
	calls  []string
}

func (p *provider) Capabilities(string) wire.Capabilities { return p.can }

func (p *provider) CountPrompt(*wire.ChatRequest, int) (upstream.Prompt, error) {
	return upstream.Prompt{Tokens: len(p.errs), Exact: true}, nil
}

func (p *provider) Generate(_ context.Context, call *upstream.Call, yield func(upstream.Event) error) error {
	p.calls = append(p.calls, call.Model)
	var err error
	if len(p.errs) > 0 {
		err, p.errs = p.errs[0], p.errs[1:]
	}
	if err != nil && !p.begins {
		return err
	}
	if yielded := yield(upstream.Event{Text: "x"}); yielded != nil {
		return yielded
	}
	return err
}

var (
	errGone  = errors.New("gone")
	retry    = &upstream.Failure{Class: upstream.Unreachable, Err: errors.New("refused"), Retryable: true}
	slow     = &upstream.Failure{Class: upstream.Overloaded, Err: errors.New("429"), Retryable: true, RetryAfter: 2 * time.Second}
	slower   = &upstream.Failure{Class: upstream.Overloaded, Err: errors.New("429"), Retryable: true, RetryAfter: 3 * time.Second}
	denied   = &upstream.Failure{Class: upstream.Denied, Err: errors.New("401")}
	mute     = &upstream.Failure{Class: upstream.Refused, Err: errors.New("400")}
	named    = &upstream.Failure{Class: upstream.Refused, Err: &upstream.Rejected{Answer: wire.ValueRefused("stop"), Err: errors.New("400")}}
	rejected = &upstream.Rejected{Answer: wire.ContextLengthExceeded(1, 2, true), Err: errors.New("400")}
)

func TestGenerate_Retries(t *testing.T) {
	t.Parallel()
	type step = []error
	tests := []struct {
		name     string
		targets  string // the upstream of each
		a, b     step
		begins   bool
		retriesA int
		retriesB int
		want     error
		calls    string // target after target
		least    time.Duration
		most     time.Duration
	}{
		{name: "first answers", targets: "ab", calls: "a0"},
		{name: "failover", targets: "ab", a: step{denied}, calls: "a0 b1"},
		{name: "failover first, retries later", targets: "ab", a: step{retry}, retriesA: 2, calls: "a0 b1"},
		{name: "all fail", targets: "ab", a: step{retry}, b: step{denied}, want: denied, calls: "a0 b1"},
		{name: "retry", targets: "a", a: step{retry, retry}, retriesA: 2, calls: "a0 a0 a0", least: 100 * time.Millisecond, most: 300 * time.Millisecond},
		{name: "no more retries", targets: "a", a: step{retry, retry, denied}, retriesA: 1, want: retry, calls: "a0 a0", least: 50 * time.Millisecond, most: 100 * time.Millisecond},
		{name: "retries in all", targets: "aa", a: step{retry, retry, retry, retry, retry, retry, retry}, retriesA: 3, want: retry, calls: "a0 a1 a0 a1 a0", least: 100 * time.Millisecond, most: 300 * time.Millisecond},
		{name: "retries of one upstream", targets: "ab", a: step{retry, retry, retry}, b: step{retry, retry}, retriesB: 1, want: retry, calls: "a0 b1 b1", least: 50 * time.Millisecond, most: 100 * time.Millisecond},
		{name: "not retryable", targets: "a", a: step{denied}, retriesA: 5, want: denied, calls: "a0"},
		{name: "no longer retryable", targets: "a", a: step{retry, denied}, retriesA: 5, want: denied, calls: "a0 a0", least: 50 * time.Millisecond, most: 100 * time.Millisecond},
		{name: "retry after", targets: "a", a: step{slow}, retriesA: 1, calls: "a0 a0", least: 2 * time.Second, most: 2 * time.Second},
		{name: "retry after too long", targets: "a", a: step{slower}, retriesA: 1, want: slower, calls: "a0"},
		{name: "rejected", targets: "ab", a: step{rejected}, retriesA: 1, want: rejected, calls: "a0"},
		{name: "all refuse", targets: "ab", a: step{mute}, b: step{named}, want: named, calls: "a0 b1"},
		{name: "all refuse, the first with a reason", targets: "ab", a: step{named}, b: step{mute}, want: named, calls: "a0 b1"},
		{name: "one refuses, one fails", targets: "ab", a: step{named}, b: step{denied}, want: denied, calls: "a0 b1"},
		{name: "one fails, one refuses", targets: "ab", a: step{slower}, b: step{named}, want: slower, calls: "a0 b1"},
		{name: "one fails again, one refuses", targets: "ab", a: step{retry, retry}, b: step{named}, retriesA: 1, want: retry, calls: "b1 a0 a0", least: 50 * time.Millisecond, most: 100 * time.Millisecond},
		{name: "other error", targets: "ab", a: step{errGone}, retriesA: 1, want: errGone, calls: "a0"},
		{name: "begun", targets: "ab", a: step{retry}, begins: true, retriesA: 1, want: retry, calls: "a0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := &provider{errs: slices.Clone(tt.a), begins: tt.begins}
				b := &provider{errs: slices.Clone(tt.b)}
				r := routing.New(map[string]upstream.Provider{"a": a, "b": b}).WithOptions(map[string]routing.Options{"a": {Retries: tt.retriesA}, "b": {Retries: tt.retriesB}})
				m := &catalog.Model{ID: "m", ContextWindow: 4096}
				for i, u := range tt.targets {
					m.Targets = append(m.Targets, catalog.Target{Upstream: string(u), Model: fmt.Sprintf("%c%d", u, i)})
				}
				var calls []string
				call := &upstream.Call{Request: &wire.ChatRequest{}}
				start := time.Now()
				events := 0
				route, err := r.Generate(t.Context(), m, call, func(upstream.Event) error { events++; return nil })
				calls = append(slices.Clone(a.calls), b.calls...)
				want := slices.Sorted(slices.Values(fields(tt.calls)))
				slices.Sort(calls)
				if diff := cmp.Diff(want, calls); diff != "" || !errors.Is(err, tt.want) || tt.want == nil && err != nil {
					t.Errorf("Generate = %v, want %v; calls (-want +got):\n%s", err, tt.want, diff)
				}
				last := fields(tt.calls)[len(want)-1]
				if route.Attempts != len(want) || route.Target != last[:1]+"/"+last {
					t.Errorf("route %+v, want %d attempts, the last at %s", route, len(want), last)
				}
				if d := time.Since(start); d < tt.least || d > tt.most {
					t.Errorf("took %v, want %v to %v", d, tt.least, tt.most)
				}
				if call.Window != 4096 {
					t.Errorf("window %d, want the model's", call.Window)
				}
			})
		})
	}
}

// Nobody waits for a target that hangs as often as it may be tried.
func TestGenerate_Patience(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]int{30 * time.Second: 4, 40 * time.Second: 3, 119 * time.Second: 2, 2 * time.Minute: 2, 5 * time.Minute: 2} {
		synctest.Test(t, func(t *testing.T) {
			hangs := upstreamtest.New(upstreamtest.Script{upstreamtest.Sleep(took), upstreamtest.Return(retry)})
			r := routing.New(map[string]upstream.Provider{"a": hangs}).WithOptions(map[string]routing.Options{"a": {Retries: 3}})
			m := &catalog.Model{ID: "m", Targets: []catalog.Target{{Upstream: "a", Model: "x"}}}
			if took >= 2*time.Minute {
				m.Targets = append(m.Targets, catalog.Target{Upstream: "a", Model: "y"}) // which was not tried yet
			}
			route, err := r.Generate(t.Context(), m, &upstream.Call{Request: plain}, nil)
			if err != retry || route.Attempts != want {
				t.Errorf("tries of %v: %d, %v, want %d", took, route.Attempts, err, want)
			}
		})
	}
}

func fields(s string) []string {
	var f []string
	for len(s) > 0 {
		f = append(f, s[:2])
		s = s[min(3, len(s)):]
	}
	return f
}

func TestGenerate_LeavesWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &provider{errs: []error{slow}}
		r := routing.New(map[string]upstream.Provider{"a": a}).WithOptions(map[string]routing.Options{"a": {Retries: 1}})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errGone) })
		start := time.Now()
		route, err := r.Generate(ctx, &catalog.Model{Targets: []catalog.Target{{Upstream: "a"}}}, &upstream.Call{Request: &wire.ChatRequest{}}, nil)
		if !errors.Is(err, errGone) || !errors.Is(err, upstream.ErrNotStarted) || route.Attempts != 1 || time.Since(start) != time.Second {
			t.Errorf("Generate = %+v, %v after %v", route, err, time.Since(start))
		}
	})
}

// A provider that fails because its caller left is not followed by another.
func TestGenerate_LeavesDuringAttempt(t *testing.T) {
	t.Parallel()
	a, b := &provider{errs: []error{retry}}, &provider{}
	r := routing.New(map[string]upstream.Provider{"a": a, "b": b})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errGone)
	m := &catalog.Model{Targets: []catalog.Target{{Upstream: "a"}, {Upstream: "b"}}}
	if _, err := r.Generate(ctx, m, &upstream.Call{Request: &wire.ChatRequest{}}, nil); !errors.Is(err, retry) || len(b.calls) > 0 {
		t.Errorf("Generate = %v, calls of the second target %v", err, b.calls)
	}
}

// A second target must be able to do what the first one promised.
func TestGenerate_Capabilities(t *testing.T) {
	t.Parallel()
	a, b, c := &provider{errs: []error{denied}, can: wire.Capabilities{Tools: true}}, &provider{}, &provider{can: wire.Capabilities{Tools: true}}
	r := routing.New(map[string]upstream.Provider{"a": a, "b": b, "c": c})
	m := &catalog.Model{Targets: []catalog.Target{{Upstream: "a", Model: "x"}, {Upstream: "b", Model: "x"}, {Upstream: "c", Model: "x"}}}
	route, err := r.Generate(t.Context(), m, &upstream.Call{Request: &wire.ChatRequest{Tools: []wire.Tool{{Name: "f"}}}}, func(upstream.Event) error { return nil })
	if err != nil || route != (upstream.Route{Target: "c/x", Attempts: 2}) || len(m.Targets) != 3 || m.Targets[1].Upstream != "b" {
		t.Errorf("Generate = %+v, %v; targets %v", route, err, m.Targets)
	}
}
