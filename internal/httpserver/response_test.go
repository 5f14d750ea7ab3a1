package httpserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// answers are what handlers do with a response. What a call returns is told behind the
// answer by note.
func answers() map[string]func(w http.ResponseWriter, r *http.Request, note func(...any)) {
	type respond = func(w http.ResponseWriter, r *http.Request, note func(...any))
	text := func(s string) respond {
		return func(w http.ResponseWriter, _ *http.Request, note func(...any)) { note(io.WriteString(w, s)) }
	}
	status := func(code int) respond {
		return func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			w.Header().Set("Content-Type", "a/b")
			w.WriteHeader(code)
			note(io.WriteString(w, "text"))
		}
	}
	field := func(name string, values ...string) respond {
		return func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			w.Header()[name] = values
			note(io.WriteString(w, "12345"))
		}
	}
	return map[string]respond{
		"nothing":            func(http.ResponseWriter, *http.Request, func(...any)) {},
		"text":               text("hello"),
		"HTML":               text("<html>"),
		"bytes":              text("\x00\x01"),
		"exactly pending":    text(strings.Repeat("a", 2048)),
		"more than pending":  text(strings.Repeat("a", 2049)),
		"more than a buffer": text(strings.Repeat("a", 40<<10)),
		"many pieces": func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			for i := range 700 {
				fmt.Fprintf(w, "%d ", i)
			}
		},
		"pieces of all sizes": func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			for _, n := range []int{0, 1, 100, 3000, 20000, 5, 16000, 400} {
				note(io.WriteString(w, strings.Repeat("b", n)))
			}
		},
		"empty write": func(w http.ResponseWriter, _ *http.Request, note func(...any)) { note(w.Write(nil)) },
		"flush": func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			io.WriteString(w, "a")
			note(http.NewResponseController(w).Flush())
			io.WriteString(w, "b")
		},
		"flush first": func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			note(http.NewResponseController(w).Flush())
			io.WriteString(w, "b")
		},
		"flush only": func(w http.ResponseWriter, _ *http.Request, _ func(...any)) { w.(http.Flusher).Flush() },
		"200":        status(200), "204": status(204), "304": status(304), "404": status(404), "499": status(499), "599": status(599), "999": status(999),
		"102 before": func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			w.Header().Set("A", "b")
			w.WriteHeader(http.StatusProcessing)
			w.Header().Set("A", "c")
			io.WriteString(w, "text")
		},
		"status twice": func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			w.WriteHeader(201)
			w.WriteHeader(500)
		},
		"header too late": func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			w.WriteHeader(200)
			w.Header().Set("A", "late")
		},
		"length": field("Content-Length", "5"), "length too small": field("Content-Length", "3"),
		"length too large": field("Content-Length", "9"), "length broken": field("Content-Length", "x"), "length negative": field("Content-Length", "-1"),
		"length of 204": func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(204)
		},
		"length and flush": func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			w.Header().Set("Content-Length", "5")
			w.WriteHeader(200)
			note(http.NewResponseController(w).Flush())
			io.WriteString(w, "hello")
		},
		"type": field("Content-Type", "x/y"), "type empty": field("Content-Type", ""), "type nil": field("Content-Type"),
		"encoding": field("Content-Encoding", "gzip"), "encoding empty": field("Content-Encoding", ""),
		"date": field("Date", "today"), "date nil": field("Date"),
		"two values": field("A", "b", "c"), "line break": field("A", "b\r\nc: d"), "spaces": field("A", "  b  "), "bad name": field("A b", "c"),
		"close": field("Connection", "close"), "keep-alive": field("Connection", "keep-alive"), "upgrade": field("Connection", "upgrade"),
		"abort": func(http.ResponseWriter, *http.Request, func(...any)) { panic(http.ErrAbortHandler) },
		"abort when flushed": func(w http.ResponseWriter, _ *http.Request, note func(...any)) {
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"panic": func(http.ResponseWriter, *http.Request, func(...any)) { panic("oh") },
		"read after the answer": func(w http.ResponseWriter, r *http.Request, note func(...any)) {
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			b, err := io.ReadAll(r.Body)
			note(len(b), err)
		},
		"close the body": func(w http.ResponseWriter, r *http.Request, note func(...any)) {
			note(r.Body.Close())
			b, err := io.ReadAll(r.Body)
			note(len(b), err)
		},
		"read in part": func(w http.ResponseWriter, r *http.Request, note func(...any)) {
			b := make([]byte, 2)
			n, err := io.ReadFull(r.Body, b)
			note(n, err)
		},
		"limit": func(w http.ResponseWriter, r *http.Request, note func(...any)) {
			b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 3))
			note(string(b), errors.As(err, new(*http.MaxBytesError)))
		},
	}
}

