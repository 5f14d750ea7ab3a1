package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// dial opens a connection on which a test writes the bytes itself.
func dial(t *testing.T, s *proc.Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn, bufio.NewReader(conn)
}

// raw writes one request byte for byte and reads the answer.
func raw(t *testing.T, s *proc.Server, request string) answer {
	t.Helper()
	conn, r := dial(t, s)
	// The server may answer and close before it has read everything; the answer counts.
	_, writeErr := io.WriteString(conn, request)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("no answer to %.80q: %v (write: %v)", request, err, writeErr)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, text}
}

// head makes the head of a POST to the chat endpoint; lines end it before the empty line.
func head(lines ...string) string {
	return "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func length(body string) string { return fmt.Sprintf("Content-Length: %d", len(body)) }

const asJSON = "Content-Type: application/json"

// TestRaw_Authorization is wire.md 41 to 45: every spelling of a bad header is 401, before the body.
func TestRaw_Authorization(t *testing.T) {
	t.Parallel()
	s := server(t)
	good := body("")
	tests := []struct{ name, header, code string }{
		{"41 none", "X-Nothing: 1", "missing_api_key"},
		{"42 Basic", "Authorization: Basic eDp5", "missing_api_key"},
		{"42 Bearer alone", "Authorization: Bearer", "missing_api_key"},
		{"42 Bearer and a space", "Authorization: Bearer ", "missing_api_key"},
		{"42 two spaces", "Authorization: Bearer  " + s.Key, "invalid_api_key"},
		{"42 two words", "Authorization: Bearer " + s.Key + " " + s.Key, "invalid_api_key"},
		{"42 space inside", "Authorization: Bearer " + s.Key[:20] + " " + s.Key[20:], "invalid_api_key"},
		{"42 folded", "Authorization: Bearer " + s.Key[:20] + "\r\n " + s.Key[20:], "invalid_api_key"},
		{"42 two headers", "Authorization: Bearer " + s.Key + "\r\nAuthorization: Bearer " + s.Key, "invalid_api_key"},
		{"42 not ASCII", "Authorization: Bearer " + s.Key + "é", "invalid_api_key"},
		{"42 too long", "Authorization: Bearer sk-parley-" + strings.Repeat("a", 4000), "invalid_api_key"},
		{"44 unknown", "Authorization: Bearer sk-parley-" + strings.Repeat("A", 49), "invalid_api_key"},
		{"44 foreign", "Authorization: Bearer sk-abcdefghijklmnop", "invalid_api_key"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := raw(t, s, head(tc.header, asJSON, length(good))+good)
			e := wantError(t, a, http.StatusUnauthorized, tc.code)
			if a.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("WWW-Authenticate = %q", a.Header.Get("WWW-Authenticate"))
			}
			if strings.Contains(e.Error.Message, s.Key) {
				t.Errorf("the message repeats the key: %s", e.Error.Message)
			}
		})
	}
	t.Run("43 scheme in lower case", func(t *testing.T) {
		t.Parallel()
		wantCompletion(t, raw(t, s, head("authorization: bearer "+s.Key, asJSON, length(good))+good))
	})
	t.Run("outer white space is HTTP's", func(t *testing.T) {
		t.Parallel()
		wantCompletion(t, raw(t, s, head("Authorization:   Bearer "+s.Key+"  ", asJSON, length(good))+good))
	})
	t.Run("45 before validation", func(t *testing.T) {
		t.Parallel()
		wantError(t, raw(t, s, head("Authorization: Bearer nope", asJSON, length("{"))+"{"), 401, "invalid_api_key")
	})
	t.Run("45 before the media type", func(t *testing.T) {
		t.Parallel()
		wantError(t, raw(t, s, head("Authorization: Bearer nope", "Content-Type: text/plain", length("x"))+"x"), 401, "invalid_api_key")
	})
}

