package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/httpserver"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/telemetry"
	"github.com/parley-ai/parley/internal/wire"
)

// pad is a valid body of exactly n bytes.
func pad(n int) string {
	b := body(`,"user":""`)
	return strings.Replace(b, `"user":""`, `"user":"`+strings.Repeat("x", n-len(b))+`"`, 1)
}

// unsized hides how long a body is, so that it goes in chunks.
type unsized struct{ io.Reader }

// 36, 37
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	auth := "Bearer " + d.key
	for _, tt := range []struct {
		name   string
		body   io.Reader
		status int
	}{
		{"at the limit", strings.NewReader(pad(api.MaxBodyBytes)), 200},
		{"at the limit, chunked", unsized{strings.NewReader(pad(api.MaxBodyBytes))}, 200},
		{"chunked", unsized{strings.NewReader(body(""))}, 200},
		{"a first read, exactly", strings.NewReader(pad(32 << 10)), 200},
		{"a first read, exactly, chunked", unsized{strings.NewReader(pad(32 << 10))}, 200},
		{"above the limit, chunked", unsized{strings.NewReader(pad(api.MaxBodyBytes + 1))}, 413},
	} {
		r := d.do(t, "POST", "/v1/chat/completions", tt.body, "Authorization", auth)
		if r.StatusCode != tt.status || tt.status == 413 && (r.code() != "request_too_large" || !r.Close) {
			t.Errorf("%s: %d %v %.200s, want %d", tt.name, r.StatusCode, r.Close, r.body, tt.status)
		}
	}
	// A length above the limit is refused before a byte of the body.
	r := d.raw(t, d.head("Authorization: "+auth, fmt.Sprintf("Content-Length: %d", api.MaxBodyBytes+1)))
	if r.StatusCode != 413 || r.code() != "request_too_large" || !r.Close {
		t.Errorf("announced: %d %s", r.StatusCode, r.body)
	}
	if all, own := api.Held(d.Handler, d.account.ID); all != 0 || own != 0 {
		t.Errorf("%d and %d bytes are still counted", all, own)
	}
}

