package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/catalog"
)

// SaveCatalog makes sure that the prices and plans of the configuration have their
// immutable rows, and notes the rows' ids in models and plans. A row's id is a hash of
// what it says, so what did not change keeps its row, and what changes back finds it.
func (d *DB) SaveCatalog(ctx context.Context, models []catalog.Model, plans []account.Plan) error {
	now := micros(time.Now())
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for i := range models {
			m := &models[i]
			m.PriceID = rowID("price_", m.ID, m.Price.Input, m.Price.CachedInput, m.Price.Output)
			res, err := tx.ExecContext(ctx, `INSERT INTO model_price (id, model, input, cached, output, created_at) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING`,
				m.PriceID, m.ID, int64(m.Price.Input), int64(m.Price.CachedInput), int64(m.Price.Output), now)
			err = announce(ctx, tx, res, err, audit.Entry{Action: audit.PriceVersion, Target: m.ID}, map[string]any{
				"id": m.PriceID, "input": m.Price.Input.PerThousand(), "cached_input": m.Price.CachedInput.PerThousand(), "output": m.Price.Output.PerThousand(),
			})
			if err != nil {
				return err
			}
		}
		for i := range plans {
			p := &plans[i]
			v, err := versionOf(p, models)
			if err != nil {
				return err
			}
			p.Version = v.id
			res, err := tx.ExecContext(ctx, `INSERT INTO plan_version (id, plan, rpm, tpm, concurrency, models, created_at, limits, terms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING`,
				v.id, p.ID, p.RPM, p.TPM, p.Concurrency, string(v.models), now, string(v.limits), string(v.terms))
			err = announce(ctx, tx, res, err, audit.Entry{Action: audit.PlanVersion, Target: p.ID}, map[string]any{
				"id": v.id, "rpm": p.RPM, "tpm": p.TPM, "concurrency": p.Concurrency, "models": json.RawMessage(v.models), "limits": json.RawMessage(v.limits), "terms": json.RawMessage(v.terms),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// KnowsPlans reports whether the plans that were new last in the books are among plans, which a
// configuration has with models. Where they are not, another configuration was served last. Books
// without a plan know all.
func (d *DB) KnowsPlans(ctx context.Context, models []catalog.Model, plans []account.Plan) (bool, error) {
	known := map[string]bool{}
	for i := range plans {
		v, err := versionOf(&plans[i], models)
		if err != nil {
			return false, err
		}
		known[v.id] = true
	}
	last, err := sqlTx{d.read}.list(ctx, `SELECT id FROM plan_version WHERE created_at = (SELECT max(created_at) FROM plan_version)`)
	return !slices.ContainsFunc(last, func(row []any) bool { return !known[row[0].(string)] }), err
}

// SubscribedPlans are the plans of the subscriptions that run, and those that they change to,
// each once, in the order of their names.
func (d *DB) SubscribedPlans(ctx context.Context) (plans []string, err error) {
	list, err := sqlTx{d.read}.list(ctx, `SELECT plan FROM subscription WHERE ended_at IS NULL
		UNION SELECT next_plan FROM subscription WHERE ended_at IS NULL AND next_plan <> '' ORDER BY 1`)
	for _, row := range list {
		plans = append(plans, row[0].(string))
	}
	return plans, err
}

// version is a plan as its row keeps it. The id is a hash of the rest.
type version struct {
	id                    string
	models, limits, terms []byte
}

func versionOf(p *account.Plan, models []catalog.Model) (v version, err error) {
	open := []string{}
	for _, m := range models {
		if m.OnPlan(p.ID) {
			open = append(open, m.ID)
		}
	}
	slices.Sort(open) // the order of the configuration says nothing
	if v.models, err = json.Marshal(open); err != nil {
		return v, err
	}
	if v.limits, err = modelLimits(p); err != nil {
		return v, err
	}
	if v.terms, err = planTerms(p); err != nil {
		return v, err
	}
	said := []any{p.ID, p.RPM, p.TPM, p.Concurrency, string(v.models), string(v.limits)}
	if string(v.terms) != "{}" { // a plan without any keeps the row that it has had
		said = append(said, string(v.terms))
	}
	v.id = rowID("plan_", said...)
	return v, nil
}

// modelLimits is the plan's limits on models as they are stored, in the order of names.
func modelLimits(p *account.Plan) ([]byte, error) {
	type limits struct {
		RPM int64 `json:"rpm"`
		TPM int64 `json:"tpm"`
	}
	all := map[string]limits{}
	for id, l := range p.ModelLimits {
		all[id] = limits{l.Requests, l.Tokens}
	}
	return json.Marshal(all)
}

// planTerms is what the plan gives its subscribers, and its bound of answers, as stored.
func planTerms(p *account.Plan) ([]byte, error) {
	var terms struct {
		Period    string `json:"period,omitzero"`
		Tokens    int64  `json:"tokens,omitzero"`
		Credit    string `json:"credit,omitzero"`
		Grace     string `json:"grace,omitzero"`
		MaxOutput int    `json:"max_output,omitzero"`
	}
	terms.Period, terms.Tokens, terms.MaxOutput = p.Terms.Interval.String(), p.Terms.Tokens, p.MaxOutput
	if p.Terms.Credit > 0 {
		terms.Credit = p.Terms.Credit.String()
	}
	if p.Terms.Grace > 0 {
		terms.Grace = p.Terms.Grace.String()
	}
	return json.Marshal(terms)
}

// announce records a version that was not there before.
func announce(ctx context.Context, tx *sql.Tx, res sql.Result, err error, e audit.Entry, after any) error {
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err
	}
	e.Actor = audit.Actor(ctx)
	return record(ctx, sqlTx{tx}, e, nil, after)
}

func rowID(prefix string, parts ...any) string {
	h := sha256.New()
	for _, p := range parts {
		// Quoted as text: %q of an integer is a character, and every number that is
		// none would look the same.
		fmt.Fprintf(h, "%q ", fmt.Sprint(p))
	}
	return prefix + hex.EncodeToString(h.Sum(nil)[:12])
}
