package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/webhook"
)

var _ webhook.Store = (*DB)(nil)

// announcer begins the names of the triggers that write events.
const announcer = "announce_"

// Announce makes the database write events for those endpoints from now on, in the
// transaction of each change. An account's credit is low when it falls below low. Without
// endpoints nothing is written and nothing costs anything.
func (d *DB) Announce(ctx context.Context, endpoints []webhook.Endpoint, low money.Amount) error {
	want := triggers(endpoints, low)
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		have, err := announcers(ctx, tx)
		if err != nil || maps.Equal(have, want) {
			return err
		}
		if err := silence(ctx, tx, have); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if _, err := tx.ExecContext(ctx, want[name]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
}

// announcers are the triggers that the database has, by name.
func announcers(ctx context.Context, db reader) (map[string]string, error) {
	type trigger struct{ name, sql string }
	rs, err := db.QueryContext(ctx, `SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ?`, len(announcer), announcer)
	list, err := rows(rs, err, func(rs *sql.Rows, t *trigger) error { return rs.Scan(&t.name, &t.sql) })
	have := map[string]string{}
	for _, t := range list {
		have[t.name] = t.sql
	}
	return have, err
}

// silence drops triggers. They name columns, so a migration must not meet them.
func silence(ctx context.Context, tx *sql.Tx, have map[string]string) error {
	for name := range have {
		if _, err := tx.ExecContext(ctx, `DROP TRIGGER `+name); err != nil {
			return err
		}
	}
	return nil
}

// triggers are the statements that make the triggers, by name. SQLite keeps their text as
// it is, so what is there can be compared with what should be.
func triggers(endpoints []webhook.Endpoint, low money.Amount) map[string]string {
	all := map[string]string{}
	wanted := map[string]bool{}
	var targets []string
	for _, e := range endpoints {
		kinds := e.Events
		if len(kinds) == 0 {
			kinds = webhook.Kinds()
		}
		var quotedKinds []string
		for _, k := range kinds {
			wanted[k] = true
			quotedKinds = append(quotedKinds, quoted(k))
		}
		targets = append(targets, fmt.Sprintf("  INSERT INTO delivery (event, endpoint, since, next_at) SELECT new.number, %s, new.created_at, new.created_at WHERE new.kind IN (%s);\n",
			quoted(e.URL), strings.Join(quotedKinds, ", ")))
	}
	if len(endpoints) == 0 {
		return all
	}
	all[announcer+"delivery"] = "CREATE TRIGGER " + announcer + "delivery AFTER INSERT ON event BEGIN\n" + strings.Join(targets, "") + "END"
	const account = `'account', json_object('id', new.id, 'name', new.name)`
	iu := func(nano string) string {
		return "rtrim(rtrim(printf('%d.%09d', " + nano + " / 1000000000, " + nano + " % 1000000000), '0'), '.')"
	}
	for _, t := range []struct{ kind, on, when, data string }{
		{
			webhook.CreditLow, "posted", fmt.Sprintf("old.granted - old.posted >= %d AND new.granted - new.posted < %d", low, low),
			account + ", 'balance', " + iu("(new.granted - new.posted)") + ", 'threshold', " + quoted(low.String()),
		},
		{webhook.AccountSuspended, "status", "old.status <> new.status AND new.status = 'suspended'", account},
		{webhook.AccountActivated, "status", "old.status <> new.status AND new.status = 'active'", account},
		{
			webhook.SubscriptionChanged, "sub_plan, sub_until", "old.sub_plan <> new.sub_plan OR old.sub_until IS NOT new.sub_until",
			account + ", 'plan', new.sub_plan, 'until', strftime('%Y-%m-%dT%H:%M:%SZ', new.sub_until / 1000000, 'unixepoch')",
		},
	} {
		if !wanted[t.kind] {
			continue
		}
		name := announcer + strings.ReplaceAll(t.kind, ".", "_")
		all[name] = fmt.Sprintf(`CREATE TRIGGER %s AFTER UPDATE OF %s ON account WHEN %s BEGIN
  INSERT INTO event (id, kind, body, created_at)
    SELECT e.id, %[4]s, json_object('id', e.id, 'type', %[4]s, 'created', unixepoch(), 'data', json_object(%[5]s)), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
    FROM (SELECT 'evt_' || lower(hex(randomblob(16))) AS id LIMIT 1 OFFSET 0) e;
END`, name, t.on, t.when, quoted(t.kind), t.data)
	}
	return all
}

// quoted is s as a text of SQL.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

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
// the first of its endpoint. It fails with [webhook.ErrNotFound].
func (d *DB) RetryDelivery(ctx context.Context, number int64) error {
	now := time.Now().UnixMicro()
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE delivery SET state = 'waiting', since = $1, next_at = $1, ended_at = NULL WHERE number = $2`, now, number)
		return one(res, err, webhook.ErrNotFound)
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
