package config

import (
	"net/url"

	"go.yaml.in/yaml/v3"

	"github.com/parley-ai/parley/internal/money"
)

// Payment is the operator's account at a payment provider. The zero value takes none.
type Payment struct {
	// Kind is "stripe".
	Kind                     string
	SecretKey, WebhookSecret Secret
	// SuccessURL is where a payer goes afterwards.
	SuccessURL string
	Prices     []Topup
}

// Topup is credit that can be bought: Price is the provider's id of its price.
type Topup struct {
	ID     string
	Price  string
	Credit money.Amount
}

func (r *reader) payment(n *yaml.Node, p *Payment) {
	const where = "payment: "
	seen := r.fields(n, where, "Payments", []field{
		{"kind", func(v *yaml.Node) {
			if r.str(where+"kind", &p.Kind)(v); p.Kind != "stripe" {
				r.problem(v, "%skind %q is not supported by this version. Use kind: stripe.", where, p.Kind)
			}
		}},
		{"secret_key", func(v *yaml.Node) { r.secret(v, where+"secret_key", &p.SecretKey) }},
		{"webhook_secret", func(v *yaml.Node) { r.secret(v, where+"webhook_secret", &p.WebhookSecret) }},
		{"success_url", func(v *yaml.Node) {
			r.str(where+"success_url", &p.SuccessURL)(v)
			if u, err := url.Parse(p.SuccessURL); err != nil || u.Scheme != "https" && u.Scheme != "http" || !dialable(u) {
				r.problem(v, "%ssuccess_url must be http or https with a host.", where)
			}
		}},
		{"prices", func(v *yaml.Node) {
			r.list(v, where+"prices", func(item *yaml.Node) { r.topup(item, p) })
			if v.Kind == yaml.SequenceNode && len(v.Content) == 0 {
				r.problem(v, "%sprices is empty: nothing can be bought.", where)
			}
		}},
	})
	if seen == nil {
		return
	}
	for _, need := range []struct{ key, add string }{
		{"kind", "stripe"},
		{"secret_key", "${STRIPE_SECRET_KEY}"},
		{"webhook_secret", "${STRIPE_WEBHOOK_SECRET}"},
		{"success_url", "https://example.org/thanks"},
		{"prices", `[{id: small, price: price_…, credit: "100"}]`},
	} {
		if seen[need.key] == nil {
			r.problem(n, "payment has no %s. Add %s: %s", need.key, need.key, need.add)
		}
	}
}

func (r *reader) topup(n *yaml.Node, p *Payment) {
	var t Topup
	where := r.entry(n, "price", &t.ID)
	seen := r.fields(n, where, "Prices", []field{
		{"id", func(*yaml.Node) {}},
		{"price", r.str(where+"price", &t.Price)},
		{"credit", r.amount(where+"credit", &t.Credit)},
	})
	if seen != nil && (t.Price == "" || seen["credit"] == nil) {
		r.problem(n, "%sa price needs price, the provider's id, and credit in IU.", where)
	}
	for _, o := range p.Prices {
		if o.ID == t.ID && t.ID != "" {
			r.problem(n, "%sit is defined twice.", where)
		}
	}
	p.Prices = append(p.Prices, t)
}
