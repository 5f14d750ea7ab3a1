package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/webhook"
)

// announcer begins the names of the triggers that write events.
const announcer = "announce_"

// Announce makes the database write events for those endpoints from now on, in the
// transaction of each change. The credit of an account that has no threshold of its own is
// low when it falls below low. Without endpoints nothing is written and nothing costs
// anything. Another list of endpoints is noted in the audit log.
func (d *DB) Announce(ctx context.Context, endpoints []webhook.Endpoint, low money.Amount) error {
	want := triggers(endpoints, low)
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		have, err := announcers(ctx, tx)
		if err != nil || maps.Equal(have, want) {
			return err
		}
		if err := noteEndpoints(ctx, tx, endpoints, low); err != nil {
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
		targets = append(targets, fmt.Sprintf("%s WHERE new.kind IN (%s);\n", target(e.URL), strings.Join(quotedKinds, ", ")))
	}
	if len(endpoints) == 0 {
		return all
	}
	all[deliverer] = "CREATE TRIGGER " + deliverer + " AFTER INSERT ON event BEGIN\n" + strings.Join(targets, "") + "END"
	for _, t := range crossings(low) {
		if !wanted[t.kind] {
			continue
		}
		name := announcer + strings.ReplaceAll(t.kind, ".", "_")
		all[name] = fmt.Sprintf(`CREATE TRIGGER %s AFTER UPDATE OF %s WHEN %s BEGIN
  INSERT INTO event (id, kind, body, created_at)
    SELECT e.id, %[4]s, json_object('id', e.id, 'type', %[4]s, 'created', unixepoch(), 'data', json_object(%[5]s)), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
    FROM (SELECT 'evt_' || lower(hex(randomblob(16))) AS id LIMIT 1 OFFSET 0) e%[6]s;
END`, name, t.on, t.when, quoted(t.kind), t.data, t.from)
	}
	return all
}

// target is the part of [deliverer] that gives an event to one endpoint.
func target(url string) string {
	return "  INSERT INTO delivery (event, endpoint, since, next_at) SELECT new.number, " + quoted(url) + ", new.created_at, new.created_at"
}

// deliverer is the trigger that gives each event to the endpoints that want it.
const deliverer = announcer + "delivery"

// crossing is an event of what charges bring about: a threshold that is crossed. Charges
// are many and crossings few, so the database looks for them; every other event is of [emit].
type crossing struct{ kind, on, when, data, from string }

func crossings(low money.Amount) []crossing {
	const (
		account = `'account', json_object('id', a.id, 'name', a.name)`
		// Of keys that have taken each other's place the last says what the budget is.
		key    = ` JOIN api_key k ON k.budget_id = new.id AND k.replaced_by IS NULL AND (new.period > 0 OR NOT k.budget_monthly) JOIN account a ON a.id = k.account_id`
		budget = account + `, 'key', json_object('id', k.id, 'name', k.name), 'month', CASE WHEN k.budget_monthly THEN printf('%d-%02d', new.period / 100, new.period % 100) END`
		// A budget of everything counts what was spent by the month, too.
		others = `(SELECT coalesce(sum(b.spent), 0) FROM budget b WHERE b.id = new.id AND b.number <> new.number AND NOT k.budget_monthly)`
		before = `old.spent + ` + others
		after  = `new.spent + ` + others
	)
	left := "'budget', " + iu("k.budget") + ", 'spent', " + iu("("+after+")")
	return []crossing{
		{
			kind: webhook.CreditLow, on: "posted, granted, low_credit ON account", from: ` JOIN account a ON a.number = new.number`,
			when: fmt.Sprintf("old.granted - old.posted >= ifnull(old.low_credit, %d) AND new.granted - new.posted < ifnull(new.low_credit, %d)", low, low),
			data: account + ", 'balance', " + iu("(new.granted - new.posted)") + ", 'threshold', " + iu(fmt.Sprintf("ifnull(new.low_credit, %d)", low)),
		},
		{
			kind: webhook.BudgetLow, on: "spent ON budget", when: "new.spent > old.spent", data: budget + ", " + left,
			from: key + ` AND ` + before + ` < k.budget - k.budget / 10 AND ` + after + ` >= k.budget - k.budget / 10`,
		},
		{
			kind: webhook.BudgetSpent, on: "spent ON budget", when: "new.spent > old.spent", data: budget + ", " + left,
			from: key + ` AND ` + before + ` < k.budget - k.budget / 100 AND ` + after + ` >= k.budget - k.budget / 100`,
		},
	}
}

