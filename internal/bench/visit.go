package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/console"
)

// shows says whether a page was asked for.
func (o *options) shows(path string) bool {
	return o.pages == "" || slices.ContainsFunc(strings.Fields(o.pages), func(begin string) bool { return path == begin || begin != "/" && strings.HasPrefix(path, begin) })
}

// pages loads every page of the console as everybody who may see it. A page of which it
// knows no address fails the run.
func (s *server) pages(ctx context.Context, o *options, visitors []visitor, w io.Writer) error {
	t := table{title: fmt.Sprintf("Pages over %d calls: ms of %d loads each, and of the server's CPU a load.", o.rows, o.loads)}
	head := []string{"page"}
	for _, v := range visitors {
		head = append(head, v.name+": p50", "p95", "max", "CPU")
	}
	t.add(head...)
	var errs []error
	for _, path := range append(console.Pages(), "/find") {
		if !o.shows(path) || ctx.Err() != nil {
			continue
		}
		views, err := viewsOf(path)
		errs = append(errs, err)
		for _, view := range views {
			name := path
			if view.what != "" {
				name += ", " + view.what
			}
			row := []string{name}
			for _, v := range visitors {
				cells, err := s.loads(ctx, o.loads, path, view, v)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s as %s: %w", name, v.name, err))
				}
				row = append(row, cells...)
			}
			t.add(row...)
		}
	}
	t.print(w)
	return errors.Join(errs...)
}

// loads loads one view of a page as somebody and returns cells of how long it took.
func (s *server) loads(ctx context.Context, n int, path string, view view, v visitor) ([]string, error) {
	none := []string{"-", "-", "-", "-"}
	switch {
	case strings.HasPrefix(path, "/operator") && v.name != "operator", view.signedOut && v.name != "small":
		return none, nil
	case view.signedOut:
		v.token = ""
	}
	var took []time.Duration
	cpu := s.cpu()
	for i, link := 0, ""; i < n+view.skip; i++ {
		if link == "" && view.link != nil {
			link = view.link(v.sees, i)
		}
		r, err := v.request(ctx, s.addr, view, link, i)
		if err != nil {
			return none, err
		}
		a, err := s.load(r, view.opens)
		if err == nil && a.status != view.status() && (view.find == nil || a.status != http.StatusOK) {
			err = fmt.Errorf("%s is %d %s", r.URL, a.status, a.location)
		}
		if err != nil {
			return none, err
		}
		switch {
		case i >= view.skip:
			took = append(took, a.took)
		case i == view.skip-1:
			cpu = s.cpu()
		}
		link = ""
		if view.older {
			if link = a.older; link == "" {
				break
			}
		}
	}
	if len(took) == 0 { // the list has not so many pages
		return none, nil
	}
	slices.Sort(took)
	cpu = (s.cpu() - cpu) / time.Duration(len(took))
	return []string{tenths(took[len(took)/2]), tenths(took[len(took)*95/100]), tenths(took[len(took)-1]), tenths(cpu)}, nil
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }

// status is that of a view's answer.
func (v view) status() int {
	switch {
	case v.elsewhere:
		return http.StatusSeeOther
	case v.absent:
		return http.StatusNotFound
	}
	return http.StatusOK
}

// request is the n-th one of a view.
func (v visitor) request(ctx context.Context, base string, view view, link string, n int) (*http.Request, error) {
	method, body := http.MethodGet, io.Reader(nil)
	if view.find != nil {
		method, link, body = http.MethodPost, "/find", strings.NewReader(url.Values{"q": {view.find(v.sees, n)}}.Encode())
	}
	r, err := http.NewRequestWithContext(ctx, method, base+link, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/html")
	if body != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if v.token != "" {
		r.Header.Set("Cookie", "__Host-session="+string(v.token))
	}
	return r, nil
}

// answer is what a page answered.
type answer struct {
	status   int
	location string
	older    string // the address of the next page of the list
	took     time.Duration
}

// olderLink is that of a list's next page.
var olderLink = regexp.MustCompile(`href="([^"]+)">Older<`)

// load asks for something and reads it to its end, or, of a file, to the end of its first line.
func (s *server) load(r *http.Request, opens bool) (a answer, err error) {
	begin := time.Now()
	resp, err := s.client.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	var body []byte
	if opens {
		body = make([]byte, 1)
		_, err = io.ReadFull(resp.Body, body)
	} else {
		body, err = io.ReadAll(resp.Body)
	}
	a = answer{status: resp.StatusCode, location: resp.Header.Get("Location"), took: time.Since(begin)}
	if m := olderLink.FindSubmatch(body); m != nil {
		a.older = html.UnescapeString(string(m[1]))
	}
	return a, err
}

// files reads the largest account's files of all calls to their end.
func (s *server) files(ctx context.Context, visitors []visitor, w io.Writer) error {
	before, err := s.peak()
	if err != nil {
		return err
	}
	for _, link := range []string{"/requests/csv", "/usage/csv?range=last&by=day", "/audit/csv"} {
		r, err := visitors[0].request(ctx, s.addr, view{}, link, 0)
		if err != nil {
			return err
		}
		begin := time.Now()
		resp, err := s.client.Do(r)
		if err != nil {
			return err
		}
		var c lineCounter
		_, err = io.Copy(&c, resp.Body)
		resp.Body.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", link, err)
		}
		fmt.Fprintf(w, "%s: %d lines in %.1f s\n", link, c, time.Since(begin).Seconds())
	}
	after, err := s.peak()
	fmt.Fprintf(w, "memory at its peak: %d MiB before the files, %d MiB behind them\n", before>>20, after>>20)
	return err
}

// lineCounter counts the lines that are written to it.
type lineCounter int

func (c *lineCounter) Write(p []byte) (int, error) {
	*c += lineCounter(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

// peakLine says how much memory a process had at most.
var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak is how much memory the process had at most, in bytes.
func (p *process) peak() (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	m := peakLine.FindSubmatch(text)
	if err != nil || m == nil {
		return 0, fmt.Errorf("no peak of memory in %q: %w", text, err)
	}
	kib, err := strconv.Atoi(string(m[1]))
	return kib << 10, err
}
