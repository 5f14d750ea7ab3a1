package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/store"
)

// rows measures the pages of a server over a database with o.rows calls, which it fills
// where there is none, then what else may take long with so many. With -keep the database
// stays there for the next run.
func rows(ctx context.Context, o *options, w io.Writer) error {
	dir := o.keep
	if dir == "" {
		dir = filepath.Join(o.dir, "rows")
	}
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	f, err := openFilled(ctx, data, o.rows, w)
	if err != nil {
		return err
	}
	visitors, err := f.visitors(ctx)
	if err = errors.Join(err, f.db.Close()); err != nil {
		return err
	}
	size, err := os.Stat(filepath.Join(data, store.FileName))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nthe database has %.2f GB\n", float64(size.Size())/1e9)
	s, err := serveRows(ctx, o, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "ready %.2f s after the start\n", s.took.Seconds())
	err = s.pages(ctx, o, visitors, w)
	if o.pages != "" {
		return errors.Join(err, s.stop(w))
	}
	err = errors.Join(err, s.files(ctx, visitors, w), s.stop(w))
	return errors.Join(err, s.commands(ctx, w))
}

// visitor is somebody who looks at pages.
type visitor struct {
	name  string
	token member.Token // of its session; empty for who is not signed in
	sees  *seen
}

// password is that of everybody who has one.
const password = "correct horse battery"

// visitors signs in an owner of the largest account, one of a small one and an operator,
// who looks into the largest. Their sessions are so young that no page asks for a proof.
func (f *filled) visitors(ctx context.Context) ([]visitor, error) {
	gate := f.gate
	gate.Now = func() time.Time { return time.Now().Add(member.IdleLimit / 2) }
	var all []visitor
	for i, rank := range []int{0, smallRank, 0} {
		sees, err := f.see(ctx, gate, rank)
		if err != nil {
			return nil, err
		}
		v := visitor{name: []string{"largest", "small", "operator"}[i], sees: sees}
		email := fmt.Sprintf("%s@%d.example.test", v.name, time.Now().UnixNano())
		if v.name == "operator" {
			link, _, err := gate.MakeOperatorLink(ctx, "")
			if err != nil {
				return nil, err
			}
			if v.token, err = gate.Claim(ctx, link, member.Credentials{Email: email, Password: password}, member.From{}); err != nil {
				return nil, err
			}
			who, err := gate.Visit(ctx, v.token)
			if err = errors.Join(err, gate.Look(ctx, who, f.accounts[rank].ID)); err != nil {
				return nil, err
			}
		} else {
			link, _, err := gate.Invite(ctx, f.accounts[rank].ID, email, member.Owner)
			if err != nil {
				return nil, err
			}
			if v.token, err = gate.Join(ctx, link, password, member.From{}); err != nil {
				return nil, err
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// server is a parley that serves a filled database.
type server struct {
	*process
	parley, config, log string
	client              *http.Client
	took                time.Duration // from its start until it was ready
}

const rowsConf = `listen: 127.0.0.1:0
data: %s
plans:
  - {id: pro, rpm: 600, tpm: 600000, concurrency: 64}
upstreams:
  - {id: rack, kind: openai, base_url: "http://127.0.0.1:9/v1"}
models:
`

// readyLine is what a server says when it is.
var readyLine = regexp.MustCompile(`Ready on (http://\S+) after`)

// serveRows starts parley on dir/data.
func serveRows(ctx context.Context, o *options, dir string) (*server, error) {
	s := &server{config: filepath.Join(dir, "parley.yaml"), log: filepath.Join(dir, "parley.log"), client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	var err error
	if s.parley, err = filepath.Abs(o.parley); err != nil {
		return nil, err
	}
	conf := fmt.Appendf(nil, rowsConf, filepath.Join(dir, "data"))
	for i := range filledModels {
		conf = fmt.Appendf(conf, "  - {id: model-%d, context_window: 32768, pricing: {input: \"0.001\", cached_input: \"0.00025\", output: \"%f\"}, plans: [pro], targets: [{upstream: rack, model: m}]}\n",
			i, float64(2*(i+1))/1000)
	}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := os.WriteFile(s.config, conf, 0o600); err != nil {
		return nil, err
	}
	begin := time.Now()
	cmd := exec.CommandContext(ctx, s.parley, "serve", "--config", s.config)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.process = &process{cmd: cmd}
	for deadline := begin.Add(10 * callTimeout); ; rest(ctx, 10*time.Millisecond) {
		text, err := os.ReadFile(s.log)
		if err != nil {
			return nil, err
		}
		if m := readyLine.FindSubmatch(text); m != nil {
			s.addr, s.took = string(m[1]), time.Since(begin)
			return s, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("parley did not start: %s", text), s.kill())
		}
	}
}

// stop ends the server as an operator does.
func (s *server) stop(w io.Writer) error {
	begin := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := s.cmd.Wait(); err != nil {
		text, _ := os.ReadFile(s.log)
		return fmt.Errorf("parley ended with %w: %s", err, text[max(0, len(text)-1000):])
	}
	fmt.Fprintf(w, "stopped after %.2f s\n", time.Since(begin).Seconds())
	text, err := os.ReadFile(s.log)
	if missing := regexp.MustCompile(`.*missing.*`).FindAll(text, -1); len(missing) > 0 {
		err = errors.Join(err, fmt.Errorf("parts of %d pages were left out because they took too long, the first of: %s", len(missing), missing[0]))
	}
	return err
}

// commands measures what an operator runs on a directory that nobody serves.
func (s *server) commands(ctx context.Context, w io.Writer) error {
	backup := filepath.Join(filepath.Dir(s.config), "backup.db")
	defer os.Remove(backup)
	for _, args := range [][]string{{"ledger", "verify"}, {"doctor"}, {"backup", backup}} {
		cmd := exec.CommandContext(ctx, s.parley, append(args, "--config", s.config)...)
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("parley %s: %w: %s", strings.Join(args, " "), err, out)
		}
		fmt.Fprintf(w, "parley %s: %.1f s, %.1f s of CPU\n", args[0], time.Since(begin).Seconds(), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	}
	return nil
}
