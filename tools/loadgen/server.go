package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// server is a parley of our own and the provider behind it.
type server struct {
	dir      string
	cmd      *exec.Cmd
	provider *http.Server
}

// answer is what the provider says.
func answer(words int) string {
	var b strings.Builder
	for i := range words {
		b.WriteString(word(i))
	}
	return b.String()
}

func word(i int) string { return "w" + strconv.Itoa(i) + " " }

// provide answers every call with that many words, at once.
func provide(words int) http.Handler {
	var b bytes.Buffer
	for i := range words {
		fmt.Fprintf(&b, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", word(i))
	}
	fmt.Fprintf(&b, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n")
	fmt.Fprintf(&b, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", words, words+11)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(b.Bytes())
	})
}

const configuration = `
listen: 127.0.0.1:0
data: ./data
plans: [{id: load, rpm: %d}]
upstreams: [{id: stub, kind: openai, base_url: "http://%s/v1"}]
models:
  - id: load
    context_window: 131072
    pricing: {input: "0.05", output: "0.1"}
    plans: [load]
    targets: [{upstream: stub, model: stub}]
`

// serve starts a server and points o at it.
func serve(ctx context.Context, o *options) (_ *server, err error) {
	s := &server{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "loadgen-"); err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.provider = &http.Server{Handler: provide(o.words), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.provider.Serve(l) }() // it ends with the run
	file := filepath.Join(s.dir, "parley.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, o.rpm, l.Addr()), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.cmd = exec.Command(o.bin, "serve", "--config", file, "--quiet-secrets") //nolint:noctx // it is told to stop
	s.cmd.Stderr = log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	o.data = filepath.Join(s.dir, "data")
	// The file appears when the server is ready.
	for deadline := time.Now().Add(30 * time.Second); ; pause(ctx, 20*time.Millisecond) {
		var first struct{ URL string }
		text, err := os.ReadFile(filepath.Join(o.data, "first-start.json"))
		if err == nil && json.Unmarshal(text, &first) == nil {
			o.url = first.URL
			return s, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			said, _ := os.ReadFile(log.Name())
			return nil, fmt.Errorf("the server is not ready:\n%s", said)
		}
	}
}

// stop ends the server in order and takes its directory away.
func (s *server) stop() error {
	var errs []error
	if s.cmd != nil && s.cmd.Process != nil {
		errs = append(errs, s.cmd.Process.Signal(os.Interrupt), s.cmd.Wait())
	}
	if s.provider != nil {
		errs = append(errs, s.provider.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// operator is the command line.
type operator struct{ bin, data string }

// ask runs a command and reads its JSON into v.
func (o *operator) ask(ctx context.Context, v any, args ...string) error {
	var said bytes.Buffer
	c := exec.CommandContext(ctx, o.bin, append(args, "--data", o.data, "--json")...)
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("parley %s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	return json.Unmarshal(out, v)
}

// perAccount is how many calls an account makes: the command line lists no more receipts.
const perAccount = 9000

// purse makes accounts as the calls need them.
type purse struct {
	operator *operator
	plan     string

	mu       sync.Mutex
	accounts []string
	secret   string
	calls    int
}

type key struct{ account, secret string }

// key is for one call.
func (p *purse) key(ctx context.Context) (key, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls++; p.calls > perAccount || p.secret == "" {
		name := fmt.Sprintf("load-%d-%d", os.Getpid(), time.Now().UnixNano())
		var made struct{ Secret string }
		if err := errors.Join(
			p.operator.ask(ctx, &made, "account", "create", name, "--plan", p.plan, "--credit", credit),
			p.operator.ask(ctx, &made, "key", "create", "--account", name),
		); err != nil {
			return key{}, err
		}
		p.accounts, p.secret, p.calls = append(p.accounts, name), made.Secret, 1
	}
	return key{p.accounts[len(p.accounts)-1], p.secret}, nil
}
