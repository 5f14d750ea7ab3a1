package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/parley-ai/parley/internal/wire"
)

// route is one path of the public surface.
type route struct {
	name    string // for the log
	path    string // without a slash at its end; "*" at the end takes the rest
	methods []string
	serve   func(s *server, x *exchange, rest string) error
}

var (
	get  = []string{http.MethodGet, http.MethodHead}
	post = []string{http.MethodPost}
)

// routes is the whole public surface.
func routes() []route {
	return []route{
		{"chat.completions", "/v1/chat/completions", post, (*server).chatCompletions},
		{"models.list", "/v1/models", get, (*server).listModels},
		{"models.retrieve", "/v1/models/*", get, (*server).retrieveModel},
		{"payments.stripe", "/webhooks/stripe", post, (*server).stripe},
		{"healthz", "/healthz", get, (*server).healthz},
		{"readyz", "/readyz", get, (*server).readyz},
	}
}

// match finds the route of a request. Slashes that are doubled or end the path do not
// count, so that a base URL with a slash too many works; nothing is ever redirected,
// because clients do not repeat a POST. rest is the unescaped end of the path.
func (s *server) match(r *http.Request) (found route, rest string, err error) {
	path := r.URL.EscapedPath()
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.Contains(path, "//") {
		path = "/" + strings.Join(strings.FieldsFunc(path, func(c rune) bool { return c == '/' }), "/")
	}
	for _, rt := range s.routes {
		prefix, wild := strings.CutSuffix(rt.path, "*")
		switch {
		case path == rt.path:
		case wild && strings.HasPrefix(path, prefix):
			if rest, err = url.PathUnescape(path[len(prefix):]); err != nil {
				return route{}, "", wire.UnknownURL(r.Method, path)
			}
		default:
			continue
		}
		if !slices.Contains(rt.methods, r.Method) {
			return route{}, "", wire.MethodNotAllowed(r.Method, path, strings.Join(rt.methods, ", "))
		}
		return rt, rest, nil
	}
	return route{}, "", wire.UnknownURL(r.Method, path)
}

func (s *server) healthz(x *exchange, _ string) error {
	return x.json(http.StatusOK, []byte(`{"status":"ok"}`))
}

func (s *server) readyz(x *exchange, _ string) error {
	if err := s.Ready(); err != nil {
		x.fail(notReady(err))
		return nil
	}
	return x.json(http.StatusOK, []byte(`{"status":"ready"}`))
}

// common are headers of every answer. They let browsers of any origin read it: keys
// travel in a header that no browser adds by itself, so no page can act for its visitor.
func common() http.Header {
	return http.Header{
		"X-Content-Type-Options":        {"nosniff"},
		"Access-Control-Allow-Origin":   {"*"},
		"Access-Control-Expose-Headers": {"x-request-id, idempotent-replayed, retry-after, retry-after-ms, x-should-retry, x-ratelimit-limit-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, x-ratelimit-reset-tokens"},
	}
}

// preflight answers OPTIONS on any path. The headers that a browser wants to send are
// reflected: a star does not cover Authorization, and SDKs add their own.
func (x *exchange) preflight() {
	h := x.w.Header()
	h["Access-Control-Allow-Methods"] = []string{"GET, POST, OPTIONS"}
	if want := x.r.Header.Get("Access-Control-Request-Headers"); want != "" && len(want) <= 4096 {
		h["Access-Control-Allow-Headers"] = []string{want}
		h.Add("Vary", "Access-Control-Request-Headers")
	}
	h["Access-Control-Max-Age"] = []string{"600"}
	x.writeBy(writeTimeout)
	x.status = http.StatusNoContent
	x.w.WriteHeader(http.StatusNoContent)
}
