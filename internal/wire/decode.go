package wire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// DecodeChat decodes and validates the body of POST /v1/chat/completions. The
// error is always a 400 and reports the first fault in this order: the JSON
// itself, the presence of model and messages, shapes in document order, rules
// across fields. Names are case-sensitive, unknown fields are ignored, null is
// the same as absent. What the model cannot do is not asked here: see
// [Supports]. DecodeChat keeps no reference to body.
func DecodeChat(body []byte) (*ChatRequest, *Error) {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	// The tokenizer would refuse lone surrogates together with bad UTF-8. They
	// are legal JSON, so UTF-8 is checked here and surrogates become U+FFFD.
	if !utf8.Valid(body) {
		return nil, invalidJSON()
	}
	d := decoders.Get().(*decoder) //nolint:forcetypeassert // there is nothing else
	defer decoders.Put(d)
	d.begin(newRequest(), body)
	defer d.begin(nil, nil) // what is kept holds no request
	if kind := d.kind(); kind != '{' {
		return nil, d.notAnObject(kind)
	}
	d.object(d.topLevel)
	d.end()
	switch {
	case d.broken:
		return nil, invalidJSON()
	case !d.hasModel:
		return nil, missingModel()
	case !d.hasMessages:
		return nil, missing("messages")
	case d.first != nil:
		return nil, d.first
	}
	if err := crossCheck(d); err != nil {
		return nil, err
	}
	return d.req, nil
}

func newRequest() *ChatRequest {
	return &ChatRequest{
		Temperature: 1, TopP: 1, N: 1, ParallelToolCalls: true,
		ResponseFormat: ResponseFormat{Kind: FormatText},
	}
}

// decoders are kept for their memory: a tokenizer takes as much as a short request.
var decoders = sync.Pool{New: func() any { return new(decoder) }}

// decoder walks one body after the other.
type decoder struct {
	in     jsontext.Decoder
	source bytes.Buffer // of in
	walk
}

