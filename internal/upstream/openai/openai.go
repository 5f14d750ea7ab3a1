// Package openai is the provider for servers that speak the convention themselves:
// vLLM, SGLang, llama-server, Ollama and hosted APIs.
//
// A provider is not trusted. Whatever it sends becomes the events of
// [upstream.Provider] in their order, or a failure; its words reach the log only, and
// its sizes, its silence and its numbers are bounded.
package openai

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/sse"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// Options say where a provider is and how it is used.
type Options struct {
	// BaseURL is what the paths of the convention follow, such as
	// http://127.0.0.1:8000/v1.
	BaseURL string
	// APIKey is sent as a bearer token, unless it is empty.
	APIKey string
	// Counter counts prompts, and answers for which the provider gives no usage. It is
	// an estimate when the model has another vocabulary.
	Counter Counter
	// Timeouts that are 0 have their defaults.
	Timeouts Timeouts
	// PublicOnly refuses hosts in private networks and on this machine, and plain http.
	// It is off by default: operators write base URLs themselves, and a server of
	// their own in their own network is the usual case. Link-local addresses, where
	// clouds hand out credentials, are refused always.
	PublicOnly bool
	// RootCAs are the only authorities whose word for an https server is taken; nil means
	// those that the system trusts.
	RootCAs *x509.CertPool
	// Proxy is asked for a connection to the server by CONNECT, so that it sees the
	// server's name and nothing else: http, a host, maybe user and password. nil means
	// that the server is dialled; what the environment says is never looked at. With a
	// proxy it is the proxy's address that is checked when it is dialled.
	Proxy *url.URL
	// CompletionTokens names the bound of the answer max_completion_tokens instead of
	// max_tokens, as some hosted models demand. Others do not know that name.
	CompletionTokens bool
}

// Timeouts bound a call in time.
type Timeouts struct {
	Connect    time.Duration // to a connection, once more through a proxy and once more to TLS; default 2s
	FirstToken time.Duration // from the start to the first piece of an answer; default 60s
	Idle       time.Duration // between bytes after that; default 60s
	Total      time.Duration // of the whole call; default 30m
}

func (t Timeouts) withDefaults() Timeouts {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&t.Connect, 2*time.Second)
	set(&t.FirstToken, time.Minute)
	set(&t.Idle, time.Minute)
	set(&t.Total, 30*time.Minute)
	return t
}

// Provider asks one server. It is safe for concurrent use.
type Provider struct {
	options   Options
	transport *transport
	words     *words // that answers are made of
	readers   sync.Pool
	prints    sync.Map // fingerprints by model
}

var _ upstream.Provider = (*Provider)(nil)

// ErrOptions means options that no provider can be made of.
var ErrOptions = errors.New("upstream cannot be used")

