package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/wire"
)

// Limits of request bodies.
const (
	maxBodyBytes  = 16 << 20
	allBodies     = 128 << 20 // held at once
	accountBodies = 32 << 20  // of one account
	firstRead     = 32 << 10
	bodyTimeout   = 60 * time.Second
)

// bodyMemory counts the bytes of bodies that are held at once, so that no number of
// connections takes more memory than was decided.
type bodyMemory struct {
	mu      sync.Mutex
	all     int
	account map[string]int
}

func newBodyMemory() *bodyMemory { return &bodyMemory{account: map[string]int{}} }

func (m *bodyMemory) take(account string, n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all+n > allBodies || m.account[account]+n > accountBodies {
		return false
	}
	m.all += n
	m.account[account] += n
	return true
}

func (m *bodyMemory) give(account string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all -= n
	if m.account[account] -= n; m.account[account] == 0 {
		delete(m.account, account)
	}
}

// checkMedia refuses bodies that are not plain JSON.
func checkMedia(h http.Header) *wire.Error {
	if e := strings.TrimSpace(h.Get("Content-Encoding")); e != "" && !strings.EqualFold(e, "identity") {
		return wire.UnsupportedContentEncoding(e)
	}
	given := h.Get("Content-Type")
	if given == "" || given == "application/json" {
		return nil
	}
	kind, params, _ := mime.ParseMediaType(given) // no type is "", and broken parameters are not ours to judge
	if kind != "application/json" && !(strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return wire.UnsupportedContentType(given)
	}
	if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") {
		return wire.UnsupportedContentType(given)
	}
	return nil
}

// readBody reads the body. Its memory is taken as the bytes arrive, so a length that is
// announced and never sent holds nothing, and counts until free is called: what a call
// asks lives as long as the call, decoded or not.
func (s *server) readBody(x *exchange) (body []byte, free func(), err error) {
	account, held := x.caller.Account.ID, 0
	free = func() { s.memory.give(account, held) }
	if x.r.ContentLength > maxBodyBytes {
		return nil, free, wire.BodyTooLarge(maxBodyBytes)
	}
	rc := http.NewResponseController(x.w)
	// Writers without deadlines exist in tests only.
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	for size := firstRead; ; size *= 2 {
		if n := x.r.ContentLength; n >= 0 && int(n) < size {
			size = int(n) + 1 // room to see the end
		}
		size = min(size, maxBodyBytes+1)
		if !s.memory.take(account, size-held) {
			return nil, free, wire.Overloaded(time.Second)
		}
		held = size
		grown := make([]byte, size)
		n := copy(grown, body)
		more, err := fill(grown[n:], x.r.Body)
		body = grown[:n+more]
		if len(body) > maxBodyBytes {
			return nil, free, wire.BodyTooLarge(maxBodyBytes)
		}
		if err == io.EOF { //nolint:errorlint // a wrapped one would not be the end of the body
			break
		}
		if err != nil {
			return nil, free, unread(x.r, err)
		}
	}
	_ = rc.SetReadDeadline(time.Time{})
	// Room that was only for reading is garbage when the body has been decoded.
	s.memory.give(account, held-len(body))
	held = len(body)
	return body, free, nil
}

// fill reads until b is full. Unlike [io.ReadFull] it returns the reader's own error,
// which tells the end of a body from a connection that broke in the middle of it.
func fill(b []byte, r io.Reader) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = r.Read(b[n:])
		n += more
	}
	return n, err
}

// unread says what it means that a body could not be read to its end.
func unread(r *http.Request, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return slowBody()
	case errors.Is(err, io.ErrUnexpectedEOF), r.Context().Err() != nil:
		return chat.ErrClientGone
	}
	// A chunked body that breaks its encoding, or a connection that was lost.
	return brokenBody()
}
