package console

import (
	"context"

	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// The typical call whose cost is shown.
const (
	typicalPrompt = 1000
	typicalAnswer = 300
)

// modelsPage is what templates/models.html shows.
type modelsPage struct {
	Models []modelRow
	Plan   string
}

// modelRow is a model with what a person asks of it.
type modelRow struct {
	*catalog.Model
	Allowed bool         // by the account's plan
	Typical money.Amount // what the typical call costs
}

// modelPage is what templates/model.html shows.
type modelPage struct {
	modelRow
	Try         snippet
	First, Slow string // time to the first token, of the account's last calls
	Speed       string // tokens a second
	Calls       int    // that they are of
	Read        bool   // whether they could be
}

func (v *visit) modelRow(m *catalog.Model) (modelRow, error) {
	typical, err := m.Price.Cost(money.Tokens{Prompt: typicalPrompt, Completion: typicalAnswer})
	return modelRow{m, m.OnPlan(v.account.PlanAt(v.now)), typical}, err
}

// models lists what is on offer, what the plan has first.
func (s *Server) models(v *visit) error {
	p := modelsPage{Plan: v.account.PlanAt(v.now)}
	var others []modelRow
	for _, m := range s.Models.List(v.now) {
		r, err := v.modelRow(m)
		if err != nil {
			return err
		}
		if r.Allowed {
			p.Models = append(p.Models, r)
		} else {
			others = append(others, r)
		}
	}
	p.Models = append(p.Models, others...)
	return v.page("models", "Models", p)
}

// model shows one model and how to call it.
func (s *Server) model(v *visit) error {
	for _, m := range s.Models.List(v.now) {
		if m.ID != v.r.PathValue("id") {
			continue
		}
		r, err := v.modelRow(m)
		if err != nil {
			return err
		}
		p := modelPage{modelRow: r, Try: v.samplePage("try", m.ID)}
		page, ok := partial(v, func(ctx context.Context) (ledger.Page, error) {
			return s.Records.ReceiptPage(ctx, ledger.Filter{AccountID: v.account.ID, Model: m.ID, Limit: firstTokensOf})
		})
		p.Read, p.Calls = ok, len(page.Receipts)
		first, slow := firstTokens(page.Receipts)
		p.First, p.Slow, p.Speed = tookSeconds(first), tookSeconds(slow), speedOf(page.Receipts)
		return v.page("model", m.ID, p)
	}
	return errNotFound
}

// speedOf is how many tokens a second calls got after their first.
func speedOf(calls []ledger.Receipt) string {
	tokens, seconds := int64(0), 0.0
	for i := range calls {
		if r := &calls[i]; r.FirstToken > 0 && r.Total > r.FirstToken && r.CompletionTokens > 1 {
			tokens += int64(r.CompletionTokens - 1)
			seconds += (r.Total - r.FirstToken).Seconds()
		}
	}
	if seconds <= 0 {
		return "–"
	}
	return count(int64(float64(tokens) / seconds))
}
