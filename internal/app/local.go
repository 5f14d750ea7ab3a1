package app

import (
	"errors"

	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/upstream"
)

func openEngines(c *config.Config, _ *screen) (map[string]upstream.Provider, func() error, error) {
	for _, u := range c.Upstreams {
		if _, _, err := findWeights(u, c.Data); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, errors.New("no engine")
}
