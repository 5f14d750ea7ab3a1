package api_test

import (
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// A model that refuses to fill in a schema says so beside the content: clients parse the
// content of every other answer.
func TestRefusal(t *testing.T) {
	t.Parallel()
	p := provider(
		upstreamtest.Push(upstream.Event{Refusal: "I can", Completion: 1, Fingerprint: fingerprint}),
		upstreamtest.Push(upstream.Event{Refusal: "not.", Completion: 2, Fingerprint: fingerprint}),
		upstreamtest.Finish(wire.FinishStop),
	)
	p.Can = wire.Capabilities{JSONSchema: true, JSONObject: true}
	d := open(t, p)
	const schema = `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}`
	for _, extra := range []string{"", schema} {
		if r, want := d.post(t, body(extra)), `"message":{"role":"assistant","content":null,"refusal":"I cannot."},"logprobs":null,"finish_reason":"stop"`; !strings.Contains(r.body, want) {
			t.Errorf("%s: %d %s, want %s", extra, r.StatusCode, r.body, want)
		}
		r := d.post(t, body(extra+`,"stream":true`))
		for _, want := range []string{`"delta":{"refusal":"I can"}`, `"delta":{"refusal":"not."}`, `"finish_reason":"stop"`, "data: [DONE]"} {
			if !strings.Contains(r.body, want) {
				t.Errorf("%s: stream %s lacks %s", extra, r.body, want)
			}
		}
	}
	// JSON mode has no refusals: there is no answer without JSON.
	if r := d.post(t, body(`,"response_format":{"type":"json_object"}`)); r.StatusCode != 502 || r.code() != "upstream_error" {
		t.Errorf("JSON mode: %d %s", r.StatusCode, r.body)
	}
}