// TestRaw_Bodies is wire.md 36 to 40.
func TestRaw_Bodies(t *testing.T) {
	t.Parallel()
	s := server(t)
	auth := "Authorization: Bearer " + s.Key
	good := body("")
	t.Run("36 one byte over, by Content-Length", func(t *testing.T) {
		t.Parallel()
		// Nothing of the body is sent: the length alone is enough.
		a := raw(t, s, head(auth, asJSON, fmt.Sprintf("Content-Length: %d", 16<<20+1)))
		wantError(t, a, http.StatusRequestEntityTooLarge, "request_too_large")
	})
	t.Run("36 over, chunked", func(t *testing.T) {
		t.Parallel()
		// Bodies held at once are bounded for each account, so the big ones have their own.
		secret, _ := account(t, s, "big chunked", "pro", "1")
		conn, r := dial(t, s)
		fmt.Fprint(conn, head("Authorization: Bearer "+secret, asJSON, "Transfer-Encoding: chunked"))
		go func() {
			piece := strings.Repeat(" ", 1<<20)
			for range 17 {
				if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(piece), piece); err != nil {
					return // Refused already.
				}
			}
			fmt.Fprint(conn, "0\r\n\r\n")
		}()
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		wantError(t, answer{resp.StatusCode, resp.Header, text}, http.StatusRequestEntityTooLarge, "request_too_large")
	})
	t.Run("36 exactly the limit", func(t *testing.T) {
		t.Parallel()
		secret, _ := account(t, s, "big", "pro", "1")
		full := good + strings.Repeat(" ", 16<<20-len(good))
		wantCompletion(t, raw(t, s, head("Authorization: Bearer "+secret, asJSON, length(full))+full))
	})
	t.Run("37 chunked", func(t *testing.T) {
		t.Parallel()
		var b strings.Builder
		for i := 0; i < len(good); i += 7 {
			piece := good[i:min(i+7, len(good))]
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(piece), piece)
		}
		wantCompletion(t, raw(t, s, head(auth, asJSON, "Transfer-Encoding: chunked")+b.String()+"0\r\n\r\n"))
	})
	t.Run("38 expect, good key", func(t *testing.T) {
		t.Parallel()
		conn, r := dial(t, s)
		fmt.Fprint(conn, head(auth, asJSON, "Expect: 100-continue", length(good)))
		line, err := r.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
			t.Fatalf("got %q, %v, want 100 Continue", line, err)
		}
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, good)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		resp.Body.Close()
	})
	t.Run("38 expect, bad key", func(t *testing.T) {
		t.Parallel()
		wantError(t, raw(t, s, head("Authorization: Bearer nope", asJSON, "Expect: 100-continue", length(good))), 401, "invalid_api_key")
	})
	for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "multipart/form-data; boundary=x"} {
		t.Run("39 "+ct, func(t *testing.T) {
			t.Parallel()
			wantError(t, raw(t, s, head(auth, "Content-Type: "+ct, length(good))+good), http.StatusUnsupportedMediaType, "unsupported_media_type")
		})
	}
	for _, ct := range []string{"", "application/json; charset=utf-8", "application/json; charset=UTF-8", "application/vnd.api+json", "Application/JSON"} {
		t.Run("39 accepted "+ct, func(t *testing.T) {
			t.Parallel()
			line := "Content-Type: " + ct
			if ct == "" {
				line = "X-Nothing: 1"
			}
			wantCompletion(t, raw(t, s, head(auth, line, length(good))+good))
		})
	}
	for _, ce := range []string{"br", "gzip", "deflate"} {
		t.Run("40 "+ce, func(t *testing.T) {
			t.Parallel()
			wantError(t, raw(t, s, head(auth, asJSON, "Content-Encoding: "+ce, length(good))+good), http.StatusUnsupportedMediaType, "unsupported_media_type")
		})
	}
	t.Run("headers of 64 KiB", func(t *testing.T) {
		t.Parallel()
		a := raw(t, s, head(auth, asJSON, "X-Big: "+strings.Repeat("a", 80<<10), length(good))+good)
		wantError(t, a, http.StatusRequestHeaderFieldsTooLarge, "headers_too_large")
		wantCompletion(t, raw(t, s, head(auth, asJSON, "X-Big: "+strings.Repeat("a", 48<<10), length(good))+good))
	})
}

// TestRaw_NoRequest: what is no valid HTTP is refused in JSON and with a request id too.
func TestRaw_NoRequest(t *testing.T) {
	t.Parallel()
	s := server(t)
	for text, want := range map[string]int{
		"hello\r\n":                     http.StatusBadRequest,
		"\x16\x03\x01\x02":              http.StatusBadRequest, // TLS
		"GET /healthz HTTP/1.1\r\n\r\n": http.StatusBadRequest,
		"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n":   http.StatusBadRequest,
		"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\x00\r\n\r\n":  http.StatusBadRequest,
		head("Content-Length: 5", "Content-Length: 6"):          http.StatusBadRequest,
		head("Content-Length: 5", "Transfer-Encoding: chunked"): http.StatusBadRequest,
	} {
		wantError(t, raw(t, s, text), want, "malformed_request")
	}
}

// TestRaw_Golden is wire.md 63: the events of a stream, byte for byte but for id, time and text.
func TestRaw_Golden(t *testing.T) {
	t.Parallel()
	s := server(t)
	req := `{"model":"svc-pulse","stream":true,"max_tokens":1,"temperature":0,"stream_options":{"include_usage":true},` + countTo + `}`
	a := raw(t, s, head("Authorization: Bearer "+s.Key, asJSON, length(req))+req)
	st := readStream(string(a.Body))
	if len(st.chunks) != 4 {
		t.Fatalf("%d events, want role, text, finish, usage:\n%s", len(st.chunks), a.Body)
	}
	c := st.chunks[0]
	front := fmt.Sprintf(`{"id":"%s","object":"chat.completion.chunk","created":%d,"model":"svc-pulse","system_fingerprint":"%s",`, c.ID, c.Created, c.SystemFingerprint)
	want := []string{
		front + `"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}`,
		front + `"choices":[{"index":0,"delta":{"content":"` + st.text + `"},"logprobs":null,"finish_reason":null}],"usage":null}`,
		front + `"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null}`,
		front + `"choices":[],"usage":{"prompt_tokens":`,
	}
	for i := range want {
		if st.raw[i] != want[i] && (i != 3 || !strings.HasPrefix(st.raw[i], want[i])) {
			t.Errorf("event %d\n got %s\nwant %s", i, st.raw[i], want[i])
		}
	}
}
