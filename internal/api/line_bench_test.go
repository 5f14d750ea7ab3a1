package api_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/upstream/openai"
)

// BenchmarkLine is one answer from socket to socket over one connection: the server, the door, the
// rooms with their fsync, and a provider over HTTP. Client and provider are in the same process and
// take no memory, so what is reported is the line's.
func BenchmarkLine(b *testing.B) {
	chunk := func(data string) string { return "data: " + data + "\n\n" }
	events := chunk(`{"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`) +
		chunk(`{"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"A mild month: mornings begin near ten degrees, afternoons reach about twenty."},"finish_reason":null}]}`) +
		chunk(`{"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`) +
		chunk(`{"choices":[],"usage":{"prompt_tokens":77,"completion_tokens":16,"total_tokens":93}}`) + chunk("[DONE]")
	upstream := listen(b, fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(events), events))
	counter, err := openai.NewTiktoken(openai.DefaultEncoding)
	must(b, err)
	p, err := openai.New(openai.Options{BaseURL: "http://" + upstream, Counter: counter})
	must(b, err)
	b.Cleanup(p.Close)
	d := open(b, p)
	d.log.mute()
	_, key := d.customer(b, "rich", "pro", 1000*money.IU)
	body := `{"model":"svc-pulse","messages":[{"role":"system","content":"You are a helpful assistant. Answer in a short and friendly manner."},` +
		`{"role":"user","content":"What is the weather in Paris usually like in May?"}],"temperature":0.7,"max_tokens":256}`
	request := fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: parley\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body)
	conn, err := net.Dial("tcp", d.URL[len("http://"):])
	must(b, err)
	defer conn.Close()
	r := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		_, err := conn.Write(request)
		must(b, err)
		if answer, err := message(r); err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) {
			b.Fatalf("%.300q, %v", answer, err)
		}
	}
}

// listen is a server that reads requests and answers each with answer, until the benchmark ends.
func listen(b *testing.B, answer []byte) (addr string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	var group sync.WaitGroup
	b.Cleanup(func() {
		must(b, l.Close())
		group.Wait()
	})
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				for r := bufio.NewReader(conn); ; {
					if _, err := message(r); err != nil {
						return
					}
					if _, err := conn.Write(answer); err != nil {
						return
					}
				}
			})
		}
	})
	return l.Addr().String()
}

// message reads a message whose length is told and returns its first line, or what there is of it
// in the buffer. It takes no memory.
func message(r *bufio.Reader) ([]byte, error) {
	size := 0
	for at := 0; ; {
		if _, err := r.Peek(at + 1); err != nil {
			return nil, err
		}
		data, _ := r.Peek(r.Buffered())
		end := bytes.Index(data, []byte("\r\n\r\n"))
		if end < 0 {
			at = len(data)
			continue
		}
		name := []byte("Content-Length: ")
		if i := bytes.Index(data[:end], name); i >= 0 {
			digits, _, _ := bytes.Cut(data[i+len(name):end], []byte("\r"))
			n, err := strconv.Atoi(string(digits))
			if err != nil {
				return nil, err
			}
			size = n
		}
		size += end + len("\r\n\r\n")
		break
	}
	if size > r.Size() {
		return nil, errors.New("too long for the buffer")
	}
	whole, err := r.Peek(size)
	if err != nil {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	_, err = r.Discard(size)
	return whole, err
}
