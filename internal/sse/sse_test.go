package sse_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/sse"
)

// writes records every Write by itself.
type writes struct {
	all []string
	err error
}

func (w *writes) Write(p []byte) (int, error) {
	w.all = append(w.all, string(p))
	return len(p), w.err
}

func TestWriter(t *testing.T) {
	t.Parallel()
	var out writes
	flushes := 0
	w := sse.NewWriter(&out, func() error { flushes++; return nil })
	for _, send := range []func() error{
		func() error { return w.Send([]byte(`{"a":1}`)) },
		func() error { return w.Send(nil) },
		w.Done,
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"data: {\"a\":1}\n\n", "data: \n\n", "data: [DONE]\n\n"}
	if diff := cmp.Diff(want, out.all); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if flushes != 3 {
		t.Errorf("flushes = %d, want 3", flushes)
	}
}

func TestWriter_Errors(t *testing.T) {
	t.Parallel()
	var out writes
	for _, payload := range []string{"a\nb", "a\r"} {
		if err := sse.NewWriter(&out, nil).Send([]byte(payload)); !errors.Is(err, sse.ErrLineBreak) {
			t.Errorf("Send(%q) = %v, want ErrLineBreak", payload, err)
		}
	}
	if len(out.all) > 0 {
		t.Errorf("wrote %q, want nothing", out.all)
	}
	boom := errors.New("boom")
	flushed := false
	w := sse.NewWriter(&writes{err: boom}, func() error { flushed = true; return nil })
	if err := w.Done(); !errors.Is(err, boom) || flushed {
		t.Errorf("Done = %v, flushed %v; want the error of Write and no flush", err, flushed)
	}
	if err := sse.NewWriter(&out, func() error { return boom }).Done(); !errors.Is(err, boom) {
		t.Errorf("Done = %v, want the error of flush", err)
	}
}

type event struct{ Name, ID, Data string }

func readAll(r *sse.Reader) (events []event, err error) {
	for {
		e, err := r.Next()
		if err != nil {
			return events, err
		}
		events = append(events, event{string(e.Name), string(e.ID), string(e.Data)})
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     []event
		err      error
	}{
		{"LF", "data: a\n\ndata: b\n\n", []event{{Data: "a"}, {Data: "b"}}, io.EOF},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []event{{Data: "a"}, {Data: "b"}}, io.EOF},
		{"CR", "data: a\r\rdata: b\r\r", []event{{Data: "a"}, {Data: "b"}}, io.EOF},
		{"mixed ends", "data: a\n\r\ndata: b\r\n\rdata: c\r\n\n", []event{{Data: "a"}, {Data: "b"}, {Data: "c"}}, io.EOF},
		{"no space", "data:a\ndata:  b\n\n", []event{{Data: "a\n b"}}, io.EOF},
		{"multi-line", "data: a\ndata:\ndata: b\n\n", []event{{Data: "a\n\nb"}}, io.EOF},
		{"data without colon", "data\n\n", []event{{Data: ""}}, io.EOF},
		{"comments", ": hi\n\n:\ndata: a\n: x\n\n", []event{{Data: "a"}}, io.EOF},
		{"BOM", "\ufeffdata: a\n\n\ufeffdata: b\n\n", []event{{Data: "a"}}, io.EOF},
		{"fields", "event: ping\nid: 7\nretry: 5\nfoo: x\ndata: {}\n\ndata: b\n\n", []event{{"ping", "7", "{}"}, {Data: "b"}}, io.EOF},
		{"event without data", "event: ping\n\ndata: b\n\n", []event{{Data: "b"}}, io.EOF},
		{"colons", "data: a: b\n\n", []event{{Data: "a: b"}}, io.EOF},
		{"no blank line at the end", "data: a\n\ndata: [DONE]\n", []event{{Data: "a"}, {Data: "[DONE]"}}, io.EOF},
		{"cut in a line", "data: a\n\ndata: {\"x", []event{{Data: "a"}}, io.ErrUnexpectedEOF},
		{"cut after a line", "data: a\ndata: b", nil, io.ErrUnexpectedEOF},
		{"empty", "", nil, io.EOF},
		{"blank lines", "\n\r\n\r\n\n", nil, io.EOF},
		{"long line", "data: " + strings.Repeat("x", 100) + "\n\n", nil, sse.ErrTooLong},
		{"longest line", "data: " + strings.Repeat("x", 58) + "\n\n", []event{{Data: strings.Repeat("x", 58)}}, io.EOF},
		{"endless line", strings.Repeat("x", 1000), nil, sse.ErrTooLong},
		{"long event", strings.Repeat("data: 0123456789\n", 10), nil, sse.ErrTooLong},
	}
	for _, tt := range tests {
		for kind, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "data with EOF": iotest.DataErrReader,
		} {
			t.Run(tt.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				r := sse.NewReader(wrap(strings.NewReader(tt.in)), 64)
				got, err := readAll(r)
				if diff := cmp.Diff(tt.want, got); diff != "" || !errors.Is(err, tt.err) {
					t.Errorf("events of %q: error %v, want %v (-want +got):\n%s", tt.in, err, tt.err, diff)
				}
				if _, again := r.Next(); !errors.Is(again, tt.err) {
					t.Errorf("Next after the end = %v, want %v", again, tt.err)
				}
			})
		}
	}
}

