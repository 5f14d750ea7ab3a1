package openai

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
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

// options are what few callers set. What all or many do is appended by hand: reflection
// takes ten times as long.
type options struct {
	Stop              []string           `json:"stop,omitempty"`
	FrequencyPenalty  float64            `json:"frequency_penalty,omitempty"`
	PresencePenalty   float64            `json:"presence_penalty,omitempty"`
	LogitBias         map[string]float64 `json:"logit_bias,omitempty"`
	N                 int                `json:"n,omitempty"`
	Logprobs          bool               `json:"logprobs,omitempty"`
	TopLogprobs       int                `json:"top_logprobs,omitempty"`
	Tools             []tool             `json:"tools,omitempty"`
	ToolChoice        any                `json:"tool_choice,omitempty"`
	ParallelToolCalls *bool              `json:"parallel_tool_calls,omitempty"`
	ResponseFormat    *responseFormat    `json:"response_format,omitempty"`
	ReasoningEffort   string             `json:"reasoning_effort,omitempty"`
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

// encode appends the body of a request to dst, which is empty. What the caller left out is left out here, so
// that the model's own defaults hold; only the bound of the answer is always there.
func (p *Provider) encode(dst []byte, call *upstream.Call, bound int) ([]byte, error) {
	req := call.Request
	size := 512
	for i := range req.Messages {
		size += len(req.Messages[i].Content) + 64
	}
	dst = wire.AppendString(append(slices.Grow(dst, size), `{"model":`...), call.Model)
	dst = appendMessages(append(dst, `,"messages":`...), req)
	dst = append(dst, `,"stream":true,"stream_options":{"include_usage":true},"max_`...)
	if p.options.CompletionTokens {
		dst = append(dst, "completion_"...)
	}
	dst = strconv.AppendInt(append(dst, `tokens":`...), int64(bound), 10)
	dst = appendSampling(dst, req)
	o := newOptions(req)
	if reflect.ValueOf(o).IsZero() {
		return append(dst, '}'), nil
	}
	dst = append(dst, ',')
	at := len(dst)
	buf := bytes.NewBuffer(dst)
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(o); err != nil {
		return nil, err
	}
	body := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	return append(body[:at], body[at+1:]...), nil // without the bracket that opens o
}

// appendSampling appends how tokens are chosen, where the caller says so.
func appendSampling(dst []byte, req *wire.ChatRequest) []byte {
	zero := req.HasTopP && req.TopP == 0
	switch {
	case zero:
		// Legal here and refused by most servers; it means the likeliest token.
		dst = append(dst, `,"temperature":0`...)
	case req.HasTemperature:
		dst = strconv.AppendFloat(append(dst, `,"temperature":`...), req.Temperature, 'g', -1, 64)
	}
	if req.HasTopP && !zero {
		dst = strconv.AppendFloat(append(dst, `,"top_p":`...), req.TopP, 'g', -1, 64)
	}
	if req.Seed != nil {
		dst = strconv.AppendInt(append(dst, `,"seed":`...), *req.Seed, 10)
	}
	return dst
}

func newOptions(req *wire.ChatRequest) options {
	o := options{
		FrequencyPenalty: req.FrequencyPenalty, PresencePenalty: req.PresencePenalty,
		Logprobs: req.Logprobs, TopLogprobs: req.TopLogprobs,
		ReasoningEffort: req.ReasoningEffort, ResponseFormat: format(req.ResponseFormat),
	}
	if len(req.Stop) > 0 {
		o.Stop = req.Stop[:min(len(req.Stop), maxStops)]
	}
	if req.N > 1 {
		o.N = req.N
	}
	if len(req.LogitBias) > 0 {
		o.LogitBias = make(map[string]float64, len(req.LogitBias))
		for id, bias := range req.LogitBias {
			o.LogitBias[strconv.Itoa(id)] = bias
		}
	}
	o.addTools(req)
	return o
}

// addTools leaves out what is the default: some servers refuse tool_choice auto unless
// they were started for it.
func (o *options) addTools(req *wire.ChatRequest) {
	if len(req.Tools) == 0 {
		return
	}
	for i := range req.Tools {
		t := &req.Tools[i]
		o.Tools = append(o.Tools, tool{"function", function{t.Name, t.Description, t.Parameters, t.Strict}})
	}
	switch req.ToolChoice.Mode {
	case wire.ToolNone, wire.ToolRequired:
		o.ToolChoice = string(req.ToolChoice.Mode)
	case wire.ToolNamed:
		c := namedChoice{Type: "function"}
		c.Function.Name = req.ToolChoice.Name
		o.ToolChoice = c
	}
	if !req.ParallelToolCalls {
		o.ParallelToolCalls = new(false)
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
