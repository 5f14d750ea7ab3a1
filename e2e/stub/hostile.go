package stub

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Secret is in every word of a provider that misbehaves: no caller may ever see it.
const Secret = "rate limit of provider-secret-7f3a"

// Hostile are the ways to misbehave before the first word; each makes the call fail.
func Hostile() []string {
	return []string{
		"gzip-bomb", "endless-header", "endless-line", "many-headers", "no-json", "array", "types", "string-error",
		"error-event", "error-status", "html", "empty", "redirect", "wrong-length",
	}
}

// HostileLater are the ways to misbehave after the first word.
func HostileLater() []string {
	return []string{"later-line", "later-types", "later-error", "later-cut"}
}

// bomb is 16 MiB of a line in a few bytes; gzip streams may follow each other.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(bytes.Repeat([]byte("a"), 16<<20)) // never fails
	_ = z.Close()
	return b.Bytes()
})

const event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" + Word + "\"}}]}\n\n"

func misbehave(w http.ResponseWriter, r *http.Request, how string) {
	say := func(contentType, text string) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, text) // whoever is gone is gone
	}
	const stream = "text/event-stream"
	later, isLater := strings.CutPrefix(how, "later-")
	if isLater {
		say(stream, event)
		_ = http.NewResponseController(w).Flush()
		how = later
	}
	switch how {
	case "gzip-bomb":
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", stream)
		for range 64 { // a gigabyte
			if _, err := w.Write(bomb()); err != nil {
				return
			}
		}
	case "endless-header":
		pour(w, "HTTP/1.1 200 OK\r\nX-"+Secret[:4]+": ", strings.Repeat(Secret, 1000), 100<<20)
	case "many-headers":
		pour(w, "HTTP/1.1 200 OK\r\n", strings.Repeat("X-Header: "+Secret+"\r\n", 1000), 100<<20)
	case "endless-line", "line":
		if !isLater {
			w.Header().Set("Content-Type", stream)
		}
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"`)
		for range 100 {
			if _, err := w.Write(bytes.Repeat([]byte("a"), 1<<20)); err != nil {
				return
			}
		}
	case "no-json":
		say(stream, "data: "+Secret+"\n\n")
	case "array":
		say(stream, "data: [\""+Secret+"\"]\n\n")
	case "types":
		say(stream, `data: {"choices":[{"index":"`+Secret+`","delta":{"content":{"text":7}}}]}`+"\n\n")
	case "string-error":
		say(stream, `data: {"error":"`+Secret+`"}`+"\n\n")
	case "error-event", "error":
		say(stream, `data: {"error":{"message":"`+Secret+`","type":"invalid_request_error"}}`+"\n\n")
	case "error-status":
		w.WriteHeader(http.StatusUnauthorized)
		say("application/json", `{"error":{"message":"`+Secret+`"}}`)
	case "html":
		say("text/html", "<h1>"+Secret+"</h1>")
	case "empty":
		say(stream, "")
	case "redirect":
		w.Header().Set("Location", "http://169.254.169.254/"+strings.ReplaceAll(Secret, " ", "-"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	case "wrong-length":
		w.Header().Set("Content-Length", "10000")
		say(stream, "data: {")
	case "cut":
		panic(http.ErrAbortHandler)
	default:
		http.Error(w, fmt.Sprintf("%s: no way to misbehave (%s)", how, r.URL.Path), http.StatusTeapot)
	}
}

// pour writes an answer by hand: start, and then piece until there are size bytes.
func pour(w http.ResponseWriter, start, piece string, size int) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err = io.WriteString(conn, start); err != nil {
		return
	}
	for sent := 0; sent < size && err == nil; sent += len(piece) {
		_, err = io.WriteString(conn, piece)
	}
}
