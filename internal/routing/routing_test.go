package routing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/routing"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// model is tried at the upstreams a, b and c, in this order.
var model = &catalog.Model{ID: "m", Targets: []catalog.Target{{Upstream: "a", Model: "m-a"}, {Upstream: "b", Model: "m-b"}, {Upstream: "c", Model: "org/m-c"}}}

var (
	errOdd = errors.New("odd")
	plain  = &wire.ChatRequest{}
)

func answer(s string) upstreamtest.Script {
	return upstreamtest.Script{upstreamtest.Text(s), upstreamtest.Finish(wire.FinishStop)}
}

func failure(c upstream.Class) upstreamtest.Script {
	return upstreamtest.Script{upstreamtest.Fail(c)}
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	cut := upstreamtest.Script{upstreamtest.Text("par"), upstreamtest.Fail(upstream.Cut)}
	for _, c := range []struct {
		name    string
		a, b, c upstreamtest.Script
		want    string // the answer
		route   upstream.Route
		err     string // part of it; empty is none
	}{
		{"the first answers", answer("A"), answer("B"), answer("C"), "A", upstream.Route{Target: "a/m-a", Attempts: 1}, ""},
		{"the second does", failure(upstream.Overloaded), answer("B"), answer("C"), "B", upstream.Route{Target: "b/m-b", Attempts: 2}, ""},
		{"the last does", failure(upstream.Unreachable), failure(upstream.Timeout), answer("C"), "C", upstream.Route{Target: "c/org/m-c", Attempts: 3}, ""},
		{"none does", failure(upstream.Failed), failure(upstream.Timeout), failure(upstream.Busy), "", upstream.Route{Target: "c/org/m-c", Attempts: 3}, "upstream busy"},
		{"cut after the first event", cut, answer("B"), answer("C"), "par", upstream.Route{Target: "a/m-a", Attempts: 1}, "upstream cut"},
		{"cut at the second", failure(upstream.Failed), cut, answer("C"), "par", upstream.Route{Target: "b/m-b", Attempts: 2}, "upstream cut"},
		{"cut before the first event", failure(upstream.Cut), answer("B"), answer("C"), "B", upstream.Route{Target: "b/m-b", Attempts: 2}, ""},
		{"an event without text has begun too", upstreamtest.Script{upstreamtest.Text(""), upstreamtest.Fail(upstream.Failed)}, answer("B"), answer("C"), "", upstream.Route{Target: "a/m-a", Attempts: 1}, "upstream failed"},
		{"an error that is no failure", upstreamtest.Script{upstreamtest.Return(errOdd)}, answer("B"), answer("C"), "", upstream.Route{Target: "a/m-a", Attempts: 1}, "odd"},
		{"a failure that is wrapped", upstreamtest.Script{upstreamtest.Return(fmt.Errorf("a: %w", &upstream.Failure{Class: upstream.Failed, Err: errOdd}))}, answer("B"), answer("C"), "B", upstream.Route{Target: "b/m-b", Attempts: 2}, ""},
		{"a failure that had not started", upstreamtest.Script{upstreamtest.Return(errors.Join(upstream.ErrNotStarted, &upstream.Failure{Class: upstream.Busy, Err: errOdd}))}, answer("B"), answer("C"), "B", upstream.Route{Target: "b/m-b", Attempts: 2}, ""},
		{"nil without an answer", upstreamtest.Script{upstreamtest.Return(nil)}, answer("B"), answer("C"), "", upstream.Route{Target: "a/m-a", Attempts: 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ps := map[string]*upstreamtest.Provider{"a": upstreamtest.New(c.a), "b": upstreamtest.New(c.b), "c": upstreamtest.New(c.c)}
			var got strings.Builder
			route, err := router(ps).Generate(context.Background(), model, &upstream.Call{Request: plain, ID: "chatcmpl-x", Owner: "acct_x", MaxTokens: 9, Seed: 7}, func(e upstream.Event) error {
				got.WriteString(e.Text)
				return nil
			})
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("Generate gives %v, want %q", err, c.err)
			}
			if got.String() != c.want || route != c.route {
				t.Errorf("Generate = %q by %+v, want %q by %+v", got.String(), route, c.want, c.route)
			}
			for i, target := range model.Targets {
				calls := ps[target.Upstream].Calls()
				want := 0
				if i < c.route.Attempts {
					want = 1
				}
				if len(calls) != want {
					t.Fatalf("%s was asked %d times, want %d", target.Upstream, len(calls), want)
				}
				if want == 1 && calls[0].Call != (upstream.Call{Request: plain, ID: "chatcmpl-x", Owner: "acct_x", Model: target.Model, MaxTokens: 9, Seed: 7}) {
					t.Errorf("%s got %+v", target.Upstream, calls[0].Call)
				}
			}
		})
	}
}

func router(ps map[string]*upstreamtest.Provider) *routing.Router {
	m := map[string]upstream.Provider{}
	for id, p := range ps {
		m[id] = p
	}
	return routing.New(m)
}

