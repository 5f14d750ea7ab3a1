package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
)

// chosen is a piece of a choice; members go into its delta.
func chosen(choice int, delta, more string) string {
	return fmt.Sprintf(`{"index":%d,"delta":{%s}%s}`, choice, delta, more)
}

func chunkOf(parts ...string) string { return `{"choices":[` + strings.Join(parts, ",") + `]}` }

func says(choice int, text string) string {
	return chosen(choice, fmt.Sprintf(`"content":%q`, text), "")
}

func ends(choice int, reason string) string {
	return chosen(choice, "", fmt.Sprintf(`,"finish_reason":%q`, reason))
}

func TestGenerate_Choices(t *testing.T) {
	t.Parallel()
	const two = `,"n":2`
	runStreamTests(t, []streamTest{
		{
			"in turns", two, events(chunkOf(says(0, "a")), chunkOf(says(1, "x")), chunkOf(says(0, "b")), chunkOf(ends(0, "stop")), chunkOf(says(1, "y")), chunkOf(ends(1, "length")), usage), "",
			[]string{"text a", "#1 text x", "text b", "#1 text y", "finish stop", "#1 finish length usage 3 2 1 1"},
		},
		{
			"in one event, out of order", two, events(chunkOf(says(1, "x"), says(0, "a")), chunkOf(ends(1, "stop"), ends(0, "stop"))), "",
			[]string{"#1 text x", "text a", "finish stop", "#1 finish stop"},
		},
		{
			"one too many", two, events(chunkOf(says(0, "a"), says(2, "no"), says(-1, "no"), says(1, "x")), chunkOf(ends(0, "stop"), ends(1, "stop"), ends(2, "stop"))), "",
			[]string{"text a", "#1 text x", "finish stop", "#1 finish stop"},
		},
		{"one missing", two, events(chunkOf(says(0, "a")), chunkOf(ends(0, "stop")), usage), "failed", []string{"text a"}},
		{"one missing in a stream", two + `,"stream":true`, events(chunkOf(says(0, "a")), chunkOf(ends(0, "stop")), usage), "cut", []string{"text a"}},
		{
			"usage of a part", two, events(chunkOf(says(0, "a")), chunkOf(ends(0, "stop")), usage, chunkOf(says(1, "x")), chunkOf(ends(1, "stop"))), "",
			[]string{"text a", "#1 text x", "finish stop", "#1 finish stop"},
		},
		{
			// What the provider counts has what nobody gets.
			"one stopped by us", two + `,"stop":"END"`, events(chunkOf(says(0, "aEN")), chunkOf(says(1, "xEN")), chunkOf(says(0, "D no")), chunkOf(says(0, "no"), says(1, "E")), chunkOf(ends(1, "stop")), usage), "",
			[]string{"text a", "#1 text x", "#1 text EN", "#1 text E", "finish stop", "#1 finish stop"},
		},
		{
			"runes and thoughts in pieces", two, events(
				chunkOf(says(0, "a")), "{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"\xf0\x9f\"}}]}", chunkOf(chosen(0, `"reasoning":"hm"`, "")),
				"{\"choices\":[{\"index\":1,\"delta\":{\"content\":\"\x98\x80\"}}]}", chunkOf(ends(0, "stop"), ends(1, "stop"))), "",
			[]string{"text a", "think hm", "#1 text 😀", "finish stop", "#1 finish stop"},
		},
		{
			"tools of each", withTools + two, events(
				chunkOf(chosen(0, `"tool_calls":[{"index":0,"id":"call_a","function":{"name":"f","arguments":"{"}}]`, "")),
				chunkOf(chosen(1, `"tool_calls":[{"index":0,"id":"call_b","function":{"name":"g"}}]`, "")),
				chunkOf(chosen(0, `"tool_calls":[{"index":0,"function":{"arguments":"}"}}]`, "")),
				chunkOf(ends(0, "tool_calls"), ends(1, "tool_calls"))), "",
			[]string{"call 0 call_a f", "args 0 {", "#1 call 0 call_b g", "args 0 }", "#1 args 0 {}", "finish tool_calls", "#1 finish tool_calls"},
		},
		{
			"ignores its bound", two, func(e *upstreamtest.Exchange) {
				e.Stream()
				for e.Event(chunkOf(says(1, strings.Repeat("word ", 4000)))) {
				}
			}, "",
			[]string{"#1 text " + strings.Repeat("word ", 4000), "finish length", "#1 finish length"},
		},
	})
}

// scored is a piece of text with its tokens.
func scored(text string, tokens ...string) string {
	var list []string
	for _, token := range tokens {
		list = append(list, fmt.Sprintf(`{"token":%q,"logprob":-0.5,"bytes":null,"top_logprobs":[{"token":%[1]q,"logprob":-0.5,"bytes":[1,255]},{"token":"z","logprob":null}]}`, token))
	}
	return chunkOf(chosen(0, fmt.Sprintf(`"content":%q`, text), `,"logprobs":{"content":[`+strings.Join(list, ",")+`],"refusal":null}`))
}

func TestGenerate_Logprobs(t *testing.T) {
	t.Parallel()
	const asked, top = `,"logprobs":true`, `,"logprobs":true,"top_logprobs":2`
	const plain = `{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-1.5e0,"bytes":[97]}]}}]}`
	runStreamTests(t, []streamTest{
		{"with text", top, events(role, scored("Hel", "H", "el"), scored("lo", "lo"), finish("stop")), "", []string{`text Hel {H -0.5 "" 2} {el -0.5 "" 2}`, `text lo {lo -0.5 "" 2}`, "finish stop"}},
		{"no more than asked for", asked, events(scored("a", "a"), finish("stop")), "", []string{`text a {a -0.5 "" 0}`, "finish stop"}},
		{"bytes", asked, events(plain, finish("stop")), "", []string{`text a {a -1.5 "a" 0}`, "finish stop"}},
		{"not asked for", "", events(plain, finish("stop")), "", []string{"text a", "finish stop"}},
		{"held with their text", asked + `,"stop":"END"`, events(scored("aE", "a", "E"), scored("Nx", "N", "x"), finish("stop")), "", []string{`text a {a -0.5 "" 0}`, `text ENx {E -0.5 "" 0} {N -0.5 "" 0} {x -0.5 "" 0}`, "finish stop"}},
		{"hidden with their text", asked + `,"stop":"END"`, events(scored("ab", "ab"), scored("cE", "cE"), scored("ND", "ND")), "", []string{`text ab {ab -0.5 "" 0}`, `text c {cE -0.5 "" 0}`, "finish stop"}},
		{"tokens that do not spell the text", asked, events(scored("a b", "a", "Ġb_____"), scored("c", "c"), finish("stop")), "", []string{`text a b {a -0.5 "" 0} {Ġb_____ -0.5 "" 0}`, "text c", `text  {c -0.5 "" 0}`, "finish stop"}},
		{"left out", asked, events(text("a"), finish("stop")), "failed", nil},
		{"null", asked, events(`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":null}]}`, finish("stop")), "failed", nil},
		{"of an empty answer", asked, events(role, finish("stop")), "", []string{"finish stop"}},
		{"malformed", asked, events(`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":"x"}]}}]}`), "failed", nil},
		{"byte 256", asked, events(`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-1,"bytes":[256]}]}}]}`), "failed", nil},
	})
}
