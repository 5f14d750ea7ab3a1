package grammar

import (
	"fmt"
	"slices"

	"github.com/parley-ai/parley/engine/grammar/regex"
)

// maxProps is the properties that one object may name.
const maxProps = 4096

func (c *compiler) nextID() int32 {
	c.alts++
	return c.alts
}

// build gives n its alternatives. The nodes that they need are made, and built later.
func (c *compiler) build(n *node) error {
	if n.alts != nil { // calls have theirs
		return nil
	}
	terms, err := c.terms(n.schemas)
	if err != nil {
		return err
	}
	var texts []string
	for i := range terms {
		more, err := c.buildTerm(n, &terms[i])
		if err != nil {
			return err
		}
		texts = append(texts, more...)
	}
	if len(texts) > 0 {
		for _, t := range texts {
			if err := c.spend(len(t), n.path); err != nil {
				return err
			}
		}
		n.alts = append(n.alts, &alt{id: c.nextID(), kind: kindWords, words: newWords(c.v, texts)})
	}
	return nil
}

// buildTerm adds the alternatives of one term, and returns its constants.
func (c *compiler) buildTerm(n *node, t *term) (texts []string, err error) {
	if err := c.spend(len(t.schemas)+1, n.path); err != nil {
		return nil, err
	}
	for _, s := range t.schemas {
		if s.hasEnum {
			for _, v := range s.enum {
				if c.acceptsAll(t.schemas, v) {
					texts = append(texts, string(v.appendJSON(nil)))
				}
			}
			return texts, nil
		}
	}
	if t.types&typeNull != 0 {
		texts = append(texts, "null")
	}
	if t.types&typeBoolean != 0 {
		texts = append(texts, "false", "true")
	}
	if t.types&typeNumber != 0 {
		c.buildNumber(n, t)
	}
	if t.types&typeString != 0 {
		if err := c.buildString(n, t); err != nil {
			return nil, err
		}
	}
	if t.types&typeArray != 0 {
		c.buildArray(n, t)
	}
	if t.types&typeObject != 0 {
		return texts, c.buildObject(n, t)
	}
	return texts, nil
}

func (c *compiler) buildNumber(n *node, t *term) {
	num, lost := newNumber(t.schemas, t.types&typeFraction != 0)
	if lost != nil {
		c.unknown = append(c.unknown, join(lost.path, "multipleOf"))
	}
	if num == nil {
		return
	}
	for _, a := range n.alts {
		if a.kind == kindNumber && *a.num == *num {
			return // two threads of the same would never part
		}
	}
	n.alts = append(n.alts, &alt{id: c.nextID(), kind: kindNumber, num: num})
}

func (c *compiler) buildString(n *node, t *term) error {
	str := &stringType{max: noLimit}
	var err error
	for _, s := range t.schemas {
		str.min, str.max = max(str.min, s.minLength), min(str.max, s.maxLength)
		for _, d := range append(slices.Clone(s.patterns), s.format) {
			switch {
			case d == nil || d == str.dfa:
			case str.dfa == nil:
				str.dfa = d
			default:
				if str.dfa, err = regex.And(str.dfa, d, &c.budget); err != nil {
					return &Error{n.path, err.Error()}
				}
				if str.dfa == nil {
					return nil
				}
			}
		}
	}
	if str.min > str.max {
		return nil
	}
	for _, a := range n.alts {
		if a.kind == kindString && a.str.dfa == str.dfa && a.str.min == str.min && a.str.max == str.max {
			return nil
		}
	}
	if str.dfa != nil {
		form := stringForm{str.dfa, str.min, str.max}
		if c.strings[form] == nil {
			if err := c.measure(str, n.path); err != nil {
				return err
			}
			c.strings[form] = str
		}
		str = c.strings[form]
	}
	n.alts = append(n.alts, &alt{id: c.nextID(), kind: kindString, str: str})
	return nil
}

// stringForm is what makes strings alike.
type stringForm struct {
	dfa      *regex.DFA
	min, max int32
}

// maxMeasure bounds the table of a string with a pattern and lengths.
const maxMeasure = 1 << 19