// differs is what only our answer has, where it is another than net/http's on purpose:
//   - A Content-Length that is no number is left out. net/http sends it in some answers, and
//     then no client knows where they end.
//   - A connection serves on when a client that waited for 100 Continue has sent its body and
//     the handler has not read all of it.
//   - [http.MaxBytesReader] cannot tell a server that is not net/http's that its limit was
//     hit: the rest of the body is read or, if it is long, the connection closed, as for every
//     body that the handler leaves.
func differs(answer, request string) string {
	switch {
	case answer == "length broken" || answer == "length negative":
		return "Content-Length: 5\r\n"
	case answer == "limit" && strings.Contains(request, "hello"), answer == "read in part" && strings.Contains(request, "Expect"):
		return "X-Method: GET" // of the request behind it
	}
	return ""
}

// TestResponses_AsNetHTTP has handlers answer through net/http's server and through ours.
func TestResponses_AsNetHTTP(t *testing.T) {
	t.Parallel()
	all := answers()
	notes := make(chan string, 1)
	theirs, ours := both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Method", r.Method)
		if answer := all[r.Header.Get("Answer")]; answer != nil {
			var told []string
			defer func() { notes <- strings.Join(told, "; ") }()
			answer(w, r, func(a ...any) { told = append(told, fmt.Sprint(a...)) })
		}
	}), 0)
	requests := []string{
		"GET / HTTP/1.1\r\nHost: x\r\n%s\r\n",
		"HEAD / HTTP/1.1\r\nHost: x\r\n%s\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n%s\r\nhello",
		"GET / HTTP/1.0\r\n%s\r\n",
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\n%s\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n%s\r\nhello",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n",
	}
	for name := range all {
		for _, request := range requests {
			text := fmt.Sprintf(request, "Answer: "+name+"\r\n") + last
			wantText := theirs.say(t, text, 1<<20)
			wantNote := <-notes
			gotText := ours.say(t, text, 1<<20)
			if diff := cmp.Diff(wantNote, <-notes); diff != "" {
				t.Errorf("%s, %.40q: calls return (-net/http +ours)\n%.2000s", name, request, diff)
			}
			if better := differs(name, request); better != "" {
				if !strings.Contains(gotText, better) || strings.Contains(wantText, better) {
					t.Errorf("%s, %.40q: net/http answers %q, we %q", name, request, wantText, gotText)
				}
				continue
			}
			if diff := cmp.Diff(replies(t, wantText), replies(t, gotText)); diff != "" {
				t.Errorf("%s, %.40q: answers (-net/http +ours)\n%.2000s", name, request, diff)
			}
		}
	}
}

// TestWrites: an answer goes out in one write, head and all, and so does each flushed piece.
func TestWrites(t *testing.T) {
	t.Parallel()
	_, ours := both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/whole" {
			body := strings.Repeat("a", 1<<10)
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			io.WriteString(w, body)
			return
		}
		for range 3 {
			io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
		}
	}), 0)
	for path, want := range map[string]int{"/whole": 1, "/stream": 4} {
		s := &script{in: strings.NewReader("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"), step: 1 << 20, closed: make(chan struct{})}
		ours.conns <- s
		<-s.closed
		if s.writes != want {
			t.Errorf("%s took %d writes, want %d", path, s.writes, want)
		}
		resp, err := http.ReadResponse(bufio.NewReader(&s.out), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); len(b) == 0 || err != nil {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
}
