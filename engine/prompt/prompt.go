// Package prompt renders conversations by the Jinja chat template in a model's
// file and turns them into tokens.
//
// Text of messages never becomes a control token, whatever it contains; only the
// template's own text does. The mechanism is described in mark.go.
package prompt

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/exec"

	"github.com/parley-ai/parley/engine/tokenizer"
)

// ErrTooLong is returned for a conversation of more tokens than the limit.
var ErrTooLong = errors.New("prompt: more tokens than the limit")

// Refusal is the error of a template that rejects a conversation, with the
// template's own words: for instance that roles must alternate.
type Refusal struct{ Reason string }

// Error returns the reason.
func (r *Refusal) Error() string { return "prompt: the chat template refuses: " + r.Reason }

// Message is one turn of a conversation. Bytes of it that are not UTF-8 count as
// U+FFFD.
type Message struct{ Role, Content string }

// Template is a compiled chat template. It may be used from many goroutines.
type Template struct {
	tk     *tokenizer.Tokenizer
	plain  *exec.Template
	marked *exec.Template
	marks  *marks
	// alike is set if the marked template can be trusted to render as the plain
	// one does, so that there is no need to compare.
	alike    bool
	bos, eos string
	// widest is the bytes of the longest name of a control token.
	widest int
}

// New compiles a template for the vocabulary of tk. Statements that load other
// templates are errors.
func New(template string, tk *tokenizer.Tokenizer) (*Template, error) {
	t := &Template{tk: tk, bos: string(tk.Piece(tk.BOS())), eos: string(tk.Piece(tk.EOS()))}
	for id := range int32(tk.Size()) {
		if tk.IsControl(id) {
			t.widest = max(t.widest, len(tk.Piece(id)))
		}
	}
	t.marks = newMarks()
	if t.marks.in(template) {
		return nil, errors.New("prompt: the chat template contains a private mark")
	}
	var err error
	if t.plain, err = compile(template); err != nil {
		return nil, t.fault(err)
	}
	source := t.marks.set(template, tk.Find(template))
	if t.marked, err = compile(source); err != nil {
		return nil, t.fault(err)
	}
	t.alike = onlyJoins(template, tk)
	return t, nil
}

// Render returns the text of the conversation. addGeneration asks for the
// beginning of the answer. A template that rejects the messages gives a
// [*Refusal].
func (t *Template) Render(msgs []Message, addGeneration bool) (string, error) {
	return t.render(t.plain, valid(msgs), addGeneration, t.bos, t.eos)
}

// Encode returns the tokens of the conversation. More than limit tokens are
// [ErrTooLong], found without encoding the rest; 0 means no limit.
func (t *Template) Encode(msgs []Message, addGeneration bool, limit int) ([]int32, error) {
	text, own, err := t.own(valid(msgs), addGeneration, limit)
	if err != nil {
		return nil, err
	}
	ids, ok := t.tk.EncodeSpans(make([]int32, 0, min(len(text)/3, 4096)), text, own, limit)
	if !ok {
		return nil, ErrTooLong
	}
	return ids, nil
}

// own renders the text and finds the control tokens that are the template's own.
func (t *Template) own(msgs []Message, addGeneration bool, limit int) (string, []tokenizer.Span, error) {
	for _, m := range msgs {
		// The marks are secret, so this takes somebody who reads our memory.
		if t.marks.in(m.Role) || t.marks.in(m.Content) {
			return "", nil, errors.New("prompt: a message contains a private mark")
		}
	}
	raw, err := t.render(t.marked, msgs, addGeneration, t.marks.wrap(t.bos), t.marks.wrap(t.eos))
	if err != nil {
		return "", nil, err
	}
	text, own := t.marks.strip(raw)
	// A word of megabytes, all of whose bytes may merge, is not even begun.
	if t.alike && limit > 0 && t.tk.Least(text) > limit {
		return "", nil, ErrTooLong
	}
	// Megabytes of names in messages would make the search below slow. A name that
	// it adds replaces at most widest tokens, so this refuses no text that fits.
	if most := limit * t.widest; t.alike && most > 0 && len(text) > most {
		if _, ok := t.tk.EncodeSpans(nil, text, own, most); !ok {
			return "", nil, ErrTooLong
		}
	}
	if t.alike && len(own) == len(t.tk.Find(text)) {
		return text, own, nil
	}
	plain, err := t.render(t.plain, msgs, addGeneration, t.bos, t.eos)
	if err != nil {
		return "", nil, err
	}
	if text == plain && len(own) == len(t.tk.Find(text)) {
		return text, own, nil
	}
	if spans, ok := t.shadowed(plain, msgs, addGeneration); ok {
		return plain, spans, nil
	}
	if t.marks.torn(text) {
		return "", nil, errors.New("prompt: the chat template takes names of control tokens apart")
	}
	return text, own, nil
}

// shadowed finds the control tokens of plain that hold no character of a
// message: it renders once more with every character of the messages replaced by
// a stranger, which moves nothing unless the template looks into the text.
func (t *Template) shadowed(plain string, msgs []Message, addGeneration bool) ([]tokenizer.Span, bool) {
	s := newShadow(plain)
	strangers := make([]Message, len(msgs))
	for i, m := range msgs {
		strangers[i] = Message{Role: m.Role, Content: s.hide(m.Content)}
		if !conventional(m.Role) {
			strangers[i].Role = s.hide(m.Role)
		}
	}
	raw, err := t.render(t.plain, strangers, addGeneration, t.bos, t.eos)
	if err != nil {
		return nil, false
	}
	return s.align(raw, plain, t.tk.Find(raw))
}

// conventional reports whether the role is one of the convention's. Templates
// compare these, and where one builds a control token of such a word it means to.
func conventional(role string) bool {
	switch role {
	case "system", "developer", "user", "assistant", "tool", "function":
		return true
	}
	return false
}

func (t *Template) render(x *exec.Template, msgs []Message, addGeneration bool, bos, eos string) (out string, err error) {
	defer rescue(&err)
	left := allow(len(msgs))
	list := make([]any, len(msgs))
	for i, m := range msgs {
		list[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	ctx := exec.NewContext(map[string]any{
		"messages":              list,
		"add_generation_prompt": addGeneration,
		"bos_token":             bos,
		"eos_token":             eos,
		budgetKey:               left,
	})
	out, err = x.ExecuteToString(ctx)
	if err != nil {
		if left.refusal != nil {
			return "", &Refusal{t.marks.clean(left.refusal.Reason)}
		}
		return "", t.fault(err)
	}
	return out, nil
}

// fault is gonja's error without marks, and short: each level of a recursion
// adds its own words.
func (t *Template) fault(err error) error {
	const most = 300
	s := t.marks.clean(err.Error())
	if len(s) > 2*most {
		s = s[:most] + " ... " + s[len(s)-most:]
	}
	return errors.New("prompt: chat template: " + strings.ToValidUTF8(s, ""))
}

// valid makes each bad byte of the messages a U+FFFD.
func valid(msgs []Message) []Message {
	for i, m := range msgs {
		if utf8.ValidString(m.Role) && utf8.ValidString(m.Content) {
			continue
		}
		out := make([]Message, len(msgs))
		copy(out, msgs[:i])
		for j := i; j < len(msgs); j++ {
			out[j] = Message{repair(msgs[j].Role), repair(msgs[j].Content)}
		}
		return out
	}
	return msgs
}

func repair(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}
