package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-ai/parley/e2e/proc"
	"github.com/parley-ai/parley/internal/store/storetest"
)

// refused starts a server that must not start: exit code 1 and a sentence with all of words.
func refused(t *testing.T, o proc.Options, words ...string) {
	t.Helper()
	s, err := proc.Start(o)
	if !errors.Is(err, proc.ErrEnded) {
		s.Kill()
		t.Fatalf("the server started, or never ended: %v", err)
	}
	if code := s.Wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, w := range words {
		if !strings.Contains(strings.ToLower(s.Stderr()), strings.ToLower(w)) {
			t.Errorf("the refusal does not say %q:\n%s", w, s.Stderr())
		}
	}
	for _, w := range []string{"goroutine ", "panic:", "runtime error"} {
		if strings.Contains(s.Stderr(), w) {
			t.Errorf("the refusal shows %q:\n%s", w, s.Stderr())
		}
	}
}

// configFile writes a configuration with one model on the embedded engine.
func configFile(t *testing.T, weights string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "parley.yaml")
	text := fmt.Sprintf(`plans:
  - {id: pro, rpm: 600, tpm: 600000, concurrency: 64}
upstreams:
  - {id: local, kind: local, weights: %q}
models:
  - id: svc-pulse
    description: Small and quick.
    context_window: 8192
    max_output: 2048
    pricing: {input: "0.05", output: "0.1"}
    created: 2026-01-01
    plans: [pro]
    targets: [{upstream: local, model: smollm2-135m-instruct}]
`, weights)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRefuse_DamagedWeights(t *testing.T) {
	t.Parallel()
	needWeights(t)
	whole, err := os.ReadFile(weights())
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"cut":       whole[:len(whole)/2],
		"cut early": whole[:1000],
		"empty":     {},
		"no GGUF":   []byte(strings.Repeat("this is not a model. ", 1000)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := filepath.Join(t.TempDir(), "bad.gguf")
			if err := os.WriteFile(bad, data, 0o600); err != nil {
				t.Fatal(err)
			}
			o := options(dataDir(t))
			o.Config = configFile(t, bad)
			refused(t, o, "bad.gguf")
		})
	}
}

func TestRefuse_MissingWeights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The binary's own directory is one of the places, so it needs a copy elsewhere.
	if out, err := exec.Command("cp", bin, filepath.Join(dir, "parley")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	o := proc.Options{Bin: filepath.Join(dir, "parley"), Data: dataDir(t), Dir: dir}
	refused(t, o, "weights", filepath.Join(o.Data, "weights"), filepath.Join(dir, "weights"))

	o = options(dataDir(t))
	o.Config = configFile(t, filepath.Join(dir, "gone.gguf"))
	refused(t, o, "gone.gguf")
}

func TestRefuse_DataInUse(t *testing.T) {
	t.Parallel()
	s := start(t)
	refused(t, s.Options, s.Options.Data, fmt.Sprint(s.Pid()))
	// The first is not disturbed.
	wantCompletion(t, post(t, s, s.Key, body("")))
}

func TestRefuse_AddressInUse(t *testing.T) {
	t.Parallel()
	s := server(t)
	o := options(dataDir(t))
	o.Args = []string{"--listen", strings.TrimPrefix(s.URL, "http://")}
	refused(t, o, strings.TrimPrefix(s.URL, "http://"))
}

func TestRefuse_NewerSchema(t *testing.T) {
	t.Parallel()
	s := start(t)
	if code := s.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	db := storetest.Plain(t, filepath.Join(s.Options.Data, "parley.db"))
	if _, err := db.Exec(`INSERT INTO schema_migration (version, checksum) VALUES (9999, 'from the future')`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	refused(t, s.Options, "newer")
}

func TestRefuse_DamagedDatabase(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "parley.db"), []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, options(data), "parley.db")
}

