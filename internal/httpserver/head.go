package httpserver

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
)

// fault is why a request is refused before the handler sees it.
type fault struct {
	status int
	reason string
}

func (f *fault) Error() string { return f.reason }

func malformed(reason string) error { return &fault{http.StatusBadRequest, reason} }

// headLength is the length of the head that data begins with, its empty line included,
// or 0 when its end has not come. The first scanned bytes are known to hold no end.
func headLength(data []byte, scanned int) int {
	// The end may have begun in what was scanned.
	for at := max(0, scanned-2); ; {
		if at == 0 || data[at-1] == '\n' {
			if rest := data[at:]; len(rest) > 0 && rest[0] == '\n' {
				return at + 1
			} else if len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n' {
				return at + 2
			}
		}
		next := bytes.IndexByte(data[at:], '\n')
		if next < 0 {
			return 0
		}
		at += next + 1
	}
}

// promising reports whether a request may begin with line, which may not have come whole:
// what is no HTTP at all need not be waited for.
func promising(line []byte) bool {
	if c := line[0]; c != '\r' && c != '\n' && !tokenByte(c) {
		return false // TLS, for one
	}
	if line[len(line)-1] != '\n' {
		return true
	}
	_, err := http.ReadRequest(bufio.NewReaderSize(strings.NewReader(string(line)+"\r\n"), 16))
	return err == nil
}

// framing is what the fields of a head say that [http.ReadRequest] hides or lets pass.
type framing struct {
	hosts   int
	host    []byte // of the last
	lengths int
	codings int
}

// scan reads the lines of a head. It reads only as far as it must: what is no field is
// [http.ReadRequest]'s to find.
func scan(head []byte) (f framing, err error) {
	_, rest, _ := bytes.Cut(head, newline)
	var last *[]byte // where a value that goes on next line is kept
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, newline)
		line = bytes.TrimSuffix(line, carriage)
		if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
			if last != nil {
				return f, malformed("folded Host header")
			}
			continue
		}
		last = nil
		name, value, ok := bytes.Cut(line, colon)
		if !ok {
			continue
		}
		if bytes.IndexByte(name, ' ') >= 0 {
			return f, malformed("space in a header's name")
		}
		switch len(name) {
		case len("Host"):
			if bytes.EqualFold(name, []byte("Host")) {
				f.hosts++
				f.host = bytes.Trim(value, " \t")
				last = &f.host
			}
		case len("Content-Length"):
			if bytes.EqualFold(name, []byte("Content-Length")) {
				f.lengths++
			}
		case len("Transfer-Encoding"):
			if bytes.EqualFold(name, []byte("Transfer-Encoding")) {
				f.codings++
			}
		}
	}
	return f, nil
}

var (
	newline  = []byte("\n")
	carriage = []byte("\r")
	colon    = []byte(":")
)

// check refuses what [http.ReadRequest] has let pass and a server must not.
func (f *framing) check(r *http.Request) error {
	switch {
	case r.ProtoMajor != 1:
		return &fault{http.StatusHTTPVersionNotSupported, "only HTTP/1.0 and HTTP/1.1 are spoken here"}
	case f.hosts == 0 && r.ProtoAtLeast(1, 1) && r.Method != http.MethodConnect:
		return malformed("missing Host header")
	case f.hosts == 1 && !validHost(f.host):
		return malformed("malformed Host header")
	// Two ways to say how long a body is are two lengths for two readers: whoever stood
	// between us and the client may have seen other requests than we do (RFC 9112 6.1, 6.3).
	case f.codings > 0 && f.lengths > 0:
		return malformed("both Transfer-Encoding and Content-Length")
	case f.codings > 0 && !r.ProtoAtLeast(1, 1):
		return malformed("Transfer-Encoding in HTTP/1.0")
	}
	return nil
}

// parse makes a request of head, which r begins with and which it takes from r.
func parse(r *bufio.Reader, head []byte) (*http.Request, error) {
	f, err := scan(head)
	if err != nil {
		return nil, err
	}
	before := r.Buffered()
	req, err := http.ReadRequest(r)
	switch {
	case err != nil && f.codings > 0 && strings.Contains(err.Error(), "transfer encoding"):
		return nil, &fault{http.StatusNotImplemented, "unsupported transfer encoding"}
	case err != nil:
		// The error may quote what the client sent, and that may be a key.
		return nil, malformed("malformed request line or header")
	case before-r.Buffered() != len(head):
		// Two readers that disagree about where a head ends let a body be taken for a request.
		return nil, malformed("ambiguous end of the headers")
	}
	return req, f.check(req)
}

// tokenBytes has the bytes of tokens.
var tokenBytes = func() (set [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		set[c] = true
	}
	return set
}()

// tokenByte reports whether c may stand in a token, as methods and names of fields are
// (RFC 9110 5.6.2).
func tokenByte(c byte) bool { return tokenBytes[c] }

func validName(s string) bool {
	for i := range len(s) {
		if !tokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

// validHost reports whether host has only bytes of a host and port (RFC 3986 3.2.2), or
// none: that is for requests to no host in particular.
func validHost(host []byte) bool {
	for _, c := range host {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') && strings.IndexByte("!$%&'()*+,-.:;=[]_~", c) < 0 {
			return false
		}
	}
	return true
}

// hasToken reports whether the list in v has token, as net/http reads it.
func hasToken(v, token string) bool {
	for field := range strings.FieldsFuncSeq(v, func(c rune) bool { return c == ' ' || c == ',' || c == '\t' }) {
		if strings.EqualFold(field, token) {
			return true
		}
	}
	return false
}
