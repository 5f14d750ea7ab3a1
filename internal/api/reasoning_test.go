package api_test

import (
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// What a provider counts as reasoning is told as a part of the completion, whole, in a
// stream and when the answer is given again; what it cannot have counted is not.
func TestReasoningTokens(t *testing.T) {
	t.Parallel()
	answer := func(u wire.Usage) upstreamtest.Script {
		return upstreamtest.Script{upstreamtest.Text("Hello"), upstreamtest.FinishUsage(wire.FinishStop, u)}
	}
	told := wire.Usage{PromptTokens: 10, CompletionTokens: 9, ReasoningTokens: 7}
	absurd := wire.Usage{PromptTokens: -1, CompletionTokens: 9, ReasoningTokens: 7}
	p := upstreamtest.New(answer(told), answer(told), answer(told), answer(absurd))
	p.Prompt, p.Fingerprint = 10, fingerprint
	d := open(t, p)
	const want = `"completion_tokens":9,"total_tokens":19,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":7,`
	for name, r := range map[string]*reply{
		"whole":    d.post(t, body("")),
		"streamed": d.post(t, body(`,"stream":true,"stream_options":{"include_usage":true}`)),
		"named":    d.post(t, body(""), "Idempotency-Key", "k"),
		"replayed": d.post(t, body(""), "Idempotency-Key", "k"),
	} {
		if !strings.Contains(r.body, want) {
			t.Errorf("%s: %d %s, want %s", name, r.StatusCode, r.body, want)
		}
	}
	if r := d.post(t, body("")); !strings.Contains(r.body, `"reasoning_tokens":0,`) {
		t.Errorf("a count that cannot be: %d %s", r.StatusCode, r.body)
	}
}