// 38: who is refused is not asked for the body.
func TestExpect(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	b := body("")
	for _, tt := range []struct {
		key    string
		length int
		want   int
	}{
		{"nobody", len(b), 401},
		{d.key, api.MaxBodyBytes + 1, 413},
		{d.key, len(b), 100},
	} {
		c := d.dial(t)
		_, err := io.WriteString(c, d.head("Authorization: Bearer "+tt.key, fmt.Sprintf("Content-Length: %d", tt.length), "Expect: 100-continue"))
		must(t, err)
		in := bufio.NewReader(c)
		res, err := http.ReadResponse(in, nil)
		must(t, err)
		if res.StatusCode != tt.want {
			t.Errorf("first answer %d, want %d", res.StatusCode, tt.want)
		}
		if res.StatusCode != 100 {
			read(t, res)
			continue
		}
		_, err = io.WriteString(c, b)
		must(t, err)
		res, err = http.ReadResponse(in, nil)
		must(t, err)
		if r := read(t, res); r.StatusCode != 200 {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
	}
}

// A body that breaks off is no request, whole as its JSON may look.
func TestBrokenBody(t *testing.T) {
	t.Parallel()
	p := hello()
	d := open(t, p)
	b := body("")
	auth := "Authorization: Bearer " + d.key
	for name, request := range map[string]string{
		"chunked without its end": d.head(auth, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n%s\r\n", len(b), b),
		"shorter than announced":  d.head(auth, fmt.Sprintf("Content-Length: %d", len(b)+1)) + b,
	} {
		c := d.dial(t)
		_, err := io.WriteString(c, request)
		must(t, err)
		must(t, c.(*net.TCPConn).CloseWrite())
		if got, err := io.ReadAll(c); len(got) != 0 {
			t.Errorf("%s: %q, %v, want no answer", name, got, err)
		}
	}
	if r := d.raw(t, d.head(auth, "Transfer-Encoding: chunked")+"zz\r\n"); r.StatusCode != 400 || r.code() != "invalid_body" {
		t.Errorf("chunks that are none: %d %s", r.StatusCode, r.body)
	}
	if n := len(p.Calls()); n != 0 {
		t.Errorf("the provider had %d calls", n)
	}
}

// pipes is a network in memory. Inside a bubble of synctest its deadlines follow the
// bubble's clock.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// stub is keys and chat without rooms: every token is the account of that name, and
// every answer comes from a function.
type stub func(ctx context.Context, emit chat.Emitter) error

func (stub) Authenticate(values []string, _ time.Time) (*account.Principal, error) {
	return &account.Principal{Account: &account.Account{ID: strings.Join(values, ",")}, Plan: &account.Plan{}, Scopes: account.DefaultScopes}, nil
}

func (f stub) Complete(ctx context.Context, _ chat.Call, emit chat.Emitter) (chat.Summary, error) {
	return chat.Summary{}, f(ctx, emit)
}

// bubble serves a stub over pipes. The caller is in a bubble.
func bubble(t *testing.T, f stub) (h http.Handler, dial func() net.Conn) {
	t.Helper()
	cat, err := catalog.New(nil)
	must(t, err)
	h = api.New(api.Config{Chat: f, Keys: f, Catalog: cat, Limiter: ratelimit.New(time.Now()), Ready: func() error { return nil }, Draining: func() bool { return false }, Log: telemetry.NewLines(io.Discard, true)})
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	s := &httpserver.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	go func() { _ = s.Serve(p) }()
	t.Cleanup(func() {
		_ = s.Close()
		pass(time.Second) // connections linger half a second over unread bodies
	})
	return h, func() net.Conn {
		mine, theirs := net.Pipe()
		p.conns <- theirs
		t.Cleanup(func() { mine.Close() })
		return mine
	}
}

// pass lets the bubble's clock go on by d, which takes no time.
func pass(d time.Duration) { <-time.After(d) }

func request(account string, length int) string {
	return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n", account, length)
}

func answer(t testing.TB, c net.Conn) *reply {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	return read(t, res)
}

func say(text string) stub {
	return func(_ context.Context, emit chat.Emitter) error {
		if err := emit.Start(wire.Head{ID: "chatcmpl-abcdefghijklmnopqrstuvwxyz123", Model: "m"}); err != nil {
			return err
		}
		if err := emit.Text(0, text, nil); err != nil {
			return fmt.Errorf("%w: %w", chat.ErrClientGone, err)
		}
		return emit.Finish([]wire.FinishReason{wire.FinishStop}, wire.Usage{})
	}
}

// A body that comes too slowly, or never, is given up after its time and not before.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, dial := bubble(t, say("x"))
		for _, sent := range []string{"", "{", body("")} {
			c := dial()
			start := time.Now()
			_, err := io.WriteString(c, request("a", api.MaxBodyBytes)+sent)
			must(t, err)
			synctest.Wait()
			if _, own := api.Held(h, "a"); own > 64<<10 {
				t.Errorf("%d bytes sent hold %d", len(sent), own)
			}
			r := answer(t, c)
			if took := time.Since(start); r.StatusCode != 408 || r.code() != "request_timeout" || !r.Close || took != api.BodyTimeout {
				t.Errorf("%d bytes sent: %d %s after %v, want 408 after %v", len(sent), r.StatusCode, r.body, took, api.BodyTimeout)
			}
			synctest.Wait()
			if all, _ := api.Held(h, "a"); all != 0 {
				t.Errorf("%d bytes are still held", all)
			}
		}
	})
}

// Reading the body is bounded; computing the answer is not.
func TestNoDeadlineBehindBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, dial := bubble(t, func(ctx context.Context, emit chat.Emitter) error {
			select {
			case <-ctx.Done():
				return chat.ErrClientGone
			case <-time.After(time.Hour):
				return say("x")(ctx, emit)
			}
		})
		c := dial()
		for range 2 { // the second on the same connection
			_, err := io.WriteString(c, request("a", len(body("")))+body(""))
			must(t, err)
			if r := answer(t, c); r.StatusCode != 200 {
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
		}
	})
}

// However many connections an account has, its bodies take no more than was decided;
// others are served, and what was held is given back.
func TestBodyMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, dial := bubble(t, say("x"))
		const each = 3 << 20
		var open []net.Conn
		refused := 0
		for range 24 {
			c := dial()
			in := bufio.NewReader(c)
			got := make(chan *http.Response, 1)
			go func() {
				defer close(got)
				if res, err := http.ReadResponse(in, nil); err == nil {
					got <- res
				}
			}()
			go func() { _, _ = io.WriteString(c, request("a", api.MaxBodyBytes)+strings.Repeat(" ", each)) }()
			synctest.Wait()
			if _, own := api.Held(h, "a"); own > api.AccountBodies {
				t.Fatalf("one account holds %d bytes, want at most %d", own, api.AccountBodies)
			}
			select {
			case res := <-got:
				r := &reply{Response: res}
				check(t, r)
				if r.StatusCode != 503 || r.Header.Get("Retry-After") != "1" {
					t.Errorf("status %d %v, want 503", r.StatusCode, r.Header)
				}
				refused++
				c.Close()
			default:
				open = append(open, c)
			}
		}
		if len(open) != 8 || refused != 16 { // 3 MiB are read into 4
			t.Errorf("%d are being read and %d refused, want 8 and 16", len(open), refused)
		}
		c := dial()
		_, err := io.WriteString(c, request("b", len(body("")))+body(""))
		must(t, err)
		if r := answer(t, c); r.StatusCode != 200 {
			t.Errorf("another account gets %d %s", r.StatusCode, r.body)
		}
		for _, c := range open {
			c.Close()
		}
		synctest.Wait()
		if all, own := api.Held(h, "a"); all != 0 || own != 0 {
			t.Errorf("%d and %d bytes are still held", all, own)
		}
	})
}

