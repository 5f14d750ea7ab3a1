package httpserver_test

import (
	"fmt"
	"slices"
	"strings"
)

// requestCase is what a client may send.
type requestCase struct {
	name, text string
	// differs is what we answer where net/http answers something else, on purpose:
	//   both Content-Length and Transfer-Encoding: RFC 9112 6.3 lets a server refuse, and it
	//     is how requests are smuggled past a proxy; net/http drops the length.
	//   Transfer-Encoding in HTTP/1.0: RFC 9112 6.1 takes it for faulty framing; net/http
	//     takes the body for the next request.
	//   the preface of HTTP/2: net/http hands it to the handler, here it is a version like
	//     all others that are not spoken.
	differs string
}

func get(lines ...string) string {
	return "GET /path?q=1 HTTP/1.1\r\n" + strings.Join(append(lines, "\r\n"), "\r\n")
}

func post(rest string, lines ...string) string {
	return "POST /p HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(lines, "\r\n"), "\r\n") + rest
}

func requestCases() []requestCase {
	long := strings.Repeat("a", 20<<10)
	return slices.Concat(framingCases(), headCases(long), connectionCases())
}

// framingCases are about where a body ends.
func framingCases() []requestCase {
	return []requestCase{
		{name: "length", text: post("hello", "Content-Length: 5")},
		{name: "length 0", text: post("", "Content-Length: 0")},
		{name: "length, body shorter", text: post("hel", "Content-Length: 5000")},
		{name: "length, body longer", text: post("hellohello", "Content-Length: 5")},
		{name: "length, body unread", text: strings.Replace(post("hello", "Content-Length: 5"), "/p", "/unread", 1)},
		{name: "length of 100 KiB, unread", text: strings.Replace(post(strings.Repeat("x", 100<<10), "Content-Length: 102400"), "/p", "/unread", 1)},
		{name: "length, twice the same", text: post("hello", "Content-Length: 5", "Content-Length: 5")},
		{name: "length, twice different", text: post("hello", "Content-Length: 5", "Content-Length: 6")},
		{name: "length, list", text: post("hello", "Content-Length: 5, 5")},
		{name: "length, negative", text: post("hello", "Content-Length: -5")},
		{name: "length, plus", text: post("hello", "Content-Length: +5")},
		{name: "length, hexadecimal", text: post("hello", "Content-Length: 0x5")},
		{name: "length, empty", text: post("hello", "Content-Length:")},
		{name: "length, huge", text: post("hello", "Content-Length: 99999999999999999999")},
		{name: "length, spaces around", text: post("hello", "Content-Length:   5   ")},
		{name: "length, space before the colon", text: post("hello", "Content-Length : 5")},
		{name: "length, folded", text: post("hello", "Content-Length: \r\n 5")},
		{name: "length on GET", text: get("Host: x", "Content-Length: 5") + "hello"},
		{name: "chunked", text: post("5\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
		{name: "chunked, many", text: post("1\r\nh\r\n4\r\nello\r\n000\r\n\r\n", "Transfer-Encoding: chunked")},
		{name: "chunked, extension", text: post("5;a=b;c\r\nhello\r\n0;x\r\n\r\n", "Transfer-Encoding: chunked")},
		{name: "chunked, trailers", text: post("5\r\nhello\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", "Transfer-Encoding: chunked", "Trailer: X-Sum")},
		{name: "chunked, trailers unannounced", text: post("5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", "Transfer-Encoding: chunked")},
		{name: "chunked, forbidden trailer", text: post("0\r\n\r\n", "Transfer-Encoding: chunked", "Trailer: Content-Length")},
		{name: "chunked, broken trailer", text: post("5\r\nhello\r\n0\r\nbroken\r\n\r\n", "Transfer-Encoding: chunked")},
		{name: "chunked, bad size", text: post("zz\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
		{name: "chunked, negative size", text: post("-5\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
		{name: "chunked, size too big", text: post("fffffffffffffffff\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
		{name: "chunked, bare LF", text: post("5\nhello\n0\n\n", "Transfer-Encoding: chunked")},
		{name: "chunked, no end", text: post("5\r\nhello\r\n", "Transfer-Encoding: chunked")},
		{name: "chunked, longer than its size", text: post("2\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked")},
		{name: "chunked, unread", text: strings.Replace(post("5\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), "/p", "/unread", 1)},
		{name: "chunked, unread and broken", text: strings.Replace(post("zz\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), "/p", "/unread", 1)},
		{name: "chunked in capitals", text: post("5\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: CHUNKED")},
		{name: "coding gzip", text: post("hello", "Transfer-Encoding: gzip")},
		{name: "coding gzip, chunked", text: post("0\r\n\r\n", "Transfer-Encoding: gzip, chunked")},
		{name: "coding twice", text: post("0\r\n\r\n", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked")},
		{name: "coding identity", text: post("", "Transfer-Encoding: identity")},
		{name: "coding with a tab", text: post("0\r\n\r\n", "Transfer-Encoding:\tchunked")},
		{name: "coding with a vertical tab", text: post("0\r\n\r\n", "Transfer-Encoding: \x0bchunked")},
		{name: "coding, space before the colon", text: post("0\r\n\r\n", "Transfer-Encoding : chunked")},
		{name: "coding, folded", text: post("0\r\n\r\n", "Transfer-Encoding:\r\n chunked")},
		{name: "both", text: post("0\r\n\r\n", "Content-Length: 5", "Transfer-Encoding: chunked"), differs: "400"},
		{name: "both, the other way", text: post("0\r\n\r\n", "Transfer-Encoding: chunked", "Content-Length: 5"), differs: "400"},
		{name: "both, length broken", text: post("0\r\n\r\n", "Transfer-Encoding: chunked", "Content-Length: x")},
		{name: "both, coding unknown", text: post("0\r\n\r\n", "Transfer-Encoding: x", "Content-Length: 5")},
		{name: "HTTP/1.0 chunked", text: "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", differs: "400"},
	}
}

// headCases are about the request line and the headers.
func headCases(long string) []requestCase {
	return []requestCase{
		{name: "plain", text: get("Host: x")},
		{name: "many headers", text: get("Host: x", "A: 1", "a: 2", "B-c: d", "E:", "F:   g  ")},
		{name: "no Host", text: get("A: 1")},
		{name: "empty Host", text: get("Host:")},
		{name: "two Hosts", text: get("Host: x", "Host: x")},
		{name: "Host with a space", text: get("Host: a b")},
		{name: "Host with a path", text: get("Host: a/b")},
		{name: "Host with a port", text: get("Host: [::1%25eth0]:80")},
		{name: "Host not ASCII", text: get("Host: é")},
		{name: "Host folded", text: get("Host: x\r\n y")},
		{name: "Host folded on an empty line", text: get("Host: x\r\n ", "A: b")},
		{name: "space before the first header", text: get(" Host: x")},
		{name: "folded", text: get("Host: x", "A: 1\r\n 2\r\n\t3")},
		{name: "folded, empty", text: get("Host: x", "A: 1\r\n ", "B: 2")},
		{name: "space in a name", text: get("Host: x", "A b: c")},
		{name: "space before a colon", text: get("Host : x")},
		{name: "no name", text: get("Host: x", ": c")},
		{name: "no colon", text: get("Host: x", "nothing")},
		{name: "name with a slash", text: get("Host: x", "a/b: c")},
		{name: "NUL in a value", text: get("Host: x", "A: b\x00c")},
		{name: "NUL in a name", text: get("Host: x", "A\x00: b")},
		{name: "CR in a value", text: get("Host: x", "A: b\rc")},
		{name: "two CRs at an end", text: get("Host: x", "A: b\r")},
		{name: "DEL in a value", text: get("Host: x", "A: b\x7fc")},
		{name: "not ASCII in a value", text: get("Host: x", "A: \xff\xfeé")},
		{name: "bare LF", text: "GET / HTTP/1.1\nHost: x\nA: b\n\n"},
		{name: "bare LF, mixed", text: "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\n"},
		{name: "CR CR LF for the empty line", text: "GET / HTTP/1.1\r\nHost: x\r\n\r\r\n\r\n"},
		{name: "empty line before", text: "\r\n" + get("Host: x")},
		{name: "empty lines before, bare LF", text: "\n\n" + get("Host: x")},
		{name: "empty lines behind a POST", text: post("hello", "Content-Length: 5") + "\r\n" + get("Host: x")},
		{name: "many empty lines behind a POST", text: post("hello", "Content-Length: 5") + "\r\n\r\n\r\n" + get("Host: x")},
		{name: "empty line behind a GET", text: get("Host: x") + "\r\n" + get("Host: x")},
		{name: "no version", text: "GET /\r\n\r\n"},
		{name: "version 0.9", text: "GET / HTTP/0.9\r\nHost: x\r\n\r\n"},
		{name: "version 1.2", text: "GET / HTTP/1.2\r\nHost: x\r\n\r\n"},
		{name: "version 2.0", text: "GET / HTTP/2.0\r\nHost: x\r\n\r\n"},
		{name: "version 11", text: "GET / HTTP/11\r\nHost: x\r\n\r\n"},
		{name: "version in small letters", text: "GET / http/1.1\r\nHost: x\r\n\r\n"},
		{name: "preface of HTTP/2", text: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", differs: "505"},
		{name: "two spaces", text: "GET  / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "space in the path", text: "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "space behind the version", text: "GET / HTTP/1.1 \r\nHost: x\r\n\r\n"},
		{name: "tab for a space", text: "GET\t/\tHTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "control in the path", text: "GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "bad escape in the path", text: "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "fragment", text: "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "relative path", text: "GET a HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "absolute form", text: "GET http://other/a?b HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "absolute form without a Host", text: "GET http://other/a HTTP/1.1\r\n\r\n"},
		{name: "CONNECT", text: "CONNECT other:443 HTTP/1.1\r\nHost: other\r\n\r\n"},
		{name: "CONNECT without a Host", text: "CONNECT other:443 HTTP/1.1\r\n\r\n"},
		{name: "method unknown", text: "BREW / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "method in small letters", text: "get / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "method with a bracket", text: "G[T / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "no method", text: " / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "HEAD", text: "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"},
		{name: "garbage", text: "\x16\x03\x01\x02\x00\x01\x00\n\xfc\r\n\r\n"},
		{name: "garbage, a line", text: "hello\r\n"},
		{name: "half a request line", text: "GE"},
		{name: "half a head", text: "GET / HTTP/1.1\r\nHost: x\r\n"},
		{name: "half a header", text: "GET / HTTP/1.1\r\nHo"},
		{name: "nothing", text: ""},
		{name: "long header", text: get("Host: x", "A: "+long[:10<<10])},
		{name: "long header, body behind it", text: post("hello", "A: "+long[:12<<10], "Content-Length: 5") + get("Host: x")},
		{name: "header too long", text: get("Host: x", "A: "+long)},
		{name: "many headers too long", text: get("Host: x", strings.Repeat("A: b\r\n", 4000))},
		{name: "path too long", text: "GET /" + long + " HTTP/1.1\r\nHost: x\r\n\r\n"},
	}
}

// connectionCases are about what follows a request.
func connectionCases() []requestCase {
	pipelined := strings.Repeat(get("Host: x")+post("hello", "Content-Length: 5"), 20)
	return []requestCase{
		{name: "pipelined", text: pipelined},
		{name: "close by the client", text: get("Host: x", "Connection: close") + get("Host: x")},
		{name: "close in a list", text: get("Host: x", "Connection: a, Close") + get("Host: x")},
		{name: "close by the handler", text: strings.Replace(get("Host: x"), "/path", "/close", 1)},
		{name: "keep-alive", text: get("Host: x", "Connection: keep-alive")},
		{name: "HTTP/1.0", text: "GET / HTTP/1.0\r\n\r\n"},
		{name: "HTTP/1.0 keep-alive", text: "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"},
		{name: "HTTP/1.0 keep-alive, HEAD", text: "HEAD / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"},
		{name: "HTTP/1.0 keep-alive, close by the handler", text: "GET /close HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"},
		{name: "HTTP/1.0 with a body", text: "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello"},
		{name: "expect", text: post("hello", "Expect: 100-continue", "Content-Length: 5")},
		{name: "expect, chunked", text: post("0\r\n\r\n", "Expect: 100-Continue", "Transfer-Encoding: chunked")},
		{name: "expect without a body", text: get("Host: x", "Expect: 100-continue")},
		{name: "expect, unread", text: strings.Replace(post("hello", "Expect: 100-continue", "Content-Length: 5"), "/p", "/unread", 1)},
		{name: "expect in HTTP/1.0", text: "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"},
		{name: "expect something else", text: post("hello", "Expect: more", "Content-Length: 5")},
		{name: "upgrade", text: get("Host: x", "Connection: Upgrade", "Upgrade: websocket")},
		{name: "upgrade to HTTP/2", text: get("Host: x", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: x")},
		{name: "hundred requests", text: func() (s string) {
			for i := range 100 {
				s += fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i)
			}
			return s
		}()},
	}
}
