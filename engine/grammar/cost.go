package grammar

import (
	"cmp"
	"slices"
)

// relax works out the cost of every node: from infinite down, until nothing changes.
func (c *compiler) relax() error {
	queue := slices.Clone(c.order)
	for _, n := range queue {
		n.queued = true
	}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		n.queued = false
		least := infinite
		for _, a := range n.alts {
			a.cost = a.measure()
			least = min(least, a.cost)
			if err := c.spend(a.size(), n.path); err != nil {
				return err
			}
		}
		if least >= n.cost {
			continue
		}
		n.cost = least
		for _, u := range n.users {
			if !u.queued {
				u.queued = true
				queue = append(queue, u)
			}
		}
	}
	return nil
}

// measure is the cost of an alternative from those of its parts.
func (a *alt) measure() int32 {
	switch a.kind {
	case kindWords:
		return a.words.least(0, int32(len(a.words.texts)), 0)
	case kindString:
		return sum(1, a.str.after(0, 0))
	case kindNumber:
		return a.num.cost()
	case kindArray:
		return a.array.cost()
	case kindObject:
		return a.object.cost()
	}
	return a.calls.cost()
}

// size is the work of measure.
func (a *alt) size() int {
	switch a.kind {
	case kindWords:
		return len(a.words.texts)
	case kindArray:
		return len(a.array.prefix) + 1
	case kindObject:
		n := (len(a.object.props) + 1) * (int(a.object.min) + 1)
		if o := a.object.other; o != nil {
			n += len(o.class) * len(o.chars)
		}
		return n
	case kindCalls:
		return len(a.calls.args) + 1
	}
	return maxDigits * maxDigits
}

// finish drops what has no finite value and indexes the rest.
func (c *compiler) finish(n *node) error {
	n.alts = slices.DeleteFunc(n.alts, func(a *alt) bool { return a.cost >= infinite })
	for _, a := range n.alts {
		if o := a.object; o != nil {
			before := len(o.props)
			o.props = slices.DeleteFunc(o.props, func(m member) bool { return m.cost() >= infinite })
			if len(o.props) < before {
				o.spellKeys(c.v)
				o.tabulate()
			}
		}
		a.index(n)
	}
	return c.spend(len(n.alts), n.path)
}

// index enters an alternative under the bytes that it may begin with.
func (a *alt) index(n *node) {
	enter := func(b byte) {
		if k := class(b); !slices.Contains(n.starts[k], a) {
			n.starts[k] = append(n.starts[k], a)
		}
	}
	switch a.kind {
	case kindWords:
		for _, t := range a.words.texts {
			enter(t[0])
		}
	case kindString:
		enter('"')
	case kindNumber:
		enter('0')
	case kindArray:
		enter('[')
	case kindObject:
		enter('{')
	case kindCalls:
		enter(cmp.Or(a.calls.open.texts[0], callHead)[0])
	}
}

// blame follows what makes a node infinite to where it begins.
func (c *compiler) blame(n *node) string {
	seen := map[*node]bool{}
	for {
		seen[n] = true
		next := n.infinitePart()
		if next == nil || seen[next] {
			return n.path
		}
		n = next
	}
}

// infinitePart returns a part that a node needs and that has no finite value.
func (n *node) infinitePart() *node {
	for _, a := range n.alts {
		switch a.kind {
		case kindObject:
			for _, p := range a.object.props {
				if p.required && p.node.cost >= infinite {
					return p.node
				}
			}
		case kindArray:
			for i := range a.array.min {
				if item := a.array.item(i); item != nil && item.cost >= infinite {
					return item
				}
				if int(i) > len(a.array.prefix) {
					break
				}
			}
		case kindCalls:
			for _, arg := range a.calls.args {
				if arg.cost >= infinite {
					return arg
				}
			}
		}
	}
	return nil
}
