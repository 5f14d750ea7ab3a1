package openai

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxHeaderBytes = 64 << 10
	idleConns      = 512
	// Servers behind common proxies close idle connections after 60 s or more.
	idleConnTimeout = 50 * time.Second
	// inlineBytes is how long a request may be that is written before its answer is
	// read. A longer one is written meanwhile: it may be refused half way.
	inlineBytes = 64 << 10
)

// Errors of answers that do not begin.
var (
	errHead      = errors.New("longer than 64 KiB")
	errNoAnswer  = errors.New("the server closed the connection before it answered")
	errSpeaksTLS = errors.New("the server speaks TLS here: base_url must begin with https, or have another port")
)

// recordAlert begins what a server that speaks TLS says to one that does not.
const recordAlert = 0x15

// transport sends requests to one server by HTTP/1.1: one call a connection at a time, so
// that leaving a call closes its connection, and nothing is ever decompressed. Unlike
// net/http's Transport this one has no goroutines: whoever makes a call reads and writes,
// which halves what a call costs. It is safe for concurrent use.
type transport struct {
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	address     string      // host:port of the server
	proxy       *proxy      // nil without
	tls         *tls.Config // nil without
	connect     time.Duration
	head        string // of every request, up to the value of Content-Length

	mu    sync.Mutex
	idle  []*conn // the one used last is the last
	sweep *time.Timer
}

// conn is a connection to the server.
type conn struct {
	net.Conn
	raw    net.Conn              // below TLS
	gate   *gate                 // between the two; nil without TLS
	fd     syscall.RawConn       // of raw; nil where it has none
	poll   func(fd uintptr) bool // pollOnce
	polled [1]unix.PollFd
	one    [1]byte // where drained reads to
	r      *bufio.Reader
	out    []byte // the last request, for its room
	budget int64  // bytes that may still be read
	watch  *watch // of the call that uses it
	since  time.Time
}

// Read tells the watch of every byte that arrives, and stops a head that has no end.
func (c *conn) Read(p []byte) (int, error) {
	if c.budget <= 0 {
		return 0, errHead
	}
	c.watch.wait()
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.budget)])
	c.budget -= int64(n)
	if n > 0 {
		c.watch.touch()
	}
	return n, err
}

// quiet says whether nothing has arrived on an idle connection: neither its end nor
// bytes that nobody asked for.
func (c *conn) quiet() bool {
	if c.fd == nil {
		return true
	}
	err := c.fd.Read(c.poll)
	return err == nil && c.polled[0].Revents == 0
}

