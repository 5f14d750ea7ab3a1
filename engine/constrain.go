package engine

import (
	"github.com/parley-ai/parley/engine/grammar"
	"github.com/parley-ai/parley/engine/sample"
)

// Vocab returns the vocabulary for [grammar.Schema] and [grammar.Calls]. It is made at
// the first call, which takes some ten milliseconds. The error names the characters
// that the vocabulary lacks: such a model can write no JSON. It may be called after
// Close.
func (e *Engine) Vocab() (*grammar.Vocab, error) { return e.vocab() }

func (e *Engine) newVocab() (*grammar.Vocab, error) {
	return grammar.NewVocab(e.tk.Size(), func(id int32) []byte {
		if e.tk.IsControl(id) {
			return nil
		}
		return e.tk.Piece(id)
	}, e.tk.IsEnd)
}

// Form is a [Request.Constraint]: what an answer is held to. The answer ends when its
// form is complete; it ends with [FinishLength] when MaxTokens had a say in how.
type Form struct {
	// Grammar is what the whole answer is, or, with a Marker, what follows it. At most
	// one is nil.
	Grammar *grammar.Grammar
	// Marker is what text before a value of Grammar ends with; "" has no such text. It
	// appears in the answer. Without a Grammar it never does. Only with room for a
	// value behind it can it be completed.
	Marker string
	// Else is another grammar that the answer may be of instead, from its beginning.
	Else *grammar.Grammar
	// Vocab is the engine's, needed with a Marker.
	Vocab *grammar.Vocab
}

// Constraint returns the form as the engine follows it.
func (f Form) Constraint() sample.Constraint {
	if f.Marker == "" {
		h := &held{matcher: f.Grammar.NewMatcher()}
		if f.Else == nil {
			return h
		}
		return &either{ways: []*held{h, {matcher: f.Else.NewMatcher()}}}
	}
	return &marked{form: f}
}

// cut is what the forms have beside [sample.Constraint].
type cut interface {
	// Cut reports whether a token was refused only because there was no room for it.
	Cut() bool
}

// held is an answer in a grammar.
type held struct {
	matcher *grammar.Matcher
	cut     bool
}

func (h *held) Allows(id int32, left int) bool {
	if h.matcher.Allows(id, left) {
		return true
	}
	h.cut = h.cut || h.matcher.Allows(id, grammar.MaxLeast)
	return false
}

func (h *held) Mask(left int) []uint64 { return h.matcher.Mask(left) }
func (h *held) Accept(id int32)        { h.matcher.Accept(id) }
func (h *held) Done() bool             { return h.matcher.MustEnd() }
func (h *held) Cut() bool              { return h.cut }

// either is an answer in one of several grammars. Those that it has left are nil.
type either struct {
	ways []*held
	mask []uint64
}

func (e *either) Allows(id int32, left int) bool {
	allowed := false
	for _, w := range e.ways {
		allowed = w.Allows(id, left) || allowed
	}
	return allowed
}

func (e *either) Mask(left int) []uint64 {
	e.mask = e.mask[:0]
	for _, w := range e.ways {
		for i, word := range w.Mask(left) {
			if i == len(e.mask) {
				e.mask = append(e.mask, 0)
			}
			e.mask[i] |= word
		}
	}
	return e.mask
}

// Accept leaves the grammars that do not have the token.
func (e *either) Accept(id int32) {
	ways := e.ways[:0]
	for _, w := range e.ways {
		if w.matcher.Accept(id) {
			ways = append(ways, w)
		}
	}
	e.ways = ways
}

func (e *either) Done() bool {
	for _, w := range e.ways {
		if !w.Done() {
			return false
		}
	}
	return true
}

func (e *either) Cut() bool {
	for _, w := range e.ways {
		if w.cut {
			return true
		}
	}
	return false
}

// marked is free text that a marker may end, and a value behind it.
type marked struct {
	form Form
	at   int   // bytes of the marker that the text ends with
	held *held // behind the marker
	mask []uint64
}

// step returns how much of the marker the text ends with after piece. within reports
// that the marker is complete before the end of piece.
func (m *marked) step(piece []byte) (at int, within bool) {
	at = m.at
	for i, b := range piece {
		for at > 0 && (at == len(m.form.Marker) || m.form.Marker[at] != b) {
			at = m.border(at)
		}
		if m.form.Marker[at] == b {
			at++
		}
		if at == len(m.form.Marker) && i < len(piece)-1 {
			return at, true
		}
	}
	return at, false
}

// border is the longest proper prefix of the marker that ends its first n bytes.
func (m *marked) border(n int) int {
	for k := n - 1; k > 0; k-- {
		if m.form.Marker[:k] == m.form.Marker[n-k:n] {
			return k
		}
	}
	return 0
}

// fits says whether the text may end with so much of the marker when left tokens may
// follow.
func (m *marked) fits(at, left int) bool {
	return at < len(m.form.Marker) || m.form.Grammar != nil && m.form.Grammar.Least() <= left
}

func (m *marked) Allows(id int32, left int) bool {
	if m.held != nil {
		return m.held.Allows(id, left)
	}
	// What the marker ends within is another token's: the value begins with one.
	at, within := m.step(m.form.Vocab.Piece(id))
	return !within && m.fits(at, left-1)
}

func (m *marked) Mask(left int) []uint64 {
	if m.held != nil {
		return m.held.Mask(left)
	}
	n := m.form.Vocab.Size()
	if m.mask == nil {
		m.mask = make([]uint64, (n+63)/64)
	}
	clear(m.mask)
	for id := range int32(n) {
		if m.Allows(id, left) {
			m.mask[id/64] |= 1 << (id % 64)
		}
	}
	return m.mask
}

func (m *marked) Accept(id int32) {
	if m.held != nil {
		m.held.Accept(id)
		return
	}
	if m.at, _ = m.step(m.form.Vocab.Piece(id)); m.at == len(m.form.Marker) {
		m.held = &held{matcher: m.form.Grammar.NewMatcher()}
	}
}

func (m *marked) Done() bool { return m.held != nil && m.held.Done() }
func (m *marked) Cut() bool  { return m.held != nil && m.held.cut }
