// Package catalog is the models on offer: what they are called, how much they
// hold, what they cost and who may use them.
package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// Target is one place where a model can be computed.
type Target struct {
	Upstream string // the id of an upstream
	Model    string // the model's name there
}

// String is the target as receipts name it: "upstream/model".
func (t Target) String() string { return t.Upstream + "/" + t.Model }

// Model is one model on offer.
type Model struct {
	ID            string
	Description   string
	ContextWindow int // tokens of prompt and answer together
	MaxOutput     int // tokens of an answer
	Price         money.Price
	PriceID       string // the immutable price row that receipts cite
	Created       time.Time
	Deprecated    time.Time // from then on the model does not exist; zero is never
	Plans         []string  // the plans that may use it
	Targets       []Target  // in the order in which they are tried
}

// OnPlan reports whether the plan of that id may use m.
func (m *Model) OnPlan(plan string) bool { return slices.Contains(m.Plans, plan) }

func (m *Model) offered(now time.Time) bool {
	return m.Deprecated.IsZero() || now.Before(m.Deprecated)
}

// Catalog is a fixed set of models. It is safe for concurrent use.
type Catalog struct {
	models []*Model // in the order of ids
	byID   map[string]*Model
}

// ErrModel means a model that cannot be offered.
var ErrModel = errors.New("model cannot be offered")

// New checks and keeps the models. It fails with [ErrModel] for an empty or repeated
// id, sizes below 1, an output above the context or a model without a target.
func New(models []Model) (*Catalog, error) {
	c := &Catalog{byID: map[string]*Model{}}
	for _, m := range models {
		switch {
		case m.ID == "" || c.byID[m.ID] != nil:
			return nil, fmt.Errorf("%w: id %q is empty or used twice", ErrModel, m.ID)
		case m.MaxOutput < 1 || m.ContextWindow < 2 || m.MaxOutput > m.ContextWindow:
			return nil, fmt.Errorf("%w: %s: context window %d, output %d", ErrModel, m.ID, m.ContextWindow, m.MaxOutput)
		case len(m.Targets) == 0:
			return nil, fmt.Errorf("%w: %s has no target", ErrModel, m.ID)
		}
		c.byID[m.ID] = &m
		c.models = append(c.models, &m)
	}
	slices.SortFunc(c.models, func(a, b *Model) int { return cmp.Compare(a.ID, b.ID) })
	return c, nil
}

// Lookup returns the model of exactly that id, unless it is deprecated at that time.
func (c *Catalog) Lookup(id string, now time.Time) (*Model, bool) {
	m, ok := c.byID[id]
	if !ok || !m.offered(now) {
		return nil, false
	}
	return m, true
}

// List returns what is on offer at that time, in the order of ids.
func (c *Catalog) List(now time.Time) []*Model {
	var ms []*Model
	for _, m := range c.models {
		if m.offered(now) {
			ms = append(ms, m)
		}
	}
	return ms
}
