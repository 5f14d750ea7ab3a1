package local

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/grammar"
	"github.com/parley-ai/parley/internal/wire"
)

// form is what a request holds its answer to.
type form struct {
	engine engine.Form
	// value is the grammar of the whole answer; nil where it is text or calls.
	value *grammar.Grammar
	// calls are the calls that an answer may have, at its beginning, or behind marker
	// where that is not "". nil: none.
	calls  *grammar.CallOptions
	marker string
	least  int
	// room is what the shortest call takes behind words, its mark included.
	room int
	// checks hold what the grammars do not enforce; nil: nothing.
	checks *checks
	size   int // bytes, about
}

// A request looks for its own form twice, and agents send the same tools with every turn.
const (
	// maxForms bounds the forms that are kept, each with a cache of its grammars' own.
	maxForms = 32
	// maxFormBytes bounds what these take together: hostile schemas make large grammars.
	maxFormBytes = 64 << 20
)

// forms are the forms that were made lately, by a hash of what they are made of. It is
// safe for concurrent use.
type forms struct {
	mu   sync.Mutex
	made map[[sha256.Size]byte]*form
	size int // bytes, about, of those
}

// form returns what req holds its answer to, nil for plain text. What cannot be held to
// is a [*wire.Error].
func (p *Provider) form(req *wire.ChatRequest) (*form, error) {
	if !constrained(req) {
		return nil, nil
	}
	key, err := formKey(req)
	if err != nil {
		return nil, err
	}
	p.forms.mu.Lock()
	f := p.forms.made[key]
	p.forms.mu.Unlock()
	if f != nil {
		return f, nil
	}
	if f, err = p.newForm(req); err != nil {
		return nil, err
	}
	p.forms.mu.Lock()
	defer p.forms.mu.Unlock()
	p.forms.keep(key, f)
	return f, nil
}

// keep adds f, alone where it does not fit beside the others. The caller has locked s.
func (s *forms) keep(key [sha256.Size]byte, f *form) {
	if len(s.made) >= maxForms || s.size+f.size > maxFormBytes {
		clear(s.made)
		s.size = 0
	}
	if s.made[key] == nil { // two may have made it at once
		s.size += f.size
	}
	s.made[key] = f
}

func constrained(req *wire.ChatRequest) bool {
	return len(req.Tools) > 0 || req.ResponseFormat.Kind == wire.FormatJSONObject || req.ResponseFormat.Kind == wire.FormatJSONSchema
}

func formKey(req *wire.ChatRequest) (key [sha256.Size]byte, err error) {
	text, err := json.Marshal(struct {
		Tools    []wire.Tool
		Choice   wire.ToolChoice
		Parallel bool
		Format   wire.ResponseFormat
	}{req.Tools, req.ToolChoice, req.ParallelToolCalls, req.ResponseFormat})
	return sha256.Sum256(text), err
}

func (p *Provider) newForm(req *wire.ChatRequest) (*form, error) {
	vocab, err := p.engine.Vocab()
	if err != nil {
		return nil, err
	}
	f := &form{checks: &checks{}}
	if err := f.addValue(vocab, req.ResponseFormat); err != nil {
		return nil, err
	}
	var calls *grammar.Grammar
	if req.ToolChoice.Mode != wire.ToolNone && len(req.Tools) > 0 {
		if calls, err = f.addCalls(vocab, req); err != nil {
			return nil, err
		}
	}
	if f.checks.empty() {
		f.checks = nil
	}
	for _, g := range []*grammar.Grammar{f.value, calls} {
		if g != nil {
			f.size += g.Size()
		}
	}
	e := engine.Form{Grammar: calls, Else: f.value, Vocab: vocab}
	switch {
	case calls == nil && f.value == nil:
		e.Marker = callOpen // tools are forbidden: nothing may look like a call
	case calls == nil:
		e.Grammar, e.Else, f.least = f.value, nil, f.value.Least()
	case req.ToolChoice.Mode != wire.ToolAuto:
		e.Else, f.value, f.least = nil, nil, calls.Least()
	case f.value != nil:
		f.marker, f.least, f.room = callOpen, min(f.value.Least(), calls.Least()), calls.Least()
	default:
		f.marker, e.Marker, f.room = callOpen, callOpen, spelling(vocab, callOpen)+calls.Least()
	}
	f.engine = e
	return f, nil
}

