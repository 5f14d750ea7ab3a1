package engine

import "slices"

// queue is who waits: owners in a ring, each with its requests in the order they
// came. The zero value is empty.
type queue struct {
	n      int
	owners []string // next first; each has at least one request
	of     map[string][]*sequence
}

func (q *queue) push(s *sequence) {
	if q.of == nil {
		q.of = map[string][]*sequence{}
	}
	if len(q.of[s.Owner]) == 0 {
		q.owners = append(q.owners, s.Owner)
	}
	q.of[s.Owner] = append(q.of[s.Owner], s)
	q.n++
}

// first returns whose turn it is, or nil.
func (q *queue) first() *sequence {
	if q.n == 0 {
		return nil
	}
	return q.of[q.owners[0]][0]
}

// pop takes the first one away; its owner goes to the end of the ring.
func (q *queue) pop() *sequence {
	s := q.first()
	owner := s.Owner
	q.owners = append(q.owners[1:], owner)
	q.drop(owner, 0)
	return s
}

// remove takes s away, wherever it stands; false if it is not there.
func (q *queue) remove(s *sequence) bool {
	i := slices.Index(q.of[s.Owner], s)
	if i < 0 {
		return false
	}
	q.drop(s.Owner, i)
	return true
}

// drop removes an owner's request i, and the owner with its last one.
func (q *queue) drop(owner string, i int) {
	q.n--
	if rest := slices.Delete(q.of[owner], i, i+1); len(rest) > 0 {
		q.of[owner] = rest
		return
	}
	delete(q.of, owner)
	q.owners = slices.DeleteFunc(q.owners, func(o string) bool { return o == owner })
}
