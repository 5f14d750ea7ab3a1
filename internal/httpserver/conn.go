package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	readerSize = 4 << 10
	bufferSize = 2 << 10
	// lingerTimeout is how long a client that still sends may do so after its last answer.
	// Were the connection closed at once, the answer could be lost in the reset.
	lingerTimeout = 500 * time.Millisecond
)

// What a connection is doing. Only idle and new ones are closed by a shutdown.
const (
	fresh  int32 = iota // no byte has come
	active              // a request is being read or answered
	idle                // waits for the next request
	cut                 // closed by a shutdown
)

// errRead is what reading gets while a head is parsed that has come whole.
var errRead = errors.New("httpserver: read beyond the head")

// conn is one connection. One goroutine reads its requests and runs their handlers; only
// leave, the deadlines and state are for others too.
type conn struct {
	server *Server
	rwc    net.Conn
	remote string

	ctx     context.Context // of all its requests
	leave   context.CancelFunc
	readBy  deadline
	writeBy deadline
	state   atomic.Int32

	in      *bufio.Reader // nil while there is nothing to read
	parsing bool
	first   bool // no request has been answered yet
	posted  bool // the last request was a POST
	header  http.Header
	out     []byte  // what is written next
	box     *[]byte // from the server's pool: where out goes back
	watched uint64  // its number at the watcher
	failed  error   // of a write: the connection is lost
}

func newConn(base context.Context, s *Server, rwc net.Conn) *conn {
	c := &conn{server: s, rwc: rwc, first: true, header: http.Header{}}
	if a := rwc.RemoteAddr(); a != nil {
		c.remote = a.String()
	}
	c.ctx, c.leave = context.WithCancel(base)
	c.readBy.arm, c.writeBy.arm = rwc.SetReadDeadline, rwc.SetWriteDeadline
	_ = c.readBy.set(s.headerDeadline()) // a dead connection is seen when it is read
	return c
}

// serve answers requests until the connection ends, and closes it.
func (c *conn) serve() {
	defer c.close()
	for c.await() {
		if !c.serveRequest() {
			return
		}
		c.first = false
		c.state.Store(idle)
		// A shutdown that began before has not seen it idle.
		if c.server.stopping.Load() {
			return
		}
	}
}

// close ends the connection, after a panic of the handler too.
func (c *conn) close() {
	if p := recover(); p != nil {
		if p != http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
			c.server.logf("httpserver: panic serving %s: %v\n%s", c.remote, p, debug.Stack())
		}
		// Something that the handler started may still use them.
		c.in, c.box = nil, nil
	}
	c.leave()
	c.server.untrack(c)
	_ = c.rwc.Close() // there is nobody to tell
	c.rest()
	c.release()
}

// await waits for the first byte of a request and reports whether it came.
func (c *conn) await() bool {
	for skip := 4; ; {
		if c.in == nil || c.in.Buffered() == 0 {
			if c.state.Load() != fresh {
				_ = c.readBy.set(c.server.idleDeadline())
			}
			c.refresh()
			if _, err := c.in.Peek(1); err != nil {
				return false
			}
		}
		if !c.state.CompareAndSwap(idle, active) && !c.state.CompareAndSwap(fresh, active) && c.state.Load() == cut {
			return false
		}
		// Old clients send an empty line behind the body of a POST (RFC 9112 2.2).
		b, _ := c.in.Peek(1)
		if !c.posted || skip == 0 || b[0] != '\r' && b[0] != '\n' {
			return true
		}
		_, _ = c.in.Discard(1)
		if skip--; c.in.Buffered() == 0 {
			c.state.Store(idle)
		}
	}
}

// refresh makes c.in ready to read on, of the common size again when a long head is over.
func (c *conn) refresh() {
	if c.in != nil && c.in.Size() != readerSize {
		c.in = nil
	}
	if c.in != nil {
		return
	}
	c.in, _ = c.server.readers.Get().(*bufio.Reader)
	if c.in == nil {
		c.in = bufio.NewReaderSize(nil, readerSize)
	}
	c.in.Reset(c)
}

// rest gives the read buffer away.
func (c *conn) rest() {
	if c.in != nil && c.in.Size() == readerSize {
		c.in.Reset(nil)
		c.server.readers.Put(c.in)
	}
	c.in = nil
}

// grow doubles the read buffer, which is full.
func (c *conn) grow() {
	data, _ := c.in.Peek(c.in.Buffered())
	in := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(data)), c), 2*len(data))
	c.rest()
	c.in = in
}

// Read is for c.in.
func (c *conn) Read(p []byte) (int, error) {
	if c.parsing {
		return 0, errRead
	}
	for {
		n, err := c.rwc.Read(p)
		if err == nil || n > 0 {
			return n, nil
		}
		if !c.readBy.early(err) {
			c.leave()
			return 0, err
		}
	}
}

