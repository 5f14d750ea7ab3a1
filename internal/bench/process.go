package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The processes that are this binary again.
const (
	roleStub  = "stub"
	roleProxy = "reverseproxy"
)

// goroutinesPath is where the reverse proxy tells how many goroutines it has.
const goroutinesPath = "/goroutines"

// serveProxy is the reference: net/http and httputil.ReverseProxy, and nothing else.
func serveProxy(ctx context.Context, target string) error {
	u := &url.URL{Scheme: "http", Host: target}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u) },
		Transport: &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, DisableCompression: true},
		ErrorLog:  log.New(io.Discard, "", 0), // streams that were left, on purpose
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		// Else the server closes the request's body when the answer begins, which breaks
		// off the answer where the transport has not seen the body's end yet.
		if http.NewResponseController(w).EnableFullDuplex() == nil {
			proxy.ServeHTTP(w, r)
		}
	})
	mux.HandleFunc(goroutinesPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, runtime.NumGoroutine()) })
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, l.Addr())
	s := &http.Server{Handler: mux, ReadHeaderTimeout: callTimeout}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// process is one that is measured, with its children.
type process struct {
	cmd  *exec.Cmd
	addr string
}

// again starts this binary in a role and reads the address it prints.
func again(ctx context.Context, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not start: %w", args[0], err), p.kill())
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// kill ends a process that has nothing to keep.
func (p *process) kill() error {
	err := p.cmd.Process.Signal(syscall.SIGINT)
	_ = p.cmd.Wait() // how it ends does not matter
	return err
}

// pids are the process and its children.
func (p *process) pids() []int {
	pid := p.cmd.Process.Pid
	pids := []int{pid}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // without it there are none
	for field := range strings.FieldsSeq(string(text)) {
		if n, err := strconv.Atoi(field); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// cpu is the time that the process has computed, in user and kernel. The kernel counts
// it in hundredths of a second.
func (p *process) cpu() time.Duration {
	var ticks int
	for _, pid := range p.pids() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The name of the program, in brackets, may have spaces.
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		ticks += user + system
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// memory is what the process has in RAM, in bytes.
func (p *process) memory() int {
	total := 0
	for _, pid := range p.pids() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text))
		resident, _ := strconv.Atoi(fields[1])
		shared, _ := strconv.Atoi(fields[2]) // pages of files
		total += (resident - shared) * os.Getpagesize()
	}
	return total
}
