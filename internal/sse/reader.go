package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrTooLong is returned for a line, or the data of one event, over the limit.
var ErrTooLong = errors.New("sse: event too long")

// Event is one event of a stream. Its slices are valid until the next call of
// Next.
type Event struct {
	Name []byte // of the field event; empty for the usual kind
	ID   []byte // of the field id, if this event had one
	Data []byte // all data lines, joined by \n
}

// Done reports whether the event is the terminator [DONE].
func (e Event) Done() bool { return string(bytes.TrimSpace(e.Data)) == "[DONE]" }

// Reader reads events as they arrive: an event is returned as soon as the
// blank line that ends it is there, without waiting for more. Once its buffers
// have grown it does not allocate. It is not safe for concurrent use.
type Reader struct {
	r     io.Reader
	limit int

	buf        []byte // unread bytes are buf[start:end]
	start, end int
	err        error // from r; reported when the buffer is used up

	began  bool // the first line, which may have a byte order mark, was read
	skipLF bool // the last line ended in CR: a LF next belongs to it

	event   Event
	hasData bool
}

// NewReader returns a reader of events from r. limit bounds a line and the
// data of an event, in bytes, and so the memory it takes to about twice that.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: r, limit: limit, buf: make([]byte, min(4096, limit+1))}
}

// Reset makes r read another stream from its beginning, as a new reader with the same
// limit would. It keeps its buffers, unless they have grown.
func (r *Reader) Reset(from io.Reader) {
	buf, event := r.buf, r.event
	if len(buf) > keptBytes || cap(event.Data) > keptBytes {
		buf, event = make([]byte, min(4096, r.limit+1)), Event{}
	}
	*r = Reader{r: from, limit: r.limit, buf: buf, event: event}
}

// Next returns the next event that has data. At the end of the stream it
// returns io.EOF, or io.ErrUnexpectedEOF when the stream stops within a line.
// An event whose lines are whole but which no blank line ends is returned
// before io.EOF: some servers leave the last one out. Comments, retry and
// unknown fields are skipped. After an error every call returns it again.
func (r *Reader) Next() (Event, error) {
	r.reset()
	for {
		line, err := r.line()
		if err != nil {
			if errors.Is(err, io.EOF) && r.hasData {
				return r.event, nil
			}
			return Event{}, err
		}
		if len(line) == 0 {
			if r.hasData {
				return r.event, nil
			}
			// The standard drops an event without data, name and all.
			r.reset()
			continue
		}
		if err := r.field(line); err != nil {
			return Event{}, err
		}
	}
}

func (r *Reader) reset() {
	r.event = Event{Name: r.event.Name[:0], ID: r.event.ID[:0], Data: r.event.Data[:0]}
	r.hasData = false
}

// field takes one line that is not blank.
func (r *Reader) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if len(r.event.Data)+1+len(value) > r.limit {
			return r.fail(fmt.Errorf("%w: more than %d bytes of data", ErrTooLong, r.limit))
		}
		if r.hasData {
			r.event.Data = append(r.event.Data, '\n')
		}
		r.event.Data = append(r.event.Data, value...)
		r.hasData = true
	case "event":
		r.event.Name = append(r.event.Name[:0], value...)
	case "id":
		r.event.ID = append(r.event.ID[:0], value...)
	}
	return nil
}

// fail makes err the answer to every later call.
func (r *Reader) fail(err error) error {
	r.start, r.end, r.err = 0, 0, err
	return err
}

// line returns the next line without its end: LF, CR or CRLF. It is valid
// until the next call.
func (r *Reader) line() ([]byte, error) {
	seen := 0 // bytes after start already searched
	for {
		if r.skipLF && r.start < r.end {
			r.skipLF = false
			if r.buf[r.start] == '\n' {
				r.start++
			}
		}
		pending := r.buf[r.start:r.end]
		if i := indexLineEnd(pending[seen:]); i >= 0 {
			line := pending[:seen+i]
			// Whether LF follows is asked later: it may not have arrived.
			r.skipLF = pending[seen+i] == '\r'
			r.start += len(line) + 1
			return r.first(line), nil
		}
		seen = len(pending)
		if seen > r.limit {
			return nil, r.fail(fmt.Errorf("%w: a line of more than %d bytes", ErrTooLong, r.limit))
		}
		if r.err != nil {
			if errors.Is(r.err, io.EOF) && seen > 0 {
				return nil, r.fail(io.ErrUnexpectedEOF)
			}
			return nil, r.err
		}
		r.fill()
	}
}

// first removes the byte order mark from the first line.
func (r *Reader) first(line []byte) []byte {
	if !r.began {
		r.began = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	return line
}

// indexLineEnd is bytes.IndexAny(b, "\r\n"), but fast: CR is rare, so only the
// part before the LF is searched for it.
func indexLineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// fill reads once more, making room first.
func (r *Reader) fill() {
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
		r.end -= r.start
		r.start = 0
	}
	if r.end == len(r.buf) {
		// One byte over the limit is enough to see that it is broken.
		bigger := make([]byte, min(2*len(r.buf), r.limit+1))
		copy(bigger, r.buf[:r.end])
		r.buf = bigger
	}
	// A reader may return 0, nil now and then, but not for ever.
	for range 100 {
		n, err := r.r.Read(r.buf[r.end:])
		r.end += n
		if err != nil {
			r.err = err
		}
		if n > 0 || err != nil {
			return
		}
	}
	r.err = io.ErrNoProgress
}
