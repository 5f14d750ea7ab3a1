package wire_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/wire"
)

func head() wire.Head {
	return wire.Head{ID: "chatcmpl-X", Created: 1, Model: "svc-pulse", Fingerprint: "fp_1"}
}

// prefix is what every chunk of head begins with.
const prefix = `{"id":"chatcmpl-X","object":"chat.completion.chunk","created":1,"model":"svc-pulse","system_fingerprint":"fp_1","choices":[`

const usageJSON = `{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`

func logprobs() []wire.Logprob {
	return []wire.Logprob{
		{Token: "Hi", Bytes: []byte("Hi"), Logprob: float64(float32(-0.31725305)), Top: []wire.Logprob{
			{Token: "\xc3", Bytes: []byte{0xc3}, Logprob: -1e-7},
			{Token: "<", Logprob: math.Inf(-1)},
		}},
		{Token: "", Bytes: []byte{}, Logprob: math.NaN()},
	}
}

const logprobsJSON = `{"content":[{"token":"Hi","logprob":-0.31725305,"bytes":[72,105],"top_logprobs":[` +
	`{"token":"�","logprob":-1e-07,"bytes":[195]},{"token":"<","logprob":-9999,"bytes":null}]},` +
	`{"token":"","logprob":-9999,"bytes":[],"top_logprobs":[]}],"refusal":null}`

// TestChunkEncoder_Golden has the exact bytes of a text stream (case 63) and
// of a stream of two tool calls (case 77), without and with usage (case 65).
func TestChunkEncoder_Golden(t *testing.T) {
	t.Parallel()
	chunks := func(e *wire.ChunkEncoder) []string {
		var out []string
		add := func(b []byte) { out = append(out, string(b)) }
		add(e.AppendRole(nil, 0))
		add(e.AppendContent(nil, 0, "Hel"))
		add(e.AppendContentLogprobs(nil, 1, "Hi", logprobs()))
		add(e.AppendReasoning(nil, 0, "hm"))
		add(e.AppendRefusal(nil, 0, "No."))
		add(e.AppendKeepAlive(nil, 1))
		add(e.AppendToolCall(nil, 0, 0, "call_a", "get_weather", true))
		add(e.AppendToolArguments(nil, 0, 0, `{"city":`))
		add(e.AppendToolCall(nil, 0, 1, "call_b", "get_time", false))
		add(e.AppendToolArguments(nil, 0, 1, "{}"))
		add(e.AppendFinish(nil, 0, wire.FinishToolCalls))
		add(e.AppendFinish(nil, 7, wire.FinishStop))
		return out
	}
	const end = `},"logprobs":null,"finish_reason":null}]`
	want := []string{
		`{"index":0,"delta":{"role":"assistant","content":"","refusal":null` + end,
		`{"index":0,"delta":{"content":"Hel"` + end,
		`{"index":1,"delta":{"content":"Hi"},"logprobs":` + logprobsJSON + `,"finish_reason":null}]`,
		`{"index":0,"delta":{"reasoning_content":"hm"` + end,
		`{"index":0,"delta":{"refusal":"No."` + end,
		`{"index":1,"delta":{` + end,
		`{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"get_weather","arguments":""}}]` + end,
		`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]` + end,
		`{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"get_time","arguments":""}}]` + end,
		`{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]` + end,
		`{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]`,
		`{"index":7,"delta":{},"logprobs":null,"finish_reason":"stop"}]`,
	}
	for tail, include := range map[string]bool{`}`: false, `,"usage":null}`: true} {
		full := make([]string, len(want))
		for i := range want {
			full[i] = prefix + want[i] + tail
		}
		if diff := cmp.Diff(full, chunks(wire.NewChunkEncoder(head(), include))); diff != "" {
			t.Errorf("include_usage %v (-want +got):\n%s", include, diff)
		}
	}
	got := string(wire.NewChunkEncoder(head(), true).AppendUsage([]byte("x"), wire.Usage{PromptTokens: 3, CompletionTokens: 2, CachedTokens: 1}))
	if diff := cmp.Diff("x"+prefix+`],"usage":`+usageJSON+`}`, got); diff != "" {
		t.Errorf("usage chunk (-want +got):\n%s", diff)
	}
}

