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

// ForgetEvents forgets events with their deliveries, at most that many: those older than ended of
// which no delivery waits, and those older than waiting. It returns how many, and for each
// endpoint what had still waited, which the audit log has too.
func (d *DB) ForgetEvents(ctx context.Context, ended, waiting time.Time, most int) (n int, lost []webhook.Lost, err error) {
	const these = `SELECT number FROM event e WHERE created_at < ?1 AND (created_at < ?2
		OR NOT EXISTS (SELECT 1 FROM delivery w WHERE w.event = e.number AND w.state = 'waiting')) ORDER BY number LIMIT ?3`
	args := []any{micros(ended), micros(waiting), most}
	err = d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		lost = nil
		q := sqlTx{tx}
		all, err := waitingEvents(ctx, q, `d.event IN (`+these+`)`, args...)
		if err != nil {
			return err
		}
		for _, w := range all {
			l := webhook.Lost{Address: w.Address, Events: w.Events, Oldest: w.Oldest}
			lost = append(lost, l)
			err := record(ctx, q, audit.Entry{Actor: audit.Actor(ctx), Action: audit.WebhookLose, Target: "webhooks"}, nil,
				map[string]any{"url": l.Address, "events": l.Events, "oldest": moment(l.Oldest)})
			if err != nil {
				return err
			}
		}
		if _, err := q.run(ctx, `DELETE FROM delivery WHERE event IN (`+these+`)`, args...); err != nil {
			return err
		}
		gone, err := q.run(ctx, `DELETE FROM event WHERE number IN (`+these+`)`, args...)
		n = int(gone)
		return err
	})
	if err != nil {
		return 0, nil, err // nothing was forgotten
	}
	return n, lost, nil
}

// WaitingEvents is what one endpoint has not taken yet.
type WaitingEvents struct {
	Address string // of the endpoint, without what of its URL may be secret
	Events  int
	Oldest  time.Time // event
	Wanted  bool      // the configuration of the last server has the endpoint
}

// waitingEvents are those of the deliveries d that the condition speaks of, by endpoint.
func waitingEvents(ctx context.Context, q querier, condition string, args ...any) (all []WaitingEvents, err error) {
	triggers, err := q.list(ctx, `SELECT coalesce(max(sql), '') FROM sqlite_master WHERE type = 'trigger' AND name = '`+deliverer+`'`)
	if err != nil {
		return nil, err
	}
	list, err := q.list(ctx, `SELECT d.endpoint, count(*), min(v.created_at) FROM delivery d JOIN event v ON v.number = d.event
		WHERE d.state = 'waiting' AND `+condition+` GROUP BY d.endpoint ORDER BY d.endpoint`, args...)
	for _, row := range list {
		endpoint := row[0].(string)
		all = append(all, WaitingEvents{
			Address: address(endpoint), Events: int(row[1].(int64)), Oldest: time.UnixMicro(row[2].(int64)).UTC(),
			Wanted: strings.Contains(triggers[0][0].(string), target(endpoint)),
		})
	}
	return all, err
}
