package tokenizer

import "strings"

// trie finds the names of tokens in text. The zero value finds none.
type trie struct {
	next  map[uint64]int32 // node<<8 | byte
	ids   []int32          // by node; -1 where no name ends
	first string           // the bytes that names begin with
}

func (t *trie) add(name string, id int32) {
	if name == "" {
		return
	}
	if t.next == nil {
		t.next, t.ids = map[uint64]int32{}, []int32{-1}
	}
	if strings.IndexByte(t.first, name[0]) < 0 {
		t.first += name[:1]
	}
	at := int32(0)
	for i := range len(name) {
		key := uint64(at)<<8 | uint64(name[i])
		to, ok := t.next[key]
		if !ok {
			to = int32(len(t.ids))
			t.ids = append(t.ids, -1)
			t.next[key] = to
		}
		at = to
	}
	if t.ids[at] < 0 {
		t.ids[at] = id
	}
}

// longest returns the longest name that s begins with, and n = 0 if none.
func (t *trie) longest(s string) (id int32, n int) {
	at := int32(0)
	for i := range len(s) {
		to, ok := t.next[uint64(at)<<8|uint64(s[i])]
		if !ok {
			break
		}
		if at = to; t.ids[at] >= 0 {
			id, n = t.ids[at], i+1
		}
	}
	return id, n
}

// find returns the place, length and token of the leftmost name in s, the
// longest of those that begin there; else len(s) and 0.
func (t *trie) find(s string) (at, n int, id int32) {
	if t.first == "" {
		return len(s), 0, 0
	}
	for at < len(s) {
		if len(t.first) == 1 {
			i := strings.IndexByte(s[at:], t.first[0])
			if i < 0 {
				return len(s), 0, 0
			}
			at += i
		}
		if id, n = t.longest(s[at:]); n > 0 {
			return at, n, id
		}
		at++
	}
	return len(s), 0, 0
}
