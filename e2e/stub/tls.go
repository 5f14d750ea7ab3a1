package stub

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"
)

// Authority signs certificates for providers that are reached over TLS.
type Authority struct {
	// PEM is its own certificate.
	PEM []byte

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that nobody trusts yet.
func NewAuthority() (*Authority, error) {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	a := &Authority{cert: template}
	made, err := a.sign(template)
	if err != nil {
		return nil, err
	}
	a.cert, a.PEM = made.Leaf, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Leaf.Raw})
	return a, nil
}

// Certificate is one for servers at 127.0.0.1, or of another name, until then.
func (a *Authority) Certificate(name string, until time.Time) (tls.Certificate, error) {
	template := &x509.Certificate{NotAfter: until, DNSNames: []string{name}}
	if ip := net.ParseIP(name); ip != nil {
		template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
	}
	return a.sign(template)
}

// sign makes a certificate; the first is the authority's own.
func (a *Authority) sign(template *x509.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	if a.key == nil {
		a.key = key
	}
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

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
