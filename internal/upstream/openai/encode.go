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

// request is what follows model and messages.
type request struct {
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
	// What is long is appended: reflection takes ten times as long.
	size := 512
	for i := range req.Messages {
		size += len(req.Messages[i].Content) + 64
	}
	dst := wire.AppendString(append(make([]byte, 0, size), `{"model":`...), call.Model)
	dst = append(appendMessages(append(dst, `,"messages":`...), req), ',')
	at := len(dst)
	buf := bytes.NewBuffer(dst)
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	body := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	return append(body[:at], body[at+1:]...), nil // without the bracket that opens r
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

// appendMessages appends the conversation as an array.
func appendMessages(dst []byte, req *wire.ChatRequest) []byte {
	dst = append(dst, '[')
	told := req.ResponseFormat.Kind != wire.FormatJSONObject || req.MentionsJSON()
	for i := range req.Messages {
		m := &req.Messages[i]
		role := m.Role
		if role == wire.RoleDeveloper {
			// It means the same, and only few templates know it.
			role = wire.RoleSystem
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		switch {
		case told || i > 0:
		case role == wire.RoleSystem:
			// Many templates take one system message only, at the beginning.
			dst = wire.AppendString(append(dst, `{"role":"system","content":`...), jsonInstruction+"\n\n"+m.Content)
			dst = append(dst, '}')
			continue
		default:
			dst = wire.AppendString(append(dst, `{"role":"system","content":`...), jsonInstruction)
			dst = append(dst, "},"...)
		}
		dst = wire.AppendString(append(dst, `{"role":`...), string(role))
		dst = appendContent(append(dst, `,"content":`...), m)
		for _, f := range [...]struct{ name, value string }{{"refusal", m.Refusal}, {"name", m.Name}, {"tool_call_id", m.ToolCallID}} {
			if f.value != "" {
				dst = wire.AppendString(append(wire.AppendString(append(dst, ','), f.name), ':'), f.value)
			}
		}
		dst = append(appendCalls(dst, m.ToolCalls), '}')
	}
	return append(dst, ']')
}

func appendContent(dst []byte, m *wire.Message) []byte {
	switch {
	case m.NullContent:
		return append(dst, "null"...)
	case m.Parts == nil:
		return wire.AppendString(dst, m.Content)
	}
	for i, text := range m.Parts {
		sep := byte(',')
		if i == 0 {
			sep = '['
		}
		dst = wire.AppendString(append(append(dst, sep), `{"type":"text","text":`...), text)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func appendCalls(dst []byte, calls []wire.ToolCall) []byte {
	for i, c := range calls {
		if c.Arguments == "" {
			// Templates parse the arguments, also of functions that take none.
			c.Arguments = "{}"
		}
		if i == 0 {
			dst = append(dst, `,"tool_calls":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = wire.AppendString(append(dst, `{"id":`...), c.ID)
		dst = wire.AppendString(append(dst, `,"type":"function","function":{"name":`...), c.Name)
		dst = wire.AppendString(append(dst, `,"arguments":`...), c.Arguments)
		dst = append(dst, "}}"...)
	}
	if len(calls) > 0 {
		dst = append(dst, ']')
	}
	return dst
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
