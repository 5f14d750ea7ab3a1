package app

import (
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/payment"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/webhook"
)

// payments is the room of payments; nil where the configuration has none.
func payments(c *config.Config, l *ledger.Ledger, db *store.DB) (*payment.Room, error) {
	p := c.Payment
	if p.Kind == "" {
		return nil, nil
	}
	o := payment.Options{SecretKey: string(p.SecretKey), WebhookSecret: string(p.WebhookSecret), SuccessURL: p.SuccessURL}
	for _, t := range p.Prices {
		o.Prices = append(o.Prices, payment.Price{ID: t.ID, Price: t.Price, Credit: t.Credit})
	}
	return payment.New(o, l, db)
}

// endpoints is the configuration in the words of webhook.
func endpoints(c *config.Config) []webhook.Endpoint {
	var all []webhook.Endpoint
	for _, w := range c.Webhooks {
		all = append(all, webhook.Endpoint{URL: w.URL, Secret: string(w.Secret), Events: w.Events})
	}
	return all
}
