package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// The models of the stub.
const (
	modelWhole  = "whole"  // answers at once; in one write where it is asked for a stream
	modelPieces = "pieces" // 64 pieces, one every pieceEvery
	modelHeld   = "held"   // one piece, and then nothing until the caller leaves
)

// pieceEvery is the pace of the stub: fast for a model, slow enough that every piece
// is a read and a write of its own for whoever stands between.
const pieceEvery = 5 * time.Millisecond

// stub is a provider that computes nothing: every byte it sends was made before. It
// serves HTTP as far as the proxies here speak it.
type stub struct {
	whole, wholeStream, head, piece, end []byte
}

func newStub() *stub {
	event := func(delta, finish string) string {
		return `data: {"id":"chatcmpl-stub","object":"chat.completion.chunk","created":1767225600,"model":"stub","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
	}
	chunk := func(text string) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(text), text) }
	usage := func(n int) string {
		return fmt.Sprintf("data: {\"id\":\"chatcmpl-stub\",\"object\":\"chat.completion.chunk\",\"created\":1767225600,\"model\":\"stub\",\"choices\":[],\"usage\":{\"prompt_tokens\":77,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", n, 77+n)
	}
	const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n"
	role, stop := event(`{"role":"assistant","content":""}`, "null"), event("{}", `"stop"`)
	content := func(text string) string { return event(fmt.Sprintf(`{"content":%q}`, text), "null") }
	body := `{"id":"chatcmpl-stub","object":"chat.completion","created":1767225600,"model":"stub","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		wholeText + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":77,"completion_tokens":16,"total_tokens":93}}`
	return &stub{
		whole:       fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		wholeStream: append([]byte(streamHead), append(chunk(role+content(wholeText)+stop+usage(16)), "0\r\n\r\n"...)...),
		head:        append([]byte(streamHead), chunk(role)...),
		piece:       chunk(content(pieceText)),
		end:         append(chunk(stop+usage(streamParts)), "0\r\n\r\n"...),
	}
}

// serveStub listens, prints its address and serves until ctx ends.
func serveStub(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, l.Addr())
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	s := newStub()
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil
		}
		go s.serve(conn)
	}
}

// serve answers the requests of one connection. Whatever fails ends it: the caller is
// the one who counts.
func (s *stub) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	var body []byte
	for {
		length := 0
		for first := true; ; first = false {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) <= 2 && !first {
				break
			}
			if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("Content-Length")) {
				length, _ = strconv.Atoi(strings.TrimSpace(string(value)))
			}
		}
		if length > cap(body) {
			body = make([]byte, length)
		}
		body = body[:length]
		for n := 0; n < length; {
			more, err := r.Read(body[n:])
			if n += more; err != nil {
				return
			}
		}
		if s.answer(conn, r, body) != nil {
			return
		}
	}
}

func (s *stub) answer(conn net.Conn, r *bufio.Reader, body []byte) error {
	is := func(model string) bool { return bytes.Contains(body, []byte(`"model":"`+model+`"`)) }
	var err error
	switch {
	case is(modelPieces):
		_, err = conn.Write(s.head)
		tick := time.NewTicker(pieceEvery)
		defer tick.Stop()
		for range streamParts {
			if err != nil {
				return err
			}
			<-tick.C
			_, err = conn.Write(s.piece)
		}
		if err == nil {
			_, err = conn.Write(s.end)
		}
	case is(modelHeld):
		if _, err = conn.Write(append(bytes.Clone(s.head), s.piece...)); err == nil {
			_, err = r.Peek(1) // until the caller leaves
		}
	case bytes.Contains(body, []byte(`"stream":true`)):
		_, err = conn.Write(s.wholeStream)
	default:
		_, err = conn.Write(s.whole)
	}
	return err
}
