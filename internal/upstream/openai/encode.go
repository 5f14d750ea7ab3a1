package openai

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// maxStops is how many stops every known server takes. The others are kept by us, as
// all are.
const maxStops = 4

// jsonInstruction is added when no message speaks of JSON: models that are not told
// tend to fill the page with blanks, and some hosted APIs refuse the request.
const jsonInstruction = "Answer with one JSON object and nothing else."

type request struct {
	Model               string             `json:"model"`
	Messages            []message          `json:"messages"`
	Stream              bool               `json:"stream"`
	StreamOptions       streamOptions      `json:"stream_options"`
	MaxTokens           int                `json:"max_tokens,omitempty"`
	MaxCompletionTokens int                `json:"max_completion_tokens,omitempty"`
	Temperature         *float64           `json:"temperature,omitempty"`
	TopP                *float64           `json:"top_p,omitempty"`
	Seed                *int64             `json:"seed,omitempty"`
	Stop                []string           `json:"stop,omitempty"`
	FrequencyPenalty    float64            `json:"frequency_penalty,omitempty"`
	PresencePenalty     float64            `json:"presence_penalty,omitempty"`
	LogitBias           map[string]float64 `json:"logit_bias,omitempty"`
	N                   int                `json:"n,omitempty"`
	Logprobs            bool               `json:"logprobs,omitempty"`
	TopLogprobs         int                `json:"top_logprobs,omitempty"`
	Tools               []tool             `json:"tools,omitempty"`
	ToolChoice          any                `json:"tool_choice,omitempty"`
	ParallelToolCalls   *bool              `json:"parallel_tool_calls,omitempty"`
	ResponseFormat      *responseFormat    `json:"response_format,omitempty"`
	ReasoningEffort     string             `json:"reasoning_effort,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role       wire.Role  `json:"role"`
	Content    any        `json:"content"` // a string, parts or null
	Refusal    string     `json:"refusal,omitempty"`
	Name       string     `json:"name,omitempty"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function calledByName `json:"function"`
}

type calledByName struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      bool            `json:"strict,omitempty"`
}

type namedChoice struct {
	Type     string `json:"type"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
}

type responseFormat struct {
	Type   wire.FormatKind `json:"type"`
	Schema *jsonSchema     `json:"json_schema,omitempty"`
}

type jsonSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Strict      bool            `json:"strict,omitempty"`
}

// encode writes the body of a request. What the caller left out is left out here, so
// that the model's own defaults hold; only the bound of the answer is always there.
func (p *Provider) encode(call *upstream.Call, bound int) ([]byte, error) {
	req := call.Request
	r := request{
		Model: call.Model, Messages: messages(req),
		Stream: true, StreamOptions: streamOptions{IncludeUsage: true},
		Seed: req.Seed, Stop: req.Stop[:min(len(req.Stop), maxStops)],
		FrequencyPenalty: req.FrequencyPenalty, PresencePenalty: req.PresencePenalty,
		Logprobs: req.Logprobs, TopLogprobs: req.TopLogprobs,
		ReasoningEffort: req.ReasoningEffort, ResponseFormat: format(req.ResponseFormat),
	}
	if req.N > 1 {
		r.N = req.N
	}
	if p.options.CompletionTokens {
		r.MaxCompletionTokens = bound
	} else {
		r.MaxTokens = bound
	}
	if req.HasTemperature {
		r.Temperature = &req.Temperature
	}
	switch {
	case req.HasTopP && req.TopP == 0:
		// Legal here and refused by most servers; it means the likeliest token.
		r.Temperature = new(float64)
	case req.HasTopP:
		r.TopP = &req.TopP
	}
	if len(req.LogitBias) > 0 {
		r.LogitBias = make(map[string]float64, len(req.LogitBias))
		for id, bias := range req.LogitBias {
			r.LogitBias[strconv.Itoa(id)] = bias
		}
	}
	r.addTools(req)
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// addTools leaves out what is the default: some servers refuse tool_choice auto unless
// they were started for it.
func (r *request) addTools(req *wire.ChatRequest) {
	if len(req.Tools) == 0 {
		return
	}
	for i := range req.Tools {
		t := &req.Tools[i]
		r.Tools = append(r.Tools, tool{"function", function{t.Name, t.Description, t.Parameters, t.Strict}})
	}
	switch req.ToolChoice.Mode {
	case wire.ToolNone, wire.ToolRequired:
		r.ToolChoice = string(req.ToolChoice.Mode)
	case wire.ToolNamed:
		c := namedChoice{Type: "function"}
		c.Function.Name = req.ToolChoice.Name
		r.ToolChoice = c
	}
	if !req.ParallelToolCalls {
		r.ParallelToolCalls = new(false)
	}
}

func messages(req *wire.ChatRequest) []message {
	ms := make([]message, 0, len(req.Messages)+1)
	if req.ResponseFormat.Kind == wire.FormatJSONObject && !req.MentionsJSON() {
		ms = append(ms, message{Role: wire.RoleSystem, Content: jsonInstruction})
	}
	for i := range req.Messages {
		m := &req.Messages[i]
		out := message{Role: m.Role, Content: content(m), Refusal: m.Refusal, Name: m.Name, ToolCallID: m.ToolCallID}
		if m.Role == wire.RoleDeveloper {
			// It means the same, and only few templates know it.
			out.Role = wire.RoleSystem
		}
		for _, c := range m.ToolCalls {
			if c.Arguments == "" {
				// Templates parse the arguments, also of functions that take none.
				c.Arguments = "{}"
			}
			out.ToolCalls = append(out.ToolCalls, toolCall{c.ID, "function", calledByName{c.Name, c.Arguments}})
		}
		if len(ms) == 1 && i == 0 && out.Role == wire.RoleSystem {
			// Many templates take one system message only, at the beginning.
			ms[0].Content = jsonInstruction + "\n\n" + m.Content
			continue
		}
		ms = append(ms, out)
	}
	return ms
}

func content(m *wire.Message) any {
	switch {
	case m.NullContent:
		return nil
	case m.Parts == nil:
		return m.Content
	}
	parts := make([]part, len(m.Parts))
	for i, text := range m.Parts {
		parts[i] = part{"text", text}
	}
	return parts
}

func format(f wire.ResponseFormat) *responseFormat {
	switch f.Kind {
	case wire.FormatJSONObject:
		return &responseFormat{Type: f.Kind}
	case wire.FormatJSONSchema:
		return &responseFormat{f.Kind, &jsonSchema{f.Name, f.Description, f.Schema, f.Strict}}
	}
	return nil
}
