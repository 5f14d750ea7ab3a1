// Package provider is a server of the convention for Parley to ask: what it answers is the script
// that the model is named after, and it remembers what it was asked and what it counted.
package provider

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"
)

// Patience bounds every wait of a script: a test that fails does not hang.
const Patience = 3 * time.Minute

// Provider is a running server.
type Provider struct {
	// URL is the base URL for a configuration; Control is where clients ask about their calls.
	URL, Control string

	server *httptest.Server
	end    chan struct{} // closed by Close: nothing waits for anything any more

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced whenever something below changes
	calls    []*Call
	released map[string]bool
}

// Call is one request to the provider. The fields are settled once Ended is.
type Call struct {
	Script string
	// Text is the last message's, by which a client finds its call again.
	Text string
	// Prompt is a number of tokens that no other call has, so that a receipt shows its call.
	Prompt, Cached, Completion int64
	// Told is whether the usage was sent, Whole whether the answer was sent to its end.
	Told, Whole bool
	// Gone is when Parley closed the connection before the end; zero when it did not.
	Gone time.Time
	// Ended is when the script was over.
	Ended time.Time
}

// Start listens on a free port of this machine, over TLS with a configuration for it.
func Start(config *tls.Config) *Provider {
	p := &Provider{end: make(chan struct{}), changed: make(chan struct{}), released: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", p.chat)
	mux.HandleFunc("GET /control/gone", p.gone)
	mux.HandleFunc("GET /control/calls", p.asked)
	mux.HandleFunc("POST /control/release", p.release)
	p.server = httptest.NewUnstartedServer(mux)
	if config == nil {
		p.server.Start()
	} else {
		p.server.TLS = config
		p.server.StartTLS()
	}
	p.URL, p.Control = p.server.URL+"/v1", p.server.URL+"/control"
	return p
}

// Close ends every script and the server.
func (p *Provider) Close() {
	close(p.end)
	p.server.CloseClientConnections()
	p.server.Close()
}

// Calls returns what was asked so far, in order.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Call, len(p.calls))
	for i, c := range p.calls {
		list[i] = *c
	}
	return list
}

// change does f under the lock and wakes whoever waits.
func (p *Provider) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait returns when is true, after Patience, at the end, or when done is closed.
func (p *Provider) wait(done <-chan struct{}, is func() bool) {
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	for {
		p.mu.Lock()
		ok, changed := is(), p.changed
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-done:
			return
		case <-p.end:
			return
		case <-deadline.C:
			return
		}
	}
}

// attempts is how many calls had this script and this text, the running one included.
func (p *Provider) attempts(script, text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.calls {
		if c.Script == script && c.Text == text {
			n++
		}
	}
	return n
}

// gone tells when Parley left the last call with ?text=…, in milliseconds since 1970; it waits for
// that.
func (p *Provider) gone(w http.ResponseWriter, r *http.Request) {
	text := r.FormValue("text")
	var at time.Time
	p.wait(r.Context().Done(), func() bool {
		for _, c := range p.calls {
			if c.Text == text {
				at = c.Gone
			}
		}
		return !at.IsZero()
	})
	fmt.Fprintf(w, `{"gone_ms":%s}`, strconv.FormatFloat(float64(at.UnixMicro())/1000, 'f', 3, 64))
}

// asked tells how many calls had ?text=….
func (p *Provider) asked(w http.ResponseWriter, r *http.Request) {
	text, n := r.FormValue("text"), 0
	for _, c := range p.Calls() {
		if c.Text == text {
			n++
		}
	}
	fmt.Fprintf(w, `{"calls":%d}`, n)
}

// release lets the scripts that hold a call with ?text=… go on.
func (p *Provider) release(_ http.ResponseWriter, r *http.Request) {
	p.change(func() { p.released[r.FormValue("text")] = true })
}

// request is what the scripts look at.
type request struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	N        int    `json:"n"`
	Logprobs bool   `json:"logprobs"`
	Top      int    `json:"top_logprobs"`
	Messages []struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"tool_call_id"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	ToolChoice     json.RawMessage `json:"tool_choice"`
	ResponseFormat struct {
		Type   string `json:"type"`
		Schema struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

// text is the content of message i, whether it is text or parts.
func (r *request) text(i int) string {
	var s string
	if json.Unmarshal(r.Messages[i].Content, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(r.Messages[i].Content, &parts) // null has no text
	for _, part := range parts {
		s += part.Text
	}
	return s
}

func (p *Provider) chat(w http.ResponseWriter, r *http.Request) {
	var req request
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Messages) == 0 {
		http.Error(w, `{"error":{"message":"no request","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	c := &Call{Script: req.Model, Text: req.text(len(req.Messages) - 1)}
	p.change(func() {
		p.calls = append(p.calls, c)
		c.Prompt = int64(100 + len(p.calls))
	})
	a := &answer{provider: p, request: &req, call: c, w: w, done: r.Context().Done(), flush: http.NewResponseController(w)}
	// A script that cuts the answer panics with http.ErrAbortHandler.
	defer p.change(func() {
		c.Ended = time.Now()
		if r.Context().Err() != nil && !a.whole {
			c.Gone = c.Ended
		}
		c.Cached, c.Completion, c.Told, c.Whole = a.cached, a.completion, a.told, a.whole
	})
	a.play()
}
