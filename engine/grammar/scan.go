package grammar

import (
	"encoding/json"
	"strings"
)

// CallPiece is a part of a call that has come: its name, or some of its arguments.
type CallPiece struct {
	Index int // of the call, from 0
	// Name is set on the first piece of a call, and only there; that has no arguments.
	Name string
	// Arguments is the next part of a JSON object, as it was written.
	Arguments string
}

// CallScanner finds the calls in text of a grammar of [Calls], as it comes.
type CallScanner struct {
	open, between string
	phase         scanPhase
	at            int // bytes of the present part that are through
	index         int
	name          []byte // with its quotes
	escaped       bool
	inString      bool
	depth         int
}

type scanPhase uint8

const (
	scanOpen scanPhase = iota
	scanHead
	scanName
	scanArgs // what comes before the arguments
	scanObject
	scanEnd // the brace
	scanBetween
	scanDone
)

// NewCallScanner returns a scanner for texts of Calls with the same options.
func NewCallScanner(o CallOptions) *CallScanner {
	return &CallScanner{open: o.Open, between: o.Between}
}

// Push takes the next part of the text, however it is cut, and returns what it told.
// Text that the grammar does not have gives nothing.
func (s *CallScanner) Push(text string) []CallPiece {
	var out []CallPiece
	from := 0 // where arguments begin that are not yet in out
	flush := func(to int) {
		if from < to {
			out = append(out, CallPiece{Index: s.index, Arguments: text[from:to]})
		}
	}
	for i := 0; i < len(text); i++ {
		b := text[i]
		switch s.phase {
		case scanOpen:
			if s.at == len(s.open) {
				s.phase, s.at = scanHead, 0
				i-- // it begins the head
				continue
			}
			s.literal(s.open, b, scanHead)
		case scanHead:
			s.name = s.name[:0]
			s.literal(callHead, b, scanName)
		case scanName:
			if s.quote(b) {
				var name string
				if json.Unmarshal(s.name, &name) != nil {
					s.phase = scanDone
					continue
				}
				out = append(out, CallPiece{Index: s.index, Name: name})
				s.phase, s.at = scanArgs, 0
			}
		case scanArgs:
			s.literal(callArgs, b, scanObject)
			from = i + 1
		case scanObject:
			if s.value(b) {
				flush(i + 1)
				s.phase, s.at = scanEnd, 0
			}
		case scanEnd:
			s.literal(callEnd, b, scanBetween)
		case scanBetween:
			if s.literal(s.between, b, scanHead); s.phase == scanHead {
				s.index++
			}
		case scanDone:
			return out
		}
	}
	if s.phase == scanObject {
		flush(len(text))
	}
	return out
}

// literal takes a byte of text, after which comes next. Another byte is the end.
func (s *CallScanner) literal(text string, b byte, next scanPhase) {
	if s.at >= len(text) || text[s.at] != b {
		s.phase = scanDone
		return
	}
	if s.at++; s.at == len(text) {
		s.phase, s.at = next, 0
	}
}

// quote takes a byte of the name and reports whether it is the last.
func (s *CallScanner) quote(b byte) bool {
	s.name = append(s.name, b)
	if s.escaped {
		s.escaped = false
		return false
	}
	s.escaped = b == '\\'
	return b == '"' && len(s.name) > 1
}

// value takes a byte of the arguments and reports whether it is the last.
func (s *CallScanner) value(b byte) bool {
	switch {
	case s.escaped:
		s.escaped = false
	case s.inString:
		s.escaped, s.inString = b == '\\', b != '"'
	case b == '"':
		s.inString = true
	case strings.IndexByte("{[", b) >= 0:
		s.depth++
	case strings.IndexByte("}]", b) >= 0:
		s.depth--
		return s.depth == 0
	}
	return false
}
