package grammar

import "math/bits"

// Complete returns the text of the fewest tokens that make text, the beginning of a
// value, a whole one; of equals those of the lowest ids. ok is false when no value
// begins so.
func (g *Grammar) Complete(text []byte) (end []byte, ok bool) {
	m := g.NewMatcher()
	if !m.AcceptBytes(text) {
		return nil, false
	}
	for !m.Done() {
		id := lowest(m.Mask(m.Distance()))
		if id < 0 || !m.Accept(id) {
			return nil, false
		}
		end = append(end, g.vocab.Piece(id)...)
	}
	return end, true
}

// lowest returns the least id of a mask, -1 of an empty one.
func lowest(mask []uint64) int32 {
	for i, word := range mask {
		if word != 0 {
			return int32(64*i + bits.TrailingZeros64(word))
		}
	}
	return -1
}
