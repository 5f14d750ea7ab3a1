package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// proofKey is the attribute by which a test says what it has proved, such as
// "T3; 200 losses of power; lost 0; duplicate 0; wrong 0; negative 0": its name in the design, how
// much it tried, and how often it found each kind of fault. A kind that it does not look for is
// left out. It may have several.
const proofKey = "proof"

// faults are the kinds, in the order of the table.
var faults = []string{"lost", "duplicate", "wrong", "negative"}

// proof is one row of the table.
type proof struct {
	test       string // package + "\x00" + test
	name, size string
	found      map[string]string
	took       time.Duration
	failed     bool
}

func parseProof(test, text string) proof {
	fields := strings.Split(text, ";")
	p := proof{test: test, name: fields[0], found: map[string]string{}}
	for i, field := range fields[1:] {
		kind, n, _ := strings.Cut(strings.TrimSpace(field), " ")
		switch {
		case i == 0:
			p.size = strings.TrimSpace(field)
		case slices.Contains(faults, kind):
			p.found[kind] = n
			p.failed = p.failed || n != "0"
		default:
			p.failed = true // what nobody understands proves nothing
		}
	}
	return p
}

// timeProofs notes how the test behind some proofs has ended.
func (c *counter) timeProofs(id string, e event) {
	for i := range c.proofs {
		if p := &c.proofs[i]; p.test == id {
			p.took = time.Duration(e.Elapsed * float64(time.Second))
			p.failed = p.failed || e.Action != "pass"
		}
	}
}

// printProofs prints the table and counts every proof that failed, or that nobody gave.
func (c *counter) printProofs() {
	for _, name := range c.wanted {
		if !slices.ContainsFunc(c.proofs, func(p proof) bool { return p.name == name }) {
			c.proofs = append(c.proofs, proof{name: name, size: "nothing was reported", failed: true})
		}
	}
	if len(c.proofs) == 0 {
		return
	}
	// By the number behind the letter.
	slices.SortStableFunc(c.proofs, func(a, b proof) int {
		x, _ := strconv.Atoi(strings.TrimLeft(a.name, "T"))
		y, _ := strconv.Atoi(strings.TrimLeft(b.name, "T"))
		return cmp.Compare(x, y)
	})
	w := tabwriter.NewWriter(c.out, 0, 0, 1, ' ', tabwriter.Debug)
	fmt.Fprintln(w, "| test\t size\t lost\t duplicate\t wrong\t negative\t time\t")
	fmt.Fprintln(w, "|---\t---\t---\t---\t---\t---\t---\t")
	for _, p := range c.proofs {
		name := p.name
		if p.failed {
			name += " FAILED"
			c.fail("", "proof "+p.name+": "+p.size)
		}
		row := []string{name, p.size}
		for _, kind := range faults {
			row = append(row, cmp.Or(p.found[kind], "-"))
		}
		fmt.Fprintf(w, "| %s\t %v\t\n", strings.Join(row, "\t "), p.took.Round(time.Second))
	}
	_ = w.Flush() // to what c.out is
}
