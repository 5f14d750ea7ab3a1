package openai

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/parley-ai/parley/internal/sse"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// FuzzStream checks what must hold for whatever a provider sends: an end or an error,
// well-formed events in their order, and no difference by where the bytes are cut.
func FuzzStream(f *testing.F) {
	line := func(data ...string) []byte { return []byte("data: " + strings.Join(data, "\n\ndata: ") + "\n\n") }
	f.Add(line(role, text("Hel"), text("lo END"), finish("stop"), usage, "[DONE]"), false)
	f.Add(line(toolDelta(`"index":0,"id":"call_a","function":{"name":"f","arguments":""}`), toolDelta(`"index":1,"function":{"name":"g","arguments":{"a":1}}`), finish("stop")), true)
	f.Add(line(`{"error":{"message":"no"}}`), false)
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"\xf0\x9f\"}}]}\n\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, tools bool) {
		whole, err := runStream(t, bytes.NewReader(data), tools)
		pieces, again := runStream(t, iotest.OneByteReader(bytes.NewReader(data)), tools)
		if whole != pieces || (err == nil) != (again == nil) {
			t.Errorf("whole: %q, %v; byte by byte: %q, %v", whole, err, pieces, again)
		}
	})
}

// runStream checks the events of a stream and returns them as one text.
func runStream(t *testing.T, r io.Reader, tools bool) (string, error) {
	t.Helper()
	req := &wire.ChatRequest{Stop: []string{"END"}, ResponseFormat: wire.ResponseFormat{Kind: wire.FormatText}, ParallelToolCalls: true}
	if tools {
		req.Tools, req.ToolChoice.Mode = []wire.Tool{{Name: "f"}}, wire.ToolAuto
	}
	w := newWatch(context.Background(), Timeouts{}.withDefaults())
	defer w.stop()
	var out, args strings.Builder
	var finished wire.FinishReason
	calls, completion := 0, 0
	yield := func(e upstream.Event) error {
		if finished != "" || e.Completion < completion || e.Completion > 100 {
			t.Errorf("event %+v after %q and %d tokens", e, finished, completion)
		}
		completion, finished = e.Completion, e.Finish
		if strings.Contains(e.Text, "END") {
			t.Errorf("text %q has the stop", e.Text)
		}
		if d := e.Tool; d != nil {
			if d.ID != "" {
				if d.Index != calls || d.Name == "" || d.Arguments != "" || calls > 0 && args.Len() == 0 {
					t.Errorf("delta %+v after %d calls", d, calls)
				}
				args.Reset()
				calls++
			} else if d.Index != calls-1 || d.Arguments == "" || d.Name != "" {
				t.Errorf("delta %+v after %d calls", d, calls)
			}
			args.WriteString(d.Arguments)
			out.WriteString(d.Name + d.Arguments)
		}
		out.WriteString(e.Text + e.Reasoning + string(e.Finish))
		return nil
	}
	s := newStream(&upstream.Call{Request: req, MaxTokens: 100}, bytesCounter{}, newWords(), "fp", w, yield)
	err := s.run(r, newReader())
	if (err == nil) != (finished != "") {
		t.Errorf("run = %v, finish %q", err, finished)
	}
	if finished == wire.FinishToolCalls && args.Len() == 0 || (calls > 0) != (finished == wire.FinishToolCalls) && finished == wire.FinishStop {
		t.Errorf("finish %q with %d calls, arguments %q", finished, calls, args.String())
	}
	return out.String(), err
}

