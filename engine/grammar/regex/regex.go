// Package regex compiles regular expressions as JSON Schema's "pattern" writes them
// (ECMA-262, by code points) to deterministic automata that can be stepped
// character by character.
//
// Where ECMA-262 and Go's syntax differ in what a class or the dot means, the
// smaller set is taken, so that what the automaton accepts matches under both.
// Look-around, word boundaries, back references and \p are not supported.
package regex

import (
	"errors"
	"fmt"
	"slices"
	"sort"
)

var (
	// ErrUnsupported means that the expression is malformed, uses what this package leaves out, or
	// matches nothing at all.
	ErrUnsupported = errors.New("not a supported regular expression")
	// ErrTooLarge means that the automaton would have too many states, or take too long to build.
	ErrTooLarge = errors.New("the regular expression is too large")
)

// Limits of one expression.
const (
	maxNesting = 64      // of groups
	maxInsts   = 1 << 13 // of the nondeterministic automaton; {n} repeats count n times
	maxStates  = 1 << 12
	maxTable   = 1 << 19 // states times classes
)

// Budget is the work that may still be done, in steps of some nanoseconds. It is
// shared by all expressions of a schema, so that many small ones are bounded too.
type Budget struct{ Left int }

// Spend takes n steps and reports whether there were as many.
func (b *Budget) Spend(n int) bool {
	b.Left -= n
	return b.Left >= 0
}

// Dead is the state from which nothing is accepted.
const Dead int32 = -1

// DFA is a deterministic automaton over code points. State 0 is the first; from
// every state but Dead something is accepted. It never changes.
//
// Characters fall into classes that all states treat alike. No class straddles a
// border of UTF-8's lengths or of what JSON writes with an escape.
type DFA struct {
	cuts   []rune // class i is cuts[i] to cuts[i+1]-1
	ascii  [128]int32
	next   []int32 // state*classes + class
	labels []uint64
	all    uint64
}

// borders are where the form of a character in JSON text changes: control
// characters with and without a short escape, the quote, the backslash, and the
// lengths of UTF-8, beside the surrogates.
var borders = []rune{0, 8, 9, 10, 11, 12, 13, 14, ' ', '"', '"' + 1, '\\', '\\' + 1, 0x80, 0x800, 0xd800, 0xe000, 0x10000, 0x110000}

// Compile returns the automaton of all texts that contain a match of the pattern.
// Errors are [ErrUnsupported] and [ErrTooLarge], with more words.
func Compile(pattern string, b *Budget) (*DFA, error) {
	p := parser{in: []rune(pattern)}
	tree, err := p.parse()
	if err != nil {
		return nil, err
	}
	var n nfa
	if !n.compile(tree) {
		return nil, fmt.Errorf("%w: more than %d parts, counted with their repetitions", ErrTooLarge, maxInsts)
	}
	return n.determine(b)
}

// States returns the number of states.
func (d *DFA) States() int { return len(d.labels) }

// Classes returns the number of classes.
func (d *DFA) Classes() int { return len(d.cuts) - 1 }

// Class returns the first and last character of class i.
func (d *DFA) Class(i int) (lo, hi rune) { return d.cuts[i], d.cuts[i+1] - 1 }

// ClassOf returns the class of r.
func (d *DFA) ClassOf(r rune) int {
	if uint32(r) < 128 {
		return int(d.ascii[r])
	}
	return sort.Search(len(d.cuts), func(i int) bool { return d.cuts[i] > r }) - 1
}

// Step returns the state after r in state q, or Dead.
func (d *DFA) Step(q int32, r rune) int32 { return d.StepClass(q, d.ClassOf(r)) }

// StepClass returns the state after any character of the class, or Dead.
func (d *DFA) StepClass(q int32, class int) int32 {
	return d.next[int(q)*(len(d.cuts)-1)+class]
}

// Accepts reports whether a text that ends in state q is accepted.
func (d *DFA) Accepts(q int32) bool { return d.labels[q] == d.all }

// Label tells for a state of [Partition] which of the automata accept: bit i is
// the i-th.
func (d *DFA) Label(q int32) uint64 { return d.labels[q] }

