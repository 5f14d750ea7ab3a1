package e2e

import (
	"bufio"
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var requestLine = regexp.MustCompile(`^request (req_[0-9a-f]{32}) (\d{3})$`)

// clientScript is a client's program. Each line "ok NAME" or "not ok NAME: why" of what it prints
// is one test, each line "request ID STATUS" an answer that the client got.
type clientScript struct {
	env     []string
	atLeast int // tests
	saw     func(id string, status int)
	limit   time.Duration // 0 is ten minutes
}

func (c clientScript) run(t *testing.T, program []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.limit, 10*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	// Clients must not call anybody else.
	cmd.Env = append(append(os.Environ(), c.env...), "LANGCHAIN_TRACING_V2=false")
	out, err := cmd.CombinedOutput()
	ran := 0
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := requestLine.FindStringSubmatch(line); m != nil {
			status, _ := strconv.Atoi(m[2])
			c.saw(m[1], status)
			continue
		}
		result, rest, _ := strings.Cut(line, ": ")
		if name, ok := strings.CutPrefix(result, "ok "); ok {
			ran++
			t.Run(name, func(*testing.T) {})
		} else if name, ok := strings.CutPrefix(result, "not ok "); ok {
			ran++
			t.Run(name, func(t *testing.T) { t.Error(rest) })
		} else if strings.HasPrefix(line, "note ") {
			t.Log(line)
		}
	}
	if err != nil || ran < c.atLeast {
		t.Errorf("%d checks ran, at least %d should; exit code %d:\n%s", ran, c.atLeast, exitCode(err), out)
	}
}

// node is the program that runs a script of the Node clients.
func node(t *testing.T, script string) []string {
	t.Helper()
	program, err := exec.LookPath("node")
	need(t, err == nil, "there is no node; install Node 20 or later with npm")
	dir := filepath.Join(root, "e2e", "node")
	_, err = os.Stat(filepath.Join(dir, "node_modules", ".made-from.json"))
	need(t, err == nil, "the Node clients are not there; `make setup` installs them")
	return []string{program, filepath.Join(dir, script)}
}

// python is the program that runs a script of the Python client.
func python(t *testing.T, script string) []string {
	t.Helper()
	program := filepath.Join(root, ".cache", "venv", "bin", "python")
	_, err := os.Stat(program)
	need(t, err == nil, "the Python client is not there; `make setup` installs it")
	return []string{program, filepath.Join(root, "e2e", "python", script)}
}
