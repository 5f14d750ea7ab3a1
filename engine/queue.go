package engine

import "slices"

// queue is who waits: owners in a ring, each with its calls in the order they came.
// The zero value is empty.
type queue struct {
	n      int
	owners []string // the one whose turn was longest ago first; each has at least one call
	of     map[string][]*call
}

func (q *queue) push(c *call) {
	if q.of == nil {
		q.of = map[string][]*call{}
	}
	if len(q.of[c.Owner]) == 0 {
		q.owners = append(q.owners, c.Owner)
	}
	q.of[c.Owner] = append(q.of[c.Owner], c)
	q.n++
}

// first returns whose turn it is, or nil: the oldest call of the owner who holds the
// fewest places, and of those who hold the same number the first in the ring.
func (q *queue) first(held func(owner string) int) *call {
	var best string
	least := -1
	for _, owner := range q.owners {
		if n := held(owner); least < 0 || n < least {
			best, least = owner, n
		}
	}
	if least < 0 {
		return nil
	}
	return q.of[best][0]
}

// served moves an owner to the end of the ring.
func (q *queue) served(owner string) {
	i := slices.Index(q.owners, owner)
	q.owners = append(slices.Delete(q.owners, i, i+1), owner)
}

// remove takes c away, wherever it stands; false if it is not there.
func (q *queue) remove(c *call) bool {
	i := slices.Index(q.of[c.Owner], c)
	if i < 0 {
		return false
	}
	q.n--
	if rest := slices.Delete(q.of[c.Owner], i, i+1); len(rest) > 0 {
		q.of[c.Owner] = rest
		return true
	}
	delete(q.of, c.Owner)
	q.owners = slices.DeleteFunc(q.owners, func(o string) bool { return o == c.Owner })
	return true
}

// clear takes all away.
func (q *queue) clear() (all []*call) {
	for _, owner := range q.owners {
		all = append(all, q.of[owner]...)
	}
	*q = queue{}
	return all
}
