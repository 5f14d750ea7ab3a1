package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	begun := over(time.Now()) * dayHours
	for row, u := range b.used {
		if row.hour < begun {
			b.late = append(b.late, row.account)
		}
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

// sums add up the columns of usage_row that ledger.Usage has.
const sums = `sum(calls) AS calls, sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
	sum(completion_tokens) AS completion_tokens, sum(amount) AS amount, sum(written_off) AS written_off, sum(plan_tokens) AS plan_tokens,
	sum(failed) AS failed, sum(refused) AS refused, sum(gone) AS gone`

// Usage adds up what an account used from the hour of from to before the hour of to.
func (d *DB) Usage(ctx context.Context, accountID string, from, to time.Time, by ledger.By) ([]ledger.Usage, error) {
	return d.UsageOf(ctx, ledger.UsageFilter{AccountID: accountID, From: from, To: to}, by)
}

// UsageOf adds up usage in groups, in the order of their names.
func (d *DB) UsageOf(ctx context.Context, f ledger.UsageFilter, by ledger.By) ([]ledger.Usage, error) {
	name, ok := map[ledger.By]func(*usageRow, termsName) string{
		ledger.ByKey:   func(_ *usageRow, t termsName) string { return t.keyID },
		ledger.ByModel: func(_ *usageRow, t termsName) string { return t.model },
		ledger.ByDay:   func(r *usageRow, _ termsName) string { return hourName(r.hour, time.DateOnly) },
		ledger.ByHour:  func(r *usageRow, _ termsName) string { return hourName(r.hour, "2006-01-02T15") },
	}[by]
	if !ok {
		return nil, fmt.Errorf("usage cannot be added up by %q", by)
	}
	var account int64
	err := d.read.QueryRowContext(ctx, `SELECT number FROM account WHERE id = $1`, f.AccountID).Scan(&account)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	used, err := d.usage(ctx, account, f.From.UnixMicro()/hour, f.To.UnixMicro()/hour, by == ledger.ByHour)
	if err != nil {
		return nil, err
	}
	terms, err := d.termsNames(ctx, used)
	if err != nil {
		return nil, err
	}
	groups := map[string]*ledger.Usage{}
	var last *ledger.Usage // of groups, of the hour before
	var lastHour int64
	for i := range used {
		r, t := &used[i], terms[used[i].terms]
		if f.KeyID != "" && f.KeyID != t.keyID || f.Model != "" && f.Model != t.model {
			continue
		}
		if last == nil || r.hour != lastHour || by == ledger.ByKey || by == ledger.ByModel {
			group := name(r, t)
			if last = groups[group]; last == nil {
				last = &ledger.Usage{Group: group}
				groups[group] = last
			}
			lastHour = r.hour
		}
		last.Add(&r.Usage)
	}
	var all []ledger.Usage
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		all = append(all, *groups[group])
	}
	return all, nil
}

// hourName is an hour since 1970 as a time in UTC.
func hourName(n int64, format string) string { return time.UnixMicro(n * hour).UTC().Format(format) }

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

// entries are the changes of the balance of the account $1 that were no usage: each its time,
// kind, text and amount. Included tokens are not of the balance.
const entries = `WITH entry (at, kind, text, amount) AS (
	SELECT created_at, kind, note, amount FROM credit_grant WHERE account_id = $1
	UNION ALL SELECT e.created_at, 'expiry', g.note, -e.amount FROM credit_grant g JOIN grant_expiry e ON e.grant_id = g.id WHERE g.account_id = $1
	UNION ALL SELECT created_at, 'debit', reason, -amount FROM debit WHERE account_id = $1
	UNION ALL SELECT created_at, 'debit', reason, 0 FROM payment_event
		WHERE account_id = $1 AND (taken = 0 AND written_off > 0 OR returned = 0 AND written_back > 0)) `

// Statement lists every change of an account's balance from from to before to, which
// are midnights in UTC. Usage stands at the end of its day.
func (d *DB) Statement(ctx context.Context, accountID string, from, to time.Time) (s ledger.Statement, err error) {
	return d.statement(ctx, accountID, from, to, usageLines)
}