func TestAppendUnquote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		``: "", `abc`: "abc", `\u0041\u00e9\u20AC`: "Aé€", `\ud83d\ude00`: "😀", `\uD83D\uDE00x`: "😀x",
		`\ud83dx`: "\ufffdx", `\ud83d\n`: "\ufffd\n", `\ud83d\u0041`: "\ufffdA", `x\ude00`: "x\ufffd", `\n\ude00`: "\n\ufffd", "\xf0\x9f": "\xf0\x9f",
		`\ud83d`: "\xed\xa0\xbd", `\ude00\ud83d`: "\xed\xb8\x80\xed\xa0\xbd", `\ud83d\ud83d`: "\ufffd\xed\xa0\xbd", // their other halves may be elsewhere
	} {
		if got := string(appendUnquote(nil, []byte(in))); got != want {
			t.Errorf("appendUnquote(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestDecoder_KeepsNothing(t *testing.T) {
	t.Parallel()
	d := newDecoder()
	data := []byte(text("abc"))
	if _, err := d.decode(data); err != nil {
		t.Fatal(err)
	}
	if string(data) != text("abc") {
		t.Errorf("decode changed its input: %s", data)
	}
	for _, bad := range []string{"", "{", `{"choices":[{"delta":{"content":"x"`, "null", `{"choices":[1]}`, "{}x", "{} 5", `{"a":"\x"}`} {
		if _, err := d.decode([]byte(bad)); !errors.Is(err, errAnswer) {
			t.Errorf("decode(%s) = %v, want errAnswer", bad, err)
		}
	}
	c, err := d.decode([]byte(" {} \n"))
	if err != nil || len(c.pieces) > 0 || c.fault || c.hasUsage {
		t.Errorf("decode({}) after others = %+v, %v", c, err)
	}
}

var benchChunk = []byte(`{"id":"chatcmpl-3a2b1c","object":"chat.completion.chunk","created":1767225600,"model":"org/model","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" quick"},"logprobs":null,"finish_reason":null}],"usage":null}`)

func BenchmarkDecoder(b *testing.B) {
	d := newDecoder()
	b.ReportAllocs()
	b.SetBytes(int64(len(benchChunk)))
	for b.Loop() {
		if _, err := d.decode(benchChunk); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStream measures one event, from its bytes to yield.
func BenchmarkStream(b *testing.B) {
	for name, counter := range map[string]Counter{"bytes": bytesCounter{}, "tiktoken": newTiktoken(b)} {
		b.Run(name, func(b *testing.B) {
			w := newWatch(context.Background(), Timeouts{}.withDefaults())
			defer w.stop()
			req := &wire.ChatRequest{ResponseFormat: wire.ResponseFormat{Kind: wire.FormatText}}
			s := newStream(&upstream.Call{Request: req, MaxTokens: 1 << 30}, counter, newWords(), "fp", w, func(upstream.Event) error { return nil })
			s.decoder = newDecoder()
			events := sse.NewReader(&repeat{data: []byte("data: " + string(benchChunk) + "\n\n")}, maxEventBytes)
			b.ReportAllocs()
			for b.Loop() {
				e, err := events.Next()
				if err != nil {
					b.Fatal(err)
				}
				c, err := s.decoder.decode(e.Data)
				if err != nil {
					b.Fatal(err)
				}
				if err := s.take(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A piece of an answer costs no memory, from a provider's bytes to its event, once its
// words have been seen.
func TestStreamAllocs(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts those of every goroutine
	w := newWatch(t.Context(), Timeouts{}.withDefaults())
	defer w.stop()
	req := &wire.ChatRequest{ResponseFormat: wire.ResponseFormat{Kind: wire.FormatText}}
	s := newStream(&upstream.Call{Request: req, MaxTokens: 1 << 30}, newTiktoken(t), newWords(), "fp", w, func(upstream.Event) error { return nil })
	s.decoder = newDecoder()
	events := sse.NewReader(&repeat{data: []byte("data: " + string(benchChunk) + "\n\n")}, maxEventBytes)
	allocs := testing.AllocsPerRun(1000, func() {
		e, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.decoder.decode(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.take(c); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("a piece costs %v allocations, want 0", allocs)
	}
}

// repeat is its data again and again.
type repeat struct {
	data []byte
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.data[r.at:])
	r.at = (r.at + n) % len(r.data)
	return n, nil
}

func TestFinishReason(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]wire.FinishReason{"eos": "stop", "max_tokens": "length", "function_call": "tool_calls", "content_filter": "content_filter", "abort": "", "error": "", "": ""} {
		if got, ok := finishReason([]byte(name)); got != want || ok != (want != "") {
			t.Errorf("finishReason(%q) = %q, %v", name, got, ok)
		}
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	p := &Provider{options: Options{APIKey: secret}}
	got := p.clean("a\n\x1b[31mb " + secret + strings.Repeat("é", 1000)).Error()
	if !utf8.ValidString(got) || len(got) > maxFaultExcerpt+4 || strings.Contains(got, secret) || !strings.HasPrefix(got, "a [31mb ***é") {
		t.Errorf("clean = %q", got)
	}
}
