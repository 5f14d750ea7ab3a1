package openai

import (
	"bytes"
	"fmt"
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

// chunk is what one event says. Its slices are valid until the next decode.
type chunk struct {
	pieces   []piece // of choices, in the order of the event
	usage    wire.Usage
	hasUsage bool
	fault    bool // the event is an error
}

// piece is what an event says of one choice.
type piece struct {
	index     int
	text      []byte
	reasoning []byte
	refusal   []byte
	finish    []byte // empty: not yet
	tools     []toolPiece
	logprobs  []wire.Logprob
}

// says says whether there is a part of the answer in p.
func (p *piece) says() bool { return len(p.text)+len(p.reasoning)+len(p.refusal)+len(p.tools) > 0 }

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

// reader is what an answer is asked for and read with. It can read one after the other.
type reader struct {
	request []byte
	events  *sse.Reader
	decoder *decoder
	rest    [64]byte // of an answer, behind its end
}

func newReader() *reader {
	return &reader{events: sse.NewReader(nil, maxEventBytes), decoder: newDecoder()}
}

// small says whether it is worth keeping: an answer of huge events leaves large buffers.
func (r *reader) small() bool {
	c := &r.decoder.chunk
	bytes, tools := 0, 0
	for i := range c.pieces[:cap(c.pieces)] {
		p := &c.pieces[:cap(c.pieces)][i]
		bytes += cap(p.text) + cap(p.reasoning) + cap(p.refusal)
		tools += cap(p.tools)
		p.logprobs = nil
		clear(p.tools[:cap(p.tools)])
	}
	return bytes <= keptBytes && cap(r.request) <= keptBytes && tools <= maxToolCalls && cap(c.pieces) <= 2*wire.MaxChoices
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
	*c = chunk{pieces: c.pieces[:0]}
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
		"logprobs", "token", "logprob", "bytes", "top_logprobs",
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

// choice reads into a piece, whose memory an earlier chunk may have left.
func (d *decoder) choice() error {
	c := &d.chunk
	if n := len(c.pieces); n < cap(c.pieces) {
		c.pieces = c.pieces[:n+1]
	} else {
		c.pieces = append(c.pieces, piece{})
	}
	p := d.piece()
	*p = piece{text: p.text[:0], reasoning: p.reasoning[:0], refusal: p.refusal[:0], finish: p.finish[:0], tools: p.tools[:0]}
	return d.object(func(d *decoder, name string) (err error) {
		p := d.piece()
		switch name {
		case "index":
			p.index, err = d.integer(0)
			return err
		case "delta":
			return d.object((*decoder).delta)
		case "logprobs":
			return d.object((*decoder).scores)
		case "finish_reason":
			p.finish, err = d.text(p.finish[:0])
			return err
		}
		return d.dec.SkipValue()
	})
}

// piece is the one that is being read.
func (d *decoder) piece() *piece { return &d.chunk.pieces[len(d.chunk.pieces)-1] }

func (d *decoder) delta(name string) (err error) {
	p := d.piece()
	switch name {
	case "content":
		p.text, err = d.text(p.text)
		return err
	case "refusal":
		p.refusal, err = d.text(p.refusal)
		return err
	case "reasoning_content", "reasoning":
		// Some servers send both, with the same words.
		if len(p.reasoning) > 0 {
			return d.dec.SkipValue()
		}
		p.reasoning, err = d.text(p.reasoning)
		return err
	case "tool_calls":
		return d.array((*decoder).tool)
	}
	return d.dec.SkipValue()
}

func (d *decoder) tool() error {
	p := d.piece()
	p.tools = append(p.tools, toolPiece{index: -1})
	return d.object((*decoder).toolMember)
}

func (d *decoder) toolPiece() *toolPiece {
	tools := d.piece().tools
	return &tools[len(tools)-1]
}

func (d *decoder) toolMember(name string) (err error) {
	t := d.toolPiece()
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
	t := d.toolPiece()
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

// appendUnquote appends what stands between the quotes of a JSON string whose syntax
// was checked. Bytes that are not UTF-8 are kept: the next event may have the rest. So is
// one half of a pair of surrogates where its other half may be in the event before or
// behind, in three bytes as [joiner] takes it.
func appendUnquote(dst, s []byte) []byte {
	for first := true; ; first = false {
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
				switch pair := utf16.DecodeRune(r, low); {
				case pair != utf8.RuneError:
					r, s = pair, s[6:]
				case r < lowSurrogate && len(s) == 0, r >= lowSurrogate && first && i == 0:
					dst = appendHalf(dst, r)
					continue
				}
			}
			dst = utf8.AppendRune(dst, r) // of another half it is U+FFFD
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
