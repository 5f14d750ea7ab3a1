package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The fates of a mutant.
const (
	killed     = "killed"
	timedOut   = "timed out" // and so killed
	survived   = "SURVIVED"
	equivalent = "equivalent"
	unbuilt    = "does not build"
)

// fates counts mutants by their fate.
type fates map[string]int

// share is the percentage that is killed of those that can be.
func (f fates) share() float64 {
	dead := f[killed] + f[timedOut]
	if dead+f[survived] == 0 {
		return 100
	}
	return 100 * float64(dead) / float64(dead+f[survived])
}

func (f fates) String() string {
	dead := f[killed] + f[timedOut]
	return fmt.Sprintf("%d of %d mutants killed, %.1f %% (%d timed out); %d survived, %d equivalent, %d did not build",
		dead, dead+f[survived], f.share(), f[timedOut], f[survived], f[equivalent], f[unbuilt])
}

// tests are the tests of one package, or some of them.
type tests struct {
	pkg      string
	args     []string      // of the test binary
	patience time.Duration // a mutant may wait for ever
}

// pass runs the tests for the code as it is. They must pass, else they would kill every
// mutant, and they say how long a mutant may take: a multiple of that.
func (t *tests) pass() error {
	t.patience = 5 * time.Minute
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "tests")
	if out, err := t.build(binary); err != nil {
		return fmt.Errorf("%s: %w\n%s", t.pkg, err, out)
	}
	cmd := t.command(context.Background(), binary, 0)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", t.pkg, err, out)
	}
	took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() // on a busy machine too
	t.patience = 15*time.Second + 15*took
	fmt.Printf("%s passes in %v of processor time\n", t.pkg, took.Round(10*time.Millisecond))
	return nil
}

// build makes the test binary. Without the tables for debuggers it links in half the time.
func (t *tests) build(binary string, flags ...string) ([]byte, error) {
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	return exec.Command("go", append(args, t.pkg)...).CombinedOutput()
}

// command runs the test binary where go test would.
func (t *tests) command(ctx context.Context, binary string, mutant int) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, append([]string{"-test.failfast", "-test.timeout=" + t.patience.String()}, t.args...)...)
	cmd.Dir = t.pkg
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", chosen, mutant))
	return cmd
}

// fate runs the tests for one mutant of those in the binary.
func (t *tests) fate(binary string, m *mutant) string {
	ctx, cancel := context.WithTimeout(context.Background(), t.patience+time.Minute) // it ends by itself
	defer cancel()
	out, err := t.command(ctx, binary, m.number).CombinedOutput()
	switch {
	case err == nil:
		return survived
	case ctx.Err() != nil, bytes.Contains(out, []byte("panic: test timed out")):
		return timedOut
	}
	return killed
}
