package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// TestMain lets the test binary stand for a second process on a data directory.
func TestMain(m *testing.M) {
	if dir := os.Getenv("PARLEY_TEST_HOLD"); dir != "" {
		f, err := lock(dir)
		if err != nil {
			os.Exit(3)
		}
		os.Stdout.WriteString("locked\n")
		io.Copy(io.Discard, os.Stdin)
		unlock(f)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// provider answers word by word; each word after the first waits for a step.
type provider struct {
	steps chan struct{} // nil: never wait
}

func (p *provider) CountPrompt(*wire.ChatRequest, int) (upstream.Prompt, error) {
	return upstream.Prompt{Tokens: 5, Exact: true}, nil
}

func (p *provider) Capabilities(string) wire.Capabilities { return wire.Capabilities{} }

func (p *provider) Generate(ctx context.Context, _ *upstream.Call, yield func(upstream.Event) error) error {
	for i, word := range []string{"Hello", ", ", "world"} {
		if i > 0 && p.steps != nil {
			select {
			case <-p.steps:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := yield(upstream.Event{Text: word, Completion: i + 1}); err != nil {
			return err
		}
	}
	return yield(upstream.Event{Completion: 3, Finish: wire.FinishStop})
}

// output is what a server printed, safe to read while it prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	line chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.line <- struct{}{}:
	default:
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits until the output contains s.
func (o *output) await(t *testing.T, s string) {
	t.Helper()
	for !strings.Contains(o.String(), s) {
		select {
		case <-o.line:
		case <-time.After(3 * time.Minute):
			t.Fatalf("the server never printed %q, but:\n%s", s, o)
		}
	}
}

// running is a server under test.
type running struct {
	*App
	out, err *output
	stop     context.CancelFunc
	done     chan error
}

func options(t *testing.T, dir string, p *provider) (Options, *output, *output) {
	t.Helper()
	c := config.Default()
	c.Listen, c.Data = "127.0.0.1:0", dir
	out, errs := &output{line: make(chan struct{}, 1)}, &output{line: make(chan struct{}, 1)}
	return Options{
		Config: c, Stdout: out, Stderr: errs,
		upstreams: func(*config.Config, *screen) (*upstreams, error) {
			return &upstreams{providers: map[string]upstream.Provider{"local": p}}, nil
		},
	}, out, errs
}

func start(t *testing.T, o Options, out, errs *output) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	a, err := Open(ctx, o)
	if err != nil {
		stop()
		t.Fatal(err)
	}
	r := &running{App: a, out: out, err: errs, stop: stop, done: make(chan error, 1)}
	go func() { r.done <- errors.Join(a.Run(ctx), a.Close()) }()
	t.Cleanup(func() {
		stop()
		a.Cut()
		<-r.done
	})
	errs.await(t, "Ready on")
	return r
}

// finish stops the server and returns what Run did.
func (r *running) finish(t *testing.T) error {
	t.Helper()
	r.stop()
	err := <-r.done
	r.done <- nil
	return err
}

var secret = regexp.MustCompile(`sk-parley-[0-9A-Za-z]+`)

func (r *running) post(t *testing.T, key, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func read(t *testing.T, r io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("after %q: %v", text, err)
	}
	return string(text)
}

const hello = `{"model":"svc-pulse","messages":[{"role":"user","content":"Say hello."}]}`

func TestServe_FirstStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	r := serve(t, dir, &provider{})
	key := secret.FindString(r.out.String())
	for _, want := range []string{"First start. These are shown once:", "account  default, plan pro, 100.00 IU", "curl " + r.URL() + "/v1/chat/completions"} {
		if !strings.Contains(r.out.String(), want) {
			t.Errorf("stdout lacks %q:\n%s", want, r.out)
		}
	}
	if strings.Contains(r.err.String(), key) {
		t.Error("the key stands on stderr too")
	}
	var facts firstStart
	text, err := os.ReadFile(filepath.Join(dir, "first-start.json"))
	if err := errors.Join(err, json.Unmarshal(text, &facts)); err != nil || facts.Key != key || facts.URL != r.URL() {
		t.Errorf("first-start.json is %s, %v", text, err)
	}
	for name, mode := range map[string]os.FileMode{"": os.ModeDir | 0o700, "first-start.json": 0o600, "parley.lock": 0o600, "parley.sock": os.ModeSocket | 0o600} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != mode {
			t.Errorf("%q has mode %v, %v, want %v", name, fi.Mode(), err, mode)
		}
	}
	res := r.post(t, key, hello)
	if body := read(t, res.Body); res.StatusCode != http.StatusOK || !strings.Contains(body, "Hello, world") {
		t.Errorf("the first call gives %d %s", res.StatusCode, body)
	}
	c, err := admin.Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if a, err := c.Account(t.Context(), "default"); err != nil || a.Available != "99.99945" {
		t.Errorf("after a call of 5 and 3 tokens: %+v, %v", a, err)
	}
	if err := r.finish(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	r.err.await(t, "settled, books balanced.") // 0 calls, or that one: its answer leaves before its handler ends
	if _, err := os.Stat(filepath.Join(dir, "parley.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}

	// The next start shows no secret and knows the books.
	r = serve(t, dir, &provider{})
	if r.out.String() != "" {
		t.Errorf("a later start prints on stdout:\n%s", r.out)
	}
	r.err.await(t, "books    balanced, ")
	if res := r.post(t, key, hello); res.StatusCode != http.StatusOK {
		t.Errorf("the key of the first start gives %d later", res.StatusCode)
	}
}

// serve starts a server that needs no special options.
func serve(t *testing.T, dir string, p *provider) *running {
	t.Helper()
	o, out, errs := options(t, dir, p)
	return start(t, o, out, errs)
}

func TestServe_QuietSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o, out, errs := options(t, dir, &provider{})
	o.QuietSecrets = true
	start(t, o, out, errs)
	if want := filepath.Join(dir, "first-start.json") + "\n"; out.String() != want {
		t.Errorf("stdout is %q, want %q", out, want)
	}
}

func TestServe_DrainLetsCallsFinish(t *testing.T) {
	t.Parallel()
	p := &provider{steps: make(chan struct{})}
	o, out, errs := options(t, t.TempDir(), p)
	r := start(t, o, out, errs)
	res := r.post(t, secret.FindString(out.String()), strings.Replace(hello, `{`, `{"stream":true,`, 1))
	r.stop()
	errs.await(t, "Stopping: 1 call running, up to 10 min. Ctrl+C again cuts them.")
	if err := r.ready(); err == nil {
		t.Error("a server that stops is ready")
	}
	close(p.steps)
	if body := read(t, res.Body); !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the stream ends with %q", body)
	}
	if err := r.finish(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	errs.await(t, "Stopped. 1 call settled, books balanced.")
}

func TestServe_CutChargesWhatWasDelivered(t *testing.T) {
	t.Parallel()
	p := &provider{steps: make(chan struct{})}
	dir := t.TempDir()
	o, out, errs := options(t, dir, p)
	r := start(t, o, out, errs)
	res := r.post(t, secret.FindString(out.String()), strings.Replace(hello, `{`, `{"stream":true,`, 1))
	p.steps <- struct{}{}
	r.stop()
	errs.await(t, "Stopping: 1 call running")
	r.Cut()
	body, _ := io.ReadAll(res.Body) // the connection is aborted on purpose
	if strings.Contains(string(body), "[DONE]") {
		t.Errorf("a cut stream ends like a whole one: %s", body)
	}
	if err := r.finish(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	off, err := OpenOffline(t.Context(), o.Config, false)
	if err != nil {
		t.Fatal(err)
	}
	defer off.Close()
	list, err := off.Client().Receipts(t.Context(), "default", 5)
	if err != nil || len(list) != 1 || list[0].Ending != "shutdown" || list[0].State != "settled" {
		t.Errorf("the receipt is %+v, %v", list, err)
	}
}

func TestOpen_Refusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, code string
		change     func(t *testing.T, o *Options)
	}{
		{"address taken", "listen", func(t *testing.T, o *Options) {
			t.Helper()
			other := serve(t, t.TempDir(), &provider{})
			o.Config.Listen = strings.TrimPrefix(other.URL(), "http://")
		}},
		{"no room", "disk_full", func(_ *testing.T, o *Options) {
			o.free = func(string) (uint64, error) { return leastFree - 1, nil }
		}},
		{"open to others", "data_open", func(t *testing.T, o *Options) {
			t.Helper()
			if err := errors.Join(os.WriteFile(filepath.Join(o.Config.Data, "other"), nil, 0o600), os.Chmod(o.Config.Data, 0o755)); err != nil {
				t.Fatal(err)
			}
		}},
		{"no weights", "no_weights", func(t *testing.T, o *Options) {
			t.Helper()
			o.upstreams = nil
			o.Config.Upstreams[0].Weights = filepath.Join(t.TempDir(), "none.gguf")
		}},
		{"no certificate", "tls", func(_ *testing.T, o *Options) { o.Config.TLS = config.TLS{Cert: "none", Key: "none"} }},
		{"damaged database", "data_damaged", func(t *testing.T, o *Options) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(o.Config.Data, "parley.db"), bytes.Repeat([]byte("x"), 4096), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o, _, _ := options(t, t.TempDir(), &provider{})
			c.change(t, &o)
			a, err := Open(t.Context(), o)
			if err == nil {
				_ = a.Close()
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != c.code {
				t.Fatalf("Open gives %v, want %s", err, c.code)
			}
			// Nothing is held: the directory can be opened at once.
			if f, err := lock(o.Config.Data); err != nil {
				t.Errorf("the lock is still held: %v", err)
			} else {
				_ = unlock(f)
			}
		})
	}
}

func TestLock_SecondProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(t.Context(), exe)
	other.Env = append(os.Environ(), "PARLEY_TEST_HOLD="+dir)
	in, err1 := other.StdinPipe()
	out, err2 := other.StdoutPipe()
	if err := errors.Join(err1, err2, other.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("locked\n"))); err != nil {
		t.Fatal(err)
	}
	o, _, _ := options(t, dir, &provider{})
	_, err = Open(t.Context(), o)
	if e, ok := errors.AsType[*InUseError](err); !ok || e.PID != other.Process.Pid {
		t.Errorf("Open gives %v, want the directory in use by %d", err, other.Process.Pid)
	}
	if err := errors.Join(in.Close(), other.Wait()); err != nil {
		t.Error(err)
	}
	serve(t, dir, &provider{})
}

