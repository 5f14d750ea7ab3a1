package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// callTimeout is when a call is given up as failed.
const callTimeout = 30 * time.Second

// The words of the stub, by which answers are verified.
const (
	wholeText   = "A mild month: mornings begin near ten degrees, afternoons reach about twenty."
	pieceText   = " tokens"
	streamParts = 64
)

// request is what every target is sent, byte for byte but for the key.
func request(model string, stream bool, key string) []byte {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"system","content":"You are a helpful assistant. Answer in a short and friendly manner, and do not speculate."},`+
		`{"role":"user","content":"Hello, can you tell me what the weather in Paris is usually like in the month of May? Please keep it short and give a range of temperatures."}],`+
		`"temperature":0.7,"max_tokens":256,"stream":%t}`, model, stream)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: parley\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Accept: */*\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body)
}

// client is one connection that is kept alive. It reads HTTP as far as servers here
// write it, because a full client costs more than what is measured.
type client struct {
	conn net.Conn
	r    *bufio.Reader
	body []byte
}

func dial(ctx context.Context, addr string) (*client, error) {
	conn, err := (&net.Dialer{Timeout: callTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, r: bufio.NewReaderSize(conn, 4<<10)}, nil
}

// whole makes a call that is answered at once and checks the answer.
func (c *client) whole(req []byte) error {
	if err := c.exchange(req); err != nil {
		return err
	}
	if !bytes.Contains(c.body, []byte(wholeText)) {
		return fmt.Errorf("another answer: %.200q", c.body)
	}
	return nil
}

// stream makes a call that is streamed and counts its pieces.
func (c *client) stream(req []byte) error {
	if err := c.exchange(req); err != nil {
		return err
	}
	if n := bytes.Count(c.body, []byte(`"content":"`+pieceText)); n != streamParts {
		return fmt.Errorf("%d of %d pieces: %.200q", n, streamParts, c.body)
	}
	if !bytes.HasSuffix(c.body, []byte("data: [DONE]\n\n")) {
		return fmt.Errorf("a stream without an end: %.200q", c.body[max(0, len(c.body)-200):])
	}
	return nil
}

// exchange sends the request and reads the whole answer into body.
func (c *client) exchange(req []byte) error {
	length, err := c.begin(req)
	if err != nil {
		return err
	}
	c.body = c.body[:0]
	if length >= 0 {
		return c.take(length)
	}
	for {
		n, err := c.chunk()
		if err != nil || n == 0 {
			return err
		}
	}
}

// begin sends the request and reads the head of the answer: the length of its body, or
// -1 when it is chunked.
func (c *client) begin(req []byte) (length int, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(req); err != nil {
		return 0, err
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, fmt.Errorf("no answer: %w", err)
	}
	ok := bytes.HasPrefix(line, []byte("HTTP/1.1 200 "))
	status := string(line)
	length = -1
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		if name, value, found := bytes.Cut(line, []byte(":")); found && bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		}
	}
	if !ok {
		c.body = c.body[:0]
		if length > 0 {
			err = c.take(length)
		}
		return 0, errors.Join(fmt.Errorf("%.100q %.300q", status, c.body), err)
	}
	return length, nil
}

// take appends n bytes to body.
func (c *client) take(n int) error {
	at := len(c.body)
	if at+n > cap(c.body) {
		c.body = append(make([]byte, 0, 2*(at+n)), c.body...)
	}
	c.body = c.body[:at+n]
	_, err := io.ReadFull(c.r, c.body[at:])
	return err
}

// chunk appends one chunk to body; its size is 0 at the end.
func (c *client) chunk() (int, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
	if err != nil {
		return 0, err
	}
	if err := c.take(int(n)); err != nil {
		return 0, err
	}
	_, err = c.r.Discard(2)
	return int(n), err
}
