package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// term is schemas that all apply, with one branch chosen of each anyOf and oneOf.
type term struct {
	types   types
	schemas []*schema
}

// node returns the place where all the schemas apply. It is built later.
func (c *compiler) node(of []*schema) *node {
	of = slices.DeleteFunc(slices.Clone(of), func(s *schema) bool { return s.plain })
	key := keyOf(of)
	if n, ok := c.nodes[key]; ok {
		return n
	}
	n := &node{schemas: of, cost: infinite}
	if len(of) > 0 {
		n.path = of[0].path
	}
	c.nodes[key] = n
	c.order = append(c.order, n)
	return n
}

// keyOf is the same for the same set of schemas.
func keyOf(of []*schema) string {
	ids := make([]int, len(of))
	for i, s := range of {
		ids[i] = s.id
	}
	slices.Sort(ids)
	var key []byte
	for _, id := range slices.Compact(ids) {
		key = binary.AppendUvarint(key, uint64(id))
	}
	return string(key)
}

// terms merges the schemas. No term means that nothing satisfies them all.
func (c *compiler) terms(of []*schema) ([]term, error) {
	out := []term{{types: typeAny}}
	for _, s := range of {
		var err error
		if out, err = c.merge(out, s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// merge adds s to every term. Those that have no type left are dropped.
func (c *compiler) merge(in []term, s *schema) ([]term, error) {
	if s.active && len(in) > 0 {
		return nil, refersToItself(s)
	}
	if err := c.spend(len(in)+1, s.path); err != nil {
		return nil, err
	}
	if s.never || len(in) == 0 {
		return nil, nil
	}
	if s.plain {
		return in, nil
	}
	s.active = true
	defer func() { s.active = false }()
	var out, fresh []term
	for _, t := range in {
		if slices.Contains(t.schemas, s) {
			out = append(out, t)
			continue
		}
		t.types &= s.types
		t.schemas = append(slices.Clone(t.schemas), s)
		if t.types != 0 {
			fresh = append(fresh, t)
		}
	}
	var err error
	for _, sub := range s.all {
		if fresh, err = c.merge(fresh, sub); err != nil {
			return nil, err
		}
	}
	if s.ref != nil {
		if fresh, err = c.merge(fresh, s.ref); err != nil {
			return nil, err
		}
	}
	for _, group := range s.any {
		if fresh, err = c.branch(fresh, group, s.path); err != nil {
			return nil, err
		}
	}
	return append(out, fresh...), nil
}

func refersToItself(s *schema) error {
	return &Error{s.path, "it refers to itself without a value in between"}
}

// branch multiplies the terms by the branches.
func (c *compiler) branch(in []term, group []*schema, path string) ([]term, error) {
	var out []term
	known := map[string]bool{}
	for _, sub := range group {
		terms, err := c.merge(in, sub)
		if err != nil {
			return nil, err
		}
		for _, t := range terms {
			key := keyOf(t.schemas)
			if err := c.spend(len(t.schemas), path); err != nil {
				return nil, err
			}
			if known[key] {
				continue
			}
			known[key] = true
			out = append(out, t)
		}
		if len(out) > MaxAlternatives {
			return nil, &Error{path, fmt.Sprintf("anyOf and oneOf give more than %d combinations", MaxAlternatives)}
		}
	}
	return out, nil
}

// maxApart is the work of telling whether branches of oneOf exclude each other.
const maxApart = 1 << 18

// overlaps reports as unknown each oneOf whose branches are not seen to exclude each
// other: the grammar writes one of them, and another may be satisfied too.
func (c *compiler) overlaps() {
	saved := c.budget
	c.budget.Left = maxApart
	for _, s := range c.list {
		for i, group := range s.any {
			if s.apart[i] && (!c.exclusive(group) || c.budget.Left < 0) {
				c.unknown = append(c.unknown, join(s.path, "oneOf"))
			}
		}
	}
	c.budget = saved
}

func (c *compiler) exclusive(group []*schema) bool {
	var terms [][]term
	for _, s := range group {
		t, err := c.terms([]*schema{s})
		if err != nil {
			return false
		}
		terms = append(terms, t)
	}
	for i := range terms {
		for j := range i {
			if !c.exclude(terms[i], terms[j], 3) {
				return false
			}
		}
	}
	return true
}

// exclude reports whether no value satisfies a term of both, looking depth values
// deep.
func (c *compiler) exclude(as, bs []term, depth int) bool {
	for _, a := range as {
		for _, b := range bs {
			if !c.budget.Spend(1) || a.types&b.types != 0 && !c.refuses(a, b) && !c.refuses(b, a) && !c.differ(a, b, depth) {
				return false
			}
		}
	}
	return true
}

// refuses reports whether a allows only constants, none of which b accepts.
func (c *compiler) refuses(a, b term) bool {
	for _, s := range a.schemas {
		if !s.hasEnum {
			continue
		}
		if !slices.ContainsFunc(s.enum, func(v *value) bool { return c.acceptsAll(b.schemas, v) }) {
			return true
		}
	}
	return false
}

func (c *compiler) acceptsAll(of []*schema, v *value) bool {
	for _, s := range of {
		if !c.accepts(s, v) {
			return false
		}
	}
	return true
}

// differ reports whether objects of a and b differ in a property that both kinds
// have, or that one must have and the other may not.
func (c *compiler) differ(a, b term, depth int) bool {
	if a.types&b.types != typeObject || depth == 0 {
		return false
	}
	for _, s := range append(slices.Clone(a.schemas), b.schemas...) {
		for _, name := range s.required {
			if !c.budget.Spend(len(a.schemas) + len(b.schemas)) {
				return false
			}
			ofA, okA := schemasOf(a.schemas, name)
			ofB, okB := schemasOf(b.schemas, name)
			if !okA || !okB {
				return true
			}
			as, errA := c.terms(ofA)
			bs, errB := c.terms(ofB)
			if errA == nil && errB == nil && c.exclude(as, bs, depth-1) {
				return true
			}
		}
	}
	return false
}

// schemasOf returns the schemas of a property of objects that satisfy all of of; ok
// is false if there may be none of that name.
func schemasOf(of []*schema, name string) (subs []*schema, ok bool) {
	ok = true
	for _, s := range of {
		more, may := s.schemasOf(name)
		subs = append(subs, more...)
		ok = ok && may && s.acceptsName(name)
	}
	return subs, ok
}
