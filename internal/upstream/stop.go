package upstream

import "slices"

// StopFilter ends a text before the first of some sequences, wherever the text is cut
// into pieces. The zero value has none and lets everything through. It is not safe for
// concurrent use.
type StopFilter struct {
	matchers []stopMatcher
	held     []byte // the end of the text so far, which may begin a stop
	done     bool
}

// stopMatcher finds one sequence byte by byte (Knuth, Morris, Pratt): its cost does not
// depend on what the text or the sequence looks like.
type stopMatcher struct {
	stop  string
	back  []uint16 // per matched length, the next shorter one that also matches
	state int      // how much of stop the text ends in
}

// NewStopFilter returns a filter for the stops of a request, none of which is empty.
// Without any it lets everything through at no cost.
func NewStopFilter(stops []string) *StopFilter {
	f := &StopFilter{}
	for _, stop := range stops {
		m := stopMatcher{stop: stop, back: make([]uint16, len(stop)+1)}
		for i, k := 1, 0; i < len(stop); i++ {
			for k > 0 && stop[i] != stop[k] {
				k = int(m.back[k])
			}
			if stop[i] == stop[k] {
				k++
			}
			m.back[i+1] = uint16(k)
		}
		f.matchers = append(f.matchers, m)
	}
	return f
}

// step takes one byte and reports whether it completes the sequence.
func (m *stopMatcher) step(c byte) bool {
	for m.state > 0 && m.stop[m.state] != c {
		m.state = int(m.back[m.state])
	}
	if m.stop[m.state] == c {
		m.state++
	}
	return m.state == len(m.stop)
}

// Push takes the next piece and returns the text that may be shown now. What may begin
// a stop is held back, at most the length of the longest one. stopped means that a stop
// was found: the one complete first, of several the longest. The text before it has
// then been returned in full and nothing is returned any more.
func (f *StopFilter) Push(piece string) (text string, stopped bool) {
	if len(f.matchers) == 0 || f.done {
		if f.done {
			piece = ""
		}
		return piece, f.done
	}
	for i := range len(piece) {
		if found := f.step(piece[i]); found > 0 {
			f.done = true
			return f.release(piece[:i+1], found), true
		}
	}
	keep := 0
	for i := range f.matchers {
		keep = max(keep, f.matchers[i].state)
	}
	return f.release(piece, keep), false
}

// step feeds all sequences and returns the length of the longest that is complete.
func (f *StopFilter) step(c byte) (found int) {
	for i := range f.matchers {
		if m := &f.matchers[i]; m.step(c) {
			found = max(found, len(m.stop))
		}
	}
	return found
}

// release returns held and piece but for the last keep bytes, which are held from now on.
func (f *StopFilter) release(piece string, keep int) string {
	if len(f.held) == 0 && keep <= len(piece) {
		f.held = append(f.held, piece[len(piece)-keep:]...)
		return piece[:len(piece)-keep]
	}
	f.held = append(f.held, piece...)
	cut := len(f.held) - keep
	text := string(f.held[:cut])
	f.held = slices.Delete(f.held, 0, cut)
	return text
}

// Flush returns what is held back, at the end of a text in which no stop was found. A
// text after that is another one.
func (f *StopFilter) Flush() string {
	if f.done {
		return ""
	}
	for i := range f.matchers {
		f.matchers[i].state = 0
	}
	text := string(f.held)
	f.held = f.held[:0]
	return text
}
