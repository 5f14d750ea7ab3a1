package openai

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-ai/parley/internal/sse"
	"github.com/parley-ai/parley/internal/wire"
)

const (
	// maxTokens is the largest count that is believed of a provider.
	maxTokens = 1 << 30
	// keptBytes is how much of an answer's buffers is kept for the next one.
	keptBytes = 64 << 10
)

// chunk is what one event says of the first choice. Its slices are valid until the
// next decode.
type chunk struct {
	text      []byte
	reasoning []byte
	finish    []byte // empty: not yet
	tools     []toolPiece
	usage     wire.Usage
	hasUsage  bool
	fault     bool // the event is an error
}

// toolPiece is a piece of a tool call as the provider sends it.
type toolPiece struct {
	index     int // -1 when it has none
	id        string
	name      string
	arguments string
}

// decoder reads chunks, each in one pass and without garbage but for the parts of tool
// calls. Members it does not know are skipped; null is the same as absent.
type decoder struct {
	dec   *jsontext.Decoder
	buf   bytes.Buffer
	chunk chunk
}

// reader is what an answer is read with. It can read one after the other.
type reader struct {
	events  *sse.Reader
	decoder *decoder
}

func newReader() *reader {
	return &reader{sse.NewReader(nil, maxEventBytes), newDecoder()}
}

// small says whether it is worth keeping: an answer of huge events leaves large buffers.
func (r *reader) small() bool {
	c := &r.decoder.chunk
	clear(c.tools[:cap(c.tools)])
	return cap(c.text)+cap(c.reasoning) <= keptBytes && cap(c.tools) <= maxToolCalls
}

