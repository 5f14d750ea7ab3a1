// Mutants changes the code of the money, one small thing at a time, and runs its tests:
// what no test notices is not tested. It prints every mutant that survives and what became
// of each file's, and fails when fewer than the wanted share is killed.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// target is a package and what tests it, the quickest first: the next one runs only for
// what survived.
type target struct {
	dir   string
	tests []*tests
	files []*source
}

// The ledger does no I/O of its own, in no file: it decides in memory, the committer too,
// and writes through an interface. So all of its package is mutated, and the first tests
// run it over maps; the second ones over a database.
func targets() []*target {
	// A counterexample is enough: it need not be the smallest.
	first := []string{"-rapid.shrinktime=0s", "-rapid.nofailfile"}
	return []*target{
		{dir: "internal/money", tests: []*tests{{pkg: "./internal/money", args: first}}},
		{dir: "internal/ledger", tests: []*tests{
			{pkg: "./internal/ledger/simulation", args: []string{"-test.skip=Repeats", "-histories=100"}},
			{pkg: "./internal/ledger", args: append(first, "-test.short")},
		}},
	}
}

func main() {
	var o options
	flag.Float64Var(&o.least, "least", 90, "the percentage that must be killed")
	flag.StringVar(&o.only, "only", "", "mutate files whose path contains this")
	flag.StringVar(&o.list, "equivalent", "tools/mutants/equivalent.txt", "mutants that change nothing, each with its reason")
	flag.IntVar(&o.every, "every", 1, "judge one mutant of so many, for a quick turn")
	flag.IntVar(&o.atOnce, "p", 2, "judge so many at a time")
	flag.BoolVar(&o.quick, "quick", false, "judge by the first tests of a package only")
	flag.Parse()
	o.every, o.atOnce = max(1, o.every), max(1, o.atOnce)
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type options struct {
	least         float64
	only, list    string
	every, atOnce int
	quick         bool
	reasons       map[string]string // of equivalents
}

func (o *options) run() error {
	var err error
	if o.reasons, err = readEquivalent(o.list); err != nil {
		return err
	}
	all := targets()
	seen := map[string]bool{} // mutants
	for _, t := range all {
		if err := t.read(seen); err != nil {
			return err
		}
	}
	for id := range o.reasons {
		if !seen[id] {
			return fmt.Errorf("%s: there is no mutant %s", o.list, id)
		}
	}
	failed := false
	for _, t := range all {
		if o.quick {
			t.tests = t.tests[:1]
		}
		share, err := o.judge(t)
		if err != nil {
			return err
		}
		failed = failed || share < o.least
	}
	if failed {
		return fmt.Errorf("fewer than %.0f %% are killed", o.least)
	}
	return nil
}

// read reads the code of t and notes the ids of all its mutants.
func (t *target) read(seen map[string]bool) error {
	paths, err := filepath.Glob(t.dir + "/*.go")
	if err != nil {
		return err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := read(path)
		if err != nil {
			return err
		}
		for _, m := range f.mutants {
			seen[m.id()] = true
		}
		t.files = append(t.files, f)
	}
	return nil
}

// judge runs the tests for the wanted mutants of t and returns the percentage of those
// that can be killed that are. It first runs them for none: they must pass.
func (o *options) judge(t *target) (share float64, err error) {
	sum := fates{}
	begun := time.Now()
	for _, f := range t.files {
		if len(f.mutants) == 0 || !strings.Contains(f.path, o.only) {
			continue
		}
		if len(sum) == 0 {
			for _, test := range t.tests {
				if err := test.pass(); err != nil {
					return 0, err
				}
			}
		}
		found, err := o.file(t, f)
		if err != nil {
			return 0, err
		}
		fmt.Println(f.path + ": " + found.String())
		for fate, n := range found {
			sum[fate] += n
		}
	}
	if len(sum) == 0 {
		return 100, nil
	}
	fmt.Printf("%s: %s, in %v\n", t.dir, sum, time.Since(begun).Round(time.Second))
	return sum.share(), nil
}

// file judges the mutants of one file: each by the next tests only when it survives those
// before.
func (o *options) file(t *target, f *source) (fates, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	found := fates{}
	var left []*mutant
	for i, m := range f.mutants {
		switch {
		case i%o.every != 0:
		case o.reasons[m.id()] != "":
			found[equivalent]++
		default:
			left = append(left, m)
		}
	}
	for _, test := range t.tests {
		if len(left) == 0 {
			break
		}
		binary, broken, err := test.combined(dir, f)
		if err != nil {
			return nil, err
		}
		left = o.each(test, binary, left, broken, found)
	}
	found[survived] = len(left)
	for _, m := range left {
		fmt.Printf("%s %s:%d: %s\n-%s\n+%s\n%s\n", survived, m.file, m.line, m.what, m.was, m.is, m.id())
	}
	return found, nil
}

// each runs the tests for every mutant, counts those that end by them and returns the others.
func (o *options) each(test *tests, binary string, all []*mutant, broken map[int]bool, found fates) (left []*mutant) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		slots = make(chan struct{}, o.atOnce)
	)
	for _, m := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			fate := unbuilt
			if !broken[m.number] {
				fate = test.fate(binary, m)
			}
			mu.Lock()
			defer mu.Unlock()
			if fate == survived {
				left = append(left, m)
			} else {
				found[fate]++
			}
		})
	}
	wg.Wait()
	slices.SortFunc(left, func(a, b *mutant) int { return cmp.Compare(a.number, b.number) })
	return left
}

// readEquivalent reads pairs of lines: the id of a mutant, and "# " with the reason why no
// test can kill it.
func readEquivalent(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	id := ""
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		reason, isReason := strings.CutPrefix(line, "# ")
		switch {
		case line == "":
		case !isReason && id == "":
			id = line
		case isReason && id != "":
			reasons[id], id = reason, ""
		default:
			return nil, fmt.Errorf("%s:%d: every mutant has one line, and its reason the next", path, i+1)
		}
	}
	return reasons, nil
}
