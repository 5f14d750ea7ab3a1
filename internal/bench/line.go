package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/parley-ai/parley/internal/store"
)

// target is what calls are sent to: the stub itself, or something in front of it.
type target struct {
	*process
	name  string
	key   string
	calls int // that were answered
	// goroutines asks the target for its number of goroutines; nil where it has none.
	goroutines func() (int, error)
}

// bench is everything that runs.
type bench struct {
	*options
	stub    *target
	targets []*target // the stub first, then nginx where there is one, reverse proxy, parley
	parley  *target
	data    string // of parley
	log     string
}

// line measures the whole line beside its references and proves the books at the end.
func line(ctx context.Context, o *options, w io.Writer) (err error) {
	b := &bench{options: o}
	defer func() { b.close() }()
	if err := b.open(ctx, w); err != nil {
		return err
	}
	if o.wants("memory") {
		// First: a heap that has grown would hide what streams take.
		if err := b.streams(ctx, w); err != nil {
			return err
		}
	}
	if o.wants("line") {
		if err := b.throughput(ctx, w); err != nil {
			return err
		}
	}
	return b.prove(ctx, w)
}

// open starts the stub and what stands in front of it.
func (b *bench) open(ctx context.Context, w io.Writer) error {
	p, err := again(ctx, roleStub)
	if err != nil {
		return err
	}
	b.stub = &target{process: p, name: "provider stub, direct"}
	b.targets = append(b.targets, b.stub)
	if path, err := exec.LookPath(b.nginx); err != nil {
		fmt.Fprintf(w, "left out: nginx, which is not installed\n")
	} else if err := b.openNginx(ctx, path); err != nil {
		return fmt.Errorf("nginx: %w", err)
	}
	if p, err = again(ctx, roleProxy, b.stub.addr); err != nil {
		return err
	}
	proxy := &target{process: p, name: "httputil.ReverseProxy, bare"}
	proxy.goroutines = func() (int, error) { return ask(ctx, proxy.addr, goroutinesPath, `(?m)^(\d+)$`) }
	b.targets = append(b.targets, proxy)
	if err := b.openParley(ctx); err != nil {
		return fmt.Errorf("parley: %w", err)
	}
	return nil
}

// close ends what still runs.
func (b *bench) close() {
	for _, t := range b.targets {
		if t.cmd.ProcessState == nil {
			_ = t.kill() // it may have ended by itself
		}
	}
}

const nginxConf = `worker_processes 2; daemon off; pid nginx.pid; error_log nginx.log crit; worker_rlimit_nofile 65536;
events { worker_connections 16384; }
http { access_log off; keepalive_requests 1000000000; client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
 upstream u { server %s; keepalive 512; keepalive_requests 1000000000; }
 server { listen %s backlog=4096; location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; } } }
`

// openNginx starts nginx as a bare proxy. It keeps no log.
func (b *bench) openNginx(ctx context.Context, path string) error {
	addr, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.dir, "nginx")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "nginx.conf"), fmt.Appendf(nil, nginxConf, b.stub.addr, addr), 0o600)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, "-p", dir, "-c", "nginx.conf", "-e", "nginx.log")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // killed, it would leave its workers
	if err := cmd.Start(); err != nil {
		return err
	}
	b.targets = append(b.targets, &target{process: &process{cmd: cmd, addr: addr}, name: "nginx, bare"})
	return reachable(ctx, addr)
}

const parleyConf = `listen: 127.0.0.1:0
data: data
metrics: {listen: "127.0.0.1:0"}
plans:
  - {id: pro, rpm: 100000000, tpm: 100000000000, concurrency: 100000}
upstreams:
  - {id: stub, kind: openai, base_url: "http://%s/v1"}
models:
`

