package openai

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzHead compares with net/http: what is accepted here is accepted there, as the same
// status, the same fields and the same body, and a connection that is used again here
// would be used again there. Here may be stricter.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5;x=\"y\"\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.0 429 \r\nRetry-After: 3\r\nRetry-After-Ms: 2500\r\n\r\nuntil the end", "HTTP/1.1 503\nConnection: Close\nContent-Encoding: gzip\n\nbody",
		"HTTP/1.1 200 OK\r\nX: a\r\n folded: b\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n",
		"HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 +20 OK\r\n\r\n", "HTTP/1.1 99 OK\r\n\r\n", "HTTP/1.1 200 OK", "HTTP/1.1 200 OK\r\nX: y", "\r\n", "",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("long", 3000) + "\r\nContent-Length: 2\r\n\r\nok",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(strings.NewReader(string(data)))
		h, err := readHead(r)
		if err != nil {
			return
		}
		theirs := bufio.NewReader(strings.NewReader(string(data)))
		resp, err := http.ReadResponse(theirs, &http.Request{Method: http.MethodPost})
		if err != nil {
			t.Fatalf("accepted %+v, net/http says %v", h, err)
		}
		defer resp.Body.Close()
		if h.status < 200 {
			return // what follows is another head
		}
		var b body
		b.begin(&h, r)
		text, bad := io.ReadAll(&b)
		want, worse := io.ReadAll(resp.Body)
		if h.status != resp.StatusCode || string(text) != string(want) || bad == nil && worse != nil {
			t.Errorf("%d %q %v, net/http has %d %q %v", h.status, text, bad, resp.StatusCode, want, worse)
		}
		if !h.close && bad == nil && (resp.Close || r.Buffered() != theirs.Buffered()) {
			t.Errorf("the connection is used again with %d bytes left; net/http closes (%v) or has %d", r.Buffered(), resp.Close, theirs.Buffered())
		}
		get := resp.Header.Get
		if h.contentType != get("Content-Type") || h.encoding != get("Content-Encoding") || h.retryAfter != get("Retry-After") || h.retryAfterMs != get("Retry-After-Ms") {
			t.Errorf("fields %+v, net/http has %v", h, resp.Header)
		}
	})
}

// What comes behind an answer that is complete costs no more than a buffer.
func TestBody_Trailer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{"one line": strings.Repeat("x", 1<<20), "many lines": strings.Repeat("x: y\r\n", 1<<18)} {
		r := bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + end + "\r\n\r\n"))
		h, err := readHead(r)
		if err != nil {
			t.Fatal(err)
		}
		var b body
		b.begin(&h, r)
		text, err := io.ReadAll(&b)
		if string(text) != "ok" || !errors.Is(err, errHeadForm) && !errors.Is(err, bufio.ErrBufferFull) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
