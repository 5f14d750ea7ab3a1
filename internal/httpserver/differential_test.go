package httpserver_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/httpserver"
)

// script is a connection whose client has said everything and then closed its side. Reads
// bring at most step bytes.
type script struct {
	in   *strings.Reader
	step int

	mu     sync.Mutex
	out    bytes.Buffer
	writes int
	closed chan struct{}
	once   sync.Once
}

func (s *script) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in.Read(p[:min(len(p), s.step)])
}

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	return s.out.Write(p)
}

func (s *script) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// queue is a listener of connections that a test makes.
type queue struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn), done: make(chan struct{})} }

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }

// say plays text to the server behind q and returns what it answers until it closes.
func (q *queue) say(t testing.TB, text string, step int) string {
	t.Helper()
	s := &script{in: strings.NewReader(text), step: step, closed: make(chan struct{})}
	q.conns <- s
	select {
	case <-s.closed:
	case <-time.After(time.Minute):
		t.Fatalf("the server does not close after %.200q", text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// both starts net/http's server and ours with the same handler.
func both(t testing.TB, h http.Handler, limit int) (theirs, ours *queue) {
	t.Helper()
	discard := log.New(io.Discard, "", 0)
	theirs, ours = newQueue(), newQueue()
	standard := &http.Server{Handler: h, MaxHeaderBytes: max(limit-4096, 0), ErrorLog: discard}
	own := &httpserver.Server{Handler: h, MaxHeaderBytes: limit, ErrorLog: discard}
	go standard.Serve(theirs)
	go own.Serve(ours)
	t.Cleanup(func() {
		standard.Close()
		own.Close()
	})
	return theirs, ours
}

// reply is one answer, without what may differ.
type reply struct {
	Line   string
	Header map[string][]string // nil where the server has refused
	Body   string
}

// replies takes a transcript apart. What is no answer ends it, as "rest".
func replies(t testing.TB, transcript string) []reply {
	t.Helper()
	var all []reply
	for r := bufio.NewReader(strings.NewReader(transcript)); ; {
		head, err := r.ReadString('\n')
		if err == io.EOF && head == "" {
			return all
		}
		one := reply{Line: strings.TrimRight(head, "\r\n"), Header: map[string][]string{}}
		for {
			line, err := r.ReadString('\n')
			if line = strings.TrimRight(line, "\r\n"); line == "" || err != nil {
				break
			}
			name, value, _ := strings.Cut(line, ": ")
			one.Header[name] = append(one.Header[name], value)
		}
		var body io.Reader = r
		switch n := one.Header["Content-Length"]; {
		case one.Header["X-Method"] != nil && one.Header["X-Method"][0] == "HEAD", strings.Contains(one.Line, " 204 "),
			strings.Contains(one.Line, " 304 "), strings.Contains(one.Line, " 1"):
			body = strings.NewReader("")
		case one.Header["Transfer-Encoding"] != nil:
			fake, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), &oneByte{r})), nil)
			if err != nil {
				t.Fatal(err)
			}
			body = fake.Body
		case n != nil:
			var length int64
			fmt.Sscan(n[0], &length)
			body = io.LimitReader(r, length)
		}
		text, err := io.ReadAll(body)
		one.Body = string(text)
		if err != nil {
			one.Body += fmt.Sprintf(" <%v>", err)
		}
		delete(one.Header, "Date")
		if one.Header["X-Method"] == nil && !strings.Contains(one.Line, " 1") {
			// A refusal has words of its own, and ends the connection.
			if got := one.Header["Connection"]; !slices.Equal(got, []string{"close"}) {
				t.Errorf("%q has Connection %q", one.Line, got)
			}
			one = reply{Line: one.Line[:min(len(one.Line), len("HTTP/1.1 400"))]}
		}
		all = append(all, one)
	}
}

// oneByte keeps a reader of chunks from reading into the next answer.
type oneByte struct{ r io.Reader }

func (o *oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1)]) }

