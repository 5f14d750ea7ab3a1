package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestSchemathesis lets Schemathesis, which reads the published document, ask whatever it may be
// asked by it, and by mistake: every answer must be one that the document has.
func TestSchemathesis(t *testing.T) {
	t.Parallel()
	st := filepath.Join(root, ".cache", "schemathesis", "bin", "st")
	_, err := os.Stat(st)
	need(t, err == nil, "Schemathesis is not there; `make setup` installs it")
	s := behind(t, startStub(t), "")
	secret, _ := account(t, s, "schema", "bulk", "1000")
	examples := 200
	if thorough(t) > 0 {
		examples = 2000
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, st, "run", filepath.Join(root, "internal", "api", "openapi.yaml"),
		"--url", s.URL, "--header", "Authorization: Bearer "+secret, "--no-color", "--max-examples", fmt.Sprint(examples),
		"--generation-database", "none", "--request-timeout", "60",
		// A schema cannot say which models there are, or which fields need which.
		"--exclude-checks", "positive_data_acceptance")
	cmd.Dir = t.TempDir() // it writes beside itself
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	t.Logf("%s", text[max(0, len(text)-1500):])
}
