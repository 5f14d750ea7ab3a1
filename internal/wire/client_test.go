package wire_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"github.com/parley-ai/parley/internal/sse"
	"github.com/parley-ai/parley/internal/wire"
)

// TestStream_OfficialClient reads a stream of text and two tool calls with the
// accumulator of the official client, the strictest of the Go ones.
func TestStream_OfficialClient(t *testing.T) {
	t.Parallel()
	e := wire.NewChunkEncoder(head(), true)
	var buf bytes.Buffer
	w := sse.NewWriter(&buf, nil)
	for _, chunk := range [][]byte{
		e.AppendRole(nil, 0), e.AppendRole(nil, 1), e.AppendContent(nil, 0, "<Hel"), e.AppendKeepAlive(nil, 0), e.AppendContent(nil, 0, "lo>\u2028"),
		e.AppendToolCall(nil, 0, 0, "call_a", "get_weather", false), e.AppendToolArguments(nil, 0, 0, `{"city":`), e.AppendToolArguments(nil, 0, 0, `"Rome"}`),
		e.AppendToolCall(nil, 0, 1, "call_b", "get_time", false), e.AppendToolArguments(nil, 0, 1, `{}`),
		e.AppendFinish(nil, 0, wire.FinishToolCalls), e.AppendContent(nil, 1, "B"), e.AppendFinish(nil, 1, wire.FinishStop),
		e.AppendUsage(nil, wire.Usage{PromptTokens: 3, CompletionTokens: 2}),
	} {
		if err := w.Send(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Done(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(buf.String(), "\n") {
		if line != "" && !strings.HasPrefix(line, "data: ") {
			t.Errorf("line %q", line)
		}
	}
	if !strings.HasSuffix(buf.String(), "}\n\ndata: [DONE]\n\n") {
		t.Errorf("the stream ends in %q", buf.String()[buf.Len()-40:])
	}

	var acc openai.ChatCompletionAccumulator
	r := sse.NewReader(&buf, 1<<20)
	for {
		event, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if event.Done() {
			break
		}
		var chunk openai.ChatCompletionChunk
		if err := json.Unmarshal(event.Data, &chunk); err != nil {
			t.Fatalf("%s: %v", event.Data, err)
		}
		if !acc.AddChunk(chunk) {
			t.Fatalf("the client refuses %s", event.Data)
		}
	}
	c := acc.Choices[0]
	if c.Message.Content != "<Hello>\u2028" || c.Message.Role != "assistant" || c.FinishReason != "tool_calls" || acc.Choices[1].Message.Content != "B" || acc.Choices[1].FinishReason != "stop" {
		t.Errorf("choices %+v", acc.Choices)
	}
	calls := c.Message.ToolCalls
	if len(calls) != 2 || calls[0].ID != "call_a" || calls[0].Function.Name != "get_weather" || calls[0].Function.Arguments != `{"city":"Rome"}` || calls[1].Function.Arguments != "{}" {
		t.Errorf("tool calls %+v", calls)
	}
	if acc.ID != "chatcmpl-X" || acc.Usage.TotalTokens != 5 || acc.Usage.PromptTokens != 3 {
		t.Errorf("id %q, usage %+v", acc.ID, acc.Usage)
	}
}
