package routing_test

import (
	"context"
	"testing"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/routing"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// A provider may wrap the end of the context in a failure of its own. The call is not
// begun again for nobody.
func TestGenerate_FailureOnLeaving(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	second := upstreamtest.New()
	r := routing.New(map[string]upstream.Provider{
		"a": upstreamtest.New(upstreamtest.Script{upstreamtest.Do(func(context.Context) error { cancel(); return nil }), upstreamtest.Fail(upstream.Unreachable)}),
		"b": second,
	})
	m := &catalog.Model{ID: "m", Targets: []catalog.Target{{Upstream: "a", Model: "x"}, {Upstream: "b", Model: "y"}}}
	route, err := r.Generate(ctx, m, &upstream.Call{Request: new(wire.ChatRequest)}, func(upstream.Event) error { return nil })
	if err == nil || route != (upstream.Route{Target: "a/x", Attempts: 1}) || len(second.Calls()) != 0 {
		t.Errorf("Generate = %+v, %v, want the failure of the first; the second had %d calls", route, err, len(second.Calls()))
	}
}