// Match reports whether the automaton accepts s.
func (d *DFA) Match(s string) bool {
	q := int32(0)
	for _, r := range s {
		if q == Dead {
			return false
		}
		q = d.Step(q, r)
	}
	return q != Dead && d.Accepts(q)
}

func (d *DFA) index() {
	for i := range d.ascii {
		d.ascii[i] = int32(sort.Search(len(d.cuts), func(k int) bool { return d.cuts[k] > rune(i) }) - 1)
	}
}

// And returns the automaton of the texts that both accept. Nothing may be: then
// the result is nil.
func And(a, b *DFA, budget *Budget) (*DFA, error) {
	d, err := product([]*DFA{a, b}, budget)
	if err != nil {
		return nil, err
	}
	return d.prune(), nil
}

// Partition returns an automaton that accepts every text; its labels tell which of
// the automata, at most 64, do.
func Partition(of []*DFA, budget *Budget) (*DFA, error) {
	d, err := product(of, budget)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// product runs all automata side by side; states are tuples of theirs.
func product(of []*DFA, budget *Budget) (*DFA, error) {
	d := &DFA{all: 1<<len(of) - 1}
	for _, o := range of {
		d.cuts = append(d.cuts, o.cuts...)
	}
	slices.Sort(d.cuts)
	d.cuts = slices.Compact(d.cuts)
	d.index()
	classes := d.Classes()
	part := make([][]int, len(of)) // class of the product -> class of the automaton
	for i, o := range of {
		for c := range classes {
			part[i] = append(part[i], o.ClassOf(d.cuts[c]))
		}
	}
	known := map[string]int32{}
	var tuples [][]int32
	key := make([]byte, 0, 4*len(of))
	add := func(t []int32) int32 {
		key = key[:0]
		for _, q := range t {
			key = append(key, byte(q), byte(q>>8), byte(q>>16), byte(q>>24))
		}
		if id, ok := known[string(key)]; ok {
			return id
		}
		id := int32(len(tuples))
		known[string(key)] = id
		tuples = append(tuples, slices.Clone(t))
		label := uint64(0)
		for i, q := range t {
			if q != Dead && of[i].Accepts(q) {
				label |= 1 << i
			}
		}
		d.labels = append(d.labels, label)
		return id
	}
	t := make([]int32, len(of))
	add(t)
	for s := 0; s < len(tuples); s++ {
		if len(tuples) > maxStates || len(tuples)*classes > maxTable || !budget.Spend(classes*len(of)) {
			return nil, fmt.Errorf("%w: too many states together", ErrTooLarge)
		}
		for c := range classes {
			for i, q := range tuples[s] {
				t[i] = Dead
				if q != Dead {
					t[i] = of[i].StepClass(q, part[i][c])
				}
			}
			d.next = append(d.next, add(t))
		}
	}
	return d, nil
}

// prune makes every state Dead from which nothing is accepted, and drops those that
// are then not reached. It returns nil if nothing is accepted at all.
func (d *DFA) prune() *DFA {
	classes := d.Classes()
	from := make([][]int32, d.States())
	for i, to := range d.next {
		if q := int32(i / classes); to != Dead && (len(from[to]) == 0 || from[to][len(from[to])-1] != q) {
			from[to] = append(from[to], q)
		}
	}
	alive := make([]bool, d.States())
	var work []int32
	for q := range alive {
		if d.Accepts(int32(q)) {
			alive[q] = true
			work = append(work, int32(q))
		}
	}
	for len(work) > 0 {
		q := work[len(work)-1]
		work = work[:len(work)-1]
		for _, p := range from[q] {
			if !alive[p] {
				alive[p] = true
				work = append(work, p)
			}
		}
	}
	if !alive[0] {
		return nil
	}
	number := make([]int32, d.States())
	n := int32(0)
	for q, ok := range alive {
		number[q] = Dead
		if ok {
			number[q] = n
			n++
		}
	}
	out := &DFA{cuts: d.cuts, ascii: d.ascii, all: d.all}
	for q, ok := range alive {
		if !ok {
			continue
		}
		out.labels = append(out.labels, d.labels[q])
		for _, to := range d.next[q*classes : (q+1)*classes] {
			if to != Dead {
				to = number[to]
			}
			out.next = append(out.next, to)
		}
	}
	return out
}
