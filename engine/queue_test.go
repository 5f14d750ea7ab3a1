package engine

import (
	"slices"
	"strings"
	"testing"
)

// waiting is a queue of calls by name; the first letter is the owner.
type waiting struct {
	queue
	calls map[string]*call
}

func (w *waiting) push(names ...string) {
	for _, n := range names {
		w.calls[n] = &call{Request: Request{Owner: n[:1]}}
		w.queue.push(w.calls[n])
	}
}

// pop takes the first one away and returns its name.
func (w *waiting) pop(held map[string]int) string {
	c := w.first(func(owner string) int { return held[owner] })
	w.served(c.Owner)
	w.remove(c)
	for n, x := range w.calls {
		if x == c {
			return n
		}
	}
	return "?"
}

func TestQueue_RoundRobin(t *testing.T) {
	t.Parallel()
	q := waiting{calls: map[string]*call{}}
	q.push(strings.Fields("a1 a2 a3 a4 b1 c1 b2")...)
	if !q.remove(q.calls["a2"]) || q.remove(q.calls["a2"]) {
		t.Error("remove: want true once")
	}
	var got []string
	for i := 0; q.n > 0; i++ {
		got = append(got, q.pop(nil))
		switch i {
		case 1:
			q.push("d1", "a5")
		case 3:
			if !q.remove(q.calls["d1"]) { // the last of its owner
				t.Error("remove(d1) = false")
			}
		}
	}
	want := strings.Fields("a1 b1 c1 a3 b2 a4 a5")
	if !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if q.first(nil) != nil || len(q.owners) != 0 || len(q.of) != 0 {
		t.Errorf("an empty queue holds %v, %v", q.owners, q.of)
	}
}

// Who holds less comes first, wherever in the ring.
func TestQueue_FewestFirst(t *testing.T) {
	t.Parallel()
	q := waiting{calls: map[string]*call{}}
	q.push(strings.Fields("a1 a2 b1 b2 c1 c2")...)
	held := map[string]int{"a": 3, "b": 1, "c": 1}
	var got []string
	for q.n > 0 {
		n := q.pop(held)
		got = append(got, n)
		held[n[:1]]++
	}
	if want := strings.Fields("b1 c1 b2 c2 a1 a2"); !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestQueue_Clear(t *testing.T) {
	t.Parallel()
	q := waiting{calls: map[string]*call{}}
	q.push("a1", "b1", "a2")
	if all := q.clear(); len(all) != 3 || q.n != 0 || q.first(nil) != nil {
		t.Errorf("clear gave %d calls and left %d", len(all), q.n)
	}
}
