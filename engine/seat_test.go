package engine

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Whose place somebody takes who has nothing running. A sequence is its owner and the
// steps in which it got on; one with a minus is paused. All places are taken.
func TestEngine_Seat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		running string // in the order in which they began
		yields  int    // -1: nobody
	}{
		{"a0 a0 a0 b0 b0", 2},    // the owner who has the most
		{"b0 b0 a0 a0 a0", 4},    // wherever they are
		{"a0 b0 a0 c0 a0 b0", 4}, // between others
		{"a0 a0 b99 b0", 3},      // of two who have as many, the newest
		{"b0 a0 b0 c99", 2},      // before one who is alone and has had its turn
		{"c99 b0 a0 b0", 3},      // whatever came first
		{"-a0 -a0 a0 b0 b0", 4},  // paused ones have no place
		{"-a0 -a0 a33 b32", 2},   // so a has one
		{"a32 b34 c33", 1},       // nobody has two: who has had the turn longest
		{"a31 b32 c31", 1},       // but it must be over
		{"a31 b31", -1},
		{"a0 b0 -c99", -1},
		{"a99 b0 c0 -b99 -b99", 0},
		{"a0 b0 b0 c0 c0 c0 d0", 5},
	} {
		e := &Engine{}
		for f := range strings.FieldsSeq(c.running) {
			name, paused := strings.CutPrefix(f, "-")
			fresh, err := strconv.Atoi(name[1:])
			if err != nil {
				t.Fatal(err)
			}
			e.running = append(e.running, &sequence{call: &call{Request: Request{Owner: name[:1]}}, paused: paused, fresh: fresh})
		}
		e.o.MaxSequences = e.active()
		s, ok := e.seat(true)
		if got := slices.Index(e.running, s); got != c.yields || ok != (c.yields >= 0) {
			t.Errorf("%s: sequence %d yields, %t; want %d", c.running, got, ok, c.yields)
		}
		if s, ok := e.seat(false); s != nil || ok {
			t.Errorf("%s: %+v yields to somebody who has something running", c.running, s)
		}
		e.o.MaxSequences++
		if s, ok := e.seat(false); s != nil || !ok {
			t.Errorf("%s: %+v yields, %t, though there is a place", c.running, s, ok)
		}
	}
}
