// Package tokenizer turns text into a model's tokens and back, by the byte-level
// BPE that the model's GGUF file holds.
//
// Text is split into words by the rule the file names, each word becomes bytes,
// and neighbours merge by rank. Time is O(n log n) for any text, one huge word
// included. Bytes that the vocabulary has no token for are dropped.
package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/parley-ai/parley/engine/gguf"
)

// Tokenizer is one file's vocabulary. It never changes and may be used from
// many goroutines.
type Tokenizer struct {
	pieces  [][]byte
	kinds   []kind
	whole   map[string]int32 // words that are one token
	merges  pairs
	byteID  [256]int32 // -1 where the vocabulary has no token
	classes classes
	// digitsApart makes every number a word of its own ("smollm").
	digitsApart bool
	control     trie // names of control tokens
	defined     trie // tokens that files call user-defined: found in any text
	special     trie // both
	ends        map[int32]bool
	bos, eos    int32
	// longest is the bytes of the longest token that merging can give.
	longest int
	// widest is that of any token.
	widest int
}

type kind uint8

// Token types as GGUF files number them.
const (
	kindNormal  kind = 1
	kindUnknown kind = 2
	kindControl kind = 3
	kindDefined kind = 4
)

// FromGGUF builds the tokenizer that f describes. A file with another model
// than byte-level BPE or with an unknown pre-tokenizer is an error that names it.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	const prefix = "tokenizer.ggml."
	if model, _ := f.String(prefix + "model"); model != "gpt2" {
		return nil, fmt.Errorf("tokenizer: model %q is not supported (gpt2 is)", model)
	}
	tk := &Tokenizer{bos: -1, eos: -1, ends: map[int32]bool{}}
	switch pre, _ := f.String(prefix + "pre"); pre {
	case "smollm":
		tk.digitsApart = true
	case "gpt-2":
	default:
		return nil, fmt.Errorf("tokenizer: pre-tokenizer %q is not supported (smollm and gpt-2 are)", pre)
	}
	tokens, _ := f.Strings(prefix + "tokens")
	merges, _ := f.Strings(prefix + "merges")
	types, _ := f.Ints(prefix + "token_type")
	if len(tokens) == 0 || len(types) != len(tokens) {
		return nil, fmt.Errorf("tokenizer: %d tokens with %d types", len(tokens), len(types))
	}
	// The pair table packs two ids and a rank into 64-bit words.
	if len(tokens) > 1<<24 || len(merges) > 1<<24 {
		return nil, errors.New("tokenizer: the vocabulary is too large")
	}
	tk.classes = newClasses()
	ids := tk.readTokens(tokens, types)
	if err := tk.readMerges(merges, ids); err != nil {
		return nil, err
	}
	tk.readEnds(f, prefix)
	tk.findWhole()
	return tk, nil
}

// readTokens decodes the vocabulary and returns the ids of its ordinary tokens.
func (tk *Tokenizer) readTokens(tokens []string, types []int) map[string]int32 {
	byteOf, runeOf := alphabet()
	ids := make(map[string]int32, len(tokens))
	tk.pieces = make([][]byte, len(tokens))
	tk.kinds = make([]kind, len(tokens))
	total := 0
	for _, s := range tokens {
		total += len(s)
	}
	all := make([]byte, 0, total)
	for i, s := range tokens {
		id, start := int32(i), len(all)
		tk.kinds[i] = kind(min(max(types[i], 0), 255))
		switch tk.kinds[i] {
		case kindControl, kindUnknown:
			all = append(all, s...)
			tk.control.add(s, id)
			tk.special.add(s, id)
		case kindDefined:
			all = append(all, s...)
			tk.defined.add(s, id)
			tk.special.add(s, id)
		default:
			for _, r := range s {
				if b, ok := byteOf[r]; ok {
					all = append(all, b)
				} else {
					all = utf8.AppendRune(all, r)
				}
			}
			if _, twice := ids[s]; !twice {
				ids[s] = id
			}
		}
		tk.pieces[i] = all[start:len(all):len(all)]
		tk.widest = max(tk.widest, len(tk.pieces[i]), 1)
	}
	for b, r := range runeOf {
		tk.byteID[b] = -1
		if id, ok := ids[string(r)]; ok {
			tk.byteID[b] = id
		}
	}
	return ids
}

