package wire

// ChunkEncoder writes the chunks of one stream. Everything that is the same in
// all of them is computed once, so a chunk costs no allocation beyond what dst
// needs. It is not changed by use and may be shared.
//
// The caller keeps the order that clients rely on, for every choice: one role
// chunk, then content or tool calls one after another, then one finish chunk;
// after the last choice the usage chunk, if it was asked for.
type ChunkEncoder struct {
	head []byte // up to the number of the choice
	bare []byte // up to the array of choices
	tail []byte // what follows the array of choices
}

// NewChunkEncoder returns an encoder for the stream of h. With includeUsage
// every chunk but the last carries "usage":null.
func NewChunkEncoder(h Head, includeUsage bool) *ChunkEncoder {
	e := &ChunkEncoder{bare: append(appendHead(nil, h, "chat.completion.chunk"), `,"choices":[`...)}
	e.head = append(append(e.head, e.bare...), `{"index":`...)
	e.tail = []byte(`]}`)
	if includeUsage {
		e.tail = []byte(`],"usage":null}`)
	}
	return e
}

// open begins a chunk of one choice up to the members of its delta.
func (e *ChunkEncoder) open(dst []byte, choice int) []byte {
	dst = appendInt(append(dst, e.head...), choice)
	return append(dst, `,"delta":{`...)
}

// shut ends a chunk that is not the choice's last.
func (e *ChunkEncoder) shut(dst []byte) []byte { return e.shutWith(dst, nil) }

func (e *ChunkEncoder) shutWith(dst []byte, logprobs []Logprob) []byte {
	dst = appendLogprobs(append(dst, "},"...), logprobs)
	return append(append(dst, `,"finish_reason":null}`...), e.tail...)
}

// AppendRole appends the chunk that opens a choice.
func (e *ChunkEncoder) AppendRole(dst []byte, choice int) []byte {
	dst = append(e.open(dst, choice), `"role":"assistant","content":"","refusal":null`...)
	return e.shut(dst)
}

// AppendContent appends a chunk with a piece of the text. Text that may be
// long goes through [SplitDelta] first.
func (e *ChunkEncoder) AppendContent(dst []byte, choice int, text string) []byte {
	return e.AppendContentLogprobs(dst, choice, text, nil)
}

// AppendContentLogprobs appends a chunk with a piece of the text, which may be "", and
// the tokens that begin in it. What may be long goes through [SplitLogprobs] first.
func (e *ChunkEncoder) AppendContentLogprobs(dst []byte, choice int, text string, logprobs []Logprob) []byte {
	dst = appendString(append(e.open(dst, choice), `"content":`...), text)
	return e.shutWith(dst, logprobs)
}

// AppendRefusal appends a chunk with a piece of why the model does not answer.
func (e *ChunkEncoder) AppendRefusal(dst []byte, choice int, text string) []byte {
	dst = appendString(append(e.open(dst, choice), `"refusal":`...), text)
	return e.shut(dst)
}

// AppendReasoning appends a chunk with a piece of the reasoning of models that
// show it.
func (e *ChunkEncoder) AppendReasoning(dst []byte, choice int, text string) []byte {
	dst = appendString(append(e.open(dst, choice), `"reasoning_content":`...), text)
	return e.shut(dst)
}

// AppendToolCall appends the chunk that opens tool call number call of a
// choice, counted from 0 without gaps. first says that the choice has had no
// role chunk, so this one carries the role.
func (e *ChunkEncoder) AppendToolCall(dst []byte, choice, call int, id, name string, first bool) []byte {
	dst = e.open(dst, choice)
	if first {
		dst = append(dst, `"role":"assistant",`...)
	}
	dst = appendInt(append(dst, `"tool_calls":[{"index":`...), call)
	dst = appendString(append(dst, `,"id":`...), id)
	dst = appendString(append(dst, `,"type":"function","function":{"name":`...), name)
	return e.shut(append(dst, `,"arguments":""}}]`...))
}

// AppendToolArguments appends a chunk with a piece of the arguments of a call
// that was opened. Id and name are not repeated: clients concatenate them.
// Together the pieces must be JSON, at least {}.
func (e *ChunkEncoder) AppendToolArguments(dst []byte, choice, call int, piece string) []byte {
	dst = appendInt(append(e.open(dst, choice), `"tool_calls":[{"index":`...), call)
	dst = appendString(append(dst, `,"function":{"arguments":`...), piece)
	return e.shut(append(dst, `}}]`...))
}

// AppendKeepAlive appends a chunk that says nothing. Unlike comments and other
// events every client takes it.
func (e *ChunkEncoder) AppendKeepAlive(dst []byte, choice int) []byte {
	return e.shut(e.open(dst, choice))
}

// AppendFinish appends the last chunk of a choice.
func (e *ChunkEncoder) AppendFinish(dst []byte, choice int, reason FinishReason) []byte {
	dst = append(e.open(dst, choice), `},"logprobs":null,"finish_reason":`...)
	dst = append(appendString(dst, string(reason)), '}')
	return append(dst, e.tail...)
}

// AppendUsage appends the last chunk of a stream that asked for usage. It has
// no choices, and no other chunk may be like that: clients read choices[0].
func (e *ChunkEncoder) AppendUsage(dst []byte, u Usage) []byte {
	dst = append(append(dst, e.bare...), `],"usage":`...)
	return append(u.AppendJSON(dst), '}')
}
