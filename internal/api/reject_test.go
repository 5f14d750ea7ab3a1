package api_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// What is no request is refused like a bad one: in JSON, with an id that stands in the log.
func TestReject(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	for text, want := range map[string]struct {
		status int
		code   string
	}{
		"hello\r\n": {400, "malformed_request"},
		"POST /v1/chat/completions HTTP/1.1\r\n\r\n":                                                               {400, "malformed_request"},
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n": {400, "malformed_request"},
		"GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n":                                              {417, "expectation_failed"},
		"GET /" + strings.Repeat("a", 2<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n":                                      {431, "headers_too_large"},
		"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n":                                      {501, "unsupported_transfer_encoding"},
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                                         {505, "unsupported_http_version"},
	} {
		r := d.raw(t, text)
		id := r.Header.Get("X-Request-Id")
		if r.StatusCode != want.status || r.code() != want.code || !r.Close || id == "" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%.60q: %d %s, close %v, id %q", text, r.StatusCode, r.body, r.Close, id)
		}
		var line struct {
			Status int    `json:"status"`
			Code   string `json:"code"`
			Route  string `json:"route"`
		}
		for l := range strings.Lines(d.log.String()) {
			if strings.Contains(l, id) {
				must(t, json.Unmarshal([]byte(l), &line))
			}
		}
		if line.Status != want.status || line.Code != want.code || line.Route != "unknown" {
			t.Errorf("%.60q is logged as %+v", text, line)
		}
	}
}
