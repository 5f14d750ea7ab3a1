// Testcount runs `go test` and says at the end how many tests passed and how
// many failed.
//
// Each argument is one go test command line, such as "-race ./internal/..."; it may begin with
// NAME=value words for its environment. All of them run, one after the other, even when an early
// one fails. What is printed is what go test itself prints: the line of every package, and the
// output of every test that failed. The last line is "N passed, N failed" and the exit code is 1
// when anything failed, a package that does not build included.
//
// With -noskip a skipped test counts as failed. What tests say by the attribute "proof" becomes a
// table before the last lines, and a proof of -proofs that none of them gave is a failure.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	noskip := flag.Bool("noskip", false, "count a skipped test as failed")
	proofs := flag.String("proofs", "", "proofs that must be given, such as T1,T2")
	flag.Parse()

	c := newCounter(os.Stdout)
	c.noskip = *noskip
	if *proofs != "" {
		c.wanted = strings.Split(*proofs, ",")
	}
	for _, line := range flag.Args() {
		if err := run(c, line); err != nil {
			c.broken(line, err)
		}
	}
	if !c.report() {
		os.Exit(1)
	}
}

// run executes one go test line. Its error is about the command itself: failing tests are in c.
func run(c *counter, line string) error {
	words := strings.Fields(line)
	env := os.Environ()
	for len(words) > 0 && !strings.HasPrefix(words[0], "-") && strings.Contains(words[0], "=") {
		env = append(env, words[0])
		words = words[1:]
	}
	args := []string{"test"}
	// The go command wants -C before every other flag.
	if len(words) > 1 && words[0] == "-C" {
		args = append(args, words[:2]...)
		words = words[2:]
	}
	args = append(append(args, "-json"), words...)

	fmt.Fprintln(c.out, "go", strings.Join(args, " "))
	cmd := exec.Command("go", args...)
	cmd.Env = env
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failedBefore := c.failed
	readErr := c.read(pipe)
	if readErr != nil {
		// An unread pipe would block go test for ever.
		_, _ = io.Copy(io.Discard, pipe)
	}
	waitErr := cmd.Wait()
	switch {
	case readErr != nil:
		return readErr
	case waitErr != nil && c.failed == failedBefore:
		// No test and no package failed, but the command did: a flag or a pattern was wrong.
		return waitErr
	}
	return nil
}
