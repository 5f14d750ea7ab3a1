package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/webhook"
)

var _ webhook.Store = (*DB)(nil)

const deliveryColumns = `d.number, e.id, e.kind, d.endpoint, e.body, d.state, d.attempts, d.last_error, e.created_at, d.since, d.next_at`

func scanDelivery(row interface{ Scan(...any) error }, d *webhook.Delivery) error {
	var created, since, next sql.NullInt64
	err := row.Scan(&d.Number, &d.EventID, &d.Kind, &d.Endpoint, &d.Body, &d.State, &d.Attempts, &d.LastError, &created, &since, &next)
	d.CreatedAt, d.Since, d.NextAt = instant(created), instant(since), instant(next)
	return err
}

// NextDelivery returns the waiting delivery of an endpoint that comes first.
func (d *DB) NextDelivery(ctx context.Context, endpoint string) (next webhook.Delivery, found bool, err error) {
	err = scanDelivery(d.read.QueryRowContext(ctx, `SELECT `+deliveryColumns+` FROM delivery d JOIN event e ON e.number = d.event
		WHERE d.endpoint = $1 AND d.state = 'waiting' ORDER BY d.number LIMIT 1`, endpoint), &next)
	if errors.Is(err, sql.ErrNoRows) {
		return next, false, nil
	}
	return next, err == nil, err
}

// NoteDelivery writes State, Attempts, LastError and NextAt.
func (d *DB) NoteDelivery(ctx context.Context, n webhook.Delivery) error {
	var ended any
	if n.State != webhook.Waiting {
		ended = time.Now().UnixMicro()
	}
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE delivery SET state = $1, attempts = $2, last_error = $3, next_at = $4, ended_at = $5 WHERE number = $6`,
			string(n.State), n.Attempts, n.LastError, micros(n.NextAt), ended, n.Number)
		return one(res, err, webhook.ErrNotFound)
	})
}

// RetryDelivery makes a delivery wait for its turn again, which comes at once when it is
// the oldest of its endpoint. It fails with [webhook.ErrNotFound], and with
// [webhook.ErrEndpoint] where events do not go to its endpoint any more.
func (d *DB) RetryDelivery(ctx context.Context, number int64) error {
	now := time.Now().UnixMicro()
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var event, kind, endpoint string
		err := tx.QueryRowContext(ctx, `SELECT e.id, e.kind, d.endpoint FROM delivery d JOIN event e ON e.number = d.event WHERE d.number = $1`, number).Scan(&event, &kind, &endpoint)
		if errors.Is(err, sql.ErrNoRows) {
			return webhook.ErrNotFound
		}
		if err != nil {
			return err
		}
		have, err := announcers(ctx, tx)
		if err != nil {
			return err
		}
		if !strings.Contains(have[deliverer], target(endpoint)) {
			return webhook.ErrEndpoint
		}
		if _, err := tx.ExecContext(ctx, `UPDATE delivery SET state = 'waiting', since = $1, next_at = $1, ended_at = NULL WHERE number = $2`, now, number); err != nil {
			return err
		}
		return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.WebhookRetry, Target: event}, nil, map[string]any{"type": kind, "url": address(endpoint)})
	})
}

// Deliveries returns at most limit deliveries, newest first.
func (d *DB) Deliveries(ctx context.Context, limit int) ([]webhook.Delivery, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+deliveryColumns+` FROM delivery d JOIN event e ON e.number = d.event ORDER BY d.number DESC LIMIT $1`, limit)
	return rows(rs, err, func(rs *sql.Rows, d *webhook.Delivery) error { return scanDelivery(rs, d) })
}

// ForgetEvents forgets events older than before with their deliveries, at most that many,
// and returns how many.
func (d *DB) ForgetEvents(ctx context.Context, before time.Time, most int) (n int, err error) {
	const these = `SELECT number FROM event WHERE created_at < $1 ORDER BY number LIMIT $2`
	err = d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM delivery WHERE event IN (`+these+`)`, micros(before), most); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `DELETE FROM event WHERE number IN (`+these+`)`, micros(before), most)
		if err != nil {
			return err
		}
		gone, err := res.RowsAffected()
		n = int(gone)
		return err
	})
	return n, err
}
