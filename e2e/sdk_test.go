package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/parley-ai/parley/e2e/proc"
)

// sdk is the official Go client, unmodified: base URL and key only.
func sdk(s *proc.Server, key string, more ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(s.URL + "/v1"), option.WithAPIKey(key)}, more...)...)
}

func hello(model string, tokens int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:       model,
		MaxTokens:   openai.Int(tokens),
		Temperature: openai.Float(0),
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("You are brief."),
			openai.UserMessage("Say hello."),
		},
	}
}

func TestOpenAIGo(t *testing.T) {
	t.Parallel()
	s := server(t)
	client := sdk(s, s.Key)

	t.Run("create", func(t *testing.T) {
		t.Parallel()
		c, err := client.Chat.Completions.New(t.Context(), hello("svc-pulse", 12))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Choices) != 1 || c.Choices[0].Message.Content == "" || c.Usage.TotalTokens != c.Usage.PromptTokens+c.Usage.CompletionTokens {
			t.Errorf("answer %s", c.RawJSON())
		}
	})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		whole, err := client.Chat.Completions.New(t.Context(), hello("svc-pulse", 12))
		if err != nil {
			t.Fatal(err)
		}
		params := hello("svc-pulse", 12)
		params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		var acc openai.ChatCompletionAccumulator
		for stream.Next() {
			if !acc.AddChunk(stream.Current()) {
				t.Fatalf("the accumulator refuses %s", stream.Current().RawJSON())
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		if len(acc.Choices) != 1 || acc.Choices[0].Message.Content != whole.Choices[0].Message.Content {
			t.Errorf("streamed %+v, whole %s", acc.Choices, whole.RawJSON())
		}
		if acc.Usage.TotalTokens != whole.Usage.TotalTokens || acc.Choices[0].FinishReason != whole.Choices[0].FinishReason {
			t.Errorf("streamed usage %d %s, whole %d %s", acc.Usage.TotalTokens, acc.Choices[0].FinishReason, whole.Usage.TotalTokens, whole.Choices[0].FinishReason)
		}
	})
	t.Run("choices", func(t *testing.T) {
		t.Parallel()
		params := hello("svc-pulse", 12)
		params.N, params.Seed, params.Temperature = openai.Int(3), openai.Int(5), openai.Float(1)
		params.Logprobs, params.TopLogprobs = openai.Bool(true), openai.Int(2)
		whole, err := client.Chat.Completions.New(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		var acc openai.ChatCompletionAccumulator
		for stream.Next() {
			if !acc.AddChunk(stream.Current()) {
				t.Fatalf("the accumulator refuses %s", stream.Current().RawJSON())
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		if len(whole.Choices) != 3 || len(acc.Choices) != 3 || acc.Usage.CompletionTokens != whole.Usage.CompletionTokens {
			t.Fatalf("streamed %+v, whole %s", acc.Choices, whole.RawJSON())
		}
		for i, c := range whole.Choices {
			if a := acc.Choices[i]; a.Message.Content != c.Message.Content || a.FinishReason != c.FinishReason || len(a.Logprobs.Content) != len(c.Logprobs.Content) || len(c.Logprobs.Content) == 0 {
				t.Errorf("choice %d: streamed %+v, whole %+v", i, a, c)
			}
		}
	})
	t.Run("models list", func(t *testing.T) {
		t.Parallel()
		page, err := client.Models.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, m := range page.Data {
			ids = append(ids, m.ID)
		}
		if strings.Join(ids, " ") != "svc-pulse svc-titan" {
			t.Errorf("models %v", ids)
		}
	})
	t.Run("models retrieve", func(t *testing.T) {
		t.Parallel()
		m, err := client.Models.Get(t.Context(), "svc-titan")
		if err != nil || m.ID != "svc-titan" || m.OwnedBy != "svc" {
			t.Errorf("%+v %v", m, err)
		}
	})
	t.Run("abort", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream := client.Chat.Completions.NewStreaming(ctx, hello("svc-pulse", 2000))
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
		cancel()
		for stream.Next() {
		}
		if err := stream.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("error after the abort: %v", err)
		}
	})
}

// TestOpenAIGo_Errors: the client sees status, type and code of every refusal.
func TestOpenAIGo_Errors(t *testing.T) {
	t.Parallel()
	s := server(t)
	free, _ := account(t, s, "sdk-free", "free", "1")
	poor, _ := account(t, s, "sdk-poor", "pro", "")
	hot := hello("svc-pulse", 4)
	hot.Temperature = openai.Float(3)
	tests := []struct {
		name, key string
		params    openai.ChatCompletionNewParams
		status    int
		kind      string
		code      string
	}{
		{"400", s.Key, hot, 400, "invalid_request_error", "decimal_above_max_value"},
		{"401", "sk-nope", hello("svc-pulse", 4), 401, "authentication_error", "invalid_api_key"},
		{"402", poor, hello("svc-pulse", 4), 402, "insufficient_quota", "insufficient_quota"},
		{"403", free, hello("svc-titan", 4), 403, "permission_error", "model_access_denied"},
		{"404", s.Key, hello("svc-typo", 4), 404, "invalid_request_error", "model_not_found"},
	}
	for _, tc := range tests {
		for _, streaming := range []bool{false, true} {
			name := tc.name
			if streaming {
				name += " stream"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				client := sdk(s, tc.key)
				var err error
				if streaming {
					stream := client.Chat.Completions.NewStreaming(t.Context(), tc.params)
					for stream.Next() {
					}
					err = stream.Err()
				} else {
					_, err = client.Chat.Completions.New(t.Context(), tc.params)
				}
				var e *openai.Error
				if !errors.As(err, &e) {
					t.Fatalf("error %v", err)
				}
				if e.StatusCode != tc.status || e.Type != tc.kind || e.Code != tc.code || e.Message == "" {
					t.Errorf("got %d %s %s %q, want %d %s %s", e.StatusCode, e.Type, e.Code, e.Message, tc.status, tc.kind, tc.code)
				}
				if !requestID.MatchString(e.Response.Header.Get("x-request-id")) {
					t.Error("no x-request-id")
				}
			})
		}
	}
}

// TestOpenAIPython runs the official Python client; each line "ok NAME" or "not ok NAME: why" of
// its script is one test.
func TestOpenAIPython(t *testing.T) { //nolint:tparallel // its subtests are lines of one script
	t.Parallel()
	program := python(t, "client_test.py")
	s := server(t)
	free, _ := account(t, s, "python-free", "free", "1")
	poor, _ := account(t, s, "python-poor", "pro", "")

	clientScript{
		env:     []string{"OPENAI_BASE_URL=" + s.URL + "/v1", "OPENAI_API_KEY=" + s.Key, "FREE_KEY=" + free, "POOR_KEY=" + poor},
		atLeast: 15, saw: func(string, int) {},
	}.run(t, program)
}