// measure works out how far a string with an automaton is from its end.
func (c *compiler) measure(t *stringType, path string) error {
	states, classes := t.dfa.States(), t.dfa.Classes()
	t.levels = t.min + 1
	if t.max < noLimit {
		t.levels = t.max + 1
	}
	if int64(t.levels)*int64(states) > maxMeasure {
		return &Error{path, "a pattern with such lengths takes too much memory; make maxLength smaller, or put it into the pattern"}
	}
	costs := make([]int32, classes)
	for i := range costs {
		costs[i] = c.v.character(t.dfa.Class(i))
	}
	t.dist = make([]int32, int(t.levels)*states)
	for level := t.levels - 1; level >= 0; level-- {
		row := t.dist[int(level)*states:][:states]
		last := level == t.levels-1
		for q := range row {
			row[q] = infinite
			if level >= t.min && t.dfa.Accepts(int32(q)) {
				row[q] = 1
			}
		}
		if last && t.max < noLimit {
			continue
		}
		after := row
		if !last {
			after = t.dist[int(level+1)*states:][:states]
		}
		for again := true; again; again = again && last {
			again = false
			if err := c.spend(states*classes, path); err != nil {
				return err
			}
			for q := range row {
				for i, cost := range costs {
					if to := t.dfa.StepClass(int32(q), i); to != regex.Dead && sum(cost, after[to]) < row[q] {
						row[q] = sum(cost, after[to])
						again = true
					}
				}
			}
		}
	}
	return nil
}

func (c *compiler) buildArray(n *node, t *term) {
	a := &arrayType{most: noLimit}
	prefix := 0
	for _, s := range t.schemas {
		a.min, a.most = max(a.min, s.minItems), min(a.most, s.maxItems)
		prefix = max(prefix, len(s.prefix))
	}
	if a.min > a.most {
		return
	}
	item := func(i int) *node {
		var of []*schema
		for _, s := range t.schemas {
			if sub := s.item(i); sub != nil {
				of = append(of, sub)
			}
		}
		return c.use(n, of)
	}
	for i := range min(prefix, int(a.most)) {
		a.prefix = append(a.prefix, item(i))
	}
	a.items = item(prefix)
	n.alts = append(n.alts, &alt{id: c.nextID(), kind: kindArray, array: a})
}

// use returns the node of the schemas, on whose cost that of n will depend.
func (c *compiler) use(n *node, of []*schema) *node {
	child := c.node(of)
	if len(child.users) == 0 || child.users[len(child.users)-1] != n {
		child.users = append(child.users, n)
	}
	return child
}

func (c *compiler) buildObject(n *node, t *term) error {
	o := &objectType{path: n.path, max: noLimit}
	b := objectBuilder{c: c, n: n, t: t, o: o}
	b.declare()
	if len(o.props) > maxProps {
		return &Error{n.path, fmt.Sprintf("it names more than %d properties", maxProps)}
	}
	if err := c.spend(len(o.props)*len(t.schemas), n.path); err != nil {
		return err
	}
	for i := range o.props {
		p := &o.props[i]
		subs, ok := schemasOf(t.schemas, p.name)
		if !ok {
			subs = append(subs, &schema{id: -1, never: true})
		}
		p.node = c.use(n, subs)
		if err := c.spend(len(p.name)+8, n.path); err != nil {
			return err
		}
	}
	if err := b.others(); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	o.spellKeys(c.v)
	n.alts = append(n.alts, &alt{id: c.nextID(), kind: kindObject, object: o})
	return nil
}

// objectBuilder makes the objectType of a term.
type objectBuilder struct {
	c     *compiler
	n     *node
	t     *term
	o     *objectType
	place map[string]int // of a declared property
}

// declare lists the properties: those that are named, then those only required.
func (b *objectBuilder) declare() {
	b.place = map[string]int{}
	for _, s := range b.t.schemas {
		b.o.min, b.o.max = max(b.o.min, s.minProperties), min(b.o.max, s.maxProperties)
		for _, p := range s.properties {
			b.add(p.name)
		}
	}
	for _, s := range b.t.schemas {
		for _, name := range s.required {
			b.o.props[b.add(name)].required = true
		}
		for _, name := range s.namesAmong {
			if b.open() || b.matches(name) {
				b.add(name)
			}
		}
	}
}

