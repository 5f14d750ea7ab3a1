package app

import (
	"slices"
	"testing"

	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/webhook"
)

// The configuration knows the events that there are, and no other.
func TestWebhookEvents(t *testing.T) {
	t.Parallel()
	if got, want := config.WebhookEvents(), webhook.Kinds(); !slices.Equal(got, want) {
		t.Errorf("the configuration has %v, want %v", got, want)
	}
}
