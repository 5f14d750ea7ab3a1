package wire

import "math"

func (d *decoder) messages() {
	if d.null() {
		return
	}
	d.hasMessages = true
	if d.kind() != '[' {
		d.wrongType("an array of objects")
		return
	}
	n := d.array(MaxMessages, func(i int) {
		if d.kind() != '{' {
			d.wrongType("an object")
			return
		}
		d.message(i)
	})
	switch {
	case n == 0:
		d.fail(emptyArray("messages"))
	case n > MaxMessages:
		d.fail(arrayTooLong("messages", MaxMessages, n))
	}
}

// turn is a message while it is read. What its content may be depends on the
// role, which may come later in the document.
type turn struct {
	Message
	role       string
	content    contentState
	foreign    string // type of the first part that is not text
	foreignAt  int
	refusalAt  int // 1 + index of the first refusal part
	hasRole    bool
	hasCallID  bool
	legacyCall bool
}

type contentState uint8

const (
	contentMissing contentState = iota
	contentNull
	contentGiven
)

func (d *decoder) message(i int) {
	t := &d.turn
	*t = turn{}
	d.object(func(name []byte) {
		switch string(name) {
		case "role":
			d.named("role", func() { t.role, t.hasRole = d.text() })
		case "content":
			d.named("content", func() { d.content(t) })
		case "name":
			d.named("name", func() { t.Name, _ = d.text() })
		case "refusal":
			d.named("refusal", func() { t.Refusal, _ = d.text() })
		case "tool_call_id":
			d.named("tool_call_id", func() { t.ToolCallID, t.hasCallID = d.text() })
		case "tool_calls":
			d.named("tool_calls", func() { t.ToolCalls = d.toolCalls() })
		case "function_call":
			t.legacyCall = !d.null()
			if t.legacyCall {
				d.skip()
			}
		default:
			d.skip()
		}
	})
	if d.failing() {
		return
	}
	if err := d.closeMessage(t, i); err != nil {
		d.fail(err)
		return
	}
	if d.req.Messages == nil {
		d.req.Messages = make([]Message, 0, 4) // one step of growing for three
	}
	d.req.Messages = append(d.req.Messages, t.Message)
}

// named runs read with name at the end of the path.
func (d *decoder) named(name string, read func()) {
	d.path = append(d.path, segment{name: name})
	read()
	d.path = d.path[:len(d.path)-1]
}

// closeMessage checks what only the whole message can tell.
func (d *decoder) closeMessage(t *turn, i int) *Error {
	if !t.hasRole {
		return missing(d.childPath("role"))
	}
	t.Role = Role(t.role)
	switch t.Role {
	case RoleSystem, RoleDeveloper, RoleUser, RoleAssistant, RoleTool:
	case "function":
		return unsupportedValue(d.childPath("role"), "function")
	default:
		return badEnum(d.childPath("role"), t.role, "system", "developer", "user", "assistant", "tool")
	}
	if t.legacyCall {
		return UnsupportedParameter(d.childPath("function_call"))
	}
	if t.Role != RoleAssistant {
		t.ToolCalls, t.Refusal = nil, ""
	}
	if t.Role != RoleTool {
		t.ToolCallID = ""
	} else if !t.hasCallID {
		return missing(d.childPath("tool_call_id"))
	} else if t.ToolCallID == "" {
		return emptyString(d.childPath("tool_call_id"))
	}
	if t.refusalAt > 0 && t.Role != RoleAssistant && t.foreign == "" {
		t.foreign, t.foreignAt = "refusal", t.refusalAt-1
	}
	if t.foreign != "" {
		return d.foreignPart(t, i)
	}
	if t.content != contentGiven {
		if len(t.ToolCalls) == 0 && t.Refusal == "" {
			if t.content == contentNull {
				return nullContent(i)
			}
			return missing(d.childPath("content"))
		}
		t.NullContent = true
	}
	return nil
}

// foreignPart is the refusal of a part that is not text.
func (d *decoder) foreignPart(t *turn, i int) *Error {
	path := d.childPath("content") + "[" + itoa(t.foreignAt) + "].type"
	switch {
	case t.Role == RoleUser:
		switch t.foreign {
		case "image_url", "input_audio", "file":
			return UnsupportedContent(i, t.foreignAt, t.foreign)
		}
		return badEnum(path, t.foreign, "text", "image_url", "input_audio", "file")
	case t.Role == RoleAssistant:
		return badEnum(path, t.foreign, "text", "refusal")
	default:
		return badEnum(path, t.foreign, "text")
	}
}

