package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

const hour = int64(time.Hour / time.Microsecond)

// used is a row of usage_row, and uses is what a batch adds to it.
type used struct{ account, hour, terms int64 }

type uses struct {
	calls, prompt, cached, completion, plan int64
	failed, refused, gone                   int64
	amount, writtenOff, most                money.Amount
	last                                    string // the charge that came last
}

// add adds other uses, but not what came last.
func (u *uses) add(other *uses) {
	u.calls += other.calls
	u.prompt += other.prompt
	u.cached += other.cached
	u.completion += other.completion
	u.plan += other.plan
	u.failed += other.failed
	u.refused += other.refused
	u.gone += other.gone
	u.amount += other.amount
	u.writtenOff += other.writtenOff
	u.most = max(u.most, other.most)
}

// use adds r to what the batch has used. Calls come in runs of one account and terms
// only by chance, so it is a map.
func (b *batch) use(row used, r *ledger.Receipt) {
	u := b.used[row]
	u.calls++
	u.prompt += int64(r.PromptTokens)
	u.cached += int64(r.CachedTokens)
	u.completion += int64(r.CompletionTokens)
	u.amount += r.Charge
	u.writtenOff += r.WrittenOff
	u.plan += int64(r.PlanTokens)
	u.most = max(u.most, r.Charge)
	u.last = r.RequestID
	switch r.Class() {
	case ledger.Failed:
		u.failed++
	case ledger.Refused:
		u.refused++
	case ledger.Left:
		u.gone++
	}
	b.used[row] = u
}

// roll writes what the batch has used.
func (b *batch) roll(ctx context.Context) error {
	for row, u := range b.used {
		for _, st := range []statement{b.addUsage, b.newUsage} {
			n, err := b.exec(ctx, st, u.calls, u.prompt, u.cached, u.completion, int64(u.amount), int64(u.writtenOff),
				u.plan, u.failed, u.refused, u.gone, int64(u.most), u.last, row.account, row.hour, row.terms)
			if err != nil {
				return err
			}
			if n == 1 {
				break
			}
		}
	}
	clear(b.used)
	return nil
}

// sums are the columns of usage_row that ledger.Usage has.
const sums = `coalesce(sum(calls), 0), coalesce(sum(prompt_tokens), 0), coalesce(sum(cached_tokens), 0),
	coalesce(sum(completion_tokens), 0), coalesce(sum(amount), 0), coalesce(sum(written_off), 0), coalesce(sum(plan_tokens), 0),
	coalesce(sum(failed), 0), coalesce(sum(refused), 0), coalesce(sum(gone), 0)`

// groups are the columns and formats of ledger.By.
var groups = map[ledger.By]string{
	ledger.ByKey:   `key_id`,
	ledger.ByModel: `model`,
	ledger.ByDay:   `strftime('%Y-%m-%d', hour * 3600, 'unixepoch')`,
	ledger.ByHour:  `strftime('%Y-%m-%dT%H', hour * 3600, 'unixepoch')`,
}

// Usage adds up what an account used from the hour of from to before the hour of to.
func (d *DB) Usage(ctx context.Context, accountID string, from, to time.Time, by ledger.By) ([]ledger.Usage, error) {
	return d.UsageOf(ctx, ledger.UsageFilter{AccountID: accountID, From: from, To: to}, by)
}

// UsageOf adds up usage in groups, in the order of their names.
func (d *DB) UsageOf(ctx context.Context, f ledger.UsageFilter, by ledger.By) ([]ledger.Usage, error) {
	group, ok := groups[by]
	if !ok {
		return nil, fmt.Errorf("usage cannot be added up by %q", by)
	}
	rs, err := d.read.QueryContext(ctx, `SELECT `+group+` AS name, `+sums+` FROM usage_row JOIN terms ON number = terms
		WHERE account = (SELECT number FROM account WHERE id = $1) AND hour >= $2 AND hour < $3 AND ($4 = '' OR key_id = $4) AND ($5 = '' OR model = $5)
		GROUP BY name ORDER BY name`, f.AccountID, f.From.UnixMicro()/hour, f.To.UnixMicro()/hour, f.KeyID, f.Model)
	return rows(rs, err, func(rs *sql.Rows, u *ledger.Usage) error {
		return rs.Scan(&u.Group, &u.Calls, &u.PromptTokens, &u.CachedTokens, &u.CompletionTokens, &u.Charge, &u.WrittenOff, &u.PlanTokens, &u.Failed, &u.Refused, &u.Left)
	})
}

