package httpserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// maxPending is how long an answer without a Content-Length may be to be given one.
// net/http has the same number.
const maxPending = 2048

// errAnswered is returned to who uses a response after its handler.
var errAnswered = errors.New("httpserver: the handler has returned")

// response is the answer to one request. Its head is written in two steps: the handler's
// fields by WriteHeader, because they are fixed then, and the server's by seal, when it
// is known how long the body is.
type response struct {
	conn   *conn
	req    *http.Request
	header http.Header
	body   body

	status    int   // 0 before WriteHeader
	length    int64 // of the body, or -1
	written   int64 // of the body, by the handler
	sealed    bool  // the head is complete
	chunked   bool
	closing   bool // the connection ends with this answer
	wantClose bool // by the client
	keepAlive bool // by a client that speaks HTTP/1.0
	pending   []byte

	given given
	over  atomic.Bool // the handler has returned
}

// given is what the handler's header says of what the server decides.
type given struct {
	connection []string
	date       bool
	noSniff    bool // there is a Content-Type, or a Content-Encoding that hides it
}

func (w *response) Header() http.Header { return w.header }

// SetReadDeadline is for [http.ResponseController].
func (w *response) SetReadDeadline(t time.Time) error {
	if w.over.Load() {
		return errAnswered
	}
	return w.conn.readBy.set(t)
}

// SetWriteDeadline is for [http.ResponseController]. It may be called while a write is
// under way, which it then bounds.
func (w *response) SetWriteDeadline(t time.Time) error {
	if w.over.Load() {
		return errAnswered
	}
	return w.conn.writeBy.set(t)
}

func (w *response) WriteHeader(status int) {
	if w.status != 0 {
		w.conn.server.logf("httpserver: superfluous WriteHeader(%d) to %s", status, w.conn.remote)
		return
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		if status != http.StatusContinue {
			w.body.answered()
		}
		_ = w.conn.write(append(w.appendFields(nil, status), "\r\n"...)) // the answer itself will fail too
		return
	}
	w.body.answered()
	w.status = status
	w.conn.out = w.appendFields(w.conn.buffer(), status)
}

// appendFields appends the status line and the handler's fields.
func (w *response) appendFields(b []byte, status int) []byte {
	if w.req.ProtoAtLeast(1, 1) {
		b = append(b, "HTTP/1.1 "...)
	} else {
		b = append(b, "HTTP/1.0 "...)
	}
	b = strconv.AppendInt(b, int64(status), 10)
	if text := http.StatusText(status); text != "" {
		b = append(append(b, ' '), text...)
	} else {
		b = fmt.Appendf(b, " status code %d", status)
	}
	b = append(b, "\r\n"...)
	w.given = given{}
	for name, values := range w.header {
		switch name {
		case "Content-Length":
			w.declare(values)
			if w.length < 0 || !bodyAllowed(status) {
				continue
			}
			values = values[:1]
		case "Connection":
			w.given.connection = values
			continue
		case "Transfer-Encoding", "Trailer":
			continue
		case "Date":
			w.given.date = true
		case "Content-Type":
			w.given.noSniff = true
			if status == http.StatusNotModified {
				continue
			}
		case "Content-Encoding":
			w.given.noSniff = w.given.noSniff || slices.ContainsFunc(values, func(v string) bool { return v != "" })
		default:
			if !validName(name) {
				continue
			}
		}
		for _, v := range values {
			b = appendField(b, name, v)
		}
	}
	return b
}

// declare takes the length that the handler announces.
func (w *response) declare(values []string) {
	w.length = -1
	if len(values) == 0 || values[0] == "" {
		return
	}
	if n, err := strconv.ParseUint(values[0], 10, 63); err == nil {
		w.length = int64(n)
	} else {
		w.conn.server.logf("httpserver: invalid Content-Length of %q", values[0])
	}
}

// appendField appends one field. A value stays on its line, whatever it holds.
func appendField(b []byte, name, value string) []byte {
	if strings.IndexByte(value, '\n') >= 0 || strings.IndexByte(value, '\r') >= 0 {
		value = strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
	}
	b = append(append(b, name...), ": "...)
	b = append(b, textproto.TrimString(value)...)
	return append(b, "\r\n"...)
}

