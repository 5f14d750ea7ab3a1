package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// streamed is the text of a stream.
func streamed(t testing.TB, body string) string {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(body) {
		event, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: ")
		if !ok || event == "[DONE]" {
			continue
		}
		var v struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		must(t, json.Unmarshal([]byte(event), &v))
		if len(v.Choices) > 0 {
			text.WriteString(v.Choices[0].Delta.Content)
		}
	}
	return text.String()
}

var varying = regexp.MustCompile(`"id":"chatcmpl-[A-Za-z0-9]{29}",("object":"[a-z.]+","created":)\d{10},`)

// 63, 65: the bytes of a stream are the contract; only id and time vary.
func TestGolden(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	for name, extra := range map[string]string{
		"stream":       `,"stream":true`,
		"stream_false": `,"stream":true,"stream_options":{"include_usage":false}`,
		"stream_usage": `,"stream":true,"stream_options":{"include_usage":true}`,
	} {
		r := d.post(t, body(extra))
		got := varying.ReplaceAllString(r.body, `"id":"chatcmpl-X",${1}0,`)
		want, err := os.ReadFile("testdata/" + strings.TrimSuffix(name, "_false") + ".sse")
		must(t, err)
		if r.StatusCode != 200 || r.err != nil || got != string(want) {
			t.Errorf("%s: %d, %v\n%s\nwant\n%s", name, r.StatusCode, r.err, got, want)
		}
		if ids := regexp.MustCompile(`"id":"[^"]*","object":"[^"]*","created":\d+`).FindAllString(r.body, -1); len(ids) < 4 || strings.Count(r.body, ids[0]) != len(ids) {
			t.Errorf("%s: heads differ: %v", name, ids)
		}
	}
}

// 64
func TestStreamHeaders(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	r := d.post(t, body(`,"stream":true`), "Accept", "application/json", "Accept-Encoding", "gzip, deflate")
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no",
		"Content-Length": "", "Content-Encoding": "",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if len(r.TransferEncoding) != 1 || r.TransferEncoding[0] != "chunked" {
		t.Errorf("transfer encoding %v", r.TransferEncoding)
	}
	// A client of HTTP/1.0 gets the same events, ended by the connection.
	r = d.raw(t, strings.Replace(d.head("Authorization: Bearer "+d.key, fmt.Sprintf("Content-Length: %d", len(body(`,"stream":true`)))), "HTTP/1.1", "HTTP/1.0", 1)+body(`,"stream":true`))
	if streamed(t, r.body) != "Hello" || !strings.HasSuffix(r.body, "data: [DONE]\n\n") || len(r.TransferEncoding) != 0 {
		t.Errorf("HTTP/1.0: %v %q", r.Header, r.body)
	}
}

// 68: every event leaves at once, while the model still computes.
func TestFlush(t *testing.T) {
	t.Parallel()
	first, second := make(chan struct{}), make(chan struct{})
	d := open(t, provider(upstreamtest.Text("a"), upstreamtest.Wait(first), upstreamtest.Text("b"), upstreamtest.Wait(second), upstreamtest.Finish(wire.FinishStop)))
	res, in := d.begin(t, body(`,"stream":true`))
	for _, want := range []string{`"role":"assistant"`, `{"content":"a"}`} {
		if got := next(t, in); !strings.Contains(got, want) {
			t.Errorf("event %q, want %s", got, want)
		}
	}
	close(first)
	if got := next(t, in); !strings.Contains(got, `{"content":"b"}`) {
		t.Errorf("event %q, want b", got)
	}
	close(second)
	rest, err := io.ReadAll(in)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	must(t, res.Body.Close())
}

// begin posts and returns once the headers are there.
func (d *door) begin(t testing.TB, body string) (*http.Response, *bufio.Reader) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", d.URL+"/v1/chat/completions", strings.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+d.key)
	res, err := d.client.Do(req)
	must(t, err)
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != 200 {
		t.Fatalf("status %d", res.StatusCode)
	}
	return res, bufio.NewReader(res.Body)
}

// next reads one event.
func next(t testing.TB, in *bufio.Reader) string {
	t.Helper()
	event, err := in.ReadString('\n')
	must(t, err)
	if end, err := in.ReadString('\n'); err != nil || end != "\n" {
		t.Fatalf("after %q comes %q, %v", event, end, err)
	}
	return event
}

// 69: an emoji in pieces, and half a one that never gets its rest.
func TestSplitRunes(t *testing.T) {
	t.Parallel()
	const emoji = "😀"
	p := provider(upstreamtest.Text("a"+emoji[:1], emoji[1:3], emoji[3:]+"é"[:1], "é"[1:], emoji[:2]), upstreamtest.Finish(wire.FinishStop))
	d := open(t, p)
	want := "a" + emoji + "é" + "\ufffd\ufffd"
	if got := streamed(t, d.post(t, body(`,"stream":true`)).body); got != want {
		t.Errorf("streamed %q, want %q", got, want)
	}
	if got := content(t, d.post(t, body("")).body); got != want {
		t.Errorf("whole %q, want %q", got, want)
	}
}

// 70: every line is short enough for naive readers, which check sees to.
func TestHugeDelta(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("\x01é\"x", 1<<18)
	d := open(t, provider(upstreamtest.Text(huge), upstreamtest.Finish(wire.FinishStop)))
	if got := streamed(t, d.post(t, body(`,"stream":true`)).body); got != huge {
		t.Errorf("streamed %d bytes, want %d, or others", len(got), len(huge))
	}
	if got := content(t, d.post(t, body("")).body); got != huge {
		t.Errorf("whole %d bytes, want %d, or others", len(got), len(huge))
	}
}

