package regex

import (
	"fmt"
	"slices"
)

// op is what an instruction of the nondeterministic automaton does.
type op uint8

const (
	opSet    op = iota // takes a character of set
	opSplit            // goes on at out and at alt
	opBegin            // goes on at the beginning of the text only
	opEnd              // goes on at its end only
	opAccept           // the text is accepted
)

type inst struct {
	op       op
	out, alt int32
	set      set
	classes  [][2]int // of set: first and last, once the classes are known
}

// nfa is Thompson's automaton: a list of instructions, each made before those that
// lead to it.
type nfa struct {
	insts []inst
	full  bool
}

func (n *nfa) add(i inst) int32 {
	if len(n.insts) >= maxInsts {
		n.full = true
		return 0
	}
	n.insts = append(n.insts, i)
	return int32(len(n.insts) - 1)
}

// compile makes the automaton of the texts that contain a match: anything, the
// match, anything. The last instruction is the first to be done. It reports whether
// there was room.
func (n *nfa) compile(t *tree) bool {
	accept := n.add(inst{op: opAccept})
	after := n.loop(accept)
	start := n.emit(t, after)
	n.loop(start)
	return !n.full
}

// loop takes any characters, then goes on at out.
func (n *nfa) loop(out int32) int32 {
	any := n.add(inst{op: opSet, set: anything})
	split := n.add(inst{op: opSplit, out: out, alt: any})
	n.insts[any].out = split
	return split
}

// emit makes what matches t and goes on at out; it returns where that begins.
func (n *nfa) emit(t *tree, out int32) int32 {
	if n.full {
		return out
	}
	switch t.kind {
	case class:
		return n.add(inst{op: opSet, set: t.set, out: out})
	case begin:
		return n.add(inst{op: opBegin, out: out})
	case end:
		return n.add(inst{op: opEnd, out: out})
	case concat:
		for _, sub := range slices.Backward(t.subs) {
			out = n.emit(sub, out)
		}
		return out
	case either:
		at := n.emit(t.subs[len(t.subs)-1], out)
		for _, sub := range slices.Backward(t.subs[:len(t.subs)-1]) {
			at = n.add(inst{op: opSplit, out: n.emit(sub, out), alt: at})
		}
		return at
	case repeat:
		return n.repeat(t, out)
	}
	return out
}

func (n *nfa) repeat(t *tree, out int32) int32 {
	at := out
	if t.max < 0 {
		split := n.add(inst{op: opSplit, out: out})
		if n.full {
			return out
		}
		n.insts[split].alt = n.emit(t.subs[0], split)
		at = split
	}
	for i := t.min; i < t.max && !n.full; i++ {
		at = n.add(inst{op: opSplit, out: n.emit(t.subs[0], at), alt: out})
	}
	for i := 0; i < t.min && !n.full; i++ {
		before := len(n.insts)
		at = n.emit(t.subs[0], at)
		if len(n.insts) == before {
			break // it is empty, and so are the rest
		}
	}
	return at
}

// builder makes a DFA's states, which are sets of instructions.
type builder struct {
	*nfa
	d       *DFA
	budget  *Budget
	known   map[string]int32
	sets    [][]int32 // of each state: the set instructions, and those that wait for the end
	mark    []int     // by instruction: the last closure it was in
	closing int
}

func (n *nfa) determine(budget *Budget) (*DFA, error) {
	d := &DFA{cuts: slices.Clone(borders), all: 1}
	for _, i := range n.insts {
		for _, r := range i.set {
			d.cuts = append(d.cuts, r.lo, r.hi+1)
		}
	}
	slices.Sort(d.cuts)
	d.cuts = slices.Compact(d.cuts)
	d.index()
	for i := range n.insts {
		for _, r := range n.insts[i].set {
			n.insts[i].classes = append(n.insts[i].classes, [2]int{d.ClassOf(r.lo), d.ClassOf(r.hi)})
		}
	}
	b := &builder{nfa: n, d: d, budget: budget, known: map[string]int32{}, mark: make([]int, len(n.insts))}
	if err := b.run(); err != nil {
		return nil, err
	}
	if d = d.prune(); d == nil {
		return nil, fmt.Errorf("%w: it matches nothing", ErrUnsupported)
	}
	return d, nil
}

func (b *builder) run() error {
	first := int32(len(b.insts) - 1)
	b.state([]int32{first}, true)
	classes := b.d.Classes()
	to := make([][]int32, classes)
	for s := 0; s < len(b.sets); s++ {
		for c := range to {
			to[c] = to[c][:0]
		}
		for _, i := range b.sets[s] {
			for _, r := range b.insts[i].classes {
				for c := r[0]; c <= r[1]; c++ {
					to[c] = append(to[c], b.insts[i].out)
				}
				b.budget.Spend(r[1] - r[0] + 1)
			}
		}
		for _, outs := range to {
			b.d.next = append(b.d.next, b.state(outs, false))
		}
		if len(b.sets) > maxStates || len(b.sets)*classes > maxTable || !b.budget.Spend(classes) {
			return fmt.Errorf("%w: too many states", ErrTooLarge)
		}
	}
	return nil
}

// state returns the DFA state that begins with the instructions, made if it is new.
func (b *builder) state(from []int32, atBegin bool) int32 {
	if len(from) == 0 || b.budget.Left < 0 {
		return Dead
	}
	members := b.closure(from, atBegin, false)
	slices.Sort(members)
	key := make([]byte, 0, 4*len(members)+1)
	for _, i := range members {
		key = append(key, byte(i), byte(i>>8), byte(i>>16), byte(i>>24))
	}
	accepts := b.accepts(members)
	if atBegin {
		// Only here may ^ and $ both be passed: the text is empty.
		accepts = b.accepts(b.closure(from, true, true))
		key = append(key, 1)
	}
	if id, ok := b.known[string(key)]; ok {
		return id
	}
	id := int32(len(b.sets))
	b.known[string(key)] = id
	b.sets = append(b.sets, members)
	label := uint64(0)
	if accepts {
		label = 1
	}
	b.d.labels = append(b.d.labels, label)
	return id
}

// accepts reports whether the text may end in a closure.
func (b *builder) accepts(members []int32) bool {
	for _, i := range b.closure(members, false, true) {
		if b.insts[i].op == opAccept {
			return true
		}
	}
	return false
}

// closure follows what takes no character, and returns the instructions that wait.
func (b *builder) closure(from []int32, atBegin, atEnd bool) []int32 {
	b.closing++
	work := slices.Clone(from)
	var members []int32
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		if b.mark[i] == b.closing {
			continue
		}
		b.mark[i] = b.closing
		if !b.budget.Spend(1) {
			break
		}
		in := &b.insts[i]
		switch {
		case in.op == opSplit:
			work = append(work, in.out, in.alt)
		case in.op == opBegin && atBegin, in.op == opEnd && atEnd:
			work = append(work, in.out)
		case in.op != opBegin:
			members = append(members, i)
		}
	}
	return members
}