// What a call asks is held as long as the call runs, so it counts as long.
func TestBodyMemory_Running(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, dial := bubble(t, func(ctx context.Context, emit chat.Emitter) error {
			pass(time.Minute)
			return say("x")(ctx, emit)
		})
		const each = 12 << 20
		call := func() net.Conn {
			c := dial()
			go func() { _, _ = io.WriteString(c, request("a", each)+pad(each)) }()
			synctest.Wait()
			return c
		}
		first, second, third := call(), call(), call()
		if _, own := api.Held(h, "a"); own != 2*each {
			t.Errorf("two calls of %d bytes run, %d are counted", each, own)
		}
		if r := answer(t, third); r.StatusCode != 503 {
			t.Errorf("the third got %d %s, want 503", r.StatusCode, r.body)
		}
		for _, c := range []net.Conn{first, second} {
			if r := answer(t, c); r.StatusCode != 200 {
				t.Errorf("%d %s", r.StatusCode, r.body)
			}
		}
		synctest.Wait()
		if all, own := api.Held(h, "a"); all != 0 || own != 0 {
			t.Errorf("%d and %d bytes are still counted", all, own)
		}
	})
}

// A reader that takes nothing is gone after its time, whole and streamed; one that is
// only slow is not.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	for _, extra := range []string{"", `,"stream":true`} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan error, 1)
			_, dial := bubble(t, func(ctx context.Context, emit chat.Emitter) error {
				err := say(strings.Repeat("x", 1<<20))(ctx, emit)
				ended <- err
				return err
			})
			c := dial()
			start := time.Now()
			_, err := io.WriteString(c, request("a", len(body(extra)))+body(extra))
			must(t, err)
			if err := <-ended; err == nil || time.Since(start) != api.WriteTimeout {
				t.Errorf("%q: ended with %v after %v, want an error after %v", extra, err, time.Since(start), api.WriteTimeout)
			}
			synctest.Wait()
			if b, _ := io.ReadAll(c); strings.Contains(string(b), "[DONE]") || strings.Contains(string(b), "error") {
				t.Errorf("%q: %d bytes follow the end of patience", extra, len(b))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, dial := bubble(t, say(strings.Repeat("x", 64<<10)))
		c := dial()
		_, err := io.WriteString(c, request("a", len(body(`,"stream":true`)))+body(`,"stream":true`))
		must(t, err)
		slow := bufio.NewReader(readerFunc(func(b []byte) (int, error) {
			pass(api.WriteTimeout / 8)
			return c.Read(b)
		}))
		res, err := http.ReadResponse(slow, nil)
		must(t, err)
		if r := read(t, res); r.err != nil || len(streamed(t, r.body)) != 64<<10 {
			t.Errorf("a slow reader got %d bytes, %v", len(r.body), r.err)
		}
	})
}

// Nobody waits for a reader of an answer that is broken off, whenever that is.
func TestHurry(t *testing.T) {
	t.Parallel()
	for _, extra := range []string{"", `,"stream":true`} {
		for _, before := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				_, dial := bubble(t, func(ctx context.Context, emit chat.Emitter) error {
					if before {
						emit.Hurry()
					} else {
						go func() { pass(5 * time.Second); emit.Hurry() }()
					}
					err := say(strings.Repeat("x", 1<<20))(ctx, emit)
					ended <- err
					return err
				})
				c := dial()
				start := time.Now()
				_, err := io.WriteString(c, request("a", len(body(extra)))+body(extra))
				must(t, err)
				if err := <-ended; err == nil || time.Since(start) > 6*time.Second {
					t.Errorf("%q, before %t: ended with %v after %v", extra, before, err, time.Since(start))
				}
			})
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// A peer that pipelines requests and reads no answers holds its goroutine no longer
// than any other.
func TestUnreadPreflight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, dial := bubble(t, say("x"))
		c := dial()
		start := time.Now()
		_, err := io.WriteString(c, "OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n")
		must(t, err)
		pass(api.WriteTimeout + time.Second)
		synctest.Wait()
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("after %v the answer still waits: %d, %v", time.Since(start), n, err)
		}
	})
}