func TestRefuse_Usage(t *testing.T) {
	t.Parallel()
	o := options("")
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("listen: 127.0.0.1:0\nratelimit: 3\nmodels:\n  - id: x\n    colour: red\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Config = bad
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no such command", []string{"sevre"}, 2, "serve"},
		{"no such flag", []string{"serve", "--lisen", "x"}, 2, "--listen"},
		{"missing argument", []string{"account", "show"}, 2, ""},
		{"bad configuration", []string{"config", "check", bad}, 1, "bad.yaml:2"},
		{"missing configuration", []string{"config", "check", bad + ".gone"}, 1, "bad.yaml.gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := proc.Run(proc.Options{Bin: bin, Dir: root}, tc.args...)
			if r.Code != tc.code || !strings.Contains(r.Stdout+r.Stderr, tc.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s%s", r.Code, tc.code, tc.says, r.Stdout, r.Stderr)
			}
		})
	}
	t.Run("version", func(t *testing.T) {
		t.Parallel()
		if r := proc.Run(proc.Options{Bin: bin}, "version"); r.Code != 0 || !strings.Contains(r.Stdout, "parley") {
			t.Errorf("version: %d %q", r.Code, r.Stdout)
		}
	})
	t.Run("nobody of that name", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		r := s.Run("account", "show", "defualt")
		if r.Code != 1 || !strings.Contains(r.Stderr, "default") || r.Stdout != "" {
			t.Errorf("exit code %d, stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
		}
		r = s.Run("account", "show", "defualt", "--json")
		if r.Code != 1 || !strings.HasPrefix(r.Stderr, `{"error":{`) {
			t.Errorf("with --json: exit code %d, stderr %q", r.Code, r.Stderr)
		}
	})
}

// TestFullDisk: on a nearly full disk no call is admitted, and with room again they are. When a
// charge cannot be written at all, the end of its stream is not released and the server stops; the
// next start charges what was delivered.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	needWeights(t)
	need(t, os.Getuid() == 0, "only root can mount a small tmpfs, so the full disk is not tried")
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// The server wants 256 MiB free.
	err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=280m")
	need(t, err == nil, fmt.Sprintf("a tmpfs cannot be mounted here (%v), so the full disk is not tried", err))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	o := options(filepath.Join(dir, "data"))
	s := startWith(t, o)
	first := wantCompletion(t, post(t, s, s.Key, body("")))
	log := []entry{{completionID: first.ID, complete: true, usage: first.Usage}}

	// Nearly full: refused before anything is computed.
	some := filepath.Join(dir, "some")
	if err := os.WriteFile(some, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if a := post(t, s, s.Key, `{"model":"svc-pulse","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}`); a.Status == http.StatusOK {
			return statusError(a.Status)
		}
		return nil
	})
	a := post(t, s, s.Key, body(""))
	wantError(t, a, http.StatusInternalServerError, "ledger_unavailable")
	if a.Header.Get("Retry-After") == "" {
		t.Error("ledger_unavailable without Retry-After")
	}
	if a := call(t, s, "GET", "/v1/models"); a.Status != http.StatusOK {
		t.Errorf("/v1/models on a full disk: %d", a.Status)
	}
	if a := call(t, s, "GET", "/readyz"); a.Status != http.StatusServiceUnavailable {
		t.Errorf("/readyz on a full disk: %d", a.Status)
	}
	refused(t, proc.Options{Bin: bin, Data: filepath.Join(dir, "other"), Dir: root}, "free")
	if err := os.Remove(some); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if a := call(t, s, "GET", "/readyz"); a.Status != http.StatusOK {
			return statusError(a.Status)
		}
		return nil
	})

	// Full while a stream runs.
	resp, err := openStream(t, newClient(), s, s.Key, `{"model":"svc-pulse","stream":true,"max_tokens":2000,"temperature":0`+endless+`,"messages":[{"role":"user","content":"Write a long story about a fox."}]}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	var text strings.Builder
	for range 4 {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(line)
	}
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	_, cut := r.WriteTo(&text)
	st := readStream(text.String())
	if cut == nil || st.done {
		t.Errorf("the stream ended cleanly (%v, done %v) though its charge could not be written", cut, st.done)
	}
	if code := s.Wait(); code != 1 || !strings.Contains(s.Stderr(), "books could not be written") {
		t.Errorf("exit code %d after the disk was full, want 1 and a sentence:\n%s", code, s.Stderr())
	}
	if len(st.chunks) > 0 {
		e := entry{completionID: st.chunks[0].ID}
		for _, c := range st.chunks {
			if len(c.Choices) > 0 && c.Choices[0].Delta.Content != "" {
				e.pieces++
			}
		}
		log = append(log, e)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	again := startWith(t, o)
	wantCompletion(t, post(t, again, s.Key, body("")))
	if r := again.Run("ledger", "verify"); r.Code != 0 {
		t.Errorf("ledger verify: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	checkBooks(t, o.Data, log)
}

// fill writes until there is no space left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		piece := make([]byte, size)
		for {
			if _, err := f.Write(piece); err != nil {
				break
			}
		}
	}
}
