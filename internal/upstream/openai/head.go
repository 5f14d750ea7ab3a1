package openai

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
)

// head is what is kept of the head of an answer: net/http keeps all fields, in a map
// and in memory of their own, which costs as much as the rest of a short answer.
type head struct {
	status       int
	contentType  string
	encoding     string
	retryAfter   string
	retryAfterMs string

	chunked bool
	length  int64 // -1 when it is not said
	close   bool  // the connection is not used again
}

// eventStream is the type of an answer as it is asked for.
const eventStream = "text/event-stream"

// errHeadForm is an answer that is not HTTP/1.
var errHeadForm = errors.New("no HTTP/1")

// readHead reads a status line and the fields up to the blank line.
func readHead(r *bufio.Reader) (h head, err error) {
	line, err := readLine(r)
	if err != nil {
		return h, err
	}
	version, rest, _ := bytes.Cut(line, []byte(" "))
	code, _, _ := bytes.Cut(rest, []byte(" "))
	major, minor, ok := http.ParseHTTPVersion(string(version))
	if h.status, err = strconv.Atoi(string(code)); err != nil || !ok || major != 1 || len(code) != 3 || h.status < 100 {
		return h, fmt.Errorf("%w: it begins with %.40q", errHeadForm, line)
	}
	h.length, h.close = -1, minor == 0
	for {
		line, err := readLine(r)
		if errors.Is(err, io.EOF) {
			return h, io.ErrUnexpectedEOF
		}
		if len(line) == 0 && err == nil && h.chunked && minor == 0 {
			err = fmt.Errorf("%w: Transfer-Encoding in HTTP/1.0", errHeadForm)
		}
		if err != nil || len(line) == 0 {
			return h, err
		}
		if err := h.field(line); err != nil {
			return h, err
		}
	}
}

// field takes one line. What is said twice and differently cannot be trusted.
func (h *head) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	value = bytes.Trim(value, " \t")
	if !ok || len(name) == 0 || bytes.ContainsFunc(name, notToken) || bytes.ContainsFunc(value, control) {
		return fmt.Errorf("%w: the field %.40q", errHeadForm, line)
	}
	is := func(known string) bool { return len(name) == len(known) && strings.EqualFold(string(name), known) }
	switch {
	case is("Content-Type"):
		h.contentType = keep(h.contentType, value)
	case is("Content-Encoding"):
		h.encoding = keep(h.encoding, value)
	case is("Retry-After"):
		h.retryAfter = keep(h.retryAfter, value)
	case is("Retry-After-Ms"):
		h.retryAfterMs = keep(h.retryAfterMs, value)
	case is("Connection"):
		h.close = h.close || bytes.Contains(bytes.ToLower(value), []byte("close"))
	case is("Transfer-Encoding"):
		if h.chunked || !bytes.EqualFold(value, []byte("chunked")) {
			return fmt.Errorf("%w: Transfer-Encoding %.40q", errHeadForm, value)
		}
		h.chunked = true
	case is("Content-Length"):
		n, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil || h.length >= 0 && h.length != int64(n) {
			return fmt.Errorf("%w: Content-Length %.40q", errHeadForm, value)
		}
		h.length = int64(n)
	}
	return nil
}

// notToken finds what no name of a field may have.
func notToken(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// control finds what no value may have.
func control(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// keep returns the first value of a field; the usual one needs no memory.
func keep(first string, value []byte) string {
	switch {
	case first != "":
		return first
	case string(value) == eventStream:
		return eventStream
	}
	return string(value)
}

// readLine returns a line without its end. It is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line) // the budget of the connection bounds it
		line, err = r.ReadBytes('\n')
		line = append(long, line...)
	}
	if err != nil {
		if err == io.EOF && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

// body is what follows the head: until its end is read, the connection is its.
type body struct {
	r       *bufio.Reader
	chunks  io.Reader // nil unless chunked
	left    int64     // of a length that was said
	unknown bool      // it ends with the connection
}

// begin makes b the body that h announces.
func (b *body) begin(h *head, r *bufio.Reader) {
	*b = body{r: r, left: h.length}
	switch {
	case h.status < 200 || h.status == http.StatusNoContent || h.status == http.StatusNotModified:
		b.left = 0
	case h.chunked:
		b.chunks = httputil.NewChunkedReader(r)
	case h.length < 0:
		b.unknown, h.close = true, true
	}
	if h.chunked && h.length >= 0 {
		h.close = true // two ways to find the end: whoever stands between may have taken the other
	}
}

// Read ends with io.EOF when the connection can be used again, unless it was to close.
func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.chunks != nil:
		n, err := b.chunks.Read(p)
		if errors.Is(err, io.EOF) {
			b.chunks, b.left = nil, 0
			err = b.trailer()
		}
		return n, err
	case b.unknown:
		return b.r.Read(p)
	case b.left == 0:
		return 0, io.EOF
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if err == io.EOF && b.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// trailer reads the blank line behind the last chunk. A trailer was not asked for: it
// costs the connection.
func (b *body) trailer() error {
	line, err := b.r.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err != nil: // also a line that is longer than the buffer
		return err
	case string(line) != "\r\n":
		return fmt.Errorf("%w: it ends with %.40q", errHeadForm, line)
	}
	return io.EOF
}