// Pace is what an account spent a day, of its last full days before now. The day of its
// first call is not a full one.
func (d *DB) Pace(ctx context.Context, accountID string, now time.Time) (p ledger.Pace, err error) {
	const hours = 24
	today := now.UnixMicro() / hour / hours
	var first sql.NullInt64
	const number = `(SELECT number FROM account WHERE id = $1)`
	err = d.read.QueryRowContext(ctx, `SELECT min(hour) FROM usage_row WHERE account = `+number, accountID).Scan(&first)
	if err != nil || !first.Valid {
		return p, err
	}
	p.Days = int(min(ledger.PaceDays, max(0, today-first.Int64/hours-1)))
	if p.Days == 0 {
		return p, nil
	}
	err = d.read.QueryRowContext(ctx, `SELECT coalesce(sum(amount), 0) / $4 FROM usage_row WHERE account = `+number+` AND hour >= $2 AND hour < $3`,
		accountID, (today-int64(p.Days))*hours, today*hours, p.Days).Scan(&p.PerDay)
	return p, err
}

// entries are all changes of the balance of the account $1: each its time, kind, text,
// key, model, usage and amount. Included tokens are not of the balance. Usage stands at the end of its day.
const entries = `WITH entry (at, kind, text, key_id, model, calls, prompt, cached, completion, plan, amount) AS (
	SELECT created_at, kind, note, '', '', 0, 0, 0, 0, 0, amount FROM credit_grant WHERE account_id = $1
	UNION ALL SELECT e.created_at, 'expiry', g.note, '', '', 0, 0, 0, 0, 0, -e.amount
		FROM grant_expiry e JOIN credit_grant g ON g.id = e.grant_id WHERE g.account_id = $1
	UNION ALL SELECT created_at, 'debit', reason, '', '', 0, 0, 0, 0, 0, -amount FROM debit WHERE account_id = $1
	UNION ALL SELECT created_at, 'debit', reason, '', '', 0, 0, 0, 0, 0, 0
		FROM payment_event WHERE account_id = $1 AND taken = 0 AND written_off > 0
	UNION ALL SELECT (hour / 24 + 1) * 86400000000 - 1, 'usage', '', key_id, model,
		sum(calls), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), sum(plan_tokens), -sum(amount)
		FROM usage_row JOIN terms ON number = terms WHERE account = (SELECT number FROM account WHERE id = $1)
		GROUP BY hour / 24, key_id, model) `

// Statement lists every change of an account's balance from from to before to, which
// are midnights in UTC.
func (d *DB) Statement(ctx context.Context, accountID string, from, to time.Time) (s ledger.Statement, err error) {
	s.From, s.To = from, to
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return s, err
	}
	defer tx.Rollback() // nothing was written
	err = tx.QueryRowContext(ctx, entries+`SELECT coalesce(sum(amount), 0) FROM entry WHERE at < $2`, accountID, micros(from)).Scan(&s.Opening)
	if err != nil {
		return s, err
	}
	rs, err := tx.QueryContext(ctx, entries+`SELECT at, kind, text, key_id, model, calls, prompt, cached, completion, plan, amount
		FROM entry WHERE at >= $2 AND at < $3 ORDER BY at, kind, key_id, model`, accountID, micros(from), micros(to))
	s.Lines, err = rows(rs, err, func(rs *sql.Rows, l *ledger.Line) error {
		var at sql.NullInt64
		err := rs.Scan(&at, &l.Kind, &l.Text, &l.KeyID, &l.Model, &l.Usage.Calls, &l.Usage.PromptTokens, &l.Usage.CachedTokens, &l.Usage.CompletionTokens, &l.Usage.PlanTokens, &l.Amount)
		l.At = instant(at)
		return err
	})
	s.Closing = s.Opening
	for _, l := range s.Lines {
		s.Closing += l.Amount
	}
	return s, err
}