// A caller who is gone is not passed on: neither for an error of yield, even one that
// looks like a provider's, nor for the end of ctx.
func TestGenerate_CallerGone(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for name, leave := range map[string]error{"plain": gone, "a failure": &upstream.Failure{Class: upstream.Failed, Err: gone}} {
		b := upstreamtest.New(answer("B"))
		r := router(map[string]*upstreamtest.Provider{"a": upstreamtest.New(answer("A")), "b": b, "c": b})
		route, err := r.Generate(context.Background(), model, &upstream.Call{Request: plain}, func(upstream.Event) error { return leave })
		if err != leave || route.Attempts != 1 || len(b.Calls()) != 0 {
			t.Errorf("%s: Generate = %+v, %v, want the error of yield after 1 attempt", name, route, err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	reached := make(chan struct{})
	b := upstreamtest.New(answer("B"))
	r := router(map[string]*upstreamtest.Provider{"a": upstreamtest.New(upstreamtest.Script{upstreamtest.Signal(reached), upstreamtest.Hang()}), "b": b, "c": b})
	var wg sync.WaitGroup
	wg.Go(func() {
		<-reached
		cancel(gone)
	})
	route, err := r.Generate(ctx, model, &upstream.Call{Request: plain}, func(upstream.Event) error { return nil })
	wg.Wait()
	if err != gone || route != (upstream.Route{Target: "a/m-a", Attempts: 1}) || len(b.Calls()) != 0 {
		t.Errorf("Generate = %+v, %v, want the cause of ctx after 1 attempt", route, err)
	}
}

func TestGenerate_OneTarget(t *testing.T) {
	t.Parallel()
	one := &catalog.Model{ID: "m", Targets: model.Targets[:1]}
	r := router(map[string]*upstreamtest.Provider{"a": upstreamtest.New(failure(upstream.Overloaded))})
	route, err := r.Generate(context.Background(), one, &upstream.Call{Request: plain}, func(upstream.Event) error { return nil })
	if f, ok := errors.AsType[*upstream.Failure](err); !ok || f.Class != upstream.Overloaded || !errors.Is(err, upstreamtest.ErrScripted) || route.Attempts != 1 {
		t.Errorf("Generate = %+v, %v, want the target's failure", route, err)
	}
}

// Calls at once do not see each other's models or events.
func TestGenerate_Concurrent(t *testing.T) {
	t.Parallel()
	ps := map[string]*upstreamtest.Provider{"a": upstreamtest.New(failure(upstream.Busy)), "b": upstreamtest.New(answer("B")), "c": upstreamtest.New(answer("C"))}
	r := router(ps)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			var got string
			route, err := r.Generate(context.Background(), model, &upstream.Call{Request: plain}, func(e upstream.Event) error {
				got += e.Text
				return nil
			})
			if err != nil || got != "B" || route.Attempts != 2 {
				t.Errorf("Generate = %q by %+v, %v", got, route, err)
			}
		})
	}
	wg.Wait()
	if n := len(ps["b"].Calls()); n != 32 {
		t.Errorf("b was asked %d times, want 32", n)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	p := upstreamtest.New()
	for _, c := range []struct {
		have []string
		err  string
	}{
		{[]string{"a", "b", "c"}, ""},
		{[]string{"a", "b", "c", "d"}, ""},
		{[]string{"a", "c"}, "model m: no such upstream: b"},
		{nil, "model m: no such upstream: a"},
		{[]string{"A", "b", "c"}, "model m: no such upstream: a"},
	} {
		ps := map[string]*upstreamtest.Provider{}
		for _, id := range c.have {
			ps[id] = p
		}
		err := router(ps).Check(model)
		if errors.Is(err, routing.ErrUpstream) != (c.err != "") || err != nil && err.Error() != c.err {
			t.Errorf("Check with %q gives %v, want %q", c.have, err, c.err)
		}
	}
}

// The prompt is counted and the capabilities are those of the first target.
func TestFirstTarget(t *testing.T) {
	t.Parallel()
	a, b := upstreamtest.New(), upstreamtest.New()
	a.Prompt, b.Prompt = 11, 22
	a.Can, b.Can = wire.Capabilities{Tools: true}, wire.Capabilities{Logprobs: true}
	r := router(map[string]*upstreamtest.Provider{"a": a, "b": b, "c": b})
	if n, err := r.CountPrompt(model, nil, 100); n.Tokens != 11 || !n.Exact || err != nil {
		t.Errorf("CountPrompt = %+v, %v, want 11 of the first target", n, err)
	}
	if got := r.Capabilities(model); got != a.Can {
		t.Errorf("Capabilities = %+v, want the first target's", got)
	}
	last := &catalog.Model{ID: "m", Targets: slices.Clone(model.Targets[2:])}
	if n, _ := r.CountPrompt(last, nil, 100); n.Tokens != 22 {
		t.Errorf("CountPrompt = %+v, want 22 of the only target", n)
	}
	a.CountErr = errOdd
	if _, err := r.CountPrompt(model, nil, 100); !errors.Is(err, errOdd) {
		t.Errorf("CountPrompt gives %v, want the provider's error", err)
	}
}
