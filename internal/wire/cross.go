package wire

import "slices"

// crossCheck applies the rules that span fields, and settles the defaults that
// depend on other fields.
func crossCheck(d *decoder) *Error {
	r := d.req
	if d.hasMaxTokens && d.hasMaxCompletionToks {
		return bothTokenLimits()
	}
	switch {
	case d.hasMaxTokens:
		r.MaxTokens, r.MaxTokensParam = d.maxTokens, "max_tokens"
	case d.hasMaxCompletionToks:
		r.MaxTokens, r.MaxTokensParam = d.maxCompletionTokens, "max_completion_tokens"
	}
	if d.hasStreamOptions && !r.Stream {
		return streamOptionsWithoutStream()
	}
	if d.hasTopLogprobs && !r.Logprobs {
		return topLogprobsWithoutLogprobs()
	}
	if err := checkTools(r); err != nil {
		return err
	}
	return checkToolTurns(r.Messages)
}

func checkTools(r *ChatRequest) *Error {
	for i := range r.Tools {
		for j := range i {
			if r.Tools[i].Name == r.Tools[j].Name {
				return duplicateFunction(i, r.Tools[i].Name)
			}
		}
	}
	switch r.ToolChoice.Mode {
	case "":
		r.ToolChoice.Mode = ToolNone
		if len(r.Tools) > 0 {
			r.ToolChoice.Mode = ToolAuto
		}
	case ToolRequired, ToolNamed:
		if len(r.Tools) == 0 {
			return toolChoiceWithoutTools()
		}
	}
	named := func(t Tool) bool { return t.Name == r.ToolChoice.Name }
	if r.ToolChoice.Mode == ToolNamed && !slices.ContainsFunc(r.Tools, named) {
		return toolChoiceNotFound(r.ToolChoice.Name)
	}
	return nil
}

// checkToolTurns walks the conversation: every call must be answered, once,
// before anyone but the system speaks again.
func checkToolTurns(messages []Message) *Error {
	var pending []string
	for i := range messages {
		m := &messages[i]
		switch m.Role {
		case RoleSystem, RoleDeveloper:
		case RoleTool:
			if len(pending) == 0 {
				return orphanTool(i)
			}
			at := slices.Index(pending, m.ToolCallID)
			if at < 0 {
				return unknownToolCallID(i, m.ToolCallID)
			}
			pending = slices.Delete(pending, at, at+1)
		default:
			if len(pending) > 0 {
				return unansweredCalls("messages.["+itoa(i)+"].role", pending)
			}
			pending = pending[:0]
			for _, call := range m.ToolCalls {
				pending = append(pending, call.ID)
			}
		}
	}
	if len(pending) > 0 {
		return unansweredCalls("messages", pending)
	}
	return nil
}

// Capabilities says what a model, together with what serves it, can do beyond
// plain text. The zero value can do nothing more.
type Capabilities struct {
	JSONObject       bool // response_format json_object
	JSONSchema       bool // response_format json_schema
	Tools            bool // tools and tool calls
	FrequencyPenalty bool
	PresencePenalty  bool
	LogitBias        bool
	Logprobs         bool
	MultipleChoices  bool // n above 1
}

// Supports returns nil when c covers everything r asks for, else the 400 for
// the first thing it does not. Nothing a client asked for is silently ignored:
// a penalty of 0, an empty bias and n of 1 ask for nothing.
func Supports(r *ChatRequest, c Capabilities) *Error {
	switch {
	case len(r.Tools) > 0 && !c.Tools:
		return UnsupportedParameter("tools")
	case r.ResponseFormat.Kind == FormatJSONObject && !c.JSONObject,
		r.ResponseFormat.Kind == FormatJSONSchema && !c.JSONSchema:
		return unsupportedFormat(r.ResponseFormat.Kind)
	case r.FrequencyPenalty != 0 && !c.FrequencyPenalty:
		return UnsupportedParameter("frequency_penalty")
	case r.PresencePenalty != 0 && !c.PresencePenalty:
		return UnsupportedParameter("presence_penalty")
	case len(r.LogitBias) > 0 && !c.LogitBias:
		return UnsupportedParameter("logit_bias")
	case r.Logprobs && !c.Logprobs:
		return UnsupportedParameter("logprobs")
	case r.N > 1 && !c.MultipleChoices:
		return integerAbove("n", 1, itoa(r.N))
	}
	return nil
}