// 55, 74: what fails after the first byte ends with the error event and no clean end.
// On the socket: no terminating chunk.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	shutdown := make(chan struct{})
	for _, tt := range []struct {
		name string
		step upstreamtest.Step
		code string
	}{
		{"cut", upstreamtest.Fail(upstream.Cut), "upstream_error"},
		{"timeout", upstreamtest.Fail(upstream.Timeout), "upstream_timeout"},
		{"no finish", upstreamtest.Return(nil), "upstream_error"},
		{"panic", upstreamtest.Panic("bug"), "internal_error"},
		{"shutdown", upstreamtest.Wait(shutdown), "server_is_overloaded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := make(chan struct{})
			d := open(t, provider(upstreamtest.Text("a"), reached(text), tt.step))
			if tt.name == "shutdown" {
				go func() {
					<-text
					d.end(chat.ErrShutdown)
				}()
			}
			b := body(`,"stream":true`)
			c := d.dial(t)
			_, err := io.WriteString(c, d.head("Authorization: Bearer "+d.key, fmt.Sprintf("Content-Length: %d", len(b)))+b)
			must(t, err)
			raw, err := io.ReadAll(c)
			if err != nil {
				t.Logf("the connection ends with %v", err) // a reset is as good
			}
			if s := string(raw); strings.Contains(s, "[DONE]") || strings.HasSuffix(s, "0\r\n\r\n") || strings.Contains(s, `"finish_reason":"`) || strings.Contains(s, "script") {
				t.Errorf("it looks whole: %q", raw)
			}
			res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(raw))), nil)
			must(t, err)
			r := read(t, res)
			events := strings.Split(strings.TrimSuffix(r.body, "\n\n"), "\n\n")
			last := events[len(events)-1]
			if !errors.Is(r.err, io.ErrUnexpectedEOF) || len(events) != 3 || !strings.HasPrefix(last, `data: {"error":{"message":"`) || !strings.HasSuffix(last, `"param":null,"code":"`+tt.code+`"}}`) {
				t.Errorf("%v, events %q, want the last with %s", r.err, events, tt.code)
			}
			d.Close()
			if b := d.ledger.Balance(d.account.ID); b != (ledger.Balance{Granted: credit, Posted: 120}) {
				t.Errorf("Balance = %+v, want the token that was shown posted", b)
			}
			if log := d.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, `"code":"`+tt.code+`"`) || tt.name == "panic" && !strings.Contains(log, "upstreamtest.go:") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// 55: a bug before the first byte is a plain 500 whose cause only the log has.
func TestPanic(t *testing.T) {
	t.Parallel()
	d := open(t, provider(upstreamtest.Panic("the bug")))
	for _, extra := range []string{"", `,"stream":true`} {
		r := d.post(t, body(extra))
		if r.StatusCode != 500 || r.code() != "internal_error" || strings.Contains(r.body, "bug") {
			t.Errorf("%d %s, want 500 internal_error", r.StatusCode, r.body)
		}
	}
	d.Close()
	log := d.log.String()
	if strings.Count(log, "\n") != 2 || strings.Count(log, `"error":"panic: the bug"`) != 2 || !strings.Contains(log, "upstreamtest.go:") || !strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("log: %s", log)
	}
}

// 75: a client that leaves stops the provider, is charged for what was computed and
// leaves one line that is nobody's error.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		text, stopped := make(chan struct{}), make(chan struct{})
		d := open(t, provider(upstreamtest.Text("a", "b"), reached(text), upstreamtest.Do(func(ctx context.Context) error {
			defer close(stopped)
			<-ctx.Done()
			return context.Cause(ctx)
		})))
		b := body(fmt.Sprintf(`,"stream":%v`, stream))
		c := d.dial(t)
		_, err := io.WriteString(c, d.head("Authorization: Bearer "+d.key, fmt.Sprintf("Content-Length: %d", len(b)))+b)
		must(t, err)
		<-text
		must(t, c.Close())
		<-stopped
		d.Close()
		if b := d.ledger.Balance(d.account.ID); b != (ledger.Balance{Granted: credit, Posted: 140}) {
			t.Errorf("stream %v: Balance = %+v, want prompt and two tokens posted", stream, b)
		}
		want := `"code":"client_gone","status":499`
		if stream {
			want = `"code":"client_gone","status":200`
		}
		if log := d.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, want) || !strings.Contains(log, `"level":"INFO"`) {
			t.Errorf("stream %v: log %s, want %s", stream, log, want)
		}
	}
}

// 90: many at once keep to themselves.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	all.Add(100)
	p := upstreamtest.Choice(func(c *upstream.Call) upstreamtest.Script {
		said := c.Request.Messages[0].Content
		return upstreamtest.Script{
			upstreamtest.Text(said + " "),
			upstreamtest.Do(func(context.Context) error { all.Done(); all.Wait(); return nil }), // all have begun
			upstreamtest.Text(said), upstreamtest.Finish(wire.FinishStop),
		}
	})
	d := open(t, p)
	var ids sync.Map
	var done sync.WaitGroup
	for i := range 100 {
		done.Go(func() {
			said := fmt.Sprintf("call-%d", i)
			r := d.post(t, strings.Replace(body(`,"stream":true`), "Hi", said, 1))
			if got, want := streamed(t, r.body), said+" "+said; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			id := varying.FindString(r.body)
			if _, again := ids.LoadOrStore(id, i); again || strings.Count(r.body, id[:44]) != 4 {
				t.Errorf("id %s is not the stream's own", id)
			}
		})
	}
	done.Wait()
	if b := d.ledger.Balance(d.account.ID); b != (ledger.Balance{Granted: credit, Posted: 100 * 140}) {
		t.Errorf("Balance = %+v", b)
	}
}
