package wire

import (
	"encoding/json"
	"strings"
)

// ChatRequest is a decoded and validated body of POST /v1/chat/completions.
// It holds copies: the body it was decoded from may be reused.
type ChatRequest struct {
	Model    string
	Messages []Message

	Stream bool
	// IncludeUsage asks for usage on the last chunk; it implies Stream.
	IncludeUsage bool

	// Temperature and TopP hold 1 when the client gave none; HasTemperature
	// and HasTopP tell the two apart for providers with defaults of their own.
	Temperature    float64
	TopP           float64
	HasTemperature bool
	HasTopP        bool

	// MaxTokens is the limit on generated tokens; 0 means none was given.
	MaxTokens int
	// MaxTokensParam names the field MaxTokens came from, for error messages.
	MaxTokensParam string

	// Stop is nil or holds 1..64 sequences of 1..256 bytes.
	Stop []string
	// Seed is nil when the client gave none.
	Seed *int64
	// N is the number of choices, 1..8.
	N int

	FrequencyPenalty float64
	PresencePenalty  float64
	// LogitBias maps token ids to -100..100; nil when empty.
	LogitBias   map[int]float64
	Logprobs    bool
	TopLogprobs int

	// Tools is nil when the client defined none.
	Tools      []Tool
	ToolChoice ToolChoice
	// ParallelToolCalls is true unless the client said false.
	ParallelToolCalls bool
	ResponseFormat    ResponseFormat

	// ReasoningEffort is one of the convention's words; "" when absent or anything else.
	ReasoningEffort string
}

// MentionsJSON reports whether any message contains the word "json" in any
// case. Models that are not told to write JSON tend not to.
func (r *ChatRequest) MentionsJSON() bool {
	for i := range r.Messages {
		if strings.Contains(strings.ToLower(r.Messages[i].Content), "json") {
			return true
		}
	}
	return false
}

// Role is who speaks in a message.
type Role string

// The roles a message may have. Developer means the same as system.
const (
	RoleSystem    Role = "system"
	RoleDeveloper Role = "developer"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one turn of the conversation.
type Message struct {
	Role Role
	// Content is the text, all parts joined in order.
	Content string
	// Parts are the parts of Content when the client sent an array of more
	// than one; nil otherwise. They share memory with Content.
	Parts []string
	// NullContent is true when an assistant message had no content at all,
	// which is not the same to every chat template as an empty one.
	NullContent bool
	// Refusal is an assistant's refusal, echoed back by the client.
	Refusal string
	// Name is the optional name of the participant.
	Name string
	// ToolCallID is set, and non-empty, on tool messages only.
	ToolCallID string
	// ToolCalls is set on assistant messages only; ids are unique within it.
	ToolCalls []ToolCall
}

// ToolCall is a call of a function that a model asked for.
type ToolCall struct {
	ID   string
	Name string
	// Arguments is the text of the arguments as the model wrote it. In a
	// request it need not be valid JSON: it is model output echoed back.
	Arguments string
}

// Tool is a function that the model may call.
type Tool struct {
	Name        string
	Description string
	// Parameters is the JSON Schema object verbatim; nil when absent.
	Parameters json.RawMessage
	// Strict asks that arguments obey Parameters; the schema then has passed
	// the rules for strict schemas.
	Strict bool
}

// ToolMode says whether the model may, must or must not call tools.
type ToolMode string

// The modes of tool_choice. A decoded request always has one of them: without
// tool_choice it is auto when there are tools and none otherwise.
const (
	ToolNone     ToolMode = "none"
	ToolAuto     ToolMode = "auto"
	ToolRequired ToolMode = "required"
	ToolNamed    ToolMode = "function"
)

// ToolChoice is the tool_choice of a request. Name is set with ToolNamed and
// is then the name of one of the request's tools.
type ToolChoice struct {
	Mode ToolMode
	Name string
}

// FormatKind is the type of a response_format.
type FormatKind string

// The kinds of response_format; absent is text.
const (
	FormatText       FormatKind = "text"
	FormatJSONObject FormatKind = "json_object"
	FormatJSONSchema FormatKind = "json_schema"
)

// ResponseFormat is the form the answer must have. The other fields belong to
// FormatJSONSchema: Name is then set, Schema is verbatim and may be nil.
type ResponseFormat struct {
	Kind        FormatKind
	Name        string
	Description string
	Schema      json.RawMessage
	Strict      bool
}

// OnlyObject reports whether nothing but a JSON object is of the form: in JSON mode, and
// where a schema says so at its root.
func (f *ResponseFormat) OnlyObject() bool {
	if f.Kind != FormatJSONSchema || f.Schema == nil {
		return f.Kind == FormatJSONObject
	}
	var root struct {
		Type any `json:"type"`
	}
	return json.Unmarshal(f.Schema, &root) == nil && root.Type == "object"
}
