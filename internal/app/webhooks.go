package app

import (
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/webhook"
)

// endpoints is the configuration in the words of webhook.
func endpoints(c *config.Config) []webhook.Endpoint {
	var all []webhook.Endpoint
	for _, w := range c.Webhooks {
		all = append(all, webhook.Endpoint{URL: w.URL, Secret: string(w.Secret), Events: w.Events})
	}
	return all
}
