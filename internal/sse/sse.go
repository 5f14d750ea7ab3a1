// Package sse writes and reads event streams (text/event-stream). The writer
// emits only what every known client reads: data lines, one an event. The
// reader takes whatever the standard allows, from providers of all kinds.
package sse

import (
	"bytes"
	"errors"
	"io"
)

// ErrLineBreak is returned for a payload that does not fit on one data line.
var ErrLineBreak = errors.New("sse: payload has a line break")

// keptBytes is the largest buffer kept between events; events are far smaller
// but for a rare tool call.
const keptBytes = 64 << 10

// Writer writes events, each with one Write and one flush, so that a client
// sees it at once and never sees half of it. It is not safe for concurrent use.
type Writer struct {
	w     io.Writer
	flush func() error
	buf   []byte
}

// NewWriter returns a writer of events to w. flush is called after every
// event; it may be nil.
func NewWriter(w io.Writer, flush func() error) *Writer {
	return &Writer{w: w, flush: flush}
}

// Send writes payload as one event. payload must hold no line break, as
// compact JSON does not: else ErrLineBreak, and nothing is written. Any other
// error comes from the writer or the flush, and the stream is then lost.
func (w *Writer) Send(payload []byte) error {
	if bytes.IndexByte(payload, '\n') >= 0 || bytes.IndexByte(payload, '\r') >= 0 {
		return ErrLineBreak
	}
	w.buf = append(w.buf[:0], "data: "...)
	w.buf = append(w.buf, payload...)
	w.buf = append(w.buf, "\n\n"...)
	_, err := w.w.Write(w.buf)
	if cap(w.buf) > keptBytes {
		w.buf = nil
	}
	if err != nil || w.flush == nil {
		return err
	}
	return w.flush()
}

// Done writes the event that ends a complete stream: data: [DONE]. A stream
// that failed must not have it.
func (w *Writer) Done() error { return w.Send([]byte("[DONE]")) }