// drained says whether TLS holds nothing of what it has read: neither bytes, which would be
// taken for the next answer, nor the end. quiet does not see them.
func (c *conn) drained() bool {
	if c.gate == nil {
		return true
	}
	c.gate.shut = true
	n, err := c.Conn.Read(c.one[:])
	c.gate.shut = false
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

// pollOnce asks what can be read of fd at once. It keeps its arguments in c: they would
// cost memory at every call.
func (c *conn) pollOnce(fd uintptr) bool {
	c.polled[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	if _, err := unix.Poll(c.polled[:], 0); err != nil {
		c.polled[0].Revents = unix.POLLERR // not known: as good as closed
	}
	return true
}

// do sends body. connected says whether the server may have seen it. The caller closes
// the answer; what is unread of it costs the connection, and so does the end of w,
// which is the end of ctx too.
func (t *transport) do(ctx context.Context, w *watch, body []byte) (x *exchange, connected bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	c := t.take()
	if c == nil {
		if c, err = t.dial(ctx, w); err != nil {
			return nil, false, err
		}
	}
	w.guard(c.raw)
	c.watch = w
	x = &exchange{transport: t, conn: c, watch: w}
	if len(body) <= inlineBytes {
		x.failed = x.write(body)
	} else {
		x.wrote = make(chan struct{})
		go x.writeLong(body)
	}
	if err := x.readHead(); err != nil {
		return nil, true, errors.Join(err, x.Close())
	}
	return x, true, nil
}

// exchange is one request and its answer, whose body it reads.
type exchange struct {
	transport *transport
	conn      *conn // nil once it was given back
	watch     *watch
	wrote     chan struct{} // closed when a long request is written; nil for others
	failed    error         // of writing, once that is over
	head      head
	body      body
}

// writeLong writes a request while its answer is read. Close waits for it.
func (x *exchange) writeLong(body []byte) {
	defer close(x.wrote)
	x.failed = x.write(body)
}

func (x *exchange) write(body []byte) error {
	c := x.conn
	c.out = strconv.AppendInt(append(c.out[:0], x.transport.head...), int64(len(body)), 10)
	c.out = append(append(c.out, "\r\n\r\n"...), body...)
	_, err := c.Write(c.out)
	if cap(c.out) > inlineBytes {
		c.out = nil
	}
	return err
}

// readHead reads the head of the answer, past those that are only informed of.
func (x *exchange) readHead() error {
	x.conn.budget = maxHeaderBytes
	first, err := x.conn.r.Peek(1)
	switch {
	case errors.Is(err, io.EOF):
		return errNoAnswer
	case err == nil && x.transport.tls == nil && first[0] == recordAlert:
		return errSpeaksTLS
	}
	for {
		h, err := readHead(x.conn.r)
		if err != nil {
			return fmt.Errorf("the head of the answer: %w", err)
		}
		if h.status >= 200 || h.status == http.StatusSwitchingProtocols {
			x.conn.budget = math.MaxInt64
			x.head = h
			x.body.begin(&x.head, x.conn.r)
			return nil
		}
	}
}

// Read gives the connection back at the end of the body.
func (x *exchange) Read(p []byte) (int, error) {
	n, err := x.body.Read(p)
	if errors.Is(err, io.EOF) && x.conn != nil && x.reusable() {
		x.transport.give(x.conn)
		x.conn = nil
	}
	return n, err
}

func (x *exchange) reusable() bool {
	if x.wrote != nil {
		select {
		case <-x.wrote:
		default:
			return false
		}
	}
	return x.failed == nil && !x.head.close && x.head.status >= 200 && x.conn.r.Buffered() == 0 && x.conn.drained() && x.watch.release()
}

// Close closes the connection, unless the body was read to its end.
func (x *exchange) Close() error {
	if x.conn == nil {
		return nil
	}
	x.watch.release()
	_ = x.conn.raw.Close() // the watch may have closed it
	if x.wrote != nil {
		<-x.wrote
	}
	x.conn = nil
	return nil
}

// take returns an idle connection, or nil.
func (t *transport) take() *conn {
	for {
		t.mu.Lock()
		n := len(t.idle)
		if n == 0 {
			t.mu.Unlock()
			return nil
		}
		c := t.idle[n-1]
		t.idle[n-1] = nil
		t.idle = t.idle[:n-1]
		t.mu.Unlock()
		if c.quiet() {
			return c
		}
		_ = c.raw.Close() // the server has closed it
	}
}

func (t *transport) give(c *conn) {
	c.since = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle) >= idleConns {
		_ = c.raw.Close() // nobody waits for it
		return
	}
	t.idle = append(t.idle, c)
	if t.sweep == nil {
		t.sweep = time.AfterFunc(idleConnTimeout, t.expire)
	}
}

// expire closes what was idle for too long.
func (t *transport) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := 0
	for old < len(t.idle) && time.Since(t.idle[old].since) >= idleConnTimeout {
		_ = t.idle[old].raw.Close() // nobody waits for it
		old++
	}
	n := copy(t.idle, t.idle[old:])
	clear(t.idle[n:])
	t.idle = t.idle[:n]
	t.sweep = nil
	if n > 0 {
		t.sweep = time.AfterFunc(time.Until(t.idle[0].since.Add(idleConnTimeout)), t.expire)
	}
}

// close closes the connections that no call uses.
func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.idle {
		_ = c.raw.Close() // nobody waits for it
	}
	t.idle = nil
	if t.sweep != nil {
		t.sweep.Stop()
		t.sweep = nil
	}
}
