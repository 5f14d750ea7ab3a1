package parley_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/wire"
)

// TestDocs_Errors: docs/api.md explains exactly the codes that the code knows, in its words.
func TestDocs_Errors(t *testing.T) {
	t.Parallel()
	text := read(t, filepath.Join("docs", "api.md"))
	for _, e := range wire.Explanations() {
		row := fmt.Sprintf("| %d | `%s` | %s |", e.Status, e.Code, e.Sentence)
		if !strings.Contains(text, row+"\n") {
			t.Errorf("docs/api.md lacks the row\n%s", row)
		}
	}
	if got, want := strings.Count(text, "` | "), len(wire.Explanations()); strings.Count(between(text, "## Errors", "\n## "), "\n| ") != want+1 {
		t.Errorf("docs/api.md has other rows than the %d codes (%d found)", want, got)
	}
}

// TestDocs_Configuration: the example in docs/configure.md is accepted as it stands.
func TestDocs_Configuration(t *testing.T) {
	t.Parallel()
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, filepath.Join("docs", "configure.md")), -1)
	if len(examples) == 0 {
		t.Fatal("docs/configure.md has no example")
	}
	for i, m := range examples {
		path := filepath.Join(t.TempDir(), "parley.yaml")
		if err := os.WriteFile(path, []byte(m[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(path); err != nil {
			t.Errorf("example %d: %v", i+1, err)
		}
	}
}

// TestDocs_Links: every relative link leads to a file.
func TestDocs_Links(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := filepath.Glob("docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files = append(append(files, decisions...), "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, f := range files {
		for _, m := range link.FindAllStringSubmatch(read(t, f), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(f), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", f, m[1], err)
			}
		}
	}
}

// TestDocs_Dependencies: every direct dependency has its reason, and nothing else is listed.
func TestDocs_Dependencies(t *testing.T) {
	t.Parallel()
	text := read(t, filepath.Join("docs", "dependencies.md"))
	direct := map[string]bool{}
	for line := range strings.SplitSeq(read(t, "go.mod"), "\n") {
		fields := strings.Fields(line)
		if len(fields) >= 2 && strings.Contains(fields[0], ".") && strings.HasPrefix(line, "\t") && !strings.Contains(line, "// indirect") {
			direct[fields[0]] = true
		}
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		listed[m[1]] = true
		if !direct[m[1]] {
			t.Errorf("docs/dependencies.md lists %s, which go.mod does not require directly", m[1])
		}
	}
	for d := range direct {
		if !listed[d] {
			t.Errorf("docs/dependencies.md has no reason for %s", d)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// between is the part of text from the line start to the next end.
func between(text, start, end string) string {
	_, after, _ := strings.Cut(text, start)
	part, _, _ := strings.Cut(after, end)
	return part
}
