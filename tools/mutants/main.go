// Mutants changes the code of the money, one small thing at a time, and runs its tests:
// what no test notices is not tested. It prints every mutant that survives, and fails when
// fewer than the wanted share is killed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// target is a package and what tests it, the quickest first: the next one runs only for
// what survived.
type target struct {
	dir   string
	tests []tests
}

// tests is one run of go test. It may take so long: a mutant may wait for ever.
type tests struct {
	patience time.Duration
	args     []string
}

// The ledger does no I/O of its own, in no file: it decides in memory, the committer too,
// and writes through an interface. So all of its package is mutated, and the first tests
// run it over maps; the second ones over a database.
var targets = []target{
	{"internal/money", []tests{{30 * time.Second, []string{"./internal/money"}}}},
	{"internal/ledger", []tests{
		{30 * time.Second, []string{"./internal/ledger/simulation", "-run=Simulation$|Core", "-args", "-histories=100"}},
		{3 * time.Minute, []string{"./internal/ledger", "-short"}},
	}},
}

// The fates of a mutant.
const (
	killed     = "killed"
	survived   = "SURVIVED"
	equivalent = "equivalent"
	unbuilt    = "does not build"
)

func main() {
	least := flag.Float64("least", 90, "the percentage that must be killed")
	only := flag.String("only", "", "mutate files whose path contains this")
	list := flag.String("equivalent", "tools/mutants/equivalent.txt", "mutants that change nothing, each with its reason")
	every := flag.Int("every", 1, "judge one mutant of so many, for a quick turn")
	flag.Parse()
	if err := run(*least, *only, *list, max(1, *every)); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(least float64, only, list string, every int) error {
	reasons, err := readEquivalent(list)
	if err != nil {
		return err
	}
	failed := false
	for _, t := range targets {
		begun := time.Now()
		fates, err := t.judge(only, reasons, every)
		if err != nil {
			return err
		}
		counted := fates[killed] + fates[survived]
		if counted == 0 {
			continue
		}
		share := 100 * float64(fates[killed]) / float64(counted)
		fmt.Printf("%s: %d of %d mutants killed, %.1f %%; %d survived, %d equivalent, %d did not build; %v\n",
			t.dir, fates[killed], counted, share, fates[survived], fates[equivalent], fates[unbuilt], time.Since(begun).Round(time.Second))
		failed = failed || share < least
	}
	if failed {
		return fmt.Errorf("fewer than %.0f %% are killed", least)
	}
	return nil
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

// judge runs the tests for every mutant of t, two at a time, and counts their fates.
func (t target) judge(only string, reasons map[string]string, every int) (map[string]int, error) {
	files, err := filepath.Glob(t.dir + "/*.go")
	if err != nil {
		return nil, err
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		fates = map[string]int{}
		slots = make(chan struct{}, 2)
	)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || !strings.Contains(file, only) {
			continue
		}
		all, text, err := mutations(file)
		if err != nil {
			return nil, err
		}
		for i, m := range all {
			if i%every != 0 {
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				fate := equivalent
				if reasons[m.id()] == "" {
					fate = t.fate(m, text)
				}
				mu.Lock()
				defer mu.Unlock()
				fates[fate]++
				if fate == survived {
					fmt.Printf("%s %s:%d: %s\n-%s\n+%s\n%s\n", fate, m.file, m.line, m.what, m.was, m.is, m.id())
				}
			})
		}
	}
	wg.Wait()
	return fates, nil
}

// fate builds and tests a mutant through an overlay: the tree is not touched.
func (t target) fate(m *mutant, text []byte) string {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	changed := filepath.Join(dir, filepath.Base(m.file))
	overlay := filepath.Join(dir, "overlay.json")
	whole, err := filepath.Abs(m.file)
	if err != nil {
		return err.Error()
	}
	entry, err := json.Marshal(map[string]map[string]string{"Replace": {whole: changed}})
	if err != nil {
		return err.Error()
	}
	source := string(text[:m.from]) + m.with + string(text[m.to:])
	for path, content := range map[string]string{changed: source, overlay: string(entry)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err.Error()
		}
	}
	for _, test := range t.tests {
		if fate := test.run(overlay); fate != survived {
			return fate
		}
	}
	return survived
}

func (t tests) run(overlay string) string {
	ctx, cancel := context.WithTimeout(context.Background(), t.patience+2*time.Minute) // to build them too
	defer cancel()
	args := append([]string{"test", "-overlay=" + overlay, "-vet=off", "-count=1", "-failfast", "-timeout=" + t.patience.String()}, t.args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	switch {
	case err == nil:
		return survived
	case bytes.Contains(out.Bytes(), []byte("[build failed]")), bytes.Contains(out.Bytes(), []byte("[setup failed]")):
		return unbuilt
	}
	return killed
}
