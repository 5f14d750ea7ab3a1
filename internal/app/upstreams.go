package app

import (
	"errors"
	"net/url"
	"strings"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/tokenizer"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/routing"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/local"
	"github.com/parley-ai/parley/internal/upstream/openai"
)

// upstreams is what computes answers, by the ids of the configuration.
type upstreams struct {
	providers map[string]upstream.Provider
	options   map[string]routing.Options
	engines   map[string]*engine.Engine
	counters  map[string]openai.Counter // by the name of their vocabulary
	closers   []func() error
}

// openUpstreams loads the weights of every local upstream and prepares every other; no
// connection is made. The caller closes what it returns.
func openUpstreams(c *config.Config, s *screen) (_ *upstreams, err error) {
	u := &upstreams{
		providers: make(map[string]upstream.Provider), options: make(map[string]routing.Options),
		engines: make(map[string]*engine.Engine), counters: make(map[string]openai.Counter),
	}
	for _, each := range c.Upstreams {
		if each.Kind == config.KindOpenAI {
			err = u.remote(each, s)
		} else {
			err = u.local(c, each, s)
		}
		if err != nil {
			return nil, errors.Join(err, u.close())
		}
	}
	return u, nil
}

// targetChanged tells of a target that is ejected or serves again.
func (a *App) targetChanged(c routing.Change) {
	a.targets.note(c)
	if c.Class == "" {
		a.log.Info("target serves again", "target", c.Target.String())
		return
	}
	a.metrics.Ejected(c.Target.Upstream, string(c.Class))
	a.log.Warn("target ejected", "target", c.Target.String(), "class", string(c.Class), "error", c.Err, "until", c.Until.UTC())
}

// close ends what computes.
func (u *upstreams) close() error {
	var errs []error
	for _, c := range u.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

func (u *upstreams) local(c *config.Config, each config.Upstream, s *screen) error {
	e, err := openEngine(c, each, s)
	if err != nil {
		return err
	}
	u.closers = append(u.closers, e.Close)
	u.engines[each.ID] = e
	u.providers[each.ID] = local.New(e)
	return nil
}

func (u *upstreams) remote(each config.Upstream, s *screen) error {
	counter, err := u.counter(each.Tokenizer)
	if err != nil {
		return refuse("tokenizer", "The tokenizer "+each.Tokenizer+" of upstream "+each.ID+" cannot be used: "+err.Error()+".")
	}
	proxy, through, err := proxyOf(each)
	if err != nil {
		return err
	}
	p, err := openai.New(openai.Options{
		BaseURL: each.BaseURL, APIKey: string(each.APIKey), Counter: counter, PublicOnly: each.PublicOnly,
		RootCAs: each.RootCAs, Proxy: proxy, CompletionTokens: each.CompletionTokens,
		Timeouts: openai.Timeouts{
			Connect: each.Timeouts.Connect, FirstToken: each.Timeouts.FirstToken, Idle: each.Timeouts.Idle, Total: each.Timeouts.Total,
		},
	})
	if err != nil {
		return refuse("upstream", "The upstream "+each.ID+" cannot be used: "+strings.TrimPrefix(err.Error(), openai.ErrOptions.Error()+": ")+".")
	}
	u.closers = append(u.closers, func() error { p.Close(); return nil })
	u.providers[each.ID] = p
	u.options[each.ID] = routing.Options{Retries: each.Retries}
	s.note("upstream %s, %s%s", each.ID, host(each.BaseURL), through)
	return nil
}

// proxyOf is the proxy of an upstream, nil without, and how the screen names it. The error
// does not repeat a URL that may hold a password.
func proxyOf(each config.Upstream) (u *url.URL, through string, err error) {
	if each.Proxy == "" {
		return nil, "", nil
	}
	if u, err = url.Parse(string(each.Proxy)); err != nil {
		return nil, "", refuse("upstream", "The proxy of upstream "+each.ID+" is not a URL.")
	}
	return u, " through " + u.Host, nil
}

// host is where a base URL points, for people.
func host(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	return u.Host
}

// counter is the counter of a vocabulary, of which one is enough for all upstreams.
func (u *upstreams) counter(name string) (openai.Counter, error) {
	if c, ok := u.counters[name]; ok {
		return c, nil
	}
	var c openai.Counter
	if strings.HasSuffix(name, ".gguf") {
		f, err := gguf.Open(name)
		if err != nil {
			return nil, err
		}
		u.closers = append(u.closers, f.Close)
		tk, err := tokenizer.FromGGUF(f)
		if err != nil {
			return nil, err
		}
		c = vocabulary{tk}
	} else {
		var err error
		if c, err = openai.NewTiktoken(name); err != nil {
			return nil, err
		}
	}
	u.counters[name] = c
	return c, nil
}

// vocabulary counts as the tokenizer of a model file does.
type vocabulary struct{ tokenizer *tokenizer.Tokenizer }

// Count returns the number of tokens of text, or one more than limit.
func (v vocabulary) Count(text string, limit int) (int, error) {
	if limit <= 0 && text != "" {
		return max(limit, 0) + 1, nil // a limit of 0 would be none; no text has fewer
	}
	ids, ok := v.tokenizer.EncodeLimit(nil, text, false, limit)
	if !ok {
		return limit + 1, nil
	}
	return len(ids), nil
}
