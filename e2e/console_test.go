package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// site is a server whose console nobody has claimed yet, for a script that looks at it with a
// browser. The pictures that a script makes are in artifacts/console.
type site struct {
	*proc.Server
	claim string
	env   []string
}

func newSite(t *testing.T) site {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	need(t, err == nil, "there is no chromium; `make setup` installs it")
	s := site{Server: start(t)}
	s.claim = claimLink(t, s.Server)
	address, _, _ := strings.Cut(s.claim, "/claim")
	s.env = []string{
		"BASE=" + address, "CLAIM=" + s.claim, "CHROMIUM=" + chromium, "KEY=" + s.Key, "PARLEY=" + bin, "DATA=" + s.Options.Data,
		"SHOTS=" + filepath.Join(root, "artifacts", "console"),
	}
	return s
}

// script runs a script; each of its lines is one test.
func (s site) script(t *testing.T, name string, atLeast int, env ...string) {
	t.Helper()
	clientScript{env: append(s.env, env...), atLeast: atLeast, limit: 12 * time.Minute, saw: func(string, int) {}}.run(t, node(t, name))
}

// inOrder wants books that balance, and no secret in the log.
func (s site) inOrder(t *testing.T) {
	t.Helper()
	run(t, s.Server, "ledger", "verify")
	_, token, _ := strings.Cut(s.claim, "#")
	for _, secret := range []string{token, s.Key, "correct horse battery", "__Host-session"} {
		if strings.Contains(s.Stderr(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// TestConsole_Pages looks at every page, in every width and both themes.
func TestConsole_Pages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	run(t, s.Server, "account", "create", "other", "--plan", "free")
	other := runJSON[struct{ ID string }](t, s.Server, "account", "show", "other")
	s.script(t, "console.mjs", 60, "OTHER="+other.ID)
	s.inOrder(t)
}

// TestConsole_Door goes in by every way there is, and is kept out of those that are none.
func TestConsole_Door(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.script(t, "console-door.mjs", 12)
	s.inOrder(t)
}

// TestConsole_Tasks does what people come for, in as many clicks as the design says.
func TestConsole_Tasks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.script(t, "console-tasks.mjs", 52)
	s.inOrder(t)
}

// TestConsole_Forms fills in forms wrongly, twice and too late.
func TestConsole_Forms(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.script(t, "console-forms.mjs", 21)
	s.inOrder(t)
}

// TestConsole_Down: while the database does not answer the console says so, and takes nobody for
// signed out.
func TestConsole_Down(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	address, token, _ := strings.Cut(s.claim, "#")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := client.PostForm(address, url.Values{"token": {token}, "email": {"ada@example.test"}, "password": {"correct horse battery"}})
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if len(r.Cookies()) != 1 {
		t.Fatalf("claiming: %s, %d cookies", r.Status, len(r.Cookies()))
	}
	unlock := lockOut(t, s.Options.Data)
	s.script(t, "console-down.mjs", 1, "SESSION="+r.Cookies()[0].Value)
	unlock()
	s.inOrder(t)
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

// lockOut takes the places from which SQLite reads (of the -shm file, bytes 123 to 127), so that
// nobody reads the database before the result is called.
func lockOut(t *testing.T, data string) func() {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(data, "parley.db-shm"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: 123, Len: 5}
	eventually(t, func() error { return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock) })
	return func() { f.Close() } // which gives the lock back
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
	eventually(t, func() error {
		if !strings.Contains(s.Stdout(), first.Console) || !strings.Contains(first.Console, "/claim#") {
			return fmt.Errorf("the link %q is not what was printed:\n%s", first.Console, s.Stdout())
		}
		return nil
	})
	return first.Console
}
