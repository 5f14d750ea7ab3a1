package engine

import "github.com/parley-ai/parley/engine/sample"

// scores is the log-probabilities of a sequence, which wait for the text of their
// tokens.
type scores struct {
	scorer *sample.Scorer // nil: none are asked for
	own    sample.Scored  // of the token that was picked last
	top    []sample.Scored
	held   []scored
	pushed int // bytes of text, shown or not
}

// scored is a token whose text is not shown yet.
type scored struct {
	Logprob
	begin, end int // of its bytes in the text
}

// push notes the token that was picked last, which has so many bytes of text.
func (s *scores) push(e *Engine, bytes int) {
	if s.scorer == nil {
		return
	}
	candidate := func(c sample.Scored) Candidate { return Candidate{c.ID, e.tk.Piece(c.ID), c.Logprob} }
	l := Logprob{Candidate: candidate(s.own)}
	for _, c := range s.top {
		l.Top = append(l.Top, candidate(c))
	}
	s.held = append(s.held, scored{l, s.pushed, s.pushed + bytes})
	s.pushed += bytes
}

// release returns what belongs to the first bytes of the text, as far as it has not
// been returned. A token without text goes with what is before it.
func (s *scores) release(shown int) (out []Logprob) {
	for len(s.held) > 0 && (s.held[0].begin < shown || s.held[0].end <= shown) {
		out = append(out, s.held[0].Logprob)
		s.held = s.held[1:]
	}
	return out
}
