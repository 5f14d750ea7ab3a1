package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// What the provider's scripts say.
const (
	remoteWords  = "Hello, dear friend: 1 < 2 & é 🙂."
	remoteObject = `{"city":"Rome","temp":21}`
	remoteSaid   = "The tools say sun in Rome and it is noon."
)

// sdk is the official Go client; its middleware notes answers and changes nothing.
func (r *remote) sdk(more ...option.RequestOption) openai.Client {
	note := func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		resp, err := next(req)
		if err == nil && strings.HasSuffix(req.URL.Path, "/chat/completions") {
			r.saw(resp.Header.Get("x-request-id"), resp.StatusCode)
		}
		return resp, err
	}
	return sdk(r.Server, r.key, append([]option.RequestOption{option.WithMiddleware(note), option.WithMaxRetries(0)}, more...)...)
}

func ask(model string) openai.ChatCompletionNewParams {
	p := hello(model, 200)
	p.Messages = slices.Clone(p.Messages)
	return p
}

// whole and accumulated are the two ways to an answer.
func whole(t *testing.T, c *openai.Client, p openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) {
	t.Helper()
	return c.Chat.Completions.New(t.Context(), p)
}

func accumulated(t *testing.T, c *openai.Client, p openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) {
	t.Helper()
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	defer stream.Close()
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			return nil, fmt.Errorf("the accumulator refuses %s", stream.Current().RawJSON())
		}
	}
	return &acc.ChatCompletion, stream.Err()
}

func TestOpenAIGo_Upstream(t *testing.T) { //nolint:tparallel // the receipts are checked after its subtests
	t.Parallel()
	checkOpenAIGo(t, startRemote(t))
}

// checkOpenAIGo is all that the client does; the receipts are checked after its subtests.
func checkOpenAIGo(t *testing.T, r *remote) {
	t.Helper()
	client := r.sdk()
	for way, get := range map[string]func(*testing.T, *openai.Client, openai.ChatCompletionNewParams) (*openai.ChatCompletion, error){
		"whole": whole, "accumulated": accumulated,
	} {
		t.Run(way+" text", func(t *testing.T) {
			c, err := get(t, &client, ask("text"))
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Choices[0]; got.Message.Content != remoteWords || got.FinishReason != "stop" || got.Message.Role != "assistant" {
				t.Errorf("answer %+v", got)
			}
			if u := c.Usage; u.CompletionTokens != 5 || u.PromptTokensDetails.CachedTokens != 40 || u.TotalTokens != u.PromptTokens+5 {
				t.Errorf("usage %+v", u)
			}
		})
		for _, model := range []string{"tools", "tools-whole"} {
			t.Run(way+" tool loop with "+model, func(t *testing.T) {
				checkToolLoop(t, model, func(p openai.ChatCompletionNewParams) (*openai.ChatCompletion, error) { return get(t, &client, p) })
			})
		}
		t.Run(way+" json_schema", func(t *testing.T) {
			p := ask("json")
			p.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{
				Name: "place", Strict: openai.Bool(true), Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"},"temp":{"type":"integer"}},"required":["city","temp"],"additionalProperties":false}`),
			}}
			c, err := get(t, &client, p)
			if err != nil || c.Choices[0].Message.Content != remoteObject {
				t.Errorf("%v %+v", err, c)
			}
		})
		t.Run(way+" failure", func(t *testing.T) {
			for model, code := range map[string]string{"status-500": "upstream_error", "status-429": "upstream_overloaded", "stall": "upstream_timeout"} {
				_, err := get(t, &client, ask(model))
				e, ok := errors.AsType[*openai.Error](err)
				if !ok || e.StatusCode != http.StatusBadGateway || e.Code != code || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s: %v", model, err)
				}
			}
		})
		t.Run(way+" answer that is cut", func(t *testing.T) {
			for _, model := range []string{"cut", "fault"} {
				_, err := get(t, &client, ask(model))
				// An error event in a stream is no *openai.Error: it has no status.
				e, ok := errors.AsType[*openai.Error](err)
				if err == nil || ok && e.Code != "upstream_error" || !ok && !strings.Contains(err.Error(), "upstream_error") || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s: %v", model, err)
				}
			}
		})
		t.Run(way+" retry", func(t *testing.T) {
			patient := r.sdk(option.WithMaxRetries(2))
			p := ask("flaky")
			p.Messages = append(p.Messages, openai.UserMessage("flaky "+way))
			c, err := get(t, &patient, p)
			if err != nil || c.Choices[0].Message.Content != remoteWords {
				t.Errorf("%v %+v", err, c)
			}
		})
	}
	t.Run("models retrieve with a slash", func(t *testing.T) {
		m, err := client.Models.Get(t.Context(), "org/text")
		if err != nil || m.ID != "org/text" {
			t.Errorf("%+v %v", m, err)
		}
	})
	t.Run("leave a stream", func(t *testing.T) { checkLeave(t, r, &client) })
	r.checkReceipts(t)
}

// checkToolLoop calls the tools that the model asks for until it answers with text.
func checkToolLoop(t *testing.T, model string, get func(openai.ChatCompletionNewParams) (*openai.ChatCompletion, error)) {
	t.Helper()
	p := ask(model)
	for _, name := range []string{"get_weather", "get_time"} {
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: name}))
	}
	first, err := get(p)
	if err != nil {
		t.Fatal(err)
	}
	message := first.Choices[0].Message
	p.Messages = append(p.Messages, message.ToParam())
	for i, want := range []struct{ name, arguments, result string }{{"get_weather", remoteObject, "sun in Rome"}, {"get_time", "{}", "it is noon"}} {
		if len(message.ToolCalls) != 2 || first.Choices[0].FinishReason != "tool_calls" {
			t.Fatalf("answer %+v", first.Choices[0])
		}
		call := message.ToolCalls[i]
		if call.ID == "" || call.Type != "function" || call.Function.Name != want.name || call.Function.Arguments != want.arguments {
			t.Errorf("call %d is %+v", i, call)
		}
		p.Messages = append(p.Messages, openai.ToolMessage(want.result, call.ID))
	}
	second, err := get(p)
	if err != nil || second.Choices[0].Message.Content != remoteSaid {
		t.Errorf("%v %+v", err, second)
	}
}

// checkLeave closes streams; the provider must lose its connection at once. A busy machine may delay
// some, so it is tried until it was quick, at most twelve times, and most of the time it is not late.
func checkLeave(t *testing.T, r *remote, client *openai.Client) {
	t.Helper()
	var all []time.Duration
	for i := range 12 {
		p := ask("endless")
		text := fmt.Sprintf("leave %d", i)
		p.Messages = append(p.Messages, openai.UserMessage(text))
		stream := client.Chat.Completions.NewStreaming(t.Context(), p)
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
		at := time.Now()
		stream.Close()
		var took time.Duration
		eventually(t, func() error {
			for _, c := range r.provider.Calls() {
				if c.Text == text && !c.Gone.IsZero() {
					took = c.Gone.Sub(at)
					return nil
				}
			}
			return errors.New("the provider is still asked")
		})
		all = append(all, took)
		slices.Sort(all)
		if len(all) >= 3 && all[0] < 100*time.Millisecond && all[len(all)/2] < 2*time.Second {
			return
		}
	}
	t.Errorf("the provider lost its connection %v after the client left", all)
}
