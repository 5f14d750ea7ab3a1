package openai

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

const (
	maxToolCalls = 128 // as many as there may be tools
	maxToolID    = 128
	maxToolName  = 256
)

// toolCalls makes well-formed calls of the pieces that providers send: some without
// index or type, some with the index 0 for all, the id in every piece, or arguments
// that are empty.
type toolCalls struct {
	emit   func(upstream.ToolDelta) error
	ignore bool // calls that the caller forbade
	single bool // calls after the first are forbidden

	count   int // calls so far, the current one included
	ids     map[string]bool
	indexes map[int]bool // the provider's
	current struct {
		index     int // the provider's; -1 when it has none
		id, name  string
		opened    bool // the first event is out
		arguments strings.Builder
		runes     joiner // of the arguments
	}
	skip bool // the current call is one too many
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
		if err := t.begin(p); err != nil {
			return err
		}
	} else if p.index >= 0 && p.index != t.current.index && t.indexes[p.index] {
		// Clients cannot take a call up again after the next one has begun.
		return fmt.Errorf("%w: tool calls are interleaved", errAnswer)
	}
	if t.skip {
		return nil
	}
	c := &t.current
	if c.name == "" {
		c.name = p.name
	}
	if c.id == "" {
		c.id = p.id
	}
	p.arguments = c.runes.Join(p.arguments)
	c.arguments.WriteString(p.arguments)
	switch {
	case c.name == "":
		return nil
	case !c.opened:
		return t.open()
	case p.arguments == "":
		return nil
	}
	return t.emit(upstream.ToolDelta{Index: t.count - 1, Arguments: p.arguments})
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
	return p.index < 0 && json.Valid([]byte(c.arguments.String()))
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
	if t.indexes == nil {
		t.indexes, t.ids = map[int]bool{}, map[string]bool{}
	}
	if t.indexes[p.index] = true; len(t.indexes) > 2*maxToolCalls {
		return fmt.Errorf("%w: too many tool calls", errAnswer)
	}
	c := &t.current
	c.index, c.id, c.name, c.opened = p.index, "", "", false
	c.arguments.Reset()
	c.runes = joiner{}
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
	if c.arguments.Len() == 0 {
		return nil
	}
	return t.emit(upstream.ToolDelta{Index: index, Arguments: c.arguments.String()})
}

// shut ends the current call. cut says that the answer ended at its length, when the
// arguments may be incomplete.
func (t *toolCalls) shut(cut bool) error {
	c := &t.current
	switch {
	case t.skip || t.count == 0:
		return nil
	case !c.opened:
		return fmt.Errorf("%w: a tool call without a name", errForm)
	case strings.TrimSpace(c.arguments.String()) == "":
		return t.emit(upstream.ToolDelta{Index: t.count - 1, Arguments: "{}"})
	case !cut && !json.Valid([]byte(c.arguments.String())):
		return fmt.Errorf("%w: arguments that are no JSON", errForm)
	}
	return nil
}

func usableID(id string) bool {
	return id != "" && len(id) <= maxToolID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}