func TestWatchDisk(t *testing.T) {
	t.Parallel()
	free := make(chan uint64)
	o, out, errs := options(t, t.TempDir(), &provider{})
	first := true
	o.free = func(string) (uint64, error) {
		if first {
			first = false
			return leastFree, nil
		}
		return <-free, nil
	}
	r := start(t, o, out, errs)
	t.Cleanup(func() { close(free) })
	free <- leastFree - 1
	free <- leastFree - 1 // The second measurement comes after the first was acted on.
	if err := r.ready(); err == nil || !strings.Contains(err.Error(), "nearly full") {
		t.Errorf("with a full disk the server is ready: %v", err)
	}
	if res := r.post(t, secret.FindString(out.String()), hello); res.StatusCode != http.StatusInternalServerError {
		t.Errorf("with a full disk a call gives %d", res.StatusCode)
	}
	free <- leastFree
	free <- leastFree
	if err := r.ready(); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// A start that was killed between account and key is taken up again.
func TestFirstStart_Unfinished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o, _, _ := options(t, dir, &provider{})
	a, err := Open(t.Context(), o) // makes the account and is never run
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	r := serve(t, dir, &provider{})
	key := secret.FindString(r.out.String())
	if res := r.post(t, key, hello); key == "" || res.StatusCode != http.StatusOK {
		t.Errorf("after a cut first start the key %q gives %d", key, res.StatusCode)
	}
	c, err := admin.Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s, err := c.Summary(t.Context(), "default"); err != nil || s.Granted != "100" {
		t.Errorf("the account was given %s, %v, want 100 once", s.Granted, err)
	}
}

func TestOpen_TellsOfLostPlans(t *testing.T) {
	t.Parallel()
	o, _, errs := options(t, t.TempDir(), &provider{})
	off, err := OpenOffline(t.Context(), o.Config, true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = off.Client().CreateAccount(t.Context(), admin.NewAccount{Name: "Lab", Plan: "free"})
	if err := errors.Join(err, off.Close()); err != nil {
		t.Fatal(err)
	}
	o.Config.Plans = o.Config.Plans[1:]
	for i := range o.Config.Models {
		o.Config.Models[i].Plans = []string{"pro"}
	}
	a, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	errs.await(t, "plans    1 account on plan free, which the configuration does not have")
}

func TestOffline_RefusesAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	o, _, _ := options(t, filepath.Join(t.TempDir(), "typo"), nil)
	_, err := OpenOffline(t.Context(), o.Config, false)
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != "no_data" {
		t.Errorf("OpenOffline gives %v", err)
	}
	if _, err := os.Stat(o.Config.Data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		minutes(10 * time.Minute): "10 min", minutes(90 * time.Second): "90 s", minutes(0): "0 s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
