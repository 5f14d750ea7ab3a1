package openai

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
)

// The address counts, not the name: it is checked when the connection is made.
func TestGenerate_AddressRefused(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"http://169.254.169.254/v1", "http://[::ffff:169.254.169.254]/v1", "http://0.0.0.0:1/v1"} {
		p, err := New(Options{BaseURL: base, Counter: bytesCounter{}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = generate(t.Context(), p, newCall(t, ""))
		if class(err) != "unreachable" {
			t.Errorf("Generate at %s = %v, want unreachable and no retry", base, err)
		}
	}
	p, err := New(Options{BaseURL: "https://localhost:1/v1", Counter: bytesCounter{}, PublicOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := generate(t.Context(), p, newCall(t, "")); class(err) != "unreachable" {
		t.Errorf("Generate at localhost = %v, want unreachable", err)
	}
}

func TestGenerate_Unreachable(t *testing.T) {
	t.Parallel()
	// A port that was just closed may be somebody else's by then; nobody is given this one.
	p, err := New(Options{BaseURL: "http://127.0.0.1:1", Counter: bytesCounter{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := generate(t.Context(), p, newCall(t, "")); class(err) != "unreachable retryable" {
		t.Errorf("Generate = %v, want unreachable retryable", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := generate(ctx, p, newCall(t, "")); !errors.Is(err, gone) || !errors.Is(err, upstream.ErrNotStarted) {
		t.Errorf("Generate after cancel = %v, want its cause and ErrNotStarted", err)
	}
}

func TestNew_Errors(t *testing.T) {
	t.Parallel()
	via := &url.URL{Scheme: "http", Host: "proxy", User: url.UserPassword("u", "hidden")}
	tests := map[string]Options{
		"no URL": {}, "bad URL": {BaseURL: "http://user:hidden@[::1"}, "scheme": {BaseURL: "ftp://h/v1"}, "no host": {BaseURL: "http:///v1"}, "host": {BaseURL: "http://bücher.example/v1"},
		"user": {BaseURL: "http://u:hidden@h/v1"}, "query": {BaseURL: "http://h/v1?key=hidden"}, "fragment": {BaseURL: "http://h/v1#a"},
		"plain to public": {BaseURL: "http://h/v1", PublicOnly: true}, "key": {BaseURL: "http://h/v1", APIKey: "hidden\r\nX: y"},
		"authorities of plain": {BaseURL: "http://h/v1", RootCAs: x509.NewCertPool()}, "proxy of plain": {BaseURL: "http://h/v1", Proxy: via}, "proxy to public": {BaseURL: "https://h/v1", Proxy: via, PublicOnly: true},
		"proxy over TLS": {BaseURL: "https://h/v1", Proxy: &url.URL{Scheme: "https", Host: "h"}}, "proxy of no host": {BaseURL: "https://h/v1", Proxy: &url.URL{Scheme: "http"}},
	}
	for name, o := range tests {
		o.Counter = bytesCounter{}
		if _, err := New(o); !errors.Is(err, ErrOptions) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("New with %s = %v, want ErrOptions without secrets", name, err)
		}
	}
	if _, err := New(Options{BaseURL: "http://h/v1"}); !errors.Is(err, ErrOptions) {
		t.Errorf("New without a counter = %v, want ErrOptions", err)
	}
}

// What a server is asked for, by the base URL.
func TestNew_Target(t *testing.T) {
	t.Parallel()
	for base, want := range map[string][3]string{ // the address, Host, the target
		"http://h/v1":              {"h:80", "h", "/v1/chat/completions"},
		"https://h/v1/":            {"h:443", "h", "/v1/chat/completions"},
		"https://h":                {"h:443", "h", "/chat/completions"},
		"https://h/":               {"h:443", "h", "/chat/completions"},
		"https://h:/v1":            {"h:443", "h", "/v1/chat/completions"},
		"https://h:8443//a%20b/c/": {"h:8443", "h:8443", "/a%20b/c/chat/completions"},
		"https://[2001:db8::1]/v1": {"[2001:db8::1]:443", "[2001:db8::1]", "/v1/chat/completions"},
		"http://[::1]:8000":        {"[::1]:8000", "[::1]:8000", "/chat/completions"},
	} {
		p, err := New(Options{BaseURL: base, Counter: bytesCounter{}})
		if err != nil {
			t.Errorf("New(%q) = %v", base, err)
			continue
		}
		if head := "POST " + want[2] + " HTTP/1.1\r\nHost: " + want[1] + "\r\n"; p.transport.address != want[0] || !strings.HasPrefix(p.transport.head, head) {
			t.Errorf("New(%q) dials %s and says %q, want %s and %q", base, p.transport.address, p.transport.head, want[0], head)
		}
	}
}

// TestGenerate_Bombs checks that what a provider sends without end costs neither
// memory nor time.
func TestGenerate_Bombs(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	long := strings.Repeat("x", 64<<10)
	endless := func(first, event string) func(*upstreamtest.Exchange) {
		event = "data: " + event + "\n\n"
		chunk := fmt.Sprintf("%x\r\n%s\r\n", len(event), event)
		return func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Event(first)
			for e.Raw(chunk) {
			}
		}
	}
	tests := map[string]func(*upstreamtest.Exchange){
		"headers": func(e *upstreamtest.Exchange) {
			e.Raw("HTTP/1.1 200 OK\r\n")
			for e.Raw("X-A: " + long + "\r\n") {
			}
		},
		"one header": func(e *upstreamtest.Exchange) {
			e.Raw("HTTP/1.1 200 OK\r\nX-A: ")
			for e.Raw(long) {
			}
		},
		"early hints": func(e *upstreamtest.Exchange) {
			for e.Raw("HTTP/1.1 103 Early Hints\r\nLink: " + long[:1000] + "\r\n\r\n") {
			}
		},
		"status line": func(e *upstreamtest.Exchange) {
			for e.Raw(long) {
			}
		},
		"error body": func(e *upstreamtest.Exchange) {
			e.Raw("HTTP/1.1 500 No\r\nContent-Type: application/json\r\n\r\n")
			for e.Raw(long) {
			}
		},
		"line": func(e *upstreamtest.Exchange) {
			e.Stream()
			for e.Bytes("data: " + long) {
			}
		},
		"event": func(e *upstreamtest.Exchange) {
			e.Stream()
			for e.Bytes("data: " + long + "\n") {
			}
		},
		"log-probabilities":        endless("", `{"choices":[{"index":0,"delta":{},"logprobs":{"content":[{"token":"`+long+`","logprob":-1}]}}]}`),
		"arguments without a name": endless("", toolDelta(`"index":0,"id":"call_a","function":{"arguments":"`+long+`"}`)),
		"arguments before their turn": endless(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":"{"}`),
			toolDelta(`"index":1,"id":"call_b","function":{"name":"f","arguments":"`+long+`"}`)),
		"trailers": func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Event(text("Hi"))
			e.Event(finish("stop"))
			e.Bytes("data: [DONE]\n\n")
			e.Raw("0\r\n")
			for e.Raw("X-A: " + long + "\r\n") {
			}
		},
		"after the end": func(e *upstreamtest.Exchange) {
			e.Stream()
			e.Event(text("Hi"))
			e.Event(finish("stop"))
			for e.Bytes("data: [DONE]\n\n" + long) {
			}
		},
	}
	for name, script := range tests {
		members := ""
		switch {
		case strings.HasPrefix(name, "arguments"):
			members = strings.TrimPrefix(withTools, `,"stream":true`)
		case name == "log-probabilities":
			members = `,"logprobs":true`
		}
		_, err := generate(t.Context(), newProvider(t, upstreamtest.NewHTTP(t, script), nil), newCall(t, members))
		if ends := name == "trailers" || name == "after the end"; (err == nil) != ends || err != nil && !strings.HasPrefix(class(err), "failed") && class(err) != "cut" {
			t.Errorf("Generate with endless %s = %v", name, err)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
		// Most of it is the bombs themselves, which are made here.
		t.Errorf("%d MiB allocated in all", used>>20)
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	s := upstreamtest.NewHTTP(t, events(text("Hi"), finish("stop")))
	p := newProvider(t, s, nil)
	if _, err := generate(t.Context(), p, newCall(t, "")); err != nil {
		t.Fatal(err)
	}
	r := s.Exchanges()[0].Request
	want := http.Header{
		"Accept": {"text/event-stream"}, "Accept-Encoding": {"identity"}, "Authorization": {"Bearer " + secret},
		"Content-Length": r.Header["Content-Length"], "Content-Type": {"application/json"}, "User-Agent": {"parley"},
	}
	if diff := cmp.Diff(want, r.Header); diff != "" || r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" {
		t.Errorf("%s %s, header (-want +got):\n%s", r.Method, r.URL, diff)
	}
	keyless := newProvider(t, s, func(o *Options) { o.APIKey = "" })
	if _, err := generate(t.Context(), keyless, newCall(t, "")); err != nil {
		t.Fatal(err)
	}
	if r := s.Exchanges()[1].Request; r.Header["Authorization"] != nil {
		t.Errorf("Authorization %q without a key", r.Header["Authorization"])
	}
}