func (tk *Tokenizer) readMerges(merges []string, ids map[string]int32) error {
	tk.merges = newPairs(len(merges))
	tk.longest = 1
	for rank, m := range merges {
		// A part may begin with a space only if the file is broken: the
		// alphabet has none.
		a, b, ok := strings.Cut(m, " ")
		left, okA := ids[a]
		right, okB := ids[b]
		if !ok || !okA || !okB {
			return fmt.Errorf("tokenizer: merge %d (%.40q) is not of two tokens", rank, m)
		}
		id, ok := ids[a+b]
		if !ok {
			return fmt.Errorf("tokenizer: merge %d (%.40q) gives no token", rank, m)
		}
		tk.merges.add(left, right, int32(rank), id)
		tk.longest = max(tk.longest, len(tk.pieces[id]))
	}
	return nil
}

// readEnds collects the tokens that end an answer: those the file names, and
// control tokens of well-known text, since files often name only one of two.
func (tk *Tokenizer) readEnds(f *gguf.File, prefix string) {
	named := func(key string) int32 {
		if n, ok := f.Int(prefix + key); ok && n >= 0 && n < len(tk.pieces) {
			return int32(n)
		}
		return -1
	}
	tk.bos, tk.eos = named("bos_token_id"), named("eos_token_id")
	for _, id := range []int32{tk.eos, named("eot_token_id"), named("eom_token_id")} {
		if id >= 0 {
			tk.ends[id] = true
		}
	}
	for _, s := range []string{"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "</s>"} {
		if id, n := tk.control.longest(s); n == len(s) && tk.IsControl(id) {
			tk.ends[id] = true
		}
	}
}

// findWhole collects the tokens that merging their own bytes gives back. A word
// found there needs no merging, which is most words of most texts.
func (tk *Tokenizer) findWhole() {
	tk.whole = make(map[string]int32, len(tk.pieces))
	var m merger
	var out []int32
	for i, p := range tk.pieces {
		// Part of a character is never a word: bad bytes become U+FFFD first.
		if tk.kinds[i] != kindNormal || len(p) == 0 || len(p) > maxWhole || !utf8.Valid(p) {
			continue
		}
		if out = m.merge(tk, out[:0], p); len(out) == 1 && out[0] == int32(i) {
			tk.whole[string(p)] = int32(i)
		}
	}
}

// alphabet is GPT-2's: every byte has a printable character.
func alphabet() (byteOf map[rune]byte, runeOf [256]rune) {
	byteOf = make(map[rune]byte, 256)
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b != 0xad) {
			r = next
			next++
		}
		byteOf[r], runeOf[b] = byte(b), r
	}
	return byteOf, runeOf
}

// Size returns the number of tokens.
func (tk *Tokenizer) Size() int { return len(tk.pieces) }

// Piece returns the bytes of a token, which may be part of a character; a
// control token's are its name. It is nil for an id out of range and must not
// be written.
func (tk *Tokenizer) Piece(id int32) []byte {
	if uint32(id) >= uint32(len(tk.pieces)) {
		return nil
	}
	return tk.pieces[id]
}

// IsControl reports whether the token is a mark for the model, not text.
func (tk *Tokenizer) IsControl(id int32) bool {
	return uint32(id) < uint32(len(tk.kinds)) && (tk.kinds[id] == kindControl || tk.kinds[id] == kindUnknown)
}

// IsEnd reports whether the token ends an answer.
func (tk *Tokenizer) IsEnd(id int32) bool { return tk.ends[id] }

// BOS returns the token that begins a text, or -1 if the file names none.
func (tk *Tokenizer) BOS() int32 { return tk.bos }

// EOS returns the token that ends a text, or -1 if the file names none.
func (tk *Tokenizer) EOS() int32 { return tk.eos }

// Decode returns the bytes of all tokens, control tokens by their names. They
// need not be valid UTF-8.
func (tk *Tokenizer) Decode(ids []int32) []byte {
	var out []byte
	for _, id := range ids {
		out = append(out, tk.Piece(id)...)
	}
	return out
}