func (d *decoder) content(t *turn) {
	// A second content in the same message replaces the first.
	t.content, t.Content, t.Parts, t.foreign, t.refusalAt = contentGiven, "", nil, "", 0
	switch d.kind() {
	case 'n':
		d.scalar()
		t.content = contentNull
	case '"':
		t.Content = string(d.unquote(d.scalar()))
	case '[':
		d.contentParts(t)
	default:
		d.wrongType("one of a string or array of objects")
	}
}

func (d *decoder) contentParts(t *turn) {
	var text []byte
	var ends []int
	n := d.array(math.MaxInt, func(i int) {
		if d.kind() != '{' {
			d.wrongType("an object")
			return
		}
		kind, part := d.contentPart()
		switch kind {
		case "text":
			text = append(text, part...)
			ends = append(ends, len(text))
		case "refusal":
			if t.refusalAt == 0 {
				t.Refusal, t.refusalAt = part, i+1
			}
		case "":
		default:
			if t.foreign == "" {
				t.foreign, t.foreignAt = kind, i
			}
		}
	})
	if n == 0 {
		d.fail(emptyArray(d.pathString()))
		return
	}
	t.Content = string(text)
	if len(ends) > 1 {
		t.Parts = make([]string, len(ends))
		start := 0
		for i, end := range ends {
			t.Parts[i] = t.Content[start:end]
			start = end
		}
	}
}

// contentPart reads one part; kind is "" when it was at fault.
func (d *decoder) contentPart() (kind, value string) {
	var hasKind, hasText, hasRefusal bool
	var text, refusal string
	d.object(func(name []byte) {
		switch string(name) {
		case "type":
			d.named("type", func() { kind, hasKind = d.text() })
		case "text":
			d.named("text", func() { text, hasText = d.text() })
		case "refusal":
			d.named("refusal", func() { refusal, hasRefusal = d.text() })
		default:
			d.skip()
		}
	})
	switch {
	case d.failing():
		return "", ""
	case !hasKind:
		d.fail(missing(d.childPath("type")))
		return "", ""
	case kind == "":
		d.fail(emptyString(d.childPath("type")))
		return "", ""
	case kind == "text" && !hasText:
		d.fail(missing(d.childPath("text")))
		return "", ""
	case kind == "text":
		return kind, text
	case kind == "refusal" && !hasRefusal:
		d.fail(missing(d.childPath("refusal")))
		return "", ""
	default:
		return kind, refusal
	}
}

// toolCalls reads the tool_calls of a message in the history. Empty is the
// same as absent: clients echo what some servers sent them.
func (d *decoder) toolCalls() []ToolCall {
	if d.null() {
		return nil
	}
	if d.kind() != '[' {
		d.wrongType("an array of objects")
		return nil
	}
	var calls []ToolCall
	n := d.array(MaxTools, func(int) {
		if d.kind() != '{' {
			d.wrongType("an object")
			return
		}
		call := d.toolCall()
		for _, other := range calls {
			if other.ID == call.ID && !d.failing() {
				d.fail(duplicateToolCallID(d.childPath("id"), call.ID))
			}
		}
		calls = append(calls, call)
	})
	if n > MaxTools {
		d.fail(arrayTooLong(d.pathString(), MaxTools, n))
	}
	return calls
}

func (d *decoder) toolCall() (call ToolCall) {
	var kind string
	var hasKind, hasID, hasFunction, hasName, hasArguments bool
	d.object(func(name []byte) {
		switch string(name) {
		case "id":
			d.named("id", func() { call.ID, hasID = d.text() })
		case "type":
			d.named("type", func() { kind, hasKind = d.text() })
		case "function":
			d.named("function", func() {
				call.Name, call.Arguments, hasName, hasArguments = "", "", false, false
				if hasFunction = !d.null(); !hasFunction {
					return
				}
				if d.kind() != '{' {
					d.wrongType("an object")
					return
				}
				d.object(func(name []byte) {
					switch string(name) {
					case "name":
						d.named("name", func() { call.Name, hasName = d.text() })
					case "arguments":
						d.named("arguments", func() { call.Arguments, hasArguments = d.text() })
					default:
						d.skip()
					}
				})
			})
		default:
			d.skip()
		}
	})
	if d.failing() {
		return call
	}
	switch {
	case !hasID:
		d.fail(missing(d.childPath("id")))
	case call.ID == "":
		d.fail(emptyString(d.childPath("id")))
	case hasKind && kind != "function":
		d.fail(badEnum(d.childPath("type"), kind, "function"))
	case !hasFunction:
		d.fail(missing(d.childPath("function")))
	case !hasName:
		d.fail(missing(d.childPath("function.name")))
	case call.Name == "":
		d.fail(emptyString(d.childPath("function.name")))
	case !hasArguments:
		d.fail(missing(d.childPath("function.arguments")))
	}
	return call
}