func TestChunkEncoder_AllocatesNothing(t *testing.T) {
	// Not parallel: AllocsPerRun counts what other goroutines allocate.
	e := wire.NewChunkEncoder(head(), true)
	dst := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(1000, func() {
		dst = e.AppendContent(dst[:0], 0, "a \"quoted\"\n\x01 wörd \u2028 \xff")
	}); n != 0 {
		t.Errorf("a content chunk allocates %v times, want 0", n)
	}
}

func TestCompletion_Golden(t *testing.T) {
	t.Parallel()
	c := wire.Completion{
		Head:  head(),
		Usage: wire.Usage{PromptTokens: 3, CompletionTokens: 2, CachedTokens: 1},
		Choices: []wire.Choice{
			{Content: "Hello", Finish: wire.FinishStop},
			{Finish: wire.FinishLength},
			{Finish: wire.FinishToolCalls, ToolCalls: []wire.ToolCall{{ID: "call_a", Name: "f", Arguments: `{"a":1}`}, {ID: "call_b", Name: "g"}}},
			{Refusal: "No.", Reasoning: "hm", Finish: wire.FinishStop},
			{Content: "Hi", Logprobs: logprobs(), Finish: wire.FinishStop},
			{Logprobs: []wire.Logprob{}, Finish: wire.FinishStop},
		},
	}
	want := `{"id":"chatcmpl-X","object":"chat.completion","created":1,"model":"svc-pulse","system_fingerprint":"fp_1","choices":[` +
		`{"index":0,"message":{"role":"assistant","content":"Hello","refusal":null},"logprobs":null,"finish_reason":"stop"},` +
		`{"index":1,"message":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":"length"},` +
		`{"index":2,"message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"call_a","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"call_b","type":"function","function":{"name":"g","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"},` +
		`{"index":3,"message":{"role":"assistant","content":null,"refusal":"No.","reasoning_content":"hm"},"logprobs":null,"finish_reason":"stop"},` +
		`{"index":4,"message":{"role":"assistant","content":"Hi","refusal":null},"logprobs":` + logprobsJSON + `,"finish_reason":"stop"},` +
		`{"index":5,"message":{"role":"assistant","content":"","refusal":null},"logprobs":{"content":[],"refusal":null},"finish_reason":"stop"}],"usage":` + usageJSON + `}`
	if diff := cmp.Diff(want, string(c.AppendJSON(nil))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestModels_Golden(t *testing.T) {
	t.Parallel()
	m := wire.Model{ID: "svc-pulse", Created: 1767225600, Description: `Small & "quick"`, ContextWindow: 8192, Pricing: wire.Pricing{Input: "0.05", Output: "0.000001"}}
	listed := `{"id":"svc-pulse","object":"model","created":1767225600,"owned_by":"svc"`
	tests := []struct{ got, want string }{
		{string(m.AppendJSON(nil)), listed + `,"description":"Small & \"quick\"","context_window":8192,"pricing":{"input":0.05,"output":0.000001}}`},
		{string(wire.ModelList{m, m}.AppendJSON(nil)), `{"object":"list","data":[` + listed + `},` + listed + `}]}`},
		{string(wire.ModelList(nil).AppendJSON(nil)), `{"object":"list","data":[]}`},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestEscaping is case 89: what goes in comes out, and which bytes are escaped.
func TestEscaping(t *testing.T) {
	t.Parallel()
	e := wire.NewChunkEncoder(head(), false)
	tests := []struct{ in, escaped, out string }{
		{"<b>&amp;'</b>", "<b>&amp;'</b>", ""},
		{"a\u2028b\u2029c", `a\u2028b\u2029c`, ""},
		{"\"\\/\b\f\n\r\t\x00\x1f\x7f", `\"\\/\u0008\u000c\n\r\t\u0000\u001f` + "\x7f", ""},
		{"é 漢 😀 \ufffd", "é 漢 😀 \ufffd", ""},
		{"a\xf0\x9f\x98b\xff", "a\ufffd\ufffd\ufffdb\ufffd", "a\ufffd\ufffd\ufffdb\ufffd"},
	}
	for _, tt := range tests {
		got := string(e.AppendContent(nil, 0, tt.in))
		if want := prefix + `{"index":0,"delta":{"content":"` + tt.escaped + `"},"logprobs":null,"finish_reason":null}]}`; got != want {
			t.Errorf("AppendContent(%q) = %s, want %s", tt.in, got, want)
		}
		out := tt.out
		if out == "" {
			out = tt.in
		}
		if content := contentOf(t, got); content != out {
			t.Errorf("content of AppendContent(%q) = %q, want %q", tt.in, content, out)
		}
	}
}

func contentOf(t *testing.T, chunk string) string {
	t.Helper()
	var c struct {
		Choices []struct{ Delta struct{ Content string } }
	}
	if err := json.Unmarshal([]byte(chunk), &c); err != nil {
		t.Fatalf("chunk %.200s: %v", chunk, err)
	}
	return c.Choices[0].Delta.Content
}

// TestSplitDelta is case 70: every line far below 64 KiB, nothing lost.
func TestSplitDelta(t *testing.T) {
	t.Parallel()
	e := wire.NewChunkEncoder(head(), true)
	for name, text := range map[string]string{
		"short": "Hello", "empty": "", "ascii": strings.Repeat("a", 1<<20), "runes": strings.Repeat("é漢😀", 1<<16),
		"controls": strings.Repeat("\x01", 1<<17), "separators": strings.Repeat("\u2028", 1<<16),
	} {
		var all strings.Builder
		for rest, first := text, true; first || rest != ""; first = false {
			var h string
			h, rest = wire.SplitDelta(rest)
			chunk := string(e.AppendContent(nil, 0, h))
			if len(chunk) > 17<<10 || !utf8.ValidString(h) || (h == "" && text != "") {
				t.Fatalf("%s: a chunk of %d bytes", name, len(chunk))
			}
			all.WriteString(contentOf(t, chunk))
		}
		if all.String() != text {
			t.Errorf("%s: the pieces do not make the text", name)
		}
	}
}

// TestRuneJoiner is case 69: text cut at every byte, never a broken rune.
func TestRuneJoiner(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a", "é漢😀z", "😀", "a\xff\xfeb", "\x80\x80\x80\x80\x80", "a\xf0\x9f", "\xf0\x9f漢"} {
		for size := 1; size <= 5; size++ {
			var j wire.RuneJoiner
			var all strings.Builder
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				piece := j.Join(rest[:n])
				rest = rest[n:]
				if utf8.ValidString(text) && !utf8.ValidString(piece) {
					t.Errorf("Join of %q by %d gives %q", text, size, piece)
				}
				all.WriteString(piece)
			}
			all.WriteString(j.Flush())
			if all.String() != text || j.Flush() != "" {
				t.Errorf("Join of %q by %d gives %q", text, size, all.String())
			}
		}
	}
}

// However many log-probabilities come at once, no event is long, and none is lost.
func TestSplitLogprobs(t *testing.T) {
	t.Parallel()
	long := wire.Logprob{Token: strings.Repeat("\x01", 100), Bytes: make([]byte, 100), Logprob: -1}
	for range 20 {
		long.Top = append(long.Top, wire.Logprob{Token: long.Token, Bytes: long.Bytes, Logprob: -1})
	}
	e := wire.NewChunkEncoder(head(), true)
	for _, entry := range []wire.Logprob{long, {Token: "a", Bytes: []byte("a")}} {
		list := make([]wire.Logprob, 500)
		for i := range list {
			list[i] = entry
		}
		total := 0
		for rest := list; rest != nil; {
			var head []wire.Logprob
			head, rest = wire.SplitLogprobs(rest)
			total += len(head)
			if n := len(e.AppendContentLogprobs(nil, 0, strings.Repeat("a", 16<<10), head)); n > 60<<10 || len(head) == 0 {
				t.Fatalf("an event of %d bytes with %d entries", n, len(head))
			}
		}
		if total != len(list) {
			t.Errorf("%d of %d entries", total, len(list))
		}
	}
}
