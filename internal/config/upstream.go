package config

import (
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// The kinds of upstreams.
const (
	KindLocal  = "local"  // the embedded engine
	KindOpenAI = "openai" // any server that speaks the convention
)

// Upstream is a place where models run. Only the fields of its Kind are set.
type Upstream struct {
	ID   string
	Kind string

	// Weights is the GGUF file of a local upstream. Empty means that the default
	// weights are sought in ./weights, beside the binary, then in DATA/weights.
	Weights string

	// BaseURL is what the paths of the convention follow: http or https, a host, and
	// nothing secret.
	BaseURL string
	// APIKey is the provider's key for us, from the file or from a file of its own;
	// empty sends none. It is printable and has no spaces.
	APIKey Secret
	// PublicOnly allows only https and addresses on the internet.
	PublicOnly bool
	// RootCAs are the only authorities that may vouch for the server, from ca_file; nil
	// means those of the system. BaseURL is https then.
	RootCAs *x509.CertPool
	// Proxy is the http URL of what connects us to the server, which is https and not
	// PublicOnly then; it may hold a user and a password. Empty means none.
	Proxy Secret
	// Retries is how many further attempts a call makes at this upstream before its
	// first byte. Default 2, at most 5.
	Retries int
	// Timeouts bound a call; all are set.
	Timeouts Timeouts
	// Tokenizer counts prompts, and answers whose usage the provider does not tell: one
	// of [Encodings], or the path of a GGUF file. Default o200k_base.
	Tokenizer string
	// CompletionTokens calls the bound of an answer max_completion_tokens instead of
	// max_tokens.
	CompletionTokens bool
}

// Timeouts bound a call to an upstream in time.
type Timeouts struct {
	// Connect bounds dialing, once more a proxy's answer and once more the TLS handshake.
	// Default 2s.
	Connect time.Duration
	// FirstToken is from the start to the first piece of an answer. Default 60s.
	FirstToken time.Duration
	// Idle is between two bytes after it. Default 60s.
	Idle time.Duration
	// Total is of the whole call. Default 30m.
	Total time.Duration
}

// Secret is text that does not print itself.
type Secret string

// String is a placeholder.
func (Secret) String() string { return "[secret]" }

// GoString is a placeholder.
func (Secret) GoString() string { return "[secret]" }

// Encodings are the published vocabularies of hosted models.
func Encodings() []string { return []string{"o200k_base", "cl100k_base", "p50k_base", "r50k_base"} }

const (
	defaultRetries = 2
	mostRetries    = 5
	mostKeyBytes   = 8 << 10 // no key comes near it
	mostCABytes    = 4 << 20 // ten times all that a browser trusts
)

func (r *reader) upstream(n *yaml.Node, c *Config, s *section) {
	var u Upstream
	where := r.entry(n, "upstream", &u.ID)
	kindNode := child(n, "kind")
	if kindNode != nil {
		r.str(where+"kind", &u.Kind)(kindNode)
	}
	switch {
	case u.Kind == KindLocal:
		r.fields(n, where, "Upstreams of kind local", []field{
			{"id", func(*yaml.Node) {}},
			{"kind", func(*yaml.Node) {}},
			{"weights", r.path(where+"weights", &u.Weights)},
		})
	case u.Kind == KindOpenAI:
		r.openai(n, where, &u)
	case kindNode != nil:
		// Its other keys belong to that kind: one problem says it all.
		r.problem(kindNode, "%skind %q is not supported by this version. Use kind: local or kind: openai.", where, u.Kind)
	case n.Kind == yaml.MappingNode:
		r.problem(n, "%sno kind. Add kind: local or kind: openai.", where)
	default:
		r.fields(n, where, "Upstreams", nil) // it says what was found instead
	}
	s.upstreams = append(s.upstreams, n)
	c.Upstreams = append(c.Upstreams, u)
}

func (r *reader) openai(n *yaml.Node, where string, u *Upstream) {
	u.Retries, u.Tokenizer = defaultRetries, Encodings()[0]
	u.Timeouts = Timeouts{Connect: 2 * time.Second, FirstToken: time.Minute, Idle: time.Minute, Total: 30 * time.Minute}
	var base *yaml.Node
	seen := r.fields(n, where, "Upstreams of kind openai", []field{
		{"id", func(*yaml.Node) {}},
		{"kind", func(*yaml.Node) {}},
		{"base_url", func(v *yaml.Node) { base = v }},
		{"api_key", func(v *yaml.Node) { r.key(v, where+"api_key", &u.APIKey) }},
		{"api_key_file", func(v *yaml.Node) { r.keyFile(v, where+"api_key_file", &u.APIKey) }},
		{"ca_file", func(v *yaml.Node) { r.authorities(v, where+"ca_file", &u.RootCAs) }},
		{"proxy", func(v *yaml.Node) { r.proxy(v, where+"proxy", &u.Proxy) }},
		{"public_only", r.truth(where+"public_only", &u.PublicOnly)},
		{"retries", r.atMost(where+"retries", mostRetries, &u.Retries)},
		{"timeouts", func(v *yaml.Node) { r.timeouts(v, where, &u.Timeouts) }},
		{"tokenizer", func(v *yaml.Node) { r.tokenizer(v, where+"tokenizer", &u.Tokenizer) }},
		{"completion_tokens_name", func(v *yaml.Node) { r.boundName(v, where+"completion_tokens_name", &u.CompletionTokens) }},
	})
	if base != nil {
		r.baseURL(base, where+"base_url", u) // after public_only
	} else if seen != nil && seen["base_url"] == nil {
		r.problem(n, "%sno base_url. Add base_url: http://127.0.0.1:8000/v1", where)
	}
	if seen["api_key"] != nil && seen["api_key_file"] != nil {
		r.problem(seen["api_key_file"], "%sapi_key and api_key_file are both given. Leave one.", where)
	}
	r.encrypted(seen, where, u)
}

// encrypted checks the keys that have a meaning with https only. A base_url that is not
// good has its own problem.
func (r *reader) encrypted(seen map[string]*yaml.Node, where string, u *Upstream) {
	for _, key := range []string{"ca_file", "proxy"} {
		if seen[key] != nil && strings.HasPrefix(strings.ToLower(u.BaseURL), "http:") {
			r.problem(seen[key], "%s%s needs a base_url of https.", where, key)
		}
	}
	if seen["proxy"] != nil && u.PublicOnly {
		r.problem(seen["proxy"], "%sproxy and public_only exclude each other: the proxy looks up the address, so it cannot be checked.", where)
	}
}

// baseURL never repeats what is wrong: it may hold a password.
func (r *reader) baseURL(n *yaml.Node, what string, u *Upstream) {
	s, ok := r.text(n, what)
	if !ok {
		return
	}
	parsed, err := url.Parse(s)
	switch {
	case err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || !dialable(parsed):
		r.problem(n, "%s must be http or https with a host, such as http://127.0.0.1:8000/v1.", what)
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		r.problem(n, "%s must not have a user, a query or a fragment. A key goes to api_key.", what)
	case u.PublicOnly && parsed.Scheme != "https":
		r.problem(n, "%s must be https where public_only is true.", what)
	default:
		u.BaseURL = s
	}
}

func (r *reader) timeouts(n *yaml.Node, where string, t *Timeouts) {
	where += "timeouts: "
	bound := func(key string, into *time.Duration) field {
		return field{key, func(v *yaml.Node) {
			r.duration(where+key, into)(v)
			if *into == 0 {
				r.problem(v, "%s%s must be more than 0.", where, key)
			}
		}}
	}
	r.fields(n, where, "Timeouts", []field{
		bound("connect", &t.Connect), bound("first_token", &t.FirstToken), bound("idle", &t.Idle), bound("total", &t.Total),
	})
}

func (r *reader) tokenizer(n *yaml.Node, what string, into *string) {
	s, ok := r.text(n, what)
	switch {
	case !ok:
	case strings.HasSuffix(s, ".gguf"):
		r.path(what, into)(n)
	case slices.Contains(Encodings(), s):
		*into = s
	default:
		r.problem(n, "%s must be %s or the path of a GGUF file, not %q.", what, strings.Join(Encodings(), ", "), s)
	}
}

func (r *reader) boundName(n *yaml.Node, what string, into *bool) {
	const ordinary, hosted = "max_tokens", "max_completion_tokens"
	s, ok := r.text(n, what)
	if ok && s != ordinary && s != hosted {
		r.problem(n, "%s must be %s or %s, not %q.", what, ordinary, hosted, s)
	}
	*into = s == hosted
}

func (r *reader) truth(what string, into *bool) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := r.text(n, what)
		if ok && s != "true" && s != "false" {
			r.problem(n, "%s must be true or false, not %q.", what, s)
		}
		*into = s == "true"
	}
}

// atMost is count with a bound of its own.
func (r *reader) atMost(what string, most int, into *int) func(*yaml.Node) {
	return func(n *yaml.Node) {
		v := *into
		r.count(what, 0, &v)(n)
		if v > most {
			r.problem(n, "%s must be at most %d, not %d.", what, most, v)
			return
		}
		*into = v
	}
}