// New returns a provider that has not connected yet. It fails with [ErrOptions] when
// the base URL, the key or the counter cannot be used.
func New(o Options) (*Provider, error) {
	u, err := url.Parse(o.BaseURL)
	switch {
	case err != nil:
		// The error of url.Parse repeats the URL, which may hold a password.
		return nil, fmt.Errorf("%w: base_url is not a URL", ErrOptions)
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, fmt.Errorf("%w: base_url must be http or https with a host", ErrOptions)
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, fmt.Errorf("%w: base_url must have its host in ASCII (xn--…)", ErrOptions)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("%w: base_url must not have a user, a query or a fragment", ErrOptions)
	case o.PublicOnly && u.Scheme != "https":
		return nil, fmt.Errorf("%w: base_url must be https to a public host", ErrOptions)
	case o.RootCAs != nil && u.Scheme != "https":
		return nil, fmt.Errorf("%w: certificate authorities are of use with https only", ErrOptions)
	case o.Proxy != nil && (o.Proxy.Scheme != "http" || o.Proxy.Hostname() == ""):
		return nil, fmt.Errorf("%w: the proxy must be http with a host", ErrOptions)
	case o.Proxy != nil && (u.Scheme != "https" || o.PublicOnly):
		return nil, fmt.Errorf("%w: a proxy needs an https base_url, and cannot tell whether an address is public", ErrOptions)
	case strings.ContainsFunc(o.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, fmt.Errorf("%w: the API key must be printable and without spaces", ErrOptions)
	case o.Counter == nil:
		return nil, fmt.Errorf("%w: there is no counter of tokens", ErrOptions)
	}
	o.Timeouts = o.Timeouts.withDefaults()
	if u.Path == "" {
		u.Path = "/" // JoinPath leaves a path without a beginning as it is
	}
	u.Host = strings.TrimSuffix(u.Host, ":")
	u = u.JoinPath("chat", "completions")
	return &Provider{
		options:   o,
		transport: newTransport(u, o),
		words:     newWords(),
	}, nil
}

// Close closes the connections that no call uses. Calls may still be made.
func (p *Provider) Close() { p.transport.close() }

// Capabilities is what can be asked of any model here; whether the model is good at it
// is not known.
func (p *Provider) Capabilities(string) wire.Capabilities {
	return wire.Capabilities{
		JSONObject: true, JSONSchema: true, Tools: true,
		FrequencyPenalty: true, PresencePenalty: true, LogitBias: true, Logprobs: true, MultipleChoices: true,
	}
}

// CountPrompt estimates the prompt by the counter: what the model's own template and
// vocabulary make of it is not known.
func (p *Provider) CountPrompt(req *wire.ChatRequest, limit int) (upstream.Prompt, error) {
	n, err := countPrompt(p.options.Counter, req, limit)
	return upstream.Prompt{Tokens: n}, err
}

// Generate asks the provider for a stream with usage, whatever the caller asked for. A
// provider that leaves out choices or log-probabilities that were asked for has failed.
// When the provider says that prompt and
// bound together are too long, and how long the prompt is, it is asked once more for
// what fits.
func (p *Provider) Generate(ctx context.Context, call *upstream.Call, yield func(upstream.Event) error) error {
	bound := call.MaxTokens
	err := p.attempt(ctx, call, bound, yield)
	long, ok := errors.AsType[*tooLong](err)
	if ok && long.room() > 0 && long.room() < bound {
		err = p.attempt(ctx, call, long.room(), yield)
		long, ok = errors.AsType[*tooLong](err)
	}
	if ok {
		return &upstream.Rejected{Answer: long.answer(call.Window), Err: long.err}
	}
	return err
}

// attempt is one request. bound is the max_tokens it asks for.
func (p *Provider) attempt(ctx context.Context, call *upstream.Call, bound int, yield func(upstream.Event) error) error {
	w := newWatch(ctx, p.options.Timeouts)
	defer w.stop()
	r, used := p.readers.Get().(*reader)
	if !used {
		r = newReader()
	}
	defer func() {
		if r.small() {
			p.readers.Put(r)
		}
	}()
	// What is sent is made of nothing that a client sent but the decoded body.
	var err error
	if r.request, err = p.encode(r.request[:0], call, bound); err != nil {
		return &upstream.Failure{Class: upstream.Failed, Err: err}
	}
	answer, connected, err := p.transport.do(ctx, w, r.request)
	if err != nil {
		return p.unanswered(ctx, w, err, connected)
	}
	// What is unread costs the connection, which is how the provider learns of it.
	defer answer.Close()
	if fault := p.refused(call.Request, &answer.head, answer); fault != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fault
	}
	s := newStream(call, p.options.Counter, p.words, p.fingerprint(call.Model), w, yield)
	err = s.run(answer, r)
	switch {
	case err == nil:
		return nil
	case s.yieldErr != nil:
		return s.yieldErr
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return p.broken(s, w, err)
}

// unanswered classifies the error of a request that got no answer.
func (p *Provider) unanswered(ctx context.Context, w *watch, err error, connected bool) error {
	if ctx.Err() != nil {
		if !connected {
			return errors.Join(upstream.ErrNotStarted, context.Cause(ctx))
		}
		return context.Cause(ctx)
	}
	f := &upstream.Failure{Class: upstream.Failed, Err: p.clean(err.Error()), Retryable: !errors.Is(err, errSpeaksTLS)}
	switch {
	case w.expired() != nil:
		f.Class, f.Err = upstream.Timeout, w.expired()
	case !connected:
		f.Class, f.Retryable = upstream.Unreachable, transient(err)
	}
	return f
}

// broken classifies the error of an answer that had begun to arrive.
func (p *Provider) broken(s *stream, w *watch, err error) error {
	if fault, ok := errors.AsType[*faultError](err); ok && !s.begun {
		return p.classify(s.call.Request, fault.status(), fault.body, 0)
	}
	f := &upstream.Failure{Class: upstream.Failed, Err: p.clean(err.Error()), Retryable: !errors.Is(err, errAnswer) && !errors.Is(err, sse.ErrTooLong)}
	switch {
	case w.expired() != nil:
		f.Class, f.Err = upstream.Timeout, w.expired()
	case s.begun && (s.call.Request.Stream || !errors.Is(err, errForm)):
		f.Class = upstream.Cut
	}
	f.Retryable = f.Retryable && !s.begun
	return f
}

// fingerprint stands for the model; the provider's own may change from call to call,
// and some put its name into it.
func (p *Provider) fingerprint(model string) string {
	if known, ok := p.prints.Load(model); ok {
		return known.(string) //nolint:forcetypeassert // nothing else is stored
	}
	sum := sha256.Sum256([]byte(model))
	made := "fp_" + hex.EncodeToString(sum[:5])
	p.prints.Store(model, made)
	return made
}
