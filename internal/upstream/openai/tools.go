package openai

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

const (
	maxToolCalls = 128 // as many as there may be tools
	maxToolID    = 128
	maxToolName  = 256
	// maxHeldArguments bounds, in bytes, what is held back of calls that cannot be shown yet.
	maxHeldArguments = 1 << 20
)

// toolCalls makes well-formed calls of the pieces that providers send: some without
// index or type, some with the index 0 for all, the id in every piece, calls in turns, or
// arguments that are empty.
type toolCalls struct {
	emit   func(upstream.ToolDelta) error
	ignore bool // calls that the caller forbade
	single bool // calls after the first are forbidden

	count   int // calls so far, the current one included
	ids     map[string]bool
	indexes map[int]bool // the provider's
	current toolCall
	skip    bool       // the current call is one too many
	next    []toolCall // that began before the current one was whole
	held    int        // bytes of arguments that were not shown
}

// toolCall is one call as far as it came.
type toolCall struct {
	index     int // the provider's; -1 when it has none
	id, name  string
	opened    bool // the first event is out
	arguments []byte
	runes     joiner // of the arguments
	checked   int    // how long they were when valid was found
	valid     bool
}

func newToolCalls(req *wire.ChatRequest, emit func(upstream.ToolDelta) error) toolCalls {
	return toolCalls{
		emit:   emit,
		ignore: len(req.Tools) == 0 || req.ToolChoice.Mode == wire.ToolNone,
		single: !req.ParallelToolCalls,
	}
}

// add takes the next piece.
func (t *toolCalls) add(p toolPiece) error {
	if t.ignore {
		return nil
	}
	if t.begins(p) {
		if err := t.note(p); err != nil {
			return err
		}
		if t.turns(p) {
			if !t.single {
				t.next = append(t.next, toolCall{index: p.index})
			}
			return t.later(p)
		}
		if err := t.begin(p); err != nil {
			return err
		}
	} else if p.index >= 0 && p.index != t.current.index && t.indexes[p.index] {
		return t.later(p)
	}
	if t.skip {
		return nil
	}
	piece := t.current.extend(p)
	switch {
	case t.current.name == "":
		return t.hold(len(piece))
	case !t.current.opened:
		return t.open()
	case piece == "":
		return nil
	}
	return t.emit(upstream.ToolDelta{Index: t.count - 1, Arguments: piece})
}

// extend adds a piece to the call and returns what is new of its arguments.
func (c *toolCall) extend(p toolPiece) string {
	if c.name == "" {
		c.name = p.name
	}
	if c.id == "" {
		c.id = p.id
	}
	piece := c.runes.Join(p.arguments)
	c.arguments = append(c.arguments, piece...)
	return piece
}

// whole says whether the arguments are complete.
func (c *toolCall) whole() bool {
	if c.checked != len(c.arguments) {
		c.checked, c.valid = len(c.arguments), json.Valid(c.arguments)
	}
	return c.valid
}

// begins tells a piece that begins a call from one that goes on with the last.
func (t *toolCalls) begins(p toolPiece) bool {
	c := &t.current
	switch {
	case t.count == 0:
		return true
	case p.index >= 0 && c.index >= 0 && p.index != c.index:
		return !t.indexes[p.index]
	case p.name == "" || c.name == "":
		return false
	case p.id != "" && c.id != "":
		return p.id != c.id
	}
	// Without ids and indexes only a second name after whole arguments tells.
	return p.index < 0 && c.whole()
}

// note remembers the provider's number of a call that begins.
func (t *toolCalls) note(p toolPiece) error {
	if t.indexes == nil {
		t.indexes, t.ids = map[int]bool{}, map[string]bool{}
	}
	if t.indexes[p.index] = true; len(t.indexes) > 2*maxToolCalls || t.count+len(t.next) > maxToolCalls {
		return fmt.Errorf("%w: too many tool calls", errAnswer)
	}
	return nil
}

