package kv

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/parley-ai/parley/engine/kernel"
)

// Key stands for all tokens from the beginning of a sequence to the end of one of
// its full pages, and for whose they are. It is a chain of SHA-256: two beginnings
// with one key, which would show the one what the other said, are as far out of
// reach as two files with one checksum.
type Key [sha256.Size]byte

// Root returns the key of no tokens. Whoever is not the same owner never shares a
// page, nor learns by the time that a prompt takes what others have sent.
func Root(owner string) Key { return sha256.Sum256(append([]byte("kv owner "), owner...)) }

// Next returns the key of the page of tokens that follows k; there are
// [kernel.Page] of them.
func (k Key) Next(tokens []int32) Key {
	var b [sha256.Size + 4*kernel.Page]byte
	copy(b[:], k[:])
	for i, id := range tokens[:kernel.Page] {
		binary.LittleEndian.PutUint32(b[sha256.Size+4*i:], uint32(id))
	}
	return sha256.Sum256(b[:])
}

// Keys returns the keys of the full pages of tokens.
func Keys(owner string, tokens []int32) []Key {
	keys := make([]Key, 0, len(tokens)/kernel.Page)
	for k := Root(owner); len(tokens) >= kernel.Page; tokens = tokens[kernel.Page:] {
		k = k.Next(tokens)
		keys = append(keys, k)
	}
	return keys
}

// lru is an ordered set of page numbers: a ring of links through its last element,
// which is no page.
type lru struct {
	n          int
	prev, next []int32
}

func newLRU(pages int) lru {
	l := lru{prev: make([]int32, pages+1), next: make([]int32, pages+1)}
	l.prev[pages], l.next[pages] = int32(pages), int32(pages)
	return l
}

// add puts p behind all others.
func (l *lru) add(p int32) {
	end := int32(len(l.next) - 1)
	last := l.prev[end]
	l.prev[p], l.next[p] = last, end
	l.next[last], l.prev[end] = p, p
	l.n++
}

// remove takes p out; it is in.
func (l *lru) remove(p int32) {
	l.next[l.prev[p]], l.prev[l.next[p]] = l.next[p], l.prev[p]
	l.n--
}

// oldest returns the one that was added first.
func (l *lru) oldest() int32 { return l.next[len(l.next)-1] }
