package httpserver

import (
	"io"
	"net/http"
	"sync"
)

// maxDrain is how much of a body that the handler left is read so that the connection can
// serve on; with more it is closed. net/http has the same number.
const maxDrain = 256 << 10

// expectation is about the 100 Continue that a client may wait for before it sends a body.
type expectation int

const (
	nothing  expectation = iota // expected, or sent already
	expected                    // goes out with the first read
	denied                      // the answer came first: the body may never come
)

// body is the body of a request as the handler sees it.
type body struct {
	conn *conn
	// parsed is the request as it was read: its Body is the source, and trailers appear in it.
	// given is the handler's.
	parsed, given *http.Request

	// expectMu guards expect, and orders 100 Continue before the answer.
	expectMu sync.Mutex
	expect   expectation

	mu     sync.Mutex // guards the rest, and reads
	left   int64      // of the length that was announced, or below 0
	ended  bool       // read to its end
	closed bool
}

// Read reads from the connection, within its read deadline.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read(p)
}

func (b *body) read(p []byte) (int, error) {
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case b.ended:
		return 0, io.EOF
	}
	b.sendContinue()
	n, err := b.parsed.Body.Read(p)
	b.left -= int64(n)
	if err == io.EOF {
		b.ended = true
		b.given.Trailer = b.parsed.Trailer
	}
	return n, err
}

// Close reads what is left of a body that is not too long. What it cannot read costs the
// connection.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && !b.waiting() {
		b.drain()
	}
	b.closed = true
	return nil
}

// finish closes the body for the handler before its answer begins, and reports whether
// the next request can be read behind it.
func (b *body) finish() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && !b.ended && !b.waiting() {
		_ = b.conn.readBy.set(b.conn.server.headerDeadline()) // on a closed connection the read fails
		b.drain()
		b.closed = true
	}
	return b.ended
}

// over reports whether nothing more is read from the connection for b.
func (b *body) over() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended || b.closed
}

// shut fails all later reads. Who still reads, in a goroutine that the handler has left
// behind, is waited for.
func (b *body) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

func (b *body) drain() {
	if b.left > maxDrain {
		return
	}
	_, _ = io.CopyN(io.Discard, readerFunc(b.read), maxDrain+1) // b.ended tells
}

// waiting reports whether the client may still wait for 100 Continue.
func (b *body) waiting() bool {
	b.expectMu.Lock()
	defer b.expectMu.Unlock()
	return b.expect != nothing
}

func (b *body) sendContinue() {
	b.expectMu.Lock()
	defer b.expectMu.Unlock()
	if b.expect == expected {
		b.expect = nothing
		_ = b.conn.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")) // the read that follows fails too
	}
}

// answered ends the chance of 100 Continue.
func (b *body) answered() {
	b.expectMu.Lock()
	defer b.expectMu.Unlock()
	if b.expect == expected {
		b.expect = denied
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