func newDecoder() *decoder {
	d := &decoder{}
	// Text that a server cuts in the middle of a rune is no valid UTF-8, event by event.
	d.dec = jsontext.NewDecoder(&d.buf, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	return d
}

// decode reads the data of one event. It fails with errAnswer when a member has
// another type than it must have.
func (d *decoder) decode(data []byte) (*chunk, error) {
	c := &d.chunk
	*c = chunk{text: c.text[:0], reasoning: c.reasoning[:0], finish: c.finish[:0], tools: c.tools[:0]}
	d.buf = *bytes.NewBuffer(data)
	d.dec.Reset(&d.buf, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if d.dec.PeekKind() != '{' {
		return nil, fmt.Errorf("%w: a chunk that is no JSON object", errAnswer)
	}
	if err := d.object((*decoder).top); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if d.dec.PeekKind() != 0 || d.dec.InputOffset() != int64(len(bytes.TrimRight(data, " \t\r\n"))) {
		return nil, fmt.Errorf("%w: something follows the chunk", errAnswer)
	}
	return c, nil
}

// object reads an object, or null, and calls member for each name, which must read the
// value.
func (d *decoder) object(member func(d *decoder, name string) error) error {
	if done, err := d.begin('{'); done || err != nil {
		return err
	}
	for d.dec.PeekKind() != '}' {
		name, err := d.dec.ReadValue()
		if err != nil {
			return err
		}
		if err := member(d, memberName(name)); err != nil {
			return err
		}
	}
	_, err := d.dec.ReadToken()
	return err
}

// array reads an array, or null, and calls element for each.
func (d *decoder) array(element func(d *decoder) error) error {
	if done, err := d.begin('['); done || err != nil {
		return err
	}
	for d.dec.PeekKind() != ']' {
		if err := element(d); err != nil {
			return err
		}
	}
	_, err := d.dec.ReadToken()
	return err
}

// begin reads the bracket of that kind; done means that there was null instead.
func (d *decoder) begin(kind jsontext.Kind) (done bool, err error) {
	switch got := d.dec.PeekKind(); got {
	case kind, 'n':
		_, err := d.dec.ReadToken()
		return got == 'n', err
	case 0:
		_, err := d.dec.ReadToken()
		return false, err
	default:
		return false, d.mistyped()
	}
}

func (d *decoder) mistyped() error {
	return fmt.Errorf("%s has the wrong type", d.dec.StackPointer())
}

// memberName returns the known names as constants, so that nothing is allocated.
func memberName(quoted []byte) string {
	for _, name := range [...]string{
		"choices", "usage", "error", "object", "index", "delta", "finish_reason", "content", "refusal", "reasoning_content", "reasoning",
		"tool_calls", "id", "function", "name", "arguments", "prompt_tokens", "completion_tokens",
		"prompt_tokens_details", "completion_tokens_details", "cached_tokens", "reasoning_tokens", "prompt_cache_hit_tokens",
	} {
		if len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name {
			return name
		}
	}
	return ""
}

func (d *decoder) top(name string) error {
	switch name {
	case "choices":
		return d.array((*decoder).choice)
	case "usage":
		return d.usage()
	case "error":
		d.chunk.fault = d.chunk.fault || d.dec.PeekKind() != 'n'
	case "object":
		value, err := d.dec.ReadValue()
		d.chunk.fault = d.chunk.fault || string(value) == `"error"`
		return err
	}
	return d.dec.SkipValue()
}

// choice keeps what belongs to the first choice; others were not asked for.
func (d *decoder) choice() error {
	c := &d.chunk
	text, reasoning, tools, finish := len(c.text), len(c.reasoning), len(c.tools), len(c.finish)
	index := 0
	err := d.object(func(d *decoder, name string) (err error) {
		switch name {
		case "index":
			index, err = d.integer(0)
			return err
		case "delta":
			return d.object((*decoder).delta)
		case "finish_reason":
			if finish > 0 {
				return d.dec.SkipValue()
			}
			c.finish, err = d.text(c.finish[:0])
			return err
		}
		return d.dec.SkipValue()
	})
	if index != 0 {
		c.text, c.reasoning, c.tools, c.finish = c.text[:text], c.reasoning[:reasoning], c.tools[:tools], c.finish[:finish]
	}
	return err
}

func (d *decoder) delta(name string) (err error) {
	c := &d.chunk
	switch name {
	case "content", "refusal":
		c.text, err = d.text(c.text)
		return err
	case "reasoning_content", "reasoning":
		// Some servers send both, with the same words.
		if len(c.reasoning) > 0 {
			return d.dec.SkipValue()
		}
		c.reasoning, err = d.text(c.reasoning)
		return err
	case "tool_calls":
		return d.array((*decoder).tool)
	}
	return d.dec.SkipValue()
}

func (d *decoder) tool() error {
	d.chunk.tools = append(d.chunk.tools, toolPiece{index: -1})
	return d.object((*decoder).toolMember)
}

func (d *decoder) toolMember(name string) (err error) {
	t := &d.chunk.tools[len(d.chunk.tools)-1]
	switch name {
	case "index":
		t.index, err = d.integer(-1)
		if err == nil && t.index < -1 {
			return d.mistyped()
		}
		return err
	case "id":
		t.id, err = d.string()
		return err
	case "function":
		return d.object((*decoder).function)
	}
	return d.dec.SkipValue()
}

func (d *decoder) function(name string) (err error) {
	t := &d.chunk.tools[len(d.chunk.tools)-1]
	switch name {
	case "name":
		t.name, err = d.string()
		return err
	case "arguments":
		if d.dec.PeekKind() != '{' {
			t.arguments, err = d.string()
			return err
		}
		// Some servers send the object itself.
		value, err := d.dec.ReadValue()
		if err != nil {
			return err
		}
		value = bytes.Clone(value)
		err = value.Compact(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
		t.arguments = string(value)
		return err
	}
	return d.dec.SkipValue()
}

func (d *decoder) string() (string, error) {
	b, err := d.text(nil)
	return string(b), err
}

// integer reads a whole number; null is absent.
func (d *decoder) integer(absent int) (int, error) {
	value, err := d.dec.ReadValue()
	if err != nil || value.Kind() == 'n' {
		return absent, err
	}
	n, err := strconv.Atoi(string(value))
	if value.Kind() != '0' || err != nil || n > maxTokens {
		return 0, d.mistyped()
	}
	return n, nil
}

// text appends a string to dst; null is empty.
func (d *decoder) text(dst []byte) ([]byte, error) {
	value, err := d.dec.ReadValue()
	switch {
	case err != nil:
		return dst, err
	case value.Kind() == 'n':
		return dst, nil
	case value.Kind() != '"':
		return dst, d.mistyped()
	}
	return appendUnquote(dst, value[1:len(value)-1]), nil
}

// usage reads the counts. Counts that cannot be true are as good as none; an answer is
// not lost over them.
func (d *decoder) usage() error {
	if d.dec.PeekKind() != '{' {
		return d.dec.SkipValue()
	}
	prompt, completion, cached, reasoning := -1, -1, 0, 0
	count := func(n *int) error {
		value, err := d.dec.ReadValue()
		if f, bad := strconv.ParseFloat(string(value), 64); bad == nil && f == math.Trunc(f) && f >= 0 && f <= maxTokens {
			*n = int(f)
		} else if value.Kind() != 'n' {
			*n = -1
		}
		return err
	}
	details := func(known string, n *int) error {
		if d.dec.PeekKind() != '{' {
			return d.dec.SkipValue()
		}
		return d.object(func(d *decoder, name string) error {
			if name == known {
				return count(n)
			}
			return d.dec.SkipValue()
		})
	}
	err := d.object(func(d *decoder, name string) error {
		switch name {
		case "prompt_tokens":
			return count(&prompt)
		case "completion_tokens":
			return count(&completion)
		case "prompt_cache_hit_tokens":
			return count(&cached)
		case "prompt_tokens_details":
			return details("cached_tokens", &cached)
		case "completion_tokens_details":
			return details("reasoning_tokens", &reasoning)
		}
		return d.dec.SkipValue()
	})
	if prompt >= 0 && completion >= 0 {
		d.chunk.hasUsage = true
		d.chunk.usage = wire.Usage{
			PromptTokens: prompt, CompletionTokens: completion,
			CachedTokens: max(0, min(cached, prompt)), ReasoningTokens: max(0, min(reasoning, completion)),
		}
	}
	return err
}

// appendUnquote appends what stands between the quotes of a JSON string whose syntax
// was checked. Bytes that are not UTF-8 are kept: the next event may have the rest.
func appendUnquote(dst, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(dst, s[:i]...)
		c := s[i+1]
		s = s[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(s)
			s = s[4:]
			if utf16.IsSurrogate(r) {
				low := rune(utf8.RuneError)
				if len(s) >= 6 && s[0] == '\\' && s[1] == 'u' {
					low = hex4(s[2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					s = s[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
}

func hex4(s []byte) (r rune) {
	for _, c := range s[:4] {
		switch {
		case c <= '9':
			c -= '0'
		case c <= 'F':
			c -= 'A' - 10
		default:
			c -= 'a' - 10
		}
		r = r<<4 | rune(c)
	}
	return r
}