func (b *objectBuilder) add(name string) int {
	i, ok := b.place[name]
	if !ok {
		i = len(b.o.props)
		b.place[name] = i
		b.o.props = append(b.o.props, member{name: name})
	}
	return i
}

// open reports whether properties are written that no schema names and no pattern
// matches: where a schema asks for it, or where it says nothing of properties at all.
func (b *objectBuilder) open() bool {
	says := false
	for _, s := range b.t.schemas {
		if s.additional != nil && !s.additional.never {
			return true
		}
		says = says || s.hasProperties || len(s.named) > 0
	}
	return !says || int(b.o.min) > len(b.place)
}

// matches reports whether a pattern for names of properties asks for the name.
func (b *objectBuilder) matches(name string) bool {
	for _, s := range b.t.schemas {
		for _, p := range s.named {
			if p.dfa.Match(name) {
				return true
			}
		}
	}
	return false
}

// maxNamed is the patterns that may decide about one object's names, and the ways
// they may combine.
const maxNamed = 16

// others allows undeclared properties.
func (b *objectBuilder) others() error {
	var dfas []*regex.DFA
	must := uint64(0) // the automata that every name satisfies
	named := 0
	for _, s := range b.t.schemas {
		if s.hasNamesAmong {
			return nil
		}
		for _, d := range s.names {
			must |= 1 << (len(dfas) & 63)
			dfas = append(dfas, d)
		}
		for _, p := range s.named {
			dfas = append(dfas, p.dfa)
			named++
		}
	}
	open := b.open()
	if !open && named == 0 {
		return nil
	}
	t := &otherType{colon: b.c.v.spell(`":`)[0]}
	for i := range b.o.props {
		t.declared = append(t.declared, b.o.props[i].name)
	}
	slices.Sort(t.declared)
	b.o.other = t
	if len(dfas) == 0 {
		t.setChars(b.c.v)
		t.class = []int32{-1, -1}
		b.class(t, 1, 0)
		return nil
	}
	if len(dfas) > maxNamed {
		return &Error{b.n.path, fmt.Sprintf("more than %d patterns for names of properties", maxNamed)}
	}
	var err error
	if t.dfa, err = regex.Partition(dfas, &b.c.budget); err != nil {
		return &Error{b.n.path, err.Error()}
	}
	t.setChars(b.c.v)
	if err := b.c.spend(t.dfa.States()*len(t.chars), b.n.path); err != nil {
		return err
	}
	return b.classes(t, must, open)
}

// classes finds which states a name may end in, and the node of its value.
func (b *objectBuilder) classes(t *otherType, must uint64, open bool) error {
	t.class = make([]int32, t.dfa.States())
	for q := range t.class {
		t.class[q] = -1
	}
	known := map[uint64]int32{}
	for q := 1; q < len(t.class); q++ { // state 0 is no name yet, and never comes again
		label := t.dfa.Label(int32(q))
		if label&must != must || label == must && !open {
			continue
		}
		id, ok := known[label]
		if !ok {
			if b.class(t, q, label); len(t.nodes) > maxNamed {
				return &Error{b.n.path, fmt.Sprintf("the patterns for names of properties combine in more than %d ways", maxNamed)}
			}
			id = t.class[q]
			known[label] = id
		}
		t.class[q] = id
	}
	// What undeclared properties cost is known of the first only.
	required := int32(0)
	for _, p := range b.o.props {
		if p.required {
			required++
		}
	}
	if b.o.min > required+1 {
		b.o.min = required + 1
		for _, s := range b.t.schemas {
			if s.minProperties > b.o.min {
				b.c.unknown = append(b.c.unknown, join(s.path, "minProperties"))
			}
		}
	}
	return nil
}

// class makes the node of names with the label, which end in state q.
func (b *objectBuilder) class(t *otherType, q int, label uint64) {
	var of []*schema
	bit := uint64(1)
	for _, s := range b.t.schemas {
		bit <<= len(s.names)
		matched := false
		for _, p := range s.named {
			if label&bit != 0 {
				of = append(of, p.schema)
				matched = true
			}
			bit <<= 1
		}
		if !matched && s.additional != nil {
			of = append(of, s.additional)
		}
	}
	t.class[q] = int32(len(t.nodes))
	t.nodes = append(t.nodes, b.c.use(b.n, of))
}
