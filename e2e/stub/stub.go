// Package stub is a provider of models for tests: it speaks the convention and does what the last
// message of a request tells it, word by word, so that a test knows every byte of its answer.
package stub

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Server is a running provider.
type Server struct {
	// URL is the base of its paths.
	URL string

	server    *httptest.Server
	running   atomic.Int64
	calls     atomic.Int64
	cancelled atomic.Int64
	conns     atomic.Int64
	hungUp    atomic.Int64
	seen      sync.Map // texts that came with hangup
	released  chan struct{}
	release   sync.Once
}

// Start runs a provider until Close.
func Start() *Server { return StartTLS(nil) }

// StartTLS is Start over TLS with that configuration, over plain HTTP without one.
func StartTLS(config *tls.Config) *Server {
	s := &Server{released: make(chan struct{})}
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail on purpose
	s.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	if config == nil {
		s.server.Start()
	} else {
		s.server.TLS = config
		s.server.StartTLS()
	}
	s.URL = s.server.URL + "/v1"
	return s
}

// Close cuts what runs.
func (s *Server) Close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// Release lets the calls go on that hold, and those that come later.
func (s *Server) Release() { s.release.Do(func() { close(s.released) }) }

// Running is how many calls are being answered.
func (s *Server) Running() int64 { return s.running.Load() }

// Calls is how many calls have come.
func (s *Server) Calls() int64 { return s.calls.Load() }

// Cancelled is how many callers left before the end.
func (s *Server) Cancelled() int64 { return s.cancelled.Load() }

// Connections is how many were made.
func (s *Server) Connections() int64 { return s.conns.Load() }

// HungUp is how many connections it ended by hand.
func (s *Server) HungUp() int64 { return s.hungUp.Load() }

// Word is the text of one event: one token of the common vocabularies.
const Word = " yes"

// order is what a call is told to do.
type order struct {
	words   int           // events with a word each
	pace    time.Duration // between them
	silent  time.Duration // once, after the first
	hold    bool          // after the first, until Release
	usage   string        // "none", or counts that are told whatever they are
	hostile string        // a way to misbehave
	hangUp  string        // a way to end the connection
}

// parse reads orders such as "words=5 pace=2ms hold".
func parse(text string) order {
	o := order{words: 3}
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "words":
			o.words, _ = strconv.Atoi(value)
		case "pace":
			o.pace, _ = time.ParseDuration(value)
		case "silent":
			o.silent, _ = time.ParseDuration(value)
		case "hold":
			o.hold = true
		case "usage":
			o.usage = value
		case "hostile":
			o.hostile = value
		case "hangup":
			o.hangUp = value
		}
	}
	return o
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.calls.Add(1)
	s.running.Add(1)
	defer s.running.Add(-1)
	var req struct {
		MaxTokens int `json:"max_tokens"`
		Messages  []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Messages) == 0 {
		http.Error(w, "no chat", http.StatusBadRequest)
		return
	}
	text := req.Messages[len(req.Messages)-1].Content
	o := parse(text)
	if o.hangUp != "" && s.hangUp(w, text, o.hangUp) {
		return
	}
	if o.hostile != "" {
		misbehave(w, r, o.hostile)
		return
	}
	finish := "stop"
	if req.MaxTokens > 0 && req.MaxTokens <= o.words {
		o.words, finish = req.MaxTokens, "length"
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if !s.answer(w, r, o, finish) {
		s.cancelled.Add(1)
	}
}

// answer says the words and reports whether the caller heard them all.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, o order, finish string) bool {
	rc := http.NewResponseController(w)
	for i := range o.words {
		if i == 1 && o.hold {
			_ = rc.Flush()
			select {
			case <-s.released:
			case <-r.Context().Done():
				return false
			}
		}
		wait := o.pace
		if i == 1 && o.silent > 0 {
			wait = o.silent
		}
		if wait > 0 {
			_ = rc.Flush()
			select {
			case <-time.After(wait):
			case <-r.Context().Done():
				return false
			}
		}
		if _, err := fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", Word); err != nil {
			return false
		}
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\n", finish)
	switch o.usage {
	case "none":
	case "":
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d}}\n\n", o.words)
	default:
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%s,\"completion_tokens\":%s}}\n\n", o.usage, o.usage)
	}
	_, err := fmt.Fprint(w, "data: [DONE]\n\n")
	return err == nil && rc.Flush() == nil
}