// begin makes d ready for a body.
func (d *decoder) begin(req *ChatRequest, body []byte) {
	d.walk = walk{req: req, body: body}
	d.path = d.pathBuf[:0]
	d.source = *bytes.NewBuffer(body)
	d.in.Reset(&d.source, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// walk is what is known of one body. After the first shape error it goes on to the end,
// because a fault in the JSON behind it takes precedence.
type walk struct {
	body    []byte
	req     *ChatRequest
	first   *Error // first shape error
	broken  bool   // the JSON itself is at fault
	path    []segment
	pathBuf [8]segment
	scratch []byte
	turn    turn   // the message that is being read
	seen    uint64 // bit set of known top-level names

	hasModel, hasMessages              bool
	hasStreamOptions, hasTopLogprobs   bool
	maxTokens, maxCompletionTokens     int
	hasMaxTokens, hasMaxCompletionToks bool
}

// segment is one step of the path to the value being read: a name, or an
// index when name is empty.
type segment struct {
	name  string
	index int
}

func (d *decoder) pathString() string {
	var b []byte
	for i, s := range d.path {
		switch {
		case s.name == "":
			b = append(b, '[')
			b = strconv.AppendInt(b, int64(s.index), 10)
			b = append(b, ']')
		case i > 0:
			b = append(append(b, '.'), s.name...)
		default:
			b = append(b, s.name...)
		}
	}
	return string(b)
}

// childPath is the path of the field name in the object being read.
func (d *decoder) childPath(name string) string {
	if len(d.path) == 0 {
		return name
	}
	return d.pathString() + "." + name
}

// fail records err unless an earlier fault was found.
func (d *decoder) fail(err *Error) {
	if d.first == nil && !d.broken {
		d.first = err
	}
}

// failing reports whether nothing read from here on can matter but syntax.
func (d *decoder) failing() bool { return d.broken || d.first != nil }

// kind is the kind of the next value, or 0 when there is none.
func (d *decoder) kind() jsontext.Kind {
	if d.broken {
		return 0
	}
	return d.in.PeekKind()
}

// token reads one token, and one only: the depth is ours to bound.
func (d *decoder) token() {
	if d.broken {
		return
	}
	if _, err := d.in.ReadToken(); err != nil || d.in.StackDepth() > MaxDepth {
		d.broken = true
	}
}

// scalar reads a string, number, boolean or null and returns its text, which
// is valid until the next read. It is nil when the JSON is broken.
func (d *decoder) scalar() []byte {
	if d.broken {
		return nil
	}
	raw, err := d.in.ReadValue()
	if err != nil {
		d.broken = true
		return nil
	}
	return raw
}

// skip reads one value of any kind.
func (d *decoder) skip() {
	depth := d.in.StackDepth()
	for {
		d.token()
		if d.broken || d.in.StackDepth() <= depth {
			return
		}
	}
}

// raw reads one value and returns a copy of its text.
func (d *decoder) raw() []byte {
	d.kind() // moves the tokenizer to the value
	start := d.in.InputOffset()
	d.skip()
	if d.broken {
		return nil
	}
	return bytes.Clone(bytes.TrimLeft(d.body[start:d.in.InputOffset()], " \t\r\n:,"))
}

// object reads an object and calls field for every member; field must read
// the value. The name is valid until that read.
func (d *decoder) object(field func(name []byte)) {
	d.token()
	for {
		switch d.kind() {
		case '"':
			if name := d.unquote(d.scalar()); !d.broken {
				field(name)
			}
		case '}':
			d.token()
			return
		default:
			d.broken = true
			return
		}
	}
}

// array reads an array and calls element for every index below limit, then
// skips; it returns the number of elements. element must read the value.
func (d *decoder) array(limit int, element func(i int)) int {
	d.token()
	for i := 0; ; i++ {
		switch d.kind() {
		case ']':
			d.token()
			return i
		case 0, '}':
			d.broken = true
			return i
		}
		if i >= limit {
			d.skip()
			continue
		}
		d.path = append(d.path, segment{index: i})
		element(i)
		d.path = d.path[:len(d.path)-1]
	}
}

// unquote returns the text of a JSON string, valid until the next read.
func (d *decoder) unquote(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	// The error tells of lone surrogates, already replaced in the result.
	d.scratch, _ = jsontext.AppendUnquote(d.scratch[:0], raw)
	return d.scratch
}

// wrongType reads the next value and records that it should have been want.
func (d *decoder) wrongType(want string) {
	kind := d.kind()
	if kind != '0' {
		d.skip()
		d.fail(wrongType(d.pathString(), want, kindName(kind)))
		return
	}
	d.fail(wrongType(d.pathString(), want, numberName(d.scalar())))
}

// null reads a null and reports whether there was one.
func (d *decoder) null() bool {
	if d.kind() != 'n' {
		return false
	}
	d.scalar()
	return true
}

// text reads a string; ok is false for null and for a wrong type.
func (d *decoder) text() (s string, ok bool) {
	if d.null() {
		return "", false
	}
	if d.kind() != '"' {
		d.wrongType("a string")
		return "", false
	}
	return string(d.unquote(d.scalar())), true
}

// boolean reads a boolean; ok is false for null and for a wrong type.
func (d *decoder) boolean() (v, ok bool) {
	if d.null() {
		return false, false
	}
	if k := d.kind(); k != 't' && k != 'f' {
		d.wrongType("a boolean")
		return false, false
	}
	raw := d.scalar()
	return len(raw) == 4, true
}

// integer reads an integer within the bounds; ok is false for null and for
// every fault.
func (d *decoder) integer(low, high int64) (v int64, ok bool) {
	if d.null() {
		return 0, false
	}
	if d.kind() != '0' {
		d.wrongType("an integer")
		return 0, false
	}
	raw := d.scalar()
	if d.broken {
		return 0, false
	}
	n := readNumber(raw)
	switch {
	case !n.integral:
		d.fail(wrongType(d.pathString(), "an integer", "a decimal number"))
	case n.over < 0 || n.over == 0 && n.value < low:
		d.fail(integerBelow(d.pathString(), low, string(raw)))
	case n.over > 0 || n.value > high:
		d.fail(integerAbove(d.pathString(), high, string(raw)))
	default:
		return n.value, true
	}
	return 0, false
}

// decimal reads a number within the bounds, both inclusive.
func (d *decoder) decimal(low, high float64) (v float64, ok bool) {
	if d.null() {
		return 0, false
	}
	if d.kind() != '0' {
		d.wrongType("a decimal number")
		return 0, false
	}
	raw := d.scalar()
	if d.broken {
		return 0, false
	}
	// 1e400 reads as infinity with an error, which the bounds then refuse.
	v, _ = strconv.ParseFloat(string(raw), 64)
	switch {
	case v < low || math.IsNaN(v):
		d.fail(decimalBelow(d.pathString(), low, string(raw)))
	case v > high:
		d.fail(decimalAbove(d.pathString(), high, string(raw)))
	default:
		return v, true
	}
	return 0, false
}

// end reads to the end of the body, which must hold nothing more.
func (d *decoder) end() {
	if d.broken {
		return
	}
	if _, err := d.in.ReadToken(); !errors.Is(err, io.EOF) {
		d.broken = true
	}
}

// notAnObject tells a body of another JSON type from one that is no JSON.
func (d *decoder) notAnObject(kind jsontext.Kind) *Error {
	var name string
	if kind == '0' {
		name = numberName(d.scalar())
	} else {
		name = kindName(kind)
		d.skip()
	}
	d.end()
	if d.broken {
		return invalidJSON()
	}
	return bodyNotObject(name)
}

// kindName is the article and name that messages use for a JSON type.
func kindName(k jsontext.Kind) string {
	switch k {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	default:
		return "null"
	}
}

func numberName(raw []byte) string {
	if len(raw) > 0 && readNumber(raw).integral {
		return "an integer"
	}
	return "a decimal number"
}
