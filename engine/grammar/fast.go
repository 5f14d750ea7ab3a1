package grammar

import "slices"

// text notes the plain tokens that a thread takes which is in a string or a name, where
// there is a quicker way than step by step; others have to be walked together, as
// tokens are accepted, because they may become too many. ok is false when the limit was
// reached.
func (w *walk) text(f *frame) (is, ok bool) {
	if f.alt != nil && f.phase == strText && f.alt.kind == kindString {
		if f.alt.str.dfa != nil {
			return true, w.wholePattern(f)
		}
		w.wholeText(f)
		return true, true
	}
	if f.alt != nil && f.alt.kind == kindObject && (f.phase == objectName || f.phase == objectFree) {
		if f.alt.object.other.dfa == nil && f.space == strText {
			w.wholeName(f)
			return true, true
		}
	}
	return false, true
}

// wholeText notes the plain tokens in a string without a pattern, of which only the
// number of characters matters: each brings one that needs
// more of them nearer to its end.
func (w *walk) wholeText(f *frame) {
	t := f.alt.str
	off := sum(w.m.own(f), f.rest) - w.m.dist // another thread may be nearer
	need, room := max(t.min-f.i, 0), t.max-f.i
	if t.max == noLimit {
		room = noLimit
	}
	for _, l := range slices.Backward(w.m.v.lengths) {
		switch {
		case l.characters > room:
		case need == 0:
			w.include(off, l.upTo)
			return
		default:
			w.include(off-min(l.characters, need), l.ids)
		}
	}
}

// include notes tokens, a set that is shared.
func (w *walk) include(g int32, ids bitset) {
	f := w.at(g)
	if f.bits == nil {
		f.bits = ids
		return
	}
	f.bits = slices.Clone(f.bits)
	f.bits.or(ids)
}

// wholePattern walks the plain tokens with the automaton of a string alone.
func (w *walk) wholePattern(f *frame) bool {
	m, t := w.m, f.alt.str
	if len(m.strings) <= m.v.longest {
		m.strings = make([]frame, m.v.longest+1)
	}
	m.strings[0] = *f
	plain := &m.v.plain
	for at := int32(0); int(at) < len(plain.nodes); {
		if w.left--; w.left < 0 {
			return false
		}
		n := &plain.nodes[at]
		above, here := &m.strings[n.depth-1], &m.strings[n.depth]
		var ok bool
		if above.phase == strText && n.b < 0x80 {
			here.alt, here.phase, here.n = f.alt, strText, 0
			here.j, here.i = t.dfa.Step(above.j, rune(n.b)), t.more(above.i)
			ok = t.after(here.j, here.i) < infinite
		} else {
			*here, ok = t.step(*above, n.b)
		}
		if !ok {
			at = n.skip
			continue
		}
		if n.ids < n.end {
			w.add(sum(t.after(here.j, here.i), f.rest)-m.dist, plain.ids[n.ids:n.end]...)
		}
		at++
	}
	return true
}

// wholeName notes the plain tokens in an undeclared name. Those that make it like
// another name, or the beginning of one, are looked at one by one.
func (w *walk) wholeName(f *frame) {
	m, o := w.m, f.alt.object
	text := string(m.text[f.n:])
	off := sum(sum(o.other.final[1], o.end(f.i, o.count(f.j))), f.rest)
	bits := slices.Clone(m.v.lengths[len(m.v.lengths)-1].upTo)
	look := func(name string) {
		if len(name) <= len(text) || name[:len(text)] != text {
			return
		}
		m.v.plain.along(name[len(text):], func(ids []int32) {
			for _, id := range ids {
				if bits[id>>6]&(1<<(id&63)) == 0 {
					continue // another name begins alike
				}
				bits[id>>6] &^= 1 << (id & 63)
				if d, ok := m.after(*f, m.v.pieces[id]); ok {
					w.add(d-m.dist, id)
				}
			}
		})
	}
	if f.phase == objectName {
		for _, name := range o.other.declared {
			look(name)
		}
		for n := f.names; n != nil; n = n.before {
			look(string(m.text[n.start:n.end]))
		}
	}
	w.include(off-m.dist, bits)
}

// after returns the distance once a thread has taken the bytes; ok is false if it
// does not, or cannot stop there.
func (m *Matcher) after(f frame, bytes []byte) (d int32, ok bool) {
	n := len(m.text)
	defer func() { m.text = m.text[:n] }()
	threads := []frame{f}
	for _, b := range bytes {
		threads, m.spare = m.feed(threads, b, m.spare[:0]), threads
	}
	if len(threads) == 0 {
		return 0, false
	}
	d = m.distance(threads)
	return d, d < infinite
}
