package stub

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

const words = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"

// hangUp ends the connection in a way that net/http has none for:
//
//   - severed says three words and ends below TLS, without its word for the end; the answer has no
//     other end than that of its connection
//   - once ends below TLS without an answer, the first time that this text comes
//   - notify, fin and reset end it after a whole answer: by the word of TLS, which alone keeps the
//     connection below, without it, or by a reset
//
// It reports whether it has answered.
func (s *Server) hangUp(w http.ResponseWriter, text, how string) bool {
	if _, again := s.seen.LoadOrStore(text, true); how == "once" && again {
		return false
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	defer conn.Close()
	raw, say := conn, words+"\r\n"+strings.Repeat(event, 3)
	secure, ok := conn.(*tls.Conn)
	if ok {
		raw = secure.NetConn()
	}
	switch how {
	case "once":
		say = ""
	case "notify", "fin", "reset":
		all := strings.Repeat(event, 3) + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
			`data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3}}` + "\n\ndata: [DONE]\n\n"
		say = fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", words, len(all), all)
	}
	_, _ = io.WriteString(conn, say) // whoever is gone is gone
	switch {
	case how == "notify" && ok:
		_ = secure.CloseWrite() // as above
		s.hungUp.Add(1)
		_, _ = io.Copy(io.Discard, raw) // until the other side has ended it, too
		return true
	case how == "reset":
		if c, ok := raw.(*net.TCPConn); ok {
			_ = c.SetLinger(0) // else it is no reset, and a test of the reset says so
		}
	}
	_ = raw.Close() // as above
	s.hungUp.Add(1)
	return true
}