// openParley starts the binary with every limit set, but none that is reached, and
// reads the key of its first start. What it logs goes to a file.
func (b *bench) openParley(ctx context.Context) error {
	b.data, b.log = filepath.Join(b.dir, "data"), filepath.Join(b.dir, "parley.log")
	conf := fmt.Appendf(nil, parleyConf, b.stub.addr)
	for _, m := range []string{modelWhole, modelPieces, modelHeld} {
		conf = fmt.Appendf(conf, "  - {id: %s, context_window: 8192, pricing: {input: \"0.000001\", output: \"0.000002\"}, plans: [pro], targets: [{upstream: stub, model: %s}]}\n", m, m)
	}
	path := filepath.Join(b.dir, "parley.yaml")
	if err := os.WriteFile(path, conf, 0o600); err != nil {
		return err
	}
	log, err := os.Create(b.log)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, b.options.parley, "serve", "--config", path)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return err
	}
	t := &target{process: &process{cmd: cmd}, name: "parley: key, limits, hold, charge, log"}
	b.targets, b.parley = append(b.targets, t), t
	var first struct{ Key, URL string }
	for deadline := time.Now().Add(callTimeout); ; rest(ctx, 20*time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(b.data, "first-start.json"))
		if err == nil {
			if err := json.Unmarshal(text, &first); err != nil {
				return err
			}
			break
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(b.log)
			return fmt.Errorf("it did not start: %s", text)
		}
	}
	t.key, t.addr = first.Key, strings.TrimPrefix(first.URL, "http://")
	text, err := os.ReadFile(b.log)
	if err != nil {
		return err
	}
	metrics := regexp.MustCompile(`http://(\S+)/metrics`).FindSubmatch(text)
	if metrics == nil {
		return fmt.Errorf("no address of the metrics in %s", text)
	}
	t.goroutines = func() (int, error) { return ask(ctx, string(metrics[1]), "/metrics", `(?m)^go_goroutines (\d+)$`) }
	return reachable(ctx, t.addr)
}

// prove ends parley and compares its books and its log with what was called.
func (b *bench) prove(ctx context.Context, w io.Writer) error {
	if err := b.parley.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := b.parley.cmd.Wait(); err != nil {
		text, _ := os.ReadFile(b.log)
		return fmt.Errorf("parley ended with %w: %s", err, text[max(0, len(text)-1000):])
	}
	log, err := os.ReadFile(b.log)
	if err != nil {
		return err
	}
	lines := strings.Count(string(log), "request_id")
	db, err := store.Open(ctx, b.data)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := proven(ctx, db, b.parley.calls+1); err != nil { // 1: the credit of the first start
		return err
	}
	if lines != b.parley.calls {
		return fmt.Errorf("%d calls, but %d lines in the log", b.parley.calls, lines)
	}
	fmt.Fprintf(w, "\nVerified: %d calls through parley, as many receipts, as many lines in the log, books balanced, no call failed.\n", b.parley.calls)
	return nil
}

// figures are the measurements of one target, one a round.
type figures struct {
	rps                   []float64
	one50, one99, far50   []time.Duration
	far99, full50, full99 []time.Duration
	cpu, streamCPU        []time.Duration
	streams               []float64
}

// paced is the rate of the unsaturated measurement, by all connections together.
const (
	connections = 64
	paced       = 1000
)

