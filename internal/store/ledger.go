package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
)

const chargeColumns = `id, completion_id, account_id, key_id, model, price_id, plan_version, stream, created_at,
	prompt_tokens, cached_tokens, completion_tokens, output_limit, held, amount, written_off,
	status, error_code, state, ending, usage_source, target, attempts, first_token_us, total_us, plan_tokens`

// Totals returns the books of every account.
func (d *DB) Totals(ctx context.Context) ([]ledger.Totals, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT id, granted, posted, tokens_granted, tokens_posted FROM account`)
	return rows(rs, err, func(rs *sql.Rows, t *ledger.Totals) error {
		return rs.Scan(&t.AccountID, &t.Granted, &t.Posted, &t.TokensGranted, &t.TokensPosted)
	})
}

// Budgets returns what was spent of every budget.
func (d *DB) Budgets(ctx context.Context) ([]ledger.BudgetTotal, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT id, period, spent FROM budget`)
	return rows(rs, err, func(rs *sql.Rows, t *ledger.BudgetTotal) error { return rs.Scan(&t.ID, &t.Period, &t.Spent) })
}

// OpenHolds returns the streams that were running when the last process ended.
func (d *DB) OpenHolds(ctx context.Context) ([]ledger.Receipt, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT h.id, h.completion_id, h.account_id, h.key_id, h.model, h.price_id, h.plan_version,
			h.prompt_tokens, h.output_limit, h.amount, h.created_at, p.input, p.cached, p.output, coalesce(b.id, ''), coalesce(b.period, 0), h.plan_tokens, i.key, i.body
		FROM hold h JOIN model_price p ON p.id = h.price_id JOIN hold_row r ON r.id = h.id LEFT JOIN budget b ON b.number = r.budget
			LEFT JOIN idempotency i ON i.request_id = h.id AND i.running ORDER BY h.id`)
	return rows(rs, err, func(rs *sql.Rows, r *ledger.Receipt) error {
		var created sql.NullInt64
		var key, body []byte
		err := rs.Scan(&r.RequestID, &r.CompletionID, &r.AccountID, &r.KeyID, &r.Model, &r.PriceID, &r.PlanVersion,
			&r.PromptTokens, &r.OutputLimit, &r.Hold, &created, &r.Price.Input, &r.Price.CachedInput, &r.Price.Output, &r.Budget.ID, &r.Budget.Period, &r.PlanTokens, &key, &body)
		if len(key) == 32 && len(body) == 32 {
			r.Idempotency = &ledger.Idempotency{Key: [32]byte(key), Body: [32]byte(body)}
		}
		r.Stream, r.CreatedAt, r.State = true, instant(created), ledger.Running
		return err
	})
}

// ReceiptsSince returns the ended calls of all accounts that were made at that time or
// later, in the order of their times. It finds them by their ids, which carry the time
// and are made just before it is taken: an index on times would cost every charge.
func (d *DB) ReceiptsSince(ctx context.Context, t time.Time) ([]ledger.Receipt, error) {
	const slack = 10 * time.Second // between the id and the time, on a machine that stalls
	rs, err := d.read.QueryContext(ctx, `SELECT `+chargeColumns+` FROM charge WHERE id >= $1 AND created_at >= $2 ORDER BY created_at, id`,
		ident.RequestIDsSince(t.Add(-slack)), micros(t))
	return rows(rs, err, scanReceipt)
}

func scanReceipt(rs *sql.Rows, r *ledger.Receipt) error {
	var created sql.NullInt64
	var first, total int64
	err := rs.Scan(&r.RequestID, &r.CompletionID, &r.AccountID, &r.KeyID, &r.Model, &r.PriceID, &r.PlanVersion, &r.Stream, &created,
		&r.PromptTokens, &r.CachedTokens, &r.CompletionTokens, &r.OutputLimit, &r.Hold, &r.Charge, &r.WrittenOff,
		&r.Status, &r.ErrorCode, &r.State, &r.Ending, &r.UsageSource, &r.Target, &r.Attempts, &first, &total, &r.PlanTokens)
	r.CreatedAt = instant(created)
	r.FirstToken, r.Total = time.Duration(first)*time.Microsecond, time.Duration(total)*time.Microsecond
	return err
}