// MonthlyStatement is a Statement with one line for the usage of a month, at its end. from
// and to are midnights of the first of a month.
func (d *DB) MonthlyStatement(ctx context.Context, accountID string, from, to time.Time) (s ledger.Statement, err error) {
	return d.statement(ctx, accountID, from, to, func(ctx context.Context, tx *sql.Tx, account int64, from, to time.Time) (lines []ledger.Line, err error) {
		for at := from; at.Before(to); at = at.AddDate(0, 1, 0) {
			next := at.AddDate(0, 1, 0)
			l := ledger.Line{At: next.Add(-time.Microsecond), Kind: "usage"}
			err := tx.QueryRowContext(ctx, `SELECT coalesce(-sum(amount), 0), coalesce(sum(calls), 0) FROM usage_row WHERE account = $1 AND hour >= $2 AND hour < $3`,
				account, at.UnixMicro()/hour, next.UnixMicro()/hour).Scan(&l.Amount, &l.Usage.Calls)
			if err != nil {
				return nil, err
			}
			if l.Usage.Calls > 0 {
				lines = append(lines, l)
			}
		}
		return lines, nil
	})
}

func (d *DB) statement(ctx context.Context, accountID string, from, to time.Time, usage func(ctx context.Context, tx *sql.Tx, account int64, from, to time.Time) ([]ledger.Line, error)) (s ledger.Statement, err error) {
	s.From, s.To = from, to
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return s, err
	}
	defer tx.Rollback() // nothing was written
	// It is counted back from the balance that there is: an account may be years old, and
	// most of what is asked for is young.
	var account int64
	err = tx.QueryRowContext(ctx, entries+`SELECT number, granted - posted - (SELECT coalesce(sum(amount), 0) FROM entry WHERE at >= $2)
		+ (SELECT coalesce(sum(amount), 0) FROM usage_row WHERE account = number AND hour >= $3) FROM account WHERE id = $1`,
		accountID, micros(from), from.UnixMicro()/hour).Scan(&account, &s.Opening)
	if errors.Is(err, sql.ErrNoRows) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	rs, err := tx.QueryContext(ctx, entries+`SELECT at, kind, text, amount FROM entry WHERE at >= $2 AND at < $3`, accountID, micros(from), micros(to))
	s.Lines, err = rows(rs, err, func(rs *sql.Rows, l *ledger.Line) error {
		var at sql.NullInt64
		err := rs.Scan(&at, &l.Kind, &l.Text, &l.Amount)
		l.At = instant(at)
		return err
	})
	if err != nil {
		return s, err
	}
	lines, err := usage(ctx, tx, account, from, to)
	s.Lines = append(s.Lines, lines...)
	slices.SortStableFunc(s.Lines, func(a, b ledger.Line) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.KeyID, b.KeyID), cmp.Compare(a.Model, b.Model))
	})
	s.Closing = s.Opening
	for _, l := range s.Lines {
		s.Closing += l.Amount
	}
	return s, err
}

// usageLines are those of an account, by day, key and model.
func usageLines(ctx context.Context, tx *sql.Tx, account int64, from, to time.Time) ([]ledger.Line, error) {
	rs, err := tx.QueryContext(ctx, `SELECT day, key_id, model, sum(calls), sum(prompt), sum(cached), sum(completion), sum(plan), -sum(amount) FROM (
			SELECT hour / 24 AS day, terms, sum(calls) AS calls, sum(prompt_tokens) AS prompt, sum(cached_tokens) AS cached,
				sum(completion_tokens) AS completion, sum(plan_tokens) AS plan, sum(amount) AS amount
			FROM usage_row WHERE account = $1 AND hour >= $2 AND hour < $3 GROUP BY hour / 24, terms)
		JOIN terms ON number = terms GROUP BY day, key_id, model`, account, from.UnixMicro()/hour, to.UnixMicro()/hour)
	return rows(rs, err, func(rs *sql.Rows, l *ledger.Line) error {
		var day int64
		err := rs.Scan(&day, &l.KeyID, &l.Model, &l.Usage.Calls, &l.Usage.PromptTokens, &l.Usage.CachedTokens, &l.Usage.CompletionTokens, &l.Usage.PlanTokens, &l.Amount)
		l.Kind, l.At = "usage", time.UnixMicro((day+1)*24*hour-1).UTC()
		return err
	})
}