// TestReader_DoesNotWait reads an event whose blank line ends in CR while the
// other side is silent: the LF that may follow must not be waited for.
func TestReader_DoesNotWait(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	r := sse.NewReader(in, 64)
	for _, text := range []string{"data: a\r\n\r", "\ndata: b\n\n"} {
		go func() { _, _ = io.WriteString(out, text) }()
		e, err := r.Next()
		if err != nil || e.Done() {
			t.Fatalf("Next after %q = %+v, %v", text, e, err)
		}
	}
	boom := errors.New("boom")
	_ = out.CloseWithError(boom)
	if _, err := r.Next(); !errors.Is(err, boom) {
		t.Errorf("Next = %v, want the error of the reader", err)
	}
}

func TestReader_Stuck(t *testing.T) {
	t.Parallel()
	if _, err := sse.NewReader(stuck{}, 64).Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("Next = %v, want io.ErrNoProgress", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	w := sse.NewWriter(&buf, nil)
	big := strings.Repeat("é", 50_000)
	for _, s := range []string{"a", "", big, "b"} {
		if err := w.Send([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Done()
	got, err := readAll(sse.NewReader(&buf, 1<<20))
	want := []event{{Data: "a"}, {}, {Data: big}, {Data: "b"}, {Data: "[DONE]"}}
	if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, io.EOF) {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// FuzzReader checks that events do not depend on how the bytes arrive, and
// that nothing grows over the limit.
func FuzzReader(f *testing.F) {
	f.Add([]byte("data: a\n\ndata: [DONE]\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 256
		whole, err := readAll(sse.NewReader(bytes.NewReader(in), limit))
		bytewise, err2 := readAll(sse.NewReader(iotest.OneByteReader(bytes.NewReader(in)), limit))
		if diff := cmp.Diff(whole, bytewise); diff != "" || err.Error() != err2.Error() {
			t.Errorf("whole %v, bytewise %v (-whole +bytewise):\n%s", err, err2, diff)
		}
		for _, e := range whole {
			if len(e.Data) > limit || strings.ContainsAny(e.Name+e.ID, "\r\n") || strings.Contains(e.Data, "\r") {
				t.Errorf("event %+v", e)
			}
		}
	})
}

func BenchmarkReader(b *testing.B) {
	stream := bytes.Repeat([]byte("data: "+strings.Repeat("x", 220)+"\n\n"), 1000)
	src := bytes.NewReader(stream)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		src.Reset(stream)
		r := sse.NewReader(src, 1<<20)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	}
}

func BenchmarkWriter(b *testing.B) {
	w := sse.NewWriter(io.Discard, nil)
	payload := bytes.Repeat([]byte("x"), 220)
	b.ReportAllocs()
	for b.Loop() {
		_ = w.Send(payload)
	}
}
