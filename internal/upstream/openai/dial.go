package openai

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"

	"github.com/parley-ai/parley/internal/address"
)

// Errors of connections that were never made.
var (
	errHandshake = errors.New("TLS was not agreed on within the time to connect")
	errTunnel    = errors.New("the proxy did not answer within the time to connect")
	errEarly     = errors.New("the proxy sent bytes before the server was asked for any")
)

// proxyError is the status of a proxy that makes no connection.
type proxyError struct{ status int }

func (e *proxyError) Error() string {
	return fmt.Sprintf("the proxy refuses to connect: status %d %s", e.status, http.StatusText(e.status))
}

// lasting says that it will be the same the next time: the request is the fault, or what
// the proxy allows.
func (e *proxyError) lasting() bool { return e.status < http.StatusInternalServerError }

// handshakeError is a server with which TLS cannot be agreed on.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string {
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](e.err)
	switch {
	case e.plain():
		return "the server does not speak TLS here: base_url must begin with http, or have another port"
	case untrusted:
		return "the server's certificate is of an authority that is not trusted; ca_file names one that the system does not have: " + e.err.Error()
	case errors.Is(e.err, io.EOF):
		return "the server closed the connection instead of agreeing on TLS"
	}
	return e.err.Error()
}

func (e *handshakeError) plain() bool {
	_, plain := errors.AsType[tls.RecordHeaderError](e.err)
	return plain
}

// lasting says that it will be the same the next time: the certificate is not good, or
// the server speaks something else.
func (e *handshakeError) lasting() bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](e.err)
	return certificate || e.plain()
}

// transient says whether a connection that was not made may be made the next time.
func transient(err error) bool {
	lasting, ok := errors.AsType[interface {
		error
		lasting() bool
	}](err)
	return !errors.Is(err, address.ErrRefused) && !(ok && lasting.lasting())
}

// proxy is where connections to the server are asked for by CONNECT.
type proxy struct {
	address string // host:port
	request string
}

// newProxy returns nil without a URL.
func newProxy(u *url.URL, target string) *proxy {
	if u == nil {
		return nil
	}
	p := &proxy{address: hostPort(u), request: "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\nUser-Agent: parley\r\n"}
	if u.User != nil {
		password, _ := u.User.Password()
		p.request += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)) + "\r\n"
	}
	p.request += "\r\n"
	return p
}

// hostPort is where u points, with the port of its scheme if it has none.
func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// newTransport returns a transport that posts to u.
func newTransport(u *url.URL, o Options) *transport {
	reach := address.Any
	if o.PublicOnly {
		reach = address.Public
	}
	dialer := &net.Dialer{
		Timeout: o.Timeouts.Connect,
		// The address is checked after resolution: a name may point anywhere, and
		// somewhere else a moment later.
		ControlContext: func(_ context.Context, _, host string, _ syscall.RawConn) error {
			return address.Check(host, reach)
		},
	}
	t := &transport{DialContext: dialer.DialContext, address: hostPort(u), connect: o.Timeouts.Connect}
	if u.Scheme == "https" {
		t.tls = &tls.Config{ServerName: u.Hostname(), RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	}
	t.proxy = newProxy(o.Proxy, t.address)
	t.head = "POST " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\nUser-Agent: parley\r\n" +
		"Content-Type: application/json\r\nAccept: text/event-stream\r\nAccept-Encoding: identity\r\n"
	if o.APIKey != "" {
		t.head += "Authorization: Bearer " + o.APIKey + "\r\n"
	}
	t.head += "Content-Length: "
	return t
}

// closing is a context that ends as a connection does.
type closing context.CancelFunc

func (c closing) Close() error {
	c()
	return nil
}

// gate is what TLS reads from. While it is shut nothing more is read: what TLS gives then,
// it had read before. TLS takes a time that is over for no end of the connection.
type gate struct {
	net.Conn
	shut bool
}

func (g *gate) Read(p []byte) (int, error) {
	if g.shut {
		return 0, os.ErrDeadlineExceeded
	}
	return g.Conn.Read(p)
}

// dial makes a connection, as long as w lasts. What fails has not seen the request.
func (t *transport) dial(ctx context.Context, w *watch) (*conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.guard(closing(cancel))
	to := t.address
	if t.proxy != nil {
		to = t.proxy.address
	}
	raw, err := t.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, raw: raw}
	if err := t.prepare(ctx, c); err != nil {
		_ = raw.Close() // a handshake that failed may have closed it
		return nil, err
	}
	c.poll = c.pollOnce
	c.r = bufio.NewReader(c)
	return c, nil
}

// prepare makes of c, which is connected, a connection to the server that may be written to.
func (t *transport) prepare(ctx context.Context, c *conn) (err error) {
	if s, ok := c.raw.(syscall.Conn); ok {
		if c.fd, err = s.SyscallConn(); err != nil {
			return err
		}
	}
	if t.proxy != nil {
		limited, done := context.WithTimeoutCause(ctx, t.connect, errTunnel)
		defer done()
		if err := t.proxy.tunnel(limited, c.raw); err != nil {
			return err
		}
	}
	if t.tls == nil {
		return nil
	}
	limited, done := context.WithTimeoutCause(ctx, t.connect, errHandshake)
	defer done()
	c.gate = &gate{Conn: c.raw}
	secure := tls.Client(c.gate, t.tls)
	c.Conn = secure
	switch err := secure.HandshakeContext(limited); {
	case err == nil:
		return nil
	case limited.Err() != nil:
		return context.Cause(limited)
	default:
		return &handshakeError{err}
	}
}

// tunnel asks for a connection to the server. A server that speaks TLS waits to be spoken
// to, so there is nothing behind the head of the proxy's answer.
func (p *proxy) tunnel(ctx context.Context, c net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	_, err := io.WriteString(c, p.request)
	r := bufio.NewReader(io.LimitReader(c, maxHeaderBytes))
	h := head{status: http.StatusContinue}
	for err == nil && h.status < 200 {
		h, err = readHead(r)
	}
	switch {
	case !stop():
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the proxy: %w", err)
	case h.status >= 300:
		return &proxyError{h.status}
	case r.Buffered() > 0:
		return errEarly
	}
	return nil
}