// throughput measures calls, in rounds, so that what disturbs the machine disturbs
// every target.
func (b *bench) throughput(ctx context.Context, w io.Writer) error {
	all := make([]figures, len(b.targets))
	for range b.rounds {
		for i, t := range b.targets {
			if err := b.round(ctx, t, &all[i]); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	for i := range all {
		all[i].sort()
	}
	b.report(w, all)
	return nil
}

// round measures one target once.
func (b *bench) round(ctx context.Context, t *target, f *figures) error {
	whole := request(modelWhole, false, t.key)
	one, err := t.run(ctx, load{callers: 1, window: b.window()}, whole, (*client).whole)
	if err != nil {
		return fmt.Errorf("1 connection: %w", err)
	}
	far, err := t.run(ctx, load{callers: connections, window: b.window(), every: time.Second * connections / paced}, whole, (*client).whole)
	if err != nil {
		return fmt.Errorf("paced: %w", err)
	}
	full, err := t.run(ctx, load{callers: connections, window: b.window()}, whole, (*client).whole)
	if err != nil {
		return fmt.Errorf("saturated: %w", err)
	}
	stream, err := t.run(ctx, load{callers: connections, window: b.window()}, request(modelPieces, true, t.key), (*client).stream)
	if err != nil {
		return fmt.Errorf("streams: %w", err)
	}
	f.one50, f.one99 = append(f.one50, one.p50), append(f.one99, one.p99)
	f.far50, f.far99 = append(f.far50, far.p50), append(f.far99, far.p99)
	f.full50, f.full99 = append(f.full50, full.p50), append(f.full99, full.p99)
	f.rps, f.cpu = append(f.rps, full.rate()), append(f.cpu, full.perCall())
	f.streams, f.streamCPU = append(f.streams, stream.rate()), append(f.streamCPU, stream.perCall())
	return nil
}

// sort puts the median of every figure first.
func (f *figures) sort() {
	for _, d := range []*[]time.Duration{&f.one50, &f.one99, &f.far50, &f.far99, &f.full50, &f.full99, &f.cpu, &f.streamCPU} {
		*d = []time.Duration{median(*d)}
	}
	f.rps, f.streams = []float64{median(f.rps)}, []float64{median(f.streams)}
}

// run makes calls over connections of its own.
func (t *target) run(ctx context.Context, l load, req []byte, call func(*client, []byte) error) (result, error) {
	clients := make([]*client, l.callers)
	for i := range clients {
		var err error
		if clients[i], err = dial(ctx, t.addr); err != nil {
			return result{}, err
		}
		defer clients[i].conn.Close()
	}
	l.cpu = t.cpu
	r, err := l.do(ctx, func(caller int) error { return call(clients[caller], req) })
	t.calls += r.calls
	return r, err
}

// report prints what was measured of all targets.
func (b *bench) report(w io.Writer, all []figures) {
	proxy := slices.IndexFunc(b.targets, func(t *target) bool { return strings.HasPrefix(t.name, "httputil") })
	base, ref := all[0], all[proxy]
	added := table{title: "Whole answers: time added to the stub's own, ms. 1: one connection; paced: " +
		strconv.Itoa(connections) + " connections, " + strconv.Itoa(paced) + " calls a second; full: " + strconv.Itoa(connections) + " connections, as fast as they go."}
	added.add("", "p50, 1", "p99, 1", "p50, paced", "p99, paced", "p50, full", "p99, full")
	cost := table{title: "Whole answers and streams of 64 pieces, 5 ms apart, at " + strconv.Itoa(connections) + " connections. Ratio: to httputil.ReverseProxy."}
	cost.add("", "answers a second", "ratio", "CPU us an answer", "ratio", "streams a second", "CPU us a stream", "ratio")
	for i, t := range b.targets {
		f := all[i]
		if i == 0 {
			added.add(t.name+" (itself)", millis(f.one50[0]), millis(f.one99[0]), millis(f.far50[0]), millis(f.far99[0]), millis(f.full50[0]), millis(f.full99[0]))
		} else {
			added.add(t.name, millis(f.one50[0]-base.one50[0]), millis(f.one99[0]-base.one99[0]), millis(f.far50[0]-base.far50[0]),
				millis(f.far99[0]-base.far99[0]), millis(f.full50[0]-base.full50[0]), millis(f.full99[0]-base.full99[0]))
		}
		cost.add(t.name, number(f.rps[0]), ratio(f.rps[0], ref.rps[0]), micros(f.cpu[0]), ratio(f.cpu[0], ref.cpu[0]),
			number(f.streams[0]), micros(f.streamCPU[0]), ratio(f.streamCPU[0], ref.streamCPU[0]))
	}
	added.print(w)
	cost.print(w)
}
