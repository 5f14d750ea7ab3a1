package store

import (
	"context"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/refusal"
)

// Traffic adds up the calls of all accounts that were admitted since then and have ended,
// and those that were refused. Ids sort by time, so only those calls are read: since is a
// minute or so ago.
func (d *DB) Traffic(ctx context.Context, since time.Time) (t ledger.Traffic, err error) {
	from := ident.RequestIDsSince(since)
	err = d.read.QueryRowContext(ctx, `SELECT count(*), count(CASE o.class WHEN 'answered' THEN 1 END), count(CASE o.class WHEN 'failed' THEN 1 END),
		count(CASE o.class WHEN 'left' THEN 1 END), coalesce(sum(c.prompt_tokens), 0), coalesce(sum(c.completion_tokens), 0), coalesce(sum(c.amount), 0),
		(SELECT count(*) FROM refusal WHERE id >= $1)
		FROM charge_row c JOIN outcome o ON o.number = c.outcome WHERE c.id >= $1`, from).
		Scan(&t.Ended, &t.Answered, &t.Failed, &t.Left, &t.PromptTokens, &t.CompletionTokens, &t.Charged, &t.Refused)
	return t, err
}

// LastReceipts returns the ended calls of all accounts that were admitted last, newest
// first, at most that many.
func (d *DB) LastReceipts(ctx context.Context, most int) ([]ledger.Receipt, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+chargeColumns+` FROM charge ORDER BY id DESC LIMIT $1`, most)
	return rows(rs, err, scanReceipt)
}

// LastRefusals returns the calls of all accounts that were refused last, newest first, at
// most that many.
func (d *DB) LastRefusals(ctx context.Context, most int) ([]refusal.Record, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+refusalColumns+` FROM refusal ORDER BY id DESC LIMIT $1`, most)
	return rows(rs, err, scanRefusal)
}
