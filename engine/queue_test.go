package engine

import (
	"slices"
	"strings"
	"testing"
)

func TestQueue_RoundRobin(t *testing.T) {
	t.Parallel()
	var q queue
	all := map[string]*sequence{}
	push := func(names ...string) {
		for _, n := range names {
			s := &sequence{Request: Request{Owner: n[:1], MaxTokens: len(all)}}
			all[n] = s
			q.push(s)
		}
	}
	name := func(s *sequence) string {
		for n, x := range all {
			if x == s {
				return n
			}
		}
		return "?"
	}
	push("a1", "a2", "a3", "a4", "b1", "c1", "b2")
	if !q.remove(all["a2"]) || q.remove(all["a2"]) {
		t.Error("remove: want true once")
	}
	var got []string
	for i := 0; q.n > 0; i++ {
		if q.first() != q.of[q.owners[0]][0] {
			t.Fatal("first is not the head")
		}
		got = append(got, name(q.pop()))
		switch i {
		case 1:
			push("d1", "a5")
		case 3:
			if !q.remove(all["d1"]) { // the last of its owner
				t.Error("remove(d1) = false")
			}
		}
	}
	want := strings.Fields("a1 b1 c1 a3 b2 a4 a5")
	if !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if q.first() != nil || len(q.owners) != 0 || len(q.of) != 0 {
		t.Errorf("an empty queue holds %v, %v", q.owners, q.of)
	}
}
