package api

import (
	"net/http"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/wire"
)

// Reject returns what answers, in the envelope of all errors, a connection that brings no
// request which New's handler could see. The reason is a few words of our own. One line
// about it is logged.
func Reject(c Config) func(w http.ResponseWriter, status int, reason string) {
	s := &server{Config: c, common: common()}
	return func(w http.ResponseWriter, status int, reason string) {
		x := &exchange{w: w, r: &http.Request{}, id: ident.RequestID(), now: time.Now(), route: "unknown"}
		s.begin(x)
		defer s.close(x)
		s.answer(x, rejected(status, reason))
	}
}

func rejected(status int, reason string) *wire.Error {
	e := &wire.Error{Status: status, Type: "invalid_request_error", Code: "malformed_request", Message: "The request is no valid HTTP: " + reason + "."}
	if status >= http.StatusInternalServerError {
		e.Type = "server_error" // some clients take the other for 400, whatever the status
	}
	switch status {
	case http.StatusRequestTimeout:
		e.Code, e.Message = "request_timeout", "The headers of the request did not arrive in time. Send it again."
	case http.StatusExpectationFailed:
		e.Code, e.Message = "expectation_failed", "The header Expect can only be 100-continue. Leave it out."
	case http.StatusRequestHeaderFieldsTooLarge:
		e.Code, e.Message = "headers_too_large", "The path and the headers are too long. Shorten them."
	case http.StatusNotImplemented:
		e.Code, e.Message = "unsupported_transfer_encoding", "The header Transfer-Encoding can only be chunked."
	case http.StatusHTTPVersionNotSupported:
		e.Code, e.Message = "unsupported_http_version", "Only HTTP/1.0 and HTTP/1.1 are spoken here."
	}
	return e
}
