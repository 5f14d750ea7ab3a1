package api

import (
	"net/http"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/wire"
)

// listModels needs no key and looks at none.
func (s *server) listModels(x *exchange, _ string) error {
	list := wire.ModelList{}
	for _, m := range s.Catalog.List(x.now) {
		list = append(list, describe(m))
	}
	return x.json(http.StatusOK, list.AppendJSON(nil))
}

func (s *server) retrieveModel(x *exchange, id string) error {
	m, ok := s.Catalog.Lookup(id, x.now)
	if !ok {
		return wire.ModelNotFound(id)
	}
	d := describe(m)
	return x.json(http.StatusOK, d.AppendJSON(nil))
}

func describe(m *catalog.Model) wire.Model {
	return wire.Model{
		ID: m.ID, Created: m.Created.Unix(), Description: m.Description, ContextWindow: m.ContextWindow,
		Pricing: wire.Pricing{Input: m.Price.Input.PerThousand(), Output: m.Price.Output.PerThousand()},
	}
}
