package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// TestConsole looks at every page with a browser; each line of its script is one test. Its
// pictures are in artifacts/console.
func TestConsole(t *testing.T) { //nolint:tparallel // its subtests are lines of one script
	t.Parallel()
	program := node(t, "console.mjs")
	chromium, err := exec.LookPath("chromium")
	need(t, err == nil, "there is no chromium; `make setup` installs it")
	s := start(t)

	run(t, s, "account", "create", "other", "--plan", "free")
	other := runJSON[struct{ ID string }](t, s, "account", "show", "other")

	claim := claimLink(t, s)
	clientScript{
		env:     []string{"CLAIM=" + claim, "CHROMIUM=" + chromium, "OTHER=" + other.ID, "SHOTS=" + filepath.Join(root, "artifacts", "console")},
		atLeast: 20, limit: 8 * time.Minute, saw: func(string, int) {},
	}.run(t, program)

	// What it did is in the audit log, and no secret is in the log of the server.
	run(t, s, "ledger", "verify")
	_, token, _ := strings.Cut(claim, "#")
	for _, secret := range []string{token, "correct horse battery", "__Host-session"} {
		if strings.Contains(s.Stderr(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// TestConsole_Types: the console's scripts are right as TypeScript, which their bundler does not check.
func TestConsole_Types(t *testing.T) {
	t.Parallel()
	tsc := filepath.Join(root, "e2e", "node", "node_modules", ".bin", "tsc")
	_, err := os.Stat(tsc)
	need(t, err == nil, "there is no TypeScript; `make setup` installs it")
	out, err := exec.CommandContext(t.Context(), tsc, "-p", filepath.Join(root, "internal", "console", "islands")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// claimLink is the link that the first start has printed.
func claimLink(t *testing.T, s *proc.Server) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Options.Data, "first-start.json"))
	if err != nil {
		t.Fatal(err)
	}
	var first struct{ Console string }
	if err := json.Unmarshal(text, &first); err != nil {
		t.Fatal(err)
	}
	// What was printed may still be on its way through the pipe.
	eventually(t, time.Minute, func() error {
		if !strings.Contains(s.Stdout(), first.Console) || !strings.Contains(first.Console, "/claim#") {
			return fmt.Errorf("the link %q is not what was printed:\n%s", first.Console, s.Stdout())
		}
		return nil
	})
	return first.Console
}
