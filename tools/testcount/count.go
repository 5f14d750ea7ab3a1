package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"
)

// event is one line of go test -json (see go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Elapsed    float64
	Output     string
	Key, Value string // of attr
}

// counter adds up the events of any number of go test runs.
type counter struct {
	out    io.Writer
	noskip bool

	passed, failed int
	skips          []string
	failures       []string
	slow           []slowTest
	begun          time.Time
	output         map[string][]string // package + "\x00" + test: lines not yet printed
	failedIn       map[string]bool     // packages with at least one failed test
	proofs         []proof
	wanted         []string // proofs that must be among them
}

type slowTest struct {
	name    string
	seconds float64
}

func newCounter(out io.Writer) *counter {
	return &counter{out: out, begun: time.Now(), output: map[string][]string{}, failedIn: map[string]bool{}}
}

// read consumes one event stream to its end. Lines that are not events are passed on as they are.
func (c *counter) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if line[0] == '{' && json.Unmarshal(line, &e) == nil {
				c.add(e)
			} else {
				fmt.Fprintf(c.out, "%s", line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *counter) add(e event) {
	id := e.Package + "\x00" + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(c.out, e.Output)
	case "attr":
		if e.Key == proofKey {
			fmt.Fprintf(c.out, "%s: %s\n", e.Test, e.Value) // the table comes last
			c.proofs = append(c.proofs, parseProof(id, e.Value))
		}
	case "output":
		c.output[id] = append(c.output[id], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			c.endPackage(e)
		} else {
			c.endTest(e, id)
		}
	}
}

func (c *counter) endTest(e event, id string) {
	name := e.Package + "." + e.Test
	switch e.Action {
	case "pass":
		c.passed++
	case "fail":
		c.fail(e.Package, name)
		c.print(id)
	case "skip":
		reason := skipReason(c.output[id])
		c.skips = append(c.skips, name+": "+reason)
		if c.noskip {
			c.fail(e.Package, name+" was skipped")
		}
	}
	delete(c.output, id)
	c.timeProofs(id, e)
	if !strings.Contains(e.Test, "/") {
		c.slow = append(c.slow, slowTest{name, e.Elapsed})
	}
}

func (c *counter) endPackage(e event) {
	if e.Action == "fail" {
		// What a test wrote that never ended: a panic, a data race at exit or a timeout.
		for id := range c.output {
			if pkg, test, _ := strings.Cut(id, "\x00"); pkg == e.Package && test != "" {
				c.print(id)
				delete(c.output, id)
			}
		}
		if !c.failedIn[e.Package] {
			c.fail(e.Package, e.Package+" (the package itself)")
		}
	}
	id := e.Package + "\x00"
	for _, line := range c.output[id] {
		if line != "PASS\n" && !strings.HasPrefix(line, "-test.shuffle") {
			fmt.Fprint(c.out, line)
		}
	}
	delete(c.output, id)
}

func (c *counter) fail(pkg, name string) {
	c.failed++
	c.failedIn[pkg] = true
	c.failures = append(c.failures, name)
}

func (c *counter) print(id string) {
	for _, line := range c.output[id] {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(c.out, line)
		}
	}
}

// broken records a go test command that could not do its work at all.
func (c *counter) broken(line string, err error) {
	fmt.Fprintf(c.out, "go test %s: %v\n", line, err)
	c.fail("", "go test "+line)
}

// report prints the closing lines and tells whether everything passed.
func (c *counter) report() bool {
	sort.SliceStable(c.slow, func(i, j int) bool { return c.slow[i].seconds > c.slow[j].seconds })
	for i, s := range c.slow {
		if i == 5 || s.seconds < 1 {
			break
		}
		fmt.Fprintf(c.out, "slow: %6.1f s  %s\n", s.seconds, s.name)
	}
	for _, s := range c.skips {
		fmt.Fprintln(c.out, "skipped:", s)
	}
	for _, f := range c.failures {
		fmt.Fprintln(c.out, "failed:", f)
	}
	fmt.Fprintf(c.out, "tests took %d s\n", int(time.Since(c.begun).Seconds()))
	c.printProofs()
	// A run that tested nothing has proved nothing.
	ok := c.failed == 0 && c.passed > 0
	if ok {
		fmt.Fprintln(c.out, "PASS")
	} else {
		fmt.Fprintln(c.out, "FAIL")
	}
	fmt.Fprintf(c.out, "%d passed, %d failed\n", c.passed, c.failed)
	return ok
}

// skipReason finds the sentence given to t.Skip among the lines of a skipped test.
func skipReason(lines []string) string {
	for _, line := range lines {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- ") {
			continue
		}
		if _, after, found := strings.Cut(text, ".go:"); found {
			_, after, _ = strings.Cut(after, ": ")
			return after
		}
		return text
	}
	return "no reason given"
}
