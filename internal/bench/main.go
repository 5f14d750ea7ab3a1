// Command bench measures what a customer's call costs: how many charges a second reach
// the disk, and what the whole line adds to a provider, beside nginx and a bare
// httputil.ReverseProxy in the same run.
//
//	go run ./internal/bench -parley bin/parley [-out FILE] [-only settle|memory|line|rows] [-rounds 3] [-seconds 2]
//
// Every figure is verified: answers are read to their end and their text is counted,
// and at the end the books must be balanced and hold one entry for every call. A call
// that fails makes the run fail.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	parley  string
	nginx   string
	dir     string
	only    string
	rounds  int
	seconds float64
	held    int
	rows    int
	loads   int
	pages   string
	keep    string
}

// window is how long one figure is measured.
func (o *options) window() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

// wants says whether a part of the run was asked for.
func (o *options) wants(part string) bool { return o.only == "" || strings.Contains(o.only, part) }

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The stub and the reverse proxy are processes of their own: this binary again.
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case roleStub:
			return serveStub(ctx)
		case roleProxy:
			return serveProxy(ctx, os.Args[2])
		}
	}
	var o options
	out := flag.String("out", "", "also write the tables to this `file`")
	flag.StringVar(&o.parley, "parley", "bin/parley", "the `binary` to measure")
	flag.StringVar(&o.nginx, "nginx", "nginx", "the nginx to compare with; left out where there is none")
	flag.StringVar(&o.dir, "dir", filepath.Join(".cache", "bench"), "`directory` for data, on the disk to measure")
	flag.StringVar(&o.only, "only", "", "measure only these `parts`: settle, memory, line; or rows, which is not measured unless it is named")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of the line; figures are their medians")
	flag.Float64Var(&o.seconds, "seconds", 2, "length of one measurement")
	flag.IntVar(&o.held, "held", 2000, "streams held open at once")
	flag.IntVar(&o.rows, "rows", 10_000_000, "calls in the database of which pages are read")
	flag.IntVar(&o.loads, "loads", 100, "how often a page is loaded for one figure")
	flag.StringVar(&o.pages, "pages", "", "load only pages whose paths begin with one of these, with spaces between, and run no commands")
	flag.StringVar(&o.keep, "keep", "", "`directory` of that database, which stays")
	flag.Parse()

	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	w := io.Writer(os.Stdout)
	if *out != "" {
		f, err := os.Create(*out)
		if err != nil {
			return err
		}
		defer f.Close()
		w = io.MultiWriter(w, f)
	}
	return measure(ctx, &o, w)
}

// measure runs the parts one after the other. A part that fails does not keep the
// others from being measured.
func measure(ctx context.Context, o *options, w io.Writer) error {
	begin := time.Now()
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d cores, %s, load before the run %s\n", runtime.NumCPU(), runtime.Version(), strings.Join(strings.Fields(string(load))[:3], " "))
	var errs []error
	if o.wants("settle") {
		errs = append(errs, settles(ctx, o, w))
	}
	if strings.Contains(o.only, "rows") {
		errs = append(errs, rows(ctx, o, w))
	}
	if o.wants("memory") || o.wants("line") {
		errs = append(errs, line(ctx, o, w))
	}
	fmt.Fprintf(w, "\n%.0f s\n", time.Since(begin).Seconds())
	return errors.Join(errs...)
}
