package grammar

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Vocab is a model's vocabulary, arranged to be walked. It does not change and may
// be used from many goroutines.
type Vocab struct {
	pieces [][]byte // by id; nil for tokens without text
	ends   []int32  // that end an answer
	ending map[int32]bool
	// plain is the tokens that may stand anywhere in a string: whole characters that
	// need no escape. other is the rest.
	plain, other trie
	// lengths are the plain tokens by their number of characters.
	lengths []length
	single  [256]bool // bytes that are tokens
	// continues tells that all bytes that go on in a character are tokens: what one
	// token begins, others can complete.
	continues bool
	closers   int  // the most brackets and braces that one token closes
	renames   bool // a token may end one name and begin another
	longest   int  // bytes of the longest token
}

// length is the plain tokens of so many characters.
type length struct {
	characters int32
	ids        bitset // of just so many
	upTo       bitset // of so many at most
}

// NewVocab arranges the tokens 0 to n-1. piece returns a token's bytes, which are
// kept, and nil for one without text, such as a control token; end tells those that
// end an answer. All printable ASCII characters must be tokens of their own, or
// there would be texts that cannot be closed: the error names those that are not.
func NewVocab(n int, piece func(id int32) []byte, end func(id int32) bool) (*Vocab, error) {
	v := &Vocab{pieces: make([][]byte, n), ending: map[int32]bool{}}
	for id := range int32(n) {
		if end(id) {
			v.ends = append(v.ends, id)
			v.ending[id] = true
			continue
		}
		p := piece(id)
		if len(p) == 0 {
			continue
		}
		v.pieces[id] = p
		v.longest = max(v.longest, len(p))
		v.closers = max(v.closers, bytes.Count(p, []byte("]"))+bytes.Count(p, []byte("}")))
		if _, after, ok := bytes.Cut(p, []byte(`":`)); ok {
			_, after, _ = bytes.Cut(after, []byte(","))
			v.renames = v.renames || bytes.ContainsRune(after, '"')
		}
		if len(p) == 1 {
			v.single[p[0]] = true
		}
	}
	var missing []byte
	for b := byte(' '); b <= '~'; b++ {
		if !v.single[b] {
			missing = append(missing, b)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("grammar: the vocabulary has no token for %q", missing)
	}
	v.continues = !slices.Contains(v.single[0x80:0xc0], false)
	v.arrange()
	return v, nil
}

// Size returns the number of tokens.
func (v *Vocab) Size() int { return len(v.pieces) }

// Piece returns a token's bytes, nil for one without text or out of range.
func (v *Vocab) Piece(id int32) []byte {
	if uint32(id) >= uint32(len(v.pieces)) {
		return nil
	}
	return v.pieces[id]
}

// IsEnd reports whether the token ends an answer.
func (v *Vocab) IsEnd(id int32) bool { return v.ending[id] }

// isPlain reports whether the bytes are whole characters that a string may have as
// they are.
func isPlain(p []byte) bool {
	for _, b := range p {
		if b < ' ' || b == '"' || b == '\\' {
			return false
		}
	}
	return utf8.Valid(p)
}

// arrange builds the tries and the lists by length.
func (v *Vocab) arrange() {
	var plain, other []int32
	counts := map[int32]bitset{}
	for id, p := range v.pieces {
		switch {
		case p == nil:
		case isPlain(p):
			plain = append(plain, int32(id))
			n := int32(utf8.RuneCount(p))
			if counts[n] == nil {
				counts[n] = newBitset(len(v.pieces))
			}
			counts[n].add(int32(id))
		default:
			other = append(other, int32(id))
		}
	}
	v.plain, v.other = newTrie(v.pieces, plain), newTrie(v.pieces, other)
	for n, ids := range counts {
		v.lengths = append(v.lengths, length{characters: n, ids: ids})
	}
	slices.SortFunc(v.lengths, func(a, b length) int { return int(a.characters - b.characters) })
	all := newBitset(len(v.pieces))
	for i := range v.lengths {
		all.or(v.lengths[i].ids)
		v.lengths[i].upTo = slices.Clone(all)
	}
}

// spell returns, for each byte of text, the fewest tokens that spell it from there.
// The last of the len(text)+1 is 0.
func (v *Vocab) spell(text string) []int32 {
	costs := make([]int32, len(text)+1)
	for i := len(text) - 1; i >= 0; i-- {
		costs[i] = infinite
		for _, t := range []*trie{&v.plain, &v.other} {
			t.along(text[i:], func(ids []int32) {
				costs[i] = min(costs[i], sum(1, costs[i+len(v.pieces[ids[0]])]))
			})
		}
	}
	return costs
}

// character is the fewest tokens that write one of the characters lo..hi, which JSON
// and UTF-8 write alike.
func (v *Vocab) character(lo, hi rune) int32 {
	switch {
	case lo >= 0xd800 && hi <= 0xdfff:
		return infinite
	case lo == '"' || lo == '\\' || lo == '\b' || lo == '\f' || lo == '\n' || lo == '\r' || lo == '\t':
		return 2
	case lo < ' ' || lo == 0x7f:
		return infinite // not by single bytes that are surely there
	case lo < 0x80:
		return 1
	case !v.continues:
		return infinite
	}
	var first, last [utf8.UTFMax]byte
	n := utf8.EncodeRune(first[:], lo)
	utf8.EncodeRune(last[:], hi)
	for lead := first[0]; lead <= last[0]; lead++ {
		if v.single[lead] {
			return int32(n)
		}
	}
	return infinite
}

// trie is tokens by their bytes, its nodes in the order of a walk.
type trie struct {
	nodes []trieNode
	ids   []int32
}

type trieNode struct {
	skip  int32 // the next node that is not below this one
	ids   int32 // the node's tokens are ids[ids:end]
	end   int32
	depth uint16 // the first byte has 1
	b     byte
}

func newTrie(pieces [][]byte, ids []int32) trie {
	slices.SortFunc(ids, func(a, b int32) int {
		return cmp.Or(bytes.Compare(pieces[a], pieces[b]), int(a-b))
	})
	t := trie{ids: ids}
	var path []int32 // nodes down to the last one
	var last []byte
	for i, id := range ids {
		p := pieces[id]
		common := 0
		for common < len(p) && common < len(last) && p[common] == last[common] {
			common++
		}
		for len(path) > common {
			t.nodes[path[len(path)-1]].skip = int32(len(t.nodes))
			path = path[:len(path)-1]
		}
		for _, b := range p[common:] {
			path = append(path, int32(len(t.nodes)))
			t.nodes = append(t.nodes, trieNode{depth: uint16(len(path)), b: b, ids: int32(i), end: int32(i)})
		}
		t.nodes[path[len(path)-1]].end = int32(i + 1)
		last = p
	}
	for _, n := range path {
		t.nodes[n].skip = int32(len(t.nodes))
	}
	return t
}

// along calls found with the tokens that text begins with.
func (t *trie) along(text string, found func(ids []int32)) {
	at, depth := int32(0), 0
	for int(at) < len(t.nodes) && depth < len(text) {
		n := &t.nodes[at]
		switch {
		case int(n.depth) <= depth:
			return // no child goes on
		case n.b != text[depth]:
			at = n.skip
		default:
			if depth++; n.ids < n.end {
				found(t.ids[n.ids:n.end])
			}
			at++
		}
	}
}

// bitset is a set of token ids.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (s bitset) add(id int32) { s[id>>6] |= 1 << (id & 63) }

func (s bitset) or(t bitset) {
	for i, w := range t {
		s[i] |= w
	}
}
