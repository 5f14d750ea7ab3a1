package config

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/parley-ai/parley/internal/money"
)

// Webhook is another system of the operator that is told of changes.
type Webhook struct {
	// URL is https, or http in a private network. It may have a secret in its path.
	URL string
	// Secret signs what is sent.
	Secret Secret
	// Events are the kinds that are sent; none means all.
	Events []string
}

// WebhookEvents are the kinds of events.
func WebhookEvents() []string {
	return []string{
		"credit.low", "budget.low", "budget.spent", "account.suspended", "account.activated",
		"subscription.changed", "subscription.renewed", "subscription.past_due", "subscription.ended", "ledger.unbalanced",
	}
}

// leastSecret is how short a secret may be: anyone can try to guess it.
const leastSecret = 16

func (r *reader) webhook(n *yaml.Node, c *Config) {
	const where = "webhook: "
	var w Webhook
	seen := r.fields(n, where, "Webhooks", []field{
		{"url", func(v *yaml.Node) { r.webhookURL(v, where+"url", &w.URL) }},
		{"secret", func(v *yaml.Node) { r.secret(v, where+"secret", &w.Secret) }},
		{"events", func(v *yaml.Node) {
			r.list(v, where+"events", func(item *yaml.Node) {
				kind, ok := r.text(item, where+"events")
				if ok && !slices.Contains(WebhookEvents(), kind) {
					r.problem(item, "%sno event is called %q. Events: %s.", where, kind, strings.Join(WebhookEvents(), ", "))
				}
				w.Events = append(w.Events, kind)
			})
			if v.Kind == yaml.SequenceNode && len(v.Content) == 0 {
				r.problem(v, "%sevents is empty. Leave it out for all.", where)
			}
		}},
	})
	if seen != nil {
		for _, need := range []struct{ key, add string }{{"url", "https://example.org/parley"}, {"secret", "${NAME}"}} {
			if seen[need.key] == nil {
				r.problem(n, "a webhook has no %s. Add %s: %s", need.key, need.key, need.add)
			}
		}
	}
	if slices.ContainsFunc(c.Webhooks, func(o Webhook) bool { return o.URL == w.URL && w.URL != "" }) {
		r.problem(n, "two webhooks have the same url.")
	}
	c.Webhooks = append(c.Webhooks, w)
}

// webhookURL never repeats what is wrong: it may hold a secret.
func (r *reader) webhookURL(n *yaml.Node, what string, into *string) {
	s, ok := r.text(n, what)
	if !ok {
		return
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || !dialable(u):
		r.problem(n, "%s must be https with a host, such as https://example.org/parley.", what)
	case u.User != nil || u.Fragment != "":
		r.problem(n, "%s must not have a user or a fragment.", what)
	case u.Scheme == "http" && !privateHost(u.Hostname()):
		r.problem(n, "%s must be https outside of private networks.", what)
	default:
		*into = s
	}
}

// privateHost says whether a host may be private: a name is looked at when it is dialled.
func privateHost(host string) bool {
	ip := net.ParseIP(host)
	if ip == nil {
		return !strings.Contains(host, ".") || strings.HasSuffix(host, ".internal") || strings.HasSuffix(host, ".local")
	}
	return ip.IsLoopback() || ip.IsPrivate()
}

// secret is a key that must not be guessed.
func (r *reader) secret(n *yaml.Node, what string, into *Secret) {
	s, ok := r.text(n, what)
	switch {
	case !ok:
	case s == "":
		r.problem(n, "%s is empty: anybody could sign.", what)
	case len(s) < leastSecret || !printable(s):
		r.problem(n, "%s must have %d printable characters or more, without spaces.", what, leastSecret)
	default:
		*into = Secret(s)
	}
}

func (r *reader) amount(what string, into *money.Amount) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := r.text(n, what)
		if !ok {
			return
		}
		a, err := money.ParseAmount(s)
		if err != nil || a <= 0 {
			r.problem(n, "%s must be a number of IU above 0 with at most 9 decimals, not %q.", what, s)
			return
		}
		*into = a
	}
}
