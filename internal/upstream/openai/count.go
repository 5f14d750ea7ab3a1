package openai

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"

	"github.com/parley-ai/parley/internal/wire"
)

// Counter counts the tokens of a text. It is safe for concurrent use.
type Counter interface {
	// Count returns how many tokens text has. It may stop soon after limit tokens,
	// when the number is a lower bound above limit.
	Count(text string, limit int) (int, error)
}

// Tiktoken counts as the tokenizers of hosted models do.
type Tiktoken struct {
	codec tokenizer.Codec
	words *words
}

// DefaultEncoding is the vocabulary of a model whose own is not known. It is large, so
// it seldom counts too many.
const DefaultEncoding = "o200k_base"

// NewTiktoken returns the counter of an encoding, such as [DefaultEncoding]. The first
// one of an encoding takes about 20 ms and 6 MB. It fails with [ErrOptions] for a name
// it does not know.
func NewTiktoken(encoding string) (*Tiktoken, error) {
	codec, err := tokenizer.Get(tokenizer.Encoding(encoding))
	if err != nil {
		return nil, fmt.Errorf("%w: tokenizer %q: %w", ErrOptions, encoding, err)
	}
	return &Tiktoken{codec: codec, words: newWords()}, nil
}

const (
	slabBytes = 4 << 10
	// runBytes is the longest run of blanks, or of anything else, counted in one
	// piece. Vocabularies have hardly a token that long.
	runBytes = 256
)

// Count returns the number of tokens of text.
func (t *Tiktoken) Count(text string, limit int) (int, error) {
	total := 0
	for len(text) > 0 && total <= limit {
		cut := slab(text)
		n, err := t.countWords(text[:cut])
		if err != nil {
			return 0, fmt.Errorf("count tokens: %w", err)
		}
		total += n
		text = text[cut:]
	}
	return total, nil
}

// countWords counts word by word, which gives the same number as all at once.
func (t *Tiktoken) countWords(text string) (total int, err error) {
	for len(text) > 0 {
		cut := cutWord(text)
		n, err := t.words.count(text[:cut], t.codec.Count)
		if err != nil {
			return 0, err
		}
		total += n
		text = text[cut:]
	}
	return total, nil
}

// slab returns how much of text is counted in one piece: up to a blank before a word,
// where no token goes across, or inside a run so long that a token more or less does
// not matter.
func slab(text string) int {
	if len(text) <= runBytes {
		return len(text)
	}
	run, word := 0, 0
	for i := range len(text) {
		if i > 0 && blank(text[i]) != blank(text[i-1]) {
			run = i
			if blank(text[i]) {
				word = i
			}
		}
		if i-run >= runBytes && utf8.RuneStart(text[i]) {
			return i
		}
		if i >= slabBytes && word > 0 {
			return word
		}
	}
	return len(text)
}

func blank(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// The overhead of the convention: what a template puts around a message, a name, a
// function and the answer. It was published for the hosted models; others differ by a
// few tokens a message.
const (
	perMessage  = 3
	perName     = 1
	perToolCall = 8
	perFunction = 10
	perPrompt   = 3
)

// countPrompt stops soon after limit tokens.
func countPrompt(counter Counter, req *wire.ChatRequest, limit int) (int, error) {
	p := prompt{counter: counter, limit: limit, total: perPrompt}
	for i := range req.Messages {
		m := &req.Messages[i]
		p.total += perMessage
		p.add(string(m.Role))
		p.add(m.Content)
		p.add(m.Refusal)
		if m.Name != "" {
			p.total += perName
			p.add(m.Name)
		}
		p.add(m.ToolCallID)
		for _, c := range m.ToolCalls {
			p.total += perToolCall
			p.add(c.ID)
			p.add(c.Name)
			p.add(c.Arguments)
		}
	}
	for i := range req.Tools {
		t := &req.Tools[i]
		p.total += perFunction
		p.add(t.Name)
		p.add(t.Description)
		p.addSchema(t.Parameters)
	}
	p.addSchema(req.ResponseFormat.Schema)
	return p.total, p.err
}

type prompt struct {
	counter Counter
	limit   int
	total   int
	err     error
}

func (p *prompt) add(text string) {
	if text == "" || p.total > p.limit || p.err != nil {
		return
	}
	var n int
	n, p.err = p.counter.Count(text, p.limit-p.total)
	p.total += n
}

func (p *prompt) addSchema(schema json.RawMessage) { p.add(string(schema)) }

// meter counts a text that grows, at every moment as if it had been counted whole.
type meter struct {
	counter Counter
	words   *words // of its texts; nil makes each a string of its own
	settled int    // tokens of what cannot change any more
	pending []byte // the last word
	open    int    // tokens of pending
}

func (m *meter) total() int { return m.settled + m.open }

func (m *meter) add(text string) {
	if text == "" {
		return
	}
	before := len(m.pending)
	m.pending = append(m.pending, text...)
	if cut := lastWord(m.pending); cut > 0 {
		if cut == before {
			m.settled += m.open
		} else {
			m.settled += m.count(m.pending[:cut])
		}
		m.pending = append(m.pending[:0], m.pending[cut:]...)
	}
	m.open = m.count(m.pending)
}

// count never fails: four bytes are a token where the counter gives up.
func (m *meter) count(text []byte) int {
	n, err := m.counter.Count(m.words.text(text), len(text))
	if err != nil {
		return (len(text) + 3) / 4
	}
	return n
}

// lastWord is where the last word begins, with the blank before it, or the end of a
// run that is too long to be counted again and again.
func lastWord(text []byte) int {
	for i := len(text) - 1; i > 0; i-- {
		if blank(text[i]) && !blank(text[i-1]) {
			return i
		}
	}
	if len(text) >= runBytes {
		i := len(text)
		for i > 0 && !utf8.RuneStart(text[i-1]) {
			i--
		}
		if i > 1 {
			return i - 1
		}
		return len(text)
	}
	return 0
}
