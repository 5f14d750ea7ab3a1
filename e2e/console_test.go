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

	clientScript{
		env:     []string{"CLAIM=" + claimLink(t, s), "CHROMIUM=" + chromium, "OTHER=" + other.ID, "SHOTS=" + filepath.Join(root, "artifacts", "console")},
		atLeast: 20, limit: 8 * time.Minute, saw: func(string, int) {},
	}.run(t, program)
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