// iu is an amount as the text that [money.Amount] gives.
func iu(nano string) string {
	return "rtrim(rtrim(printf('%d.%09d', " + nano + " / 1000000000, " + nano + " % 1000000000), '0'), '.')"
}

// Emit writes an event that tells of no other change. See [emit].
func (d *DB) Emit(ctx context.Context, kind, accountID string, data map[string]any) error {
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return emit(ctx, sqlTx{tx}, kind, accountID, data) })
}

// emit writes an event of that kind in the transaction of q, which makes the change that
// it tells of: it is sent when that is on the disk, and not at all when it is rolled back.
// data is what the event says; id and name of the account come beside it, unless accountID
// is empty. Without endpoints nothing is written.
func emit(ctx context.Context, q querier, kind, accountID string, data map[string]any) error {
	heard, err := q.list(ctx, `SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = ?`, deliverer)
	if err != nil || len(heard) == 0 {
		return err
	}
	all := maps.Clone(data)
	if all == nil {
		all = map[string]any{}
	}
	if accountID != "" {
		names, err := q.list(ctx, `SELECT name FROM account WHERE id = ?`, accountID)
		if err != nil {
			return err
		}
		if len(names) != 1 {
			return fmt.Errorf("event %s: no account %s", kind, accountID)
		}
		all["account"] = map[string]any{"id": accountID, "name": names[0][0]}
	}
	var random [16]byte
	rand.Read(random[:]) // never fails since Go 1.24
	id, now := "evt_"+hex.EncodeToString(random[:]), time.Now()
	body, err := json.Marshal(struct {
		ID      string         `json:"id"`
		Type    string         `json:"type"`
		Created int64          `json:"created"`
		Data    map[string]any `json:"data"`
	}{id, kind, now.Unix(), all})
	if err != nil {
		return err
	}
	_, err = q.run(ctx, `INSERT INTO event (id, kind, body, created_at) VALUES (?, ?, ?, ?)`, id, kind, string(body), now.UnixMicro())
	return err
}

// noteEndpoints adds to the audit log who is told of what from now on.
func noteEndpoints(ctx context.Context, tx *sql.Tx, endpoints []webhook.Endpoint, low money.Amount) error {
	const target = "webhooks"
	after := endpointState{LowCredit: low.String(), Endpoints: []endpointEntry{}}
	for _, e := range endpoints {
		after.Endpoints = append(after.Endpoints, endpointEntry{address(e.URL), e.Events})
	}
	was, err := sqlTx{tx}.list(ctx, `SELECT after FROM audit_log WHERE action = ? ORDER BY seq DESC LIMIT 1`, string(audit.WebhookUpdate))
	if err != nil {
		return err
	}
	var before any
	switch {
	case len(was) > 0 && was[0][0] == audit.State(after), len(was) == 0 && len(endpoints) == 0:
		return nil // another build, or there never were any
	case len(was) > 0:
		before = json.RawMessage(was[0][0].(string))
	}
	return record(ctx, sqlTx{tx}, audit.Entry{Actor: audit.Actor(ctx), Action: audit.WebhookUpdate, Target: target}, before, after)
}

// endpointState is what the audit log says of the endpoints.
type endpointState struct {
	LowCredit string          `json:"low_credit"`
	Endpoints []endpointEntry `json:"endpoints"`
}

type endpointEntry struct {
	URL    string   `json:"url"`
	Events []string `json:"events,omitzero"` // all when there are none
}

// address is a URL that gives no secret away: a path may be one. Its hash tells it from
// others of the same host.
func address(endpoint string) string {
	sum := sha256.Sum256([]byte(endpoint))
	u, err := url.Parse(endpoint)
	if err != nil {
		u = &url.URL{}
	}
	return u.Scheme + "://" + u.Host + "/#" + hex.EncodeToString(sum[:4])
}

// quoted is s as a text of SQL.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
