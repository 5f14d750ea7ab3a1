// Package proc runs the built binary as its users do: it starts a server, waits until it is ready,
// stops or kills it, and runs the command line beside it.
package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options says how to start a server. The zero value of every field but Bin and Data is usable.
type Options struct {
	// Bin is the binary, Data its data directory.
	Bin, Data string
	// Config is a configuration file; empty is the built-in one.
	Config string
	// Dir is the working directory; empty is the caller's.
	Dir string
	// Args follow the arguments that the other fields give.
	Args []string
	// Env follows the environment of the caller.
	Env []string
	// Stdin is what commands of Run read.
	Stdin string
}

// Server is a running process.
type Server struct {
	// URL is where it listens, without a slash at the end.
	URL string
	// Key is the first account's key, from first-start.json; empty when that file is gone.
	Key string
	// Options are what it was started with.
	Options Options

	out, err *output
	cmd      *exec.Cmd
	ended    chan struct{}
	code     int
}

// ErrEnded is wrapped by the error of Start when the process ended before it was ready.
var ErrEnded = errors.New("the server ended before it was ready")

// patience is how long everything here waits for a process.
const patience = 3 * time.Minute

var ready = regexp.MustCompile(`Ready on (https?://\S+) after`)

// Start runs `parley serve` on a free port and returns when it is ready. When the process ends
// first the error wraps ErrEnded, and the server is returned too, for its output and exit code.
func Start(o Options) (*Server, error) {
	args := []string{"serve", "--data", o.Data, "--listen", "127.0.0.1:0"}
	if o.Config != "" {
		args = append(args, "--config", o.Config)
	}
	s := &Server{Options: o, out: newOutput(), err: newOutput(), ended: make(chan struct{})}
	// The process outlives any context of a test: Stop and Kill end it.
	s.cmd = exec.Command(o.Bin, append(args, o.Args...)...)
	s.cmd.Dir = o.Dir
	s.cmd.Env = append(os.Environ(), o.Env...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.err
	// A test binary that dies must not leave servers behind.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // The exit code says what there is to say.
		s.code = s.cmd.ProcessState.ExitCode()
		close(s.ended)
	}()

	deadline := time.After(patience)
	for {
		changed, changedErr := s.out.changed(), s.err.changed()
		if m := ready.FindStringSubmatch(s.Stdout() + "\n" + s.Stderr()); m != nil {
			s.URL = strings.TrimSuffix(m[1], "/")
			s.Key = FirstKey(o.Data)
			return s, nil
		}
		select {
		case <-s.ended:
			return s, fmt.Errorf("%w: exit code %d\n%s%s", ErrEnded, s.code, s.Stdout(), s.Stderr())
		case <-changed:
		case <-changedErr:
		case <-deadline:
			s.Kill()
			return s, fmt.Errorf("not ready after %v\n%s%s", patience, s.Stdout(), s.Stderr())
		}
	}
}

// FirstKey reads the key of the first start from the data directory; empty when there is none.
func FirstKey(data string) string {
	text, err := os.ReadFile(filepath.Join(data, "first-start.json"))
	if err != nil {
		return ""
	}
	var first struct {
		Key string `json:"key"`
	}
	if json.Unmarshal(text, &first) != nil {
		return ""
	}
	return first.Key
}

// Stdout is what the server has written to its standard output so far.
func (s *Server) Stdout() string { return s.out.String() }

// Stderr is what the server has written to its standard error so far.
func (s *Server) Stderr() string { return s.err.String() }

// Pid is the server's process id.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Kill ends the server as a power failure would, and returns when it is gone.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // It may have ended by itself.
	<-s.ended
}

// Terminate sends SIGTERM and returns at once.
func (s *Server) Terminate() { _ = s.cmd.Process.Signal(syscall.SIGTERM) }

// Wait returns the exit code when the server ends; after three minutes it is killed and the result
// is -1.
func (s *Server) Wait() int {
	select {
	case <-s.ended:
		return s.code
	case <-time.After(patience):
		s.Kill()
		return -1
	}
}

// Stop asks the server to end in order and returns its exit code.
func (s *Server) Stop() int {
	s.Terminate()
	return s.Wait()
}

// Result is what a command left behind.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run executes `parley args...` on the data directory of o and waits at most three minutes.
func Run(o Options, args ...string) Result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if o.Data != "" {
		args = append(args, "--data", o.Data)
	}
	cmd := exec.CommandContext(ctx, o.Bin, args...)
	cmd.Dir = o.Dir
	cmd.Env = append(os.Environ(), o.Env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(o.Stdin), &stdout, &stderr
	err := cmd.Run()
	r := Result{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	if err != nil && r.Code == 0 {
		r.Code, r.Stderr = -1, r.Stderr+err.Error()
	}
	return r
}

// Run executes `parley args...` beside the server.
func (s *Server) Run(args ...string) Result { return Run(s.Options, args...) }

// output collects what a process writes and tells readers that there is more.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{}
}

func newOutput() *output { return &output{more: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.buf.Write(p)
}

// String returns all that was written so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// changed returns a channel that is closed by the next write.
func (o *output) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.more
}
