package routing_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/routing"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var model = &catalog.Model{ID: "m", Targets: []catalog.Target{{Upstream: "a", Model: "x"}, {Upstream: "b", Model: "y"}}}

var errPipe = errors.New("broken pipe")

func TestGenerate(t *testing.T) {
	t.Parallel()
	full := upstreamtest.New(upstreamtest.Text("hi"), upstreamtest.Finish(wire.FinishStop))
	ctx, cancel := context.WithCancel(t.Context())
	for _, tt := range []struct {
		name  string
		first *upstreamtest.Provider
		yield error // of the text
		route upstream.Route
		text  string
		err   error
	}{
		{"the first answers", full, nil, upstream.Route{Target: "a/x", Attempts: 1}, "hi", nil},
		{"the first fails at once", upstreamtest.New(upstreamtest.Fail(upstream.Unreachable)), nil, upstream.Route{Target: "b/y", Attempts: 2}, "hi", nil},
		{"the first fails too late", upstreamtest.New(upstreamtest.Text("h"), upstreamtest.Fail(upstream.Cut)), nil, upstream.Route{Target: "a/x", Attempts: 1}, "h", upstreamtest.ErrScript},
		{"the caller is gone", full, errPipe, upstream.Route{Target: "a/x", Attempts: 1}, "", errPipe},
		{"the caller left, told as a failure", upstreamtest.New(func(*upstreamtest.Run) error { cancel(); return nil }, upstreamtest.Fail(upstream.Failed)), nil, upstream.Route{Target: "a/x", Attempts: 1}, "", upstreamtest.ErrScript},
	} {
		second := upstreamtest.New(upstreamtest.Text("hi"), upstreamtest.Finish(wire.FinishStop))
		r := routing.New(map[string]upstream.Provider{"a": tt.first, "b": second})
		var text strings.Builder
		route, err := r.Generate(ctx, model, &upstream.Call{MaxTokens: 10}, func(e upstream.Event) error {
			if tt.yield == nil {
				text.WriteString(e.Text)
			}
			return tt.yield
		})
		if route != tt.route || text.String() != tt.text || !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("%s: Generate = %+v, %v with %q, want %+v, %v with %q", tt.name, route, err, &text, tt.route, tt.err, tt.text)
		}
		if calls := second.Calls(); len(calls) != tt.route.Attempts-1 || len(calls) == 1 && calls[0].Model != "y" {
			t.Errorf("%s: the second target had %+v", tt.name, calls)
		}
	}
}

// When every target fails, the last one's failure is the answer.
func TestAllFail(t *testing.T) {
	t.Parallel()
	r := routing.New(map[string]upstream.Provider{"a": upstreamtest.New(upstreamtest.Fail(upstream.Failed)), "b": upstreamtest.New(upstreamtest.Fail(upstream.Timeout))})
	route, err := r.Generate(t.Context(), model, &upstream.Call{}, func(upstream.Event) error { return nil })
	f, ok := errors.AsType[*upstream.Failure](err)
	if !ok || f.Class != upstream.Timeout || route.Attempts != 2 {
		t.Errorf("Generate = %+v, %v, want the timeout of the second", route, err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	r := routing.New(map[string]upstream.Provider{"a": upstreamtest.New()})
	if err := r.Check(model); !errors.Is(err, routing.ErrUpstream) {
		t.Errorf("Check gives %v, want ErrUpstream for b", err)
	}
	if n, exact, err := r.CountPrompt(model, nil, 1); n != 10 || !exact || err != nil {
		t.Errorf("CountPrompt = %d, %v, %v", n, exact, err)
	}
}