// turns says whether the call that p begins leaves the current one as it is, which may go
// on: their indexes tell their pieces apart.
func (t *toolCalls) turns(p toolPiece) bool {
	return t.count > 0 && p.index >= 0 && t.current.index >= 0 && p.index != t.current.index && (t.single || len(t.next) > 0 || !t.current.whole())
}

// later takes a piece of a call that is not the current one.
func (t *toolCalls) later(p toolPiece) error {
	if t.single {
		return nil // it is one too many
	}
	at := slices.IndexFunc(t.next, func(c toolCall) bool { return c.index == p.index })
	if at < 0 {
		if strings.TrimSpace(p.arguments) == "" {
			return nil
		}
		// Clients cannot take a call up again after the next one has begun.
		return fmt.Errorf("%w: tool calls go on after their end", errAnswer)
	}
	if err := t.hold(len(t.next[at].extend(p))); err != nil {
		return err
	}
	for len(t.next) > 0 && t.current.whole() {
		if err := t.advance(false); err != nil {
			return err
		}
	}
	return nil
}

// advance ends the current call and makes the one that waits longest the current one.
func (t *toolCalls) advance(cut bool) error {
	if err := t.shut(cut); err != nil {
		return err
	}
	t.current, t.next = t.next[0], t.next[1:]
	t.count++
	if t.current.name == "" {
		return nil
	}
	return t.open()
}

// end ends all calls. cut says that a bound or a filter ended the answer, when the arguments may
// be incomplete.
func (t *toolCalls) end(cut bool) error {
	for len(t.next) > 0 {
		if err := t.advance(cut); err != nil {
			return err
		}
	}
	return t.shut(cut)
}

// hold counts bytes that are held back.
func (t *toolCalls) hold(n int) error {
	if t.held += n; t.held > maxHeldArguments {
		return fmt.Errorf("%w: more than %d bytes of calls that cannot be told", errAnswer, maxHeldArguments)
	}
	return nil
}

func (t *toolCalls) begin(p toolPiece) error {
	if t.count > 0 {
		if err := t.shut(false); err != nil {
			return err
		}
	}
	if t.single && t.count == 1 {
		t.skip = true
	} else {
		t.count++
	}
	if t.count > maxToolCalls {
		return fmt.Errorf("%w: more than %d tool calls", errAnswer, maxToolCalls)
	}
	t.current = toolCall{index: p.index, arguments: t.current.arguments[:0]}
	return nil
}

// open emits the first event of the current call and the arguments that came with it.
func (t *toolCalls) open() error {
	c := &t.current
	if len(c.name) > maxToolName {
		return fmt.Errorf("%w: a tool name of %d bytes", errAnswer, len(c.name))
	}
	if !usableID(c.id) || t.ids[c.id] {
		c.id = "call_" + rand.Text()[:24]
	}
	t.ids[c.id], c.opened = true, true
	index := t.count - 1
	if err := t.emit(upstream.ToolDelta{Index: index, ID: c.id, Name: c.name}); err != nil {
		return err
	}
	if len(c.arguments) == 0 {
		return nil
	}
	return t.emit(upstream.ToolDelta{Index: index, Arguments: string(c.arguments)})
}

// shut ends the current call, cut off or not.
func (t *toolCalls) shut(cut bool) error {
	c := &t.current
	switch {
	case t.skip || t.count == 0:
		return nil
	case !c.opened:
		return fmt.Errorf("%w: a tool call without a name", errForm)
	case len(bytes.TrimSpace(c.arguments)) == 0:
		return t.emit(upstream.ToolDelta{Index: t.count - 1, Arguments: "{}"})
	case !cut && !c.whole():
		return fmt.Errorf("%w: arguments that are no JSON", errForm)
	}
	return nil
}

func usableID(id string) bool {
	return id != "" && len(id) <= maxToolID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}