// seal completes the head. start is the beginning of the body, all of it if whole.
func (w *response) seal(start []byte, whole bool) {
	w.sealed = true
	isHead, allowed := w.req.Method == http.MethodHead, bodyAllowed(w.status)
	b := w.conn.out
	if whole && allowed && w.length < 0 && (!isHead || len(start) > 0) {
		w.length = int64(len(start))
		b = strconv.AppendInt(append(b, "Content-Length: "...), w.length, 10)
		b = append(b, "\r\n"...)
	}
	if allowed && !w.given.noSniff && len(start) > 0 {
		b = appendField(b, "Content-Type", http.DetectContentType(start))
	}
	if !w.given.date {
		b = w.conn.server.appendDate(b)
	}
	bodiless := isHead || !allowed
	w.chunked = !bodiless && w.length < 0 && w.req.ProtoAtLeast(1, 1)
	if w.chunked {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	w.conn.out = append(w.appendConnection(b, bodiless), "\r\n"...)
}

// appendConnection decides whether the connection stays, and says so.
func (w *response) appendConnection(b []byte, bodiless bool) []byte {
	is11 := w.req.ProtoAtLeast(1, 1)
	asked := len(w.given.connection) > 0 && hasToken(w.given.connection[0], "close")
	stays := is11 || w.keepAlive && (bodiless || w.length >= 0)
	if asked || !stays || w.wantClose || w.conn.server.stopping.Load() || w.body.waiting() {
		w.closing = true
	}
	// Many clients send the whole request before they read, so what they send is read before
	// the answer. Where the connection ends anyway, linger reads it behind the answer.
	if !w.closing && !w.body.finish() {
		w.closing = true
	}
	switch {
	case w.closing && (is11 || asked):
		return append(b, "Connection: close\r\n"...)
	case w.closing:
		return b
	case w.given.connection == nil && !is11:
		return append(b, "Connection: keep-alive\r\n"...)
	}
	for _, v := range w.given.connection {
		b = appendField(b, "Connection", v)
	}
	return b
}

func (w *response) Write(p []byte) (int, error) {
	if w.over.Load() {
		return 0, errAnswered
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	w.written += int64(len(p))
	if w.length >= 0 && w.written > w.length {
		return 0, http.ErrContentLength
	}
	n := 0
	if !w.sealed {
		if w.length < 0 {
			n = min(len(p), maxPending-len(w.pending))
			w.pending = append(w.pending, p[:n]...)
			if n == len(p) {
				return n, nil
			}
		}
		if err := w.release(p); err != nil {
			return 0, err
		}
	}
	if err := w.emit(p[n:]); err != nil {
		return n, err
	}
	return len(p), nil
}

// release seals the head and sends what was held back for it; else next is what the body
// begins with.
func (w *response) release(next []byte) error {
	start := w.pending
	if len(start) == 0 {
		start = next
	}
	w.seal(start, false)
	held := w.pending
	w.pending = nil
	return w.emit(held)
}

// emit frames p. What the buffer cannot gather goes out with it, in one system call.
func (w *response) emit(p []byte) error {
	c := w.conn
	if len(p) == 0 || w.req.Method == http.MethodHead {
		return c.failed
	}
	if w.chunked {
		c.out = strconv.AppendInt(c.out, int64(len(p)), 16)
		c.out = append(c.out, "\r\n"...)
	}
	if len(c.out)+len(p)+len("\r\n0\r\n\r\n") > cap(c.out) {
		if err := c.flush(p); err != nil {
			return err
		}
	} else {
		c.out = append(c.out, p...)
	}
	if w.chunked {
		c.out = append(c.out, "\r\n"...)
	}
	return c.failed
}

// FlushError sends what was written so far, in one write.
func (w *response) FlushError() error {
	if w.over.Load() {
		return errAnswered
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.sealed {
		if err := w.release(nil); err != nil {
			return err
		}
	}
	// What flushes is a stream: it may last, and needs nothing to read into.
	if c := w.conn; c.in != nil && c.in.Buffered() == 0 && w.body.over() {
		c.rest()
	}
	return w.conn.flush(nil)
}

// Flush is [http.Flusher]'s; FlushError says what went wrong.
func (w *response) Flush() { _ = w.FlushError() }

// finish completes the answer and reports whether the connection can serve another request.
func (w *response) finish() bool {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.over.Store(true)
	if !w.sealed {
		w.seal(w.pending, true)
		_ = w.emit(w.pending) // flush tells
	}
	if w.chunked {
		w.conn.out = append(w.conn.out, "0\r\n\r\n"...)
	}
	err := w.conn.flush(nil)
	if w.req.MultipartForm != nil {
		_ = w.req.MultipartForm.RemoveAll() // temporary files; nobody could do more about them
	}
	// A body shorter than its announced length leaves the client waiting for the rest.
	short := w.length >= 0 && w.written != w.length && bodyAllowed(w.status) && w.req.Method != http.MethodHead
	return err == nil && !w.closing && !short && w.body.finish()
}

// bodyAllowed reports whether answers of the status have a body (RFC 9110 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