// echo answers with everything that it can see of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Method", r.Method)
	if strings.Contains(r.URL.Path, "unread") {
		fmt.Fprintf(w, "%s unread", r.URL)
		return
	}
	body, err := io.ReadAll(r.Body)
	if strings.Contains(r.URL.Path, "close") {
		w.Header().Set("Connection", "close")
	}
	fmt.Fprintf(w, "%s %s %s host=%q length=%d coding=%q close=%v\n", r.Method, r.RequestURI, r.Proto, r.Host, r.ContentLength, r.TransferEncoding, r.Close)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(w, "%s: %q\n", name, r.Header[name])
	}
	fmt.Fprintf(w, "body %q %v trailer=%v", body, err, r.Trailer)
}

// last is sent behind every script: it is answered if the connection can still serve.
const last = "GET /last HTTP/1.1\r\nHost: last\r\nConnection: close\r\n\r\n"

func statuses(all []reply) string {
	var list []string
	for _, r := range all {
		list = append(list, r.Line[min(len(r.Line), 9):min(len(r.Line), 12)])
	}
	return strings.Join(list, " ")
}

// TestRequests_AsNetHTTP plays every script to net/http's server and to ours. What differs
// on purpose says how and why.
func TestRequests_AsNetHTTP(t *testing.T) {
	t.Parallel()
	theirs, ours := both(t, http.HandlerFunc(echo), 16<<10)
	for _, tc := range requestCases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, step := range []int{1 << 20, 1, 3} {
				want := replies(t, theirs.say(t, tc.text+last, step))
				got := replies(t, ours.say(t, tc.text+last, step))
				if tc.differs != "" {
					if s := statuses(got); s != tc.differs || s == statuses(want) {
						t.Errorf("in steps of %d: %s, want %s; net/http: %s", step, s, tc.differs, statuses(want))
					}
					continue
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("in steps of %d: net/http (-) and we (+) differ:\n%s", step, diff)
				}
			}
		})
	}
}

// TestOptions_Star: net/http answers it itself; here the handler does, which knows the
// headers that every answer has.
func TestOptions_Star(t *testing.T) {
	t.Parallel()
	_, ours := both(t, http.HandlerFunc(echo), 0)
	got := replies(t, ours.say(t, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 1<<20))
	if len(got) != 1 || !strings.HasPrefix(got[0].Body, "OPTIONS * HTTP/1.1") {
		t.Errorf("%+v", got)
	}
}

// FuzzRequests_AsNetHTTP plays arbitrary bytes to both servers: whatever net/http refuses
// is refused, and what both take they take alike.
func FuzzRequests_AsNetHTTP(f *testing.F) {
	for _, tc := range requestCases() {
		f.Add(tc.text, 1<<20)
		f.Add(tc.text+last, 5)
	}
	theirs, ours := both(f, http.HandlerFunc(echo), 1<<20)
	f.Fuzz(func(t *testing.T, text string, step int) {
		if len(text) > 64<<10 {
			return // net/http sleeps for half a second behind bodies that it will not read
		}
		step = max(step, 1)
		want, got := replies(t, theirs.say(t, text, step)), replies(t, ours.say(t, text, step))
		for i, w := range want {
			if i == len(got) {
				t.Fatalf("net/http has %d answers, we have %d, for %.2000q", len(want), len(got), text)
			}
			g := got[i]
			if g.Header == nil && (w.Header == nil || stricter(text)) || strings.Contains(text, "OPTIONS *") {
				return // refused by both or, as it may be, by us; what follows is not read
			}
			if diff := cmp.Diff(w, g); diff != "" {
				t.Fatalf("net/http (-) and we (+) differ on %.2000q:\n%s", text, diff)
			}
		}
		// net/http is silent about an end in less than four bytes.
		if len(got) > len(want) && (len(got) > len(want)+1 || got[len(want)].Header != nil) {
			t.Fatalf("net/http has %d answers, we have %d, for %.2000q", len(want), len(got), text)
		}
	})
}

var foldedHost = regexp.MustCompile(`\n(?i:host):.*\n[ \t]`)

// stricter reports whether text has what we refuse and net/http does not.
func stricter(text string) bool {
	low := strings.ToLower(text)
	return strings.Contains(low, "transfer-encoding:") && (strings.Contains(low, "content-length:") || strings.Contains(low, "http/1.0")) ||
		strings.Contains(text, "PRI *") || foldedHost.MatchString(text)
}