// spelling is the fewest tokens that make up text.
func spelling(vocab *grammar.Vocab, text string) int {
	var pieces []string
	for id := range int32(vocab.Size()) {
		if b := vocab.Piece(id); len(b) > 0 && len(b) <= len(text) && strings.Contains(text, string(b)) {
			pieces = append(pieces, string(b))
		}
	}
	fewest := make([]int, len(text)+1) // of the text from there on
	for at := len(text) - 1; at >= 0; at-- {
		fewest[at] = len(text)
		for _, piece := range pieces {
			if strings.HasPrefix(text[at:], piece) {
				fewest[at] = min(fewest[at], 1+fewest[at+len(piece)])
			}
		}
	}
	return fewest[0]
}

// addValue compiles the grammar of a response format.
func (f *form) addValue(vocab *grammar.Vocab, format wire.ResponseFormat) (err error) {
	switch {
	case format.Kind == wire.FormatJSONObject, format.Kind == wire.FormatJSONSchema && format.Schema == nil:
		f.value, err = grammar.JSON(vocab)
		return err
	case format.Kind != wire.FormatJSONSchema:
		return nil
	}
	if f.value, err = grammar.Schema(vocab, format.Schema); err != nil {
		return refused(err, func(path, reason string) *wire.Error { return wire.UnsupportedFormatSchema(format.Name, path, reason) })
	}
	unknown := f.value.Unknown()
	if len(unknown) > 0 && format.Strict {
		return wire.UnsupportedFormatSchema(format.Name, unknown[0], unenforced)
	}
	if len(unknown) > 0 {
		f.checks.value, err = newCheck(format.Schema)
		if err != nil {
			return wire.UnsupportedFormatSchema(format.Name, "", err.Error())
		}
	}
	return nil
}

const unenforced = "this keyword cannot be enforced, which strict demands"

// addCalls compiles the grammar of the calls that req allows. With auto they begin
// behind the marker, which is then not part of the grammar unless the answer is a value
// otherwise.
func (f *form) addCalls(vocab *grammar.Vocab, req *wire.ChatRequest) (*grammar.Grammar, error) {
	o := &grammar.CallOptions{Between: callBetween, Close: callClose, Most: 1}
	if req.ParallelToolCalls && req.ToolChoice.Mode != wire.ToolNamed {
		o.Most = mostCalls
	}
	if req.ToolChoice.Mode != wire.ToolAuto || f.value != nil {
		o.Open = callOpen
	}
	var index []int // of the request's tools
	for i, t := range req.Tools {
		if req.ToolChoice.Mode == wire.ToolNamed && t.Name != req.ToolChoice.Name {
			continue
		}
		o.Tools = append(o.Tools, grammar.Tool{Name: t.Name, Parameters: t.Parameters})
		index = append(index, i)
	}
	g, err := grammar.Calls(vocab, *o)
	if err != nil {
		return nil, refused(err, func(path, reason string) *wire.Error {
			at, rest := splitIndex(path)
			if at < 0 || at >= len(index) {
				at, rest = 0, path
			}
			return wire.UnsupportedFunctionSchema(index[at], req.Tools[index[at]].Name, rest, reason)
		})
	}
	for _, path := range g.Unknown() {
		at, rest := splitIndex(path)
		if at < 0 {
			continue
		}
		t := req.Tools[index[at]]
		if t.Strict {
			return nil, wire.UnsupportedFunctionSchema(index[at], t.Name, rest, unenforced)
		}
		if err := f.checks.addTool(t); err != nil {
			return nil, wire.UnsupportedFunctionSchema(index[at], t.Name, "", err.Error())
		}
	}
	f.calls = o
	return g, nil
}

// splitIndex takes the tool's index off a path such as /2/properties/x.
func splitIndex(path string) (index int, rest string) {
	end := 1
	for end < len(path) && path[end] != '/' {
		end++
	}
	if len(path) == 0 {
		return -1, ""
	}
	n, err := strconv.Atoi(path[1:end])
	if err != nil {
		return -1, path
	}
	return n, path[end:]
}

// refused makes the error of a schema the caller's.
func refused(err error, answer func(path, reason string) *wire.Error) error {
	if e, ok := errors.AsType[*grammar.Error](err); ok {
		return answer(e.Path, e.Reason)
	}
	return fmt.Errorf("grammar: %w", err)
}
