package local

import (
	"encoding/json"
	"strings"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/internal/wire"
)

// The marks of calls in what the model reads and writes.
const (
	callOpen    = "<tool_call>"
	callBetween = "</tool_call>\n<tool_call>"
	callClose   = "</tool_call>"
	mostCalls   = 8
)

// toolWords tell a model of its tools.
type toolWords struct {
	before, after string // around the tools, each on a line as JSON
	// results are told by the role "tool"; else the user tells them, in tags.
	toolRole bool
	// lean is added to the logit of the token that calls begin with, at the beginning of
	// an answer that may be one: small models know when to call, but do not dare.
	lean float64
}

// chosenWords are those that worked best with the model that Parley comes with:
// docs/structured-output.md has the measurement, BenchmarkTools repeats it.
func chosenWords() toolWords {
	return toolWords{
		before: "You may call one or more functions to assist with the user query.\n\n" +
			"You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n",
		after: "</tools>\n\n" +
			"For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n" +
			"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>\n\n" +
			"For example, with a tool \"lookup\" the question \"Who is Ada Lovelace?\" is answered with\n" +
			"<tool_call>{\"name\": \"lookup\", \"arguments\": {\"person\": \"Ada Lovelace\"}}</tool_call>",
		lean: 3,
	}
}

// tools is what the system's message says of them.
func (w *toolWords) tools(list []wire.Tool) string {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	type tool struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	var b strings.Builder
	b.WriteString(w.before)
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, t := range list {
		if t.Parameters == nil {
			t.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		_ = e.Encode(tool{"function", function{t.Name, t.Description, t.Parameters}}) // strings and checked JSON: it cannot fail
	}
	b.WriteString(w.after)
	return b.String()
}

// jsonInstruction is added when no message speaks of JSON: models that are not told
// tend to fill the page with blanks.
const jsonInstruction = "Answer with one JSON object and nothing else."

// messages is what the chat template sees. It has no place for names, tools and calls:
// what they say is put into the text.
func (w *toolWords) messages(req *wire.ChatRequest) []engine.Message {
	ms := make([]engine.Message, 0, len(req.Messages)+1)
	if extra := w.instructions(req); extra != "" {
		ms = append(ms, engine.Message{Role: string(wire.RoleSystem), Content: extra})
	}
	for i := range req.Messages {
		m := &req.Messages[i]
		out := engine.Message{Role: string(m.Role), Content: m.Content}
		switch m.Role {
		case wire.RoleDeveloper, wire.RoleSystem:
			out.Role = string(wire.RoleSystem)
			if i == 0 && len(ms) == 1 { // it is one message to the model
				ms[0].Content = m.Content + "\n\n" + ms[0].Content
				continue
			}
		case wire.RoleAssistant:
			out.Content += calls(m.ToolCalls)
		case wire.RoleTool:
			if !w.toolRole {
				out.Role = string(wire.RoleUser)
				out.Content = "<tool_response>\n" + out.Content + "\n</tool_response>"
			}
		}
		ms = append(ms, out)
	}
	return ms
}

// instructions are what the model is told beside the conversation.
func (w *toolWords) instructions(req *wire.ChatRequest) string {
	var parts []string
	if len(req.Tools) > 0 && req.ToolChoice.Mode != wire.ToolNone {
		parts = append(parts, w.tools(req.Tools))
	}
	switch f := req.ResponseFormat; {
	case f.Kind == wire.FormatJSONSchema && f.Schema != nil:
		parts = append(parts, "Answer with one JSON value of this schema and nothing else: "+string(f.Schema))
	case (f.Kind == wire.FormatJSONObject || f.Kind == wire.FormatJSONSchema) && !req.MentionsJSON():
		parts = append(parts, jsonInstruction)
	}
	return strings.Join(parts, "\n\n")
}

func calls(list []wire.ToolCall) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(callOpen)
	for i, c := range list {
		if i > 0 {
			b.WriteString(callBetween)
		}
		name, _ := json.Marshal(c.Name) // a string has a JSON form
		arguments := c.Arguments
		if arguments == "" {
			arguments = "{}"
		}
		b.WriteString(`{"name": ` + string(name) + `, "arguments": ` + arguments + "}")
	}
	b.WriteString(callClose)
	return b.String()
}
