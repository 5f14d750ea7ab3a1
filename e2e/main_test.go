// Package e2e drives the built binary from outside: unmodified clients, raw connections, the
// command line, kill -9. Nothing here imports the service, so nothing here can share its mistakes.
package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// bin and root are set by TestMain: the binary and the module's directory.
var bin, root string

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	wd, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	root = filepath.Dir(wd)
	bin = os.Getenv("PARLEY_BIN")
	if bin == "" {
		dir, err := os.MkdirTemp("", "parley-e2e")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		bin = filepath.Join(dir, "parley")
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", bin, "./cmd/parley")
		build.Dir = root
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "the binary does not build: %v\n%s", err, out)
			return 1
		}
	}
	code := m.Run()
	shared.stop()
	return code
}

// need skips the test with a sentence when a prerequisite is missing; with CI=true it fails.
func need(t *testing.T, have bool, sentence string) {
	t.Helper()
	if have {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(sentence)
	}
	t.Skip(sentence)
}

// needWeights is for every test that starts a server.
func needWeights(t *testing.T) {
	t.Helper()
	_, err := os.Stat(weights())
	need(t, err == nil, "the weights are not there; `make weights` fetches them")
}

func weights() string {
	return filepath.Join(root, "weights", "SmolLM2-135M-Instruct.Q4_1.gguf")
}

// dataDir makes a data directory whose path is short enough for a socket in it.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}

// options are those of most servers: the built-in configuration, started where the weights are.
func options(data string) proc.Options {
	return proc.Options{Bin: bin, Data: data, Dir: root}
}

// start runs a server for one test, on a data directory of its own.
func start(t *testing.T) *proc.Server {
	t.Helper()
	return startWith(t, options(dataDir(t)))
}

func startWith(t *testing.T, o proc.Options) *proc.Server {
	t.Helper()
	needWeights(t)
	s, err := proc.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("the server wrote:\n%s", s.Stderr())
		}
	})
	return s
}

// shared is one server for all tests that leave it as they found it.
var shared sharedServer

type sharedServer struct {
	once sync.Once
	dir  string
	s    *proc.Server
	err  error
}

// server returns the shared server, started by the first test that asks.
func server(t *testing.T) *proc.Server {
	t.Helper()
	needWeights(t)
	shared.once.Do(func() {
		shared.dir, shared.err = os.MkdirTemp("", "p")
		if shared.err == nil {
			shared.s, shared.err = proc.Start(options(filepath.Join(shared.dir, "data")))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.s
}

func (s *sharedServer) stop() {
	if s.s != nil {
		s.s.Kill()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// run executes a command that must succeed.
func run(t *testing.T, s *proc.Server, args ...string) proc.Result {
	t.Helper()
	r := s.Run(args...)
	if r.Code != 0 {
		t.Fatalf("parley %v: exit code %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
	}
	return r
}

// runJSON executes a command with --json and decodes its answer.
func runJSON[T any](t *testing.T, s *proc.Server, args ...string) T {
	t.Helper()
	var v T
	r := run(t, s, append(args, "--json")...)
	if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil {
		t.Fatalf("parley %v: %v in %q", args, err, r.Stdout)
	}
	return v
}

// account makes an account with credit and returns a key of it.
func account(t *testing.T, s *proc.Server, name, plan, credit string) (secret, keyID string) {
	t.Helper()
	args := []string{"account", "create", name, "--plan", plan}
	if credit != "" {
		args = append(args, "--credit", credit)
	}
	run(t, s, args...)
	key := runJSON[struct{ ID, Secret string }](t, s, "key", "create", "--account", name)
	if key.Secret == "" || key.ID == "" {
		t.Fatalf("key create gave no id or no secret: %+v", key)
	}
	return key.Secret, key.ID
}

// answer is one whole HTTP answer.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// newClient has no shared pool: a test that cuts connections must not disturb another.
func newClient() *http.Client {
	return &http.Client{Timeout: 10 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
}

var httpClient = newClient()

// post sends body to the chat endpoint.
func post(t *testing.T, s *proc.Server, key, body string, header ...string) answer {
	t.Helper()
	a, err := tryPost(t, httpClient, s, key, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func tryPost(t *testing.T, c *http.Client, s *proc.Server, key, body string, header ...string) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/chat/completions", bytes.NewBufferString(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	return do(c, req)
}

// call sends a request without a body to any path.
func call(t *testing.T, s *proc.Server, method, path string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	a, err := do(httpClient, req)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func do(c *http.Client, req *http.Request) (answer, error) {
	resp, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body}, err
}

// apiError is the one shape of every error.
type apiError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	} `json:"error"`
}

// wantError checks status, code and the envelope of an error, and returns it.
func wantError(t *testing.T, a answer, status int, code string) apiError {
	t.Helper()
	var e apiError
	if err := json.Unmarshal(a.Body, &e); err != nil {
		t.Fatalf("status %d, body %q: %v", a.Status, a.Body, err)
	}
	if a.Status != status || e.Error.Code != code {
		t.Errorf("got %d %s (%s), want %d %s", a.Status, e.Error.Code, e.Error.Message, status, code)
	}
	if e.Error.Message == "" || e.Error.Type == "" {
		t.Errorf("message or type is empty: %s", a.Body)
	}
	if got := a.Header.Get("Content-Type"); got != "application/json" && got != "application/json; charset=utf-8" {
		t.Errorf("Content-Type of an error = %q, want application/json", got)
	}
	if !requestID.MatchString(a.Header.Get("X-Request-Id")) {
		t.Errorf("x-request-id = %q", a.Header.Get("X-Request-Id"))
	}
	if !bytes.Contains(a.Body, []byte(`"param":`)) {
		t.Errorf("the key param is missing: %s", a.Body)
	}
	return e
}

// completion is the whole answer as a client sees it.
type completion struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []struct {
		Index   int `json:"index"`
		Message struct {
			Role    string  `json:"role"`
			Content *string `json:"content"`
			Refusal *string `json:"refusal"`
		} `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage `json:"usage"`
}

type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

// wantCompletion checks that a is a whole answer and returns it.
func wantCompletion(t *testing.T, a answer) completion {
	t.Helper()
	var c completion
	if a.Status != http.StatusOK {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	if err := json.Unmarshal(a.Body, &c); err != nil {
		t.Fatalf("%v in %q", err, a.Body)
	}
	if len(c.Choices) == 0 || c.Usage == nil {
		t.Fatalf("choices or usage missing: %s", a.Body)
	}
	return c
}

// patience is how long a test waits for what must come. It only ends a test that fails, so it is
// long: the machine may stand still for seconds, and much else may run on it.
const patience = 3 * time.Minute

// eventually polls check until it returns nil, and fails with its last error when patience is over.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after %v: %v", patience, err)
		}
		<-tick.C
	}
}

// ownTime is how long f takes, without the time in which the machine let nobody of this process run:
// by so much a tick came late.
func ownTime(f func()) time.Duration {
	const every = 10 * time.Millisecond
	stop, stalled := make(chan struct{}), make(chan time.Duration)
	begun := time.Now()
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		var sum time.Duration
		for last := begun; ; {
			over := false
			select {
			case <-tick.C:
			case <-stop:
				over = true
			}
			now := time.Now()
			sum += max(0, now.Sub(last)-every)
			last = now
			if over {
				stalled <- sum
				return
			}
		}
	}()
	f()
	took := time.Since(begun)
	close(stop)
	return max(0, took-<-stalled)
}

// exitCode is that of a finished command.
func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}
