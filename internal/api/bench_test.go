package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/telemetry"
	"github.com/parley-ai/parley/internal/upstream/openai"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// sink is a client that takes everything at once, without a socket.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header              { return s.header }
func (s *sink) WriteHeader(status int)           { s.status = status }
func (s *sink) Write(b []byte) (int, error)      { return len(b), nil }
func (s *sink) FlushError() error                { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }
func (s *sink) SetReadDeadline(time.Time) error  { return nil }

// A piece of a stream costs no memory, so that a thousand streams do not feed the
// collector.
func TestChunkAllocs(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts those of every goroutine
	var allocs float64
	f := stub(func(_ context.Context, emit chat.Emitter) error {
		if err := emit.Start(wire.Head{ID: "chatcmpl-abcdefghijklmnopqrstuvwxyz123", Model: "m", Fingerprint: "fp_0123456789"}); err != nil {
			return err
		}
		var err error
		allocs = testing.AllocsPerRun(1000, func() {
			if e := emit.Text(0, "Hello, <é> ", nil); e != nil {
				err = e
			}
		})
		return err
	})
	cat, err := catalog.New(nil)
	must(t, err)
	h := api.New(api.Config{Chat: f, Keys: f, Catalog: cat, Limiter: ratelimit.New(time.Now()), Draining: func() bool { return false }, Log: telemetry.NewLines(io.Discard, true)})
	req := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(body(`,"stream":true`)))
	h.ServeHTTP(&sink{header: http.Header{}}, req)
	if allocs != 0 {
		t.Errorf("a piece of text costs %v allocations, want 0", allocs)
	}
}

// BenchmarkChat is a call through the whole handler and the real rooms with its
// fsync, by as many callers at once as the name says, without sockets.
func BenchmarkChat(b *testing.B) {
	for _, bench := range []struct {
		name  string
		extra string
		steps int
	}{{"whole", "", 1}, {"stream64", `,"stream":true`, 64}} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", bench.name, callers), func(b *testing.B) {
				d := open(b, provider(upstreamtest.Text(strings.Split(strings.Repeat("word ", bench.steps), " ")[:bench.steps]...), upstreamtest.Finish(wire.FinishStop)))
				calls(b, d.Handler, "Bearer "+d.key, body(bench.extra), callers)
			})
		}
	}
}

// BenchmarkHandler is the door alone.
func BenchmarkHandler(b *testing.B) {
	for name, extra := range map[string]string{"whole": "", "stream64": `,"stream":true`} {
		b.Run(name, func(b *testing.B) {
			f := stub(func(_ context.Context, emit chat.Emitter) error {
				_ = emit.Start(wire.Head{ID: "chatcmpl-abcdefghijklmnopqrstuvwxyz123", Model: "m", Fingerprint: "fp_0123456789"})
				for range 64 {
					_ = emit.Text(0, "word ", nil)
				}
				return emit.Finish([]wire.FinishReason{wire.FinishStop}, wire.Usage{PromptTokens: 10, CompletionTokens: 64})
			})
			cat, err := catalog.New(nil)
			must(b, err)
			h := api.New(api.Config{Chat: f, Keys: f, Catalog: cat, Limiter: ratelimit.New(time.Now()), Draining: func() bool { return false }, Log: telemetry.NewLines(io.Discard, true)})
			calls(b, h, "Bearer x", body(extra), 1)
		})
	}
}

// calls runs b.N calls by that many callers at once.
func calls(b *testing.B, h http.Handler, auth, body string, callers int) {
	b.Helper()
	b.ReportAllocs()
	b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
	one := func() {
		req := httptest.NewRequestWithContext(b.Context(), "POST", "/v1/chat/completions", strings.NewReader(body))
		req.Header["Authorization"] = []string{auth}
		s := &sink{header: make(http.Header, 16)}
		if h.ServeHTTP(s, req); s.status != http.StatusOK {
			b.Errorf("status %d", s.status)
		}
	}
	b.ResetTimer()
	if callers == 1 {
		for b.Loop() {
			one()
		}
	} else {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				one()
			}
		})
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

// piecewise is a client that tells of every piece it gets.
type piecewise struct {
	sink
	got chan struct{}
}

func (p *piecewise) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(`"content":" word"`)) {
		p.got <- struct{}{}
	}
	return len(b), nil
}

// A piece costs no memory on the whole way from a provider's socket to the client,
// through the real rooms.
func TestChunkAllocs_Upstream(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts those of every goroutine
	chunk := func(data string) []byte {
		data = "data: " + data + "\n\n"
		return fmt.Appendf(nil, "%x\r\n%s\r\n", len(data), data)
	}
	piece := chunk(`{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}`)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	next, ended := make(chan bool), make(chan error, 1)
	go func() {
		defer l.Close()
		conn, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer conn.Close()
		_, err = conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"))
		for <-next && err == nil {
			_, err = conn.Write(piece)
		}
		_, last := conn.Write(append(chunk(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":5}}`), chunk("[DONE]")...))
		ended <- errors.Join(err, last)
	}()
	counter, err := openai.NewTiktoken(openai.DefaultEncoding)
	must(t, err)
	p, err := openai.New(openai.Options{BaseURL: "http://" + l.Addr().String(), Counter: counter, Timeouts: openai.Timeouts{Connect: time.Minute}})
	must(t, err)
	d := open(t, p)
	client := &piecewise{sink: sink{header: http.Header{}}, got: make(chan struct{})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(body(`,"stream":true`)))
		req.Header["Authorization"] = []string{"Bearer " + d.key}
		d.Handler.ServeHTTP(client, req)
	}()
	allocs := testing.AllocsPerRun(500, func() {
		next <- true
		<-client.got
	})
	next <- false
	<-served
	must(t, <-ended)
	if allocs != 0 || client.status != http.StatusOK {
		t.Errorf("a piece costs %v allocations, want 0; status %d", allocs, client.status)
	}
}
