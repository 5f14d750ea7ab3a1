package openai

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// BenchmarkGenerate is a whole answer over a connection that is kept, and the stub
// that gives it: what TLS costs is the difference.
func BenchmarkGenerate(b *testing.B) {
	a := upstreamtest.NewAuthority(b)
	for name, config := range map[string]*tls.Config{"plain": nil, "TLS": serves(a.Certificate(b, "127.0.0.1", soon()))} {
		b.Run(name, func(b *testing.B) { benchmarkGenerate(b, config, a.Pool) })
	}
}

func benchmarkGenerate(b *testing.B, config *tls.Config, trusted *x509.CertPool) {
	b.Helper()
	event := func(delta, finish string) string {
		return `data: {"id":"chatcmpl-stub","object":"chat.completion.chunk","created":1767225600,"model":"stub","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
	}
	events := event(`{"role":"assistant","content":""}`, "null") + event(`{"content":"A mild month: mornings begin near ten degrees."}`, "null") + event("{}", `"stop"`) +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":77,\"completion_tokens\":16,\"total_tokens\":93}}\n\ndata: [DONE]\n\n"
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(events), events)
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	o := Options{BaseURL: "http://" + l.Addr().String() + "/v1", Counter: newTiktoken(b)}
	if config != nil {
		o.BaseURL, o.RootCAs = "https://"+l.Addr().String()+"/v1", trusted
		l = tls.NewListener(l, config)
	}
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := r.Discard(int(req.ContentLength)); err != nil {
				return
			}
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	}()
	p, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	req := &wire.ChatRequest{Model: "m", ResponseFormat: wire.ResponseFormat{Kind: wire.FormatText}, Messages: []wire.Message{
		{Role: wire.RoleSystem, Content: "You are a helpful assistant."},
		{Role: wire.RoleUser, Content: strings.Repeat("What is the weather like in Paris? ", 4)},
	}}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Generate(b.Context(), &upstream.Call{Request: req, Model: "m", MaxTokens: 256}, func(upstream.Event) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