// readHead waits for a whole head and returns it. Its bytes stay in c.in.
func (c *conn) readHead() ([]byte, error) {
	limit := c.server.maxHeaderBytes()
	for scanned, line := 0, false; ; {
		data, _ := c.in.Peek(c.in.Buffered())
		if n := headLength(data, scanned); n > 0 && n <= limit {
			return data[:n], nil
		} else if n > 0 || len(data) > limit {
			return nil, &fault{http.StatusRequestHeaderFieldsTooLarge, "the head is too large"}
		}
		if !line {
			begin := data
			if end := bytes.IndexByte(data[scanned:], '\n'); end >= 0 {
				line, begin = true, data[:scanned+end+1]
			}
			if !promising(begin) {
				return nil, malformed("this is no HTTP request")
			}
		}
		if scanned == 0 && !c.first {
			_ = c.readBy.set(c.server.headerDeadline()) // a dead connection is seen when it is read
		}
		if scanned = len(data); scanned == c.in.Size() {
			c.grow()
		}
		switch _, err := c.in.Peek(scanned + 1); {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, &fault{http.StatusRequestTimeout, "the head did not arrive in time"}
		case err == io.EOF:
			return nil, malformed("the head ends too early")
		default:
			return nil, err
		}
	}
}

// serveRequest reads and answers a request and reports whether another may follow.
func (c *conn) serveRequest() bool {
	head, err := c.readHead()
	var req *http.Request
	if err == nil {
		c.parsing = true
		req, err = parse(c.in, head)
		c.parsing = false
	}
	if f, ok := errors.AsType[*fault](err); ok {
		c.refuse(f)
		return false
	} else if err != nil {
		return false
	}
	c.posted = req.Method == http.MethodPost
	ctx, done := context.WithCancel(c.ctx)
	w := c.respond(req.WithContext(ctx))
	w.body.parsed = req
	if expect := req.Header.Get("Expect"); hasToken(expect, "100-continue") {
		if req.ProtoAtLeast(1, 1) && req.ContentLength != 0 {
			w.body.expect = expected
		}
	} else if expect != "" {
		done()
		c.refuse(&fault{http.StatusExpectationFailed, "only 100-continue can be expected"})
		return false
	}
	_ = c.readBy.set(time.Time{}) // a dead connection is seen when it is used
	c.handle(w, done)
	again := w.finish()
	w.body.shut()
	c.release()
	_ = c.writeBy.set(time.Time{})
	if !again && !w.body.ended {
		c.linger()
	}
	return again
}

// handle runs the handler. The request's context ends with it.
func (c *conn) handle(w *response, done context.CancelFunc) {
	defer done()
	c.server.Handler.ServeHTTP(w, w.req)
}

// respond makes the response to req.
func (c *conn) respond(req *http.Request) *response {
	clear(c.header)
	w := &response{conn: c, req: req, header: c.header, length: -1, wantClose: wantsClose(req)}
	req.RemoteAddr = c.remote
	w.keepAlive = !req.ProtoAtLeast(1, 1) && !w.wantClose
	w.body = body{conn: c, given: req, left: req.ContentLength, ended: req.Body == http.NoBody}
	if !w.body.ended {
		req.Body = &w.body
	}
	return w
}

// wantsClose reports whether the client says that it sends nothing more.
func wantsClose(r *http.Request) bool {
	if r.Close {
		return true
	}
	v := r.Header["Connection"]
	return len(v) > 0 && hasToken(v[0], "close")
}

// refuse answers what is no request, and closes.
func (c *conn) refuse(f *fault) {
	w := c.respond(&http.Request{Method: http.MethodGet, ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody, Close: true})
	if reject := c.server.Reject; reject != nil {
		reject(w, f.status, f.reason)
	} else {
		c.server.logf("httpserver: refused %s: %d %s", c.remote, f.status, f.reason)
		http.Error(w, http.StatusText(f.status)+": "+f.reason, f.status)
	}
	w.finish()
	c.linger()
}

// linger ends what is sent, and reads for a while what still comes.
func (c *conn) linger() {
	w, ok := c.rwc.(interface{ CloseWrite() error })
	if !ok || w.CloseWrite() != nil || c.readBy.set(time.Now().Add(lingerTimeout)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, readerFunc(c.Read)) // until the client closes, or the time is over
}

// buffer is an empty buffer for what is written.
func (c *conn) buffer() []byte {
	if c.box == nil {
		c.box, _ = c.server.buffers.Get().(*[]byte)
		if c.box == nil {
			b := make([]byte, 0, bufferSize)
			c.box = &b
		}
		c.out = *c.box
	}
	return c.out[:0]
}

// release gives the buffer of an answer away.
func (c *conn) release() {
	// One that a long head has made grow is not kept: a stream would hold it for as long as it
	// lasts.
	if c.box != nil && cap(c.out) == bufferSize {
		*c.box = c.out[:0]
		c.server.buffers.Put(c.box)
	}
	c.box, c.out = nil, nil
}

// flush writes c.out and then more.
func (c *conn) flush(more []byte) error {
	out := c.out
	c.out = out[:0]
	if len(more) == 0 {
		return c.write(out)
	}
	return c.writeAll(&net.Buffers{out, more})
}

// write writes p, within the write deadline. After an error nothing is written any more.
func (c *conn) write(p []byte) error {
	for c.failed == nil && len(p) > 0 {
		n, err := c.rwc.Write(p)
		p = p[n:]
		c.wrote(err)
	}
	return c.failed
}

// writeAll writes more than one piece, with one system call where the connection can.
func (c *conn) writeAll(p *net.Buffers) error {
	for c.failed == nil && len(*p) > 0 {
		_, err := p.WriteTo(c.rwc)
		c.wrote(err)
	}
	return c.failed
}

func (c *conn) wrote(err error) {
	if err != nil && !c.writeBy.early(err) {
		c.failed = err
		c.leave()
	}
}
