package wire

import "strconv"

// FinishReason is why a choice ended.
type FinishReason string

// The reasons of the convention; clients know no others.
const (
	FinishStop          FinishReason = "stop"
	FinishLength        FinishReason = "length"
	FinishToolCalls     FinishReason = "tool_calls"
	FinishContentFilter FinishReason = "content_filter"
)

// Head is what all chunks of one stream, and the whole answer, have in common.
type Head struct {
	ID          string
	Created     int64 // Unix seconds
	Model       string
	Fingerprint string
}

// Completion is a whole answer.
type Completion struct {
	Head
	// Choices are in order of their Index, from 0.
	Choices []Choice
	Usage   Usage
}

// Choice is one generated message.
type Choice struct {
	Content   string
	Refusal   string // written as null when empty
	Reasoning string // reasoning_content; left out when empty
	// ToolCalls makes an empty Content null; empty arguments become {}.
	ToolCalls []ToolCall
	// Logprobs is of the tokens of Content; nil, written as null, where they were not
	// asked for.
	Logprobs []Logprob
	Finish   FinishReason
}

// AppendJSON appends the chat.completion object.
func (c *Completion) AppendJSON(dst []byte) []byte {
	dst = appendHead(dst, c.Head, "chat.completion")
	dst = append(dst, `,"choices":[`...)
	for i := range c.Choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = c.Choices[i].appendJSON(dst, i)
	}
	dst = append(dst, `],"usage":`...)
	return append(c.Usage.AppendJSON(dst), '}')
}

// appendHead opens an object with the members of h.
func appendHead(dst []byte, h Head, object string) []byte {
	dst = appendString(append(dst, `{"id":`...), h.ID)
	dst = appendString(append(dst, `,"object":`...), object)
	dst = strconv.AppendInt(append(dst, `,"created":`...), h.Created, 10)
	dst = appendString(append(dst, `,"model":`...), h.Model)
	return appendString(append(dst, `,"system_fingerprint":`...), h.Fingerprint)
}

func (c *Choice) appendJSON(dst []byte, index int) []byte {
	dst = appendInt(append(dst, `{"index":`...), index)
	dst = append(dst, `,"message":{"role":"assistant","content":`...)
	if c.Content == "" && (len(c.ToolCalls) > 0 || c.Refusal != "") {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, c.Content)
	}
	dst = append(dst, `,"refusal":`...)
	if c.Refusal == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, c.Refusal)
	}
	if c.Reasoning != "" {
		dst = appendString(append(dst, `,"reasoning_content":`...), c.Reasoning)
	}
	// Left out when empty: clients echo messages, and servers refuse [].
	if len(c.ToolCalls) > 0 {
		dst = append(dst, `,"tool_calls":[`...)
		for i := range c.ToolCalls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = c.ToolCalls[i].appendJSON(dst)
		}
		dst = append(dst, ']')
	}
	dst = append(appendLogprobs(append(dst, "},"...), c.Logprobs), `,"finish_reason":`...)
	return append(appendString(dst, string(c.Finish)), '}')
}

func (t *ToolCall) appendJSON(dst []byte) []byte {
	dst = appendString(append(dst, `{"id":`...), t.ID)
	dst = appendString(append(dst, `,"type":"function","function":{"name":`...), t.Name)
	dst = append(dst, `,"arguments":`...)
	if t.Arguments == "" {
		// Clients parse the arguments of a function that takes none, too.
		dst = append(dst, `"{}"`...)
	} else {
		dst = appendString(dst, t.Arguments)
	}
	return append(dst, "}}"...)
}
