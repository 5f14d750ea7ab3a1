package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// class is the tables and columns that keep one unit. Their shapes are the same.
type class struct {
	grants, expiries string
	granted, posted  string // columns of account
}

// classes are those of the units.
var classes = [...]class{
	ledger.Credit: {"credit_grant", "grant_expiry", "granted", "posted"},
	ledger.Tokens: {"token_grant", "token_expiry", "tokens_granted", "tokens_posted"},
}

const grantColumns = `id, account_id, kind, amount, priority, note, coalesce(source, ''), created_at, expires_at, burned, expired, actor, coalesce(request_id, ''),
	coalesce(subscription_id, ''), coalesce(period, 0)`

// scanGrant reads a row of grantColumns.
func scanGrant(row []any) (g ledger.GrantBalance) {
	text := func(i int) string { s, _ := row[i].(string); return s }
	number := func(i int) int64 { n, _ := row[i].(int64); return n }
	g.ID, g.AccountID, g.Kind, g.Amount, g.Priority = text(0), text(1), ledger.Kind(text(2)), money.Amount(number(3)), int(number(4))
	g.Actor, g.RequestID = text(11), text(12)
	g.Note, g.Source, g.CreatedAt = text(5), text(6), time.UnixMicro(number(7)).UTC()
	if end, ok := row[8].(int64); ok {
		g.ExpiresAt = time.UnixMicro(end).UTC()
	}
	g.Subscription, g.Period = text(13), number(14)
	g.Burned, g.Expired = money.Amount(number(9)), money.Amount(number(10))
	return g
}

// Grants returns all grants of credit of the account in the order in which they burn, up
// to date with what is posted.
func (d *DB) Grants(ctx context.Context, accountID string) ([]ledger.GrantBalance, error) {
	return d.GrantsOf(ctx, accountID, ledger.Credit)
}

// GrantsOf returns all grants of a unit of the account in the order in which they burn, up
// to date with what is posted.
func (d *DB) GrantsOf(ctx context.Context, accountID string, u ledger.Unit) ([]ledger.GrantBalance, error) {
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // nothing was written
	grants, burned, posted, err := grants(ctx, sqlTx{tx}, accountID, u, false)
	if err != nil {
		return nil, err
	}
	ledger.Allocate(grants, burned, posted)
	return grants, nil
}

// grants loads the grants of a unit of an account, only those with something left or all,
// what all of them had burned when that was noted, and what is posted now.
func grants(ctx context.Context, q querier, accountID string, u ledger.Unit, left bool) (gs []ledger.GrantBalance, burned, posted money.Amount, err error) {
	c := classes[u]
	text := `SELECT ` + grantColumns + ` FROM ` + c.grants + ` WHERE account_id = ?`
	if left {
		text += ` AND burned + expired < amount`
	}
	list, err := q.list(ctx, text, accountID)
	if err != nil {
		return nil, 0, 0, err
	}
	for _, row := range list {
		g := scanGrant(row)
		g.Unit = u
		gs = append(gs, g)
	}
	sums, err := q.list(ctx, `SELECT `+c.posted+`, (SELECT coalesce(sum(burned), 0) FROM `+c.grants+` WHERE account_id = a.id) FROM account a WHERE id = ?`, accountID)
	if err != nil || len(sums) == 0 {
		return gs, 0, 0, err
	}
	return gs, money.Amount(sums[0][1].(int64)), money.Amount(sums[0][0].(int64)), nil
}

// Expiring returns the accounts with grants of the unit that have ended by t, if something
// may be left of them, and when the next one ends.
func (d *DB) Expiring(ctx context.Context, u ledger.Unit, t time.Time) (accounts []string, next time.Time, err error) {
	table := classes[u].grants
	rs, err := d.read.QueryContext(ctx, `SELECT DISTINCT account_id FROM `+table+`
		WHERE expires_at IS NOT NULL AND expires_at <= $1 AND burned + expired < amount ORDER BY account_id`, micros(t))
	if accounts, err = rows(rs, err, func(rs *sql.Rows, id *string) error { return rs.Scan(id) }); err != nil {
		return nil, next, err
	}
	var end sql.NullInt64
	err = d.read.QueryRowContext(ctx, `SELECT min(expires_at) FROM `+table+` WHERE expires_at IS NOT NULL AND expires_at > $1`, micros(t)).Scan(&end)
	return accounts, instant(end), err
}

func (b *batch) grant(ctx context.Context, g *ledger.Grant) (ledger.Result, error) {
	_, found, err := b.find(ctx, b.account, g.AccountID)
	if err != nil || !found {
		return ledger.Result{}, err
	}
	was, err := b.list(ctx, `SELECT created_at FROM `+classes[g.Unit].grants+` WHERE account_id = ? AND source = ?`, g.AccountID, optional(g.Source))
	if err != nil {
		return ledger.Result{}, err
	}
	if len(was) > 0 {
		return ledger.Result{At: time.UnixMicro(was[0][0].(int64)).UTC()}, nil
	}
	if g.Kind == ledger.Refund {
		c, err := charged(ctx, b, g.RequestID)
		if err != nil || g.AccountID != c.AccountID || g.Amount > c.Charge-c.Refunded {
			return ledger.Result{Refused: ledger.ErrRefunded}, err
		}
	}
	if err := b.addGrant(ctx, g); err != nil {
		return ledger.Result{}, err
	}
	if g.Paid > 0 {
		if _, err := b.run(ctx, `UPDATE credit_grant SET paid = ?, currency = ? WHERE id = ?`, g.Paid, g.Currency, g.ID); err != nil {
			return ledger.Result{}, err
		}
	}
	action := audit.CreditGrant
	switch g.Kind {
	case ledger.Refund:
		action = audit.CreditRefund
	case ledger.Adjust:
		action = audit.CreditAdjust
	}
	err = record(ctx, b, audit.Entry{At: g.CreatedAt, Actor: g.Actor, Origin: g.Origin, Action: action, Target: g.AccountID}, nil, creditState{
		ID: g.ID, Kind: string(g.Kind), Amount: g.Amount.String(), Reason: g.Note, Source: g.Source, RequestID: g.RequestID, ExpiresAt: moment(g.ExpiresAt),
	})
	return ledger.Result{Applied: true, At: g.CreatedAt}, err
}

// addGrant writes a grant and what the account has by it.
func (b *batch) addGrant(ctx context.Context, g *ledger.Grant) error {
	account, err := b.accountNumber(ctx, g.AccountID)
	if err != nil {
		return err
	}
	// What was spent until now did not burn this grant, whatever its place in the order.
	if _, err := b.allocate(ctx, g.AccountID, g.Unit); err != nil {
		return err
	}
	var period any
	if g.Subscription != "" {
		period = g.Period
	}
	_, err = b.run(ctx, `INSERT INTO `+classes[g.Unit].grants+` (id, account_id, kind, amount, priority, note, source, created_at, expires_at, actor, request_id, subscription_id, period)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		g.ID, g.AccountID, string(g.Kind), int64(g.Amount), int64(g.Priority), g.Note, optional(g.Source), micros(g.CreatedAt), micros(g.ExpiresAt), g.Actor,
		optional(g.RequestID), optional(g.Subscription), period)
	if err != nil {
		return err
	}
	return b.raise(ctx, account, g.Unit, g.Amount)
}

// creditState is what the audit log says of a grant or debit.
type creditState struct {
	ID        string `json:"id"`
	Kind      string `json:"kind,omitzero"`
	Amount    string `json:"amount"`
	Reason    string `json:"reason"`
	Source    string `json:"source,omitzero"`
	RequestID string `json:"request_id,omitzero"`
	ExpiresAt string `json:"expires_at,omitzero"`
}

// moment is t for the audit log, empty for never.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// raise adds to what an account was granted of a unit.
func (b *batch) raise(ctx context.Context, account int64, u ledger.Unit, by money.Amount) error {
	column := classes[u].granted
	n, err := b.run(ctx, `UPDATE account SET `+column+` = `+column+` + ? WHERE number = ?`, int64(by), account)
	if err == nil && n != 1 {
		err = fmt.Errorf("grant: no account of number %d", account)
	}
	return err
}

// allocate notes which grants of a unit of the account have burned by now, and returns
// those with something left before, in their order.
func (b *batch) allocate(ctx context.Context, accountID string, u ledger.Unit) ([]ledger.GrantBalance, error) {
	if err := b.post(ctx); err != nil {
		return nil, err
	}
	grants, burned, posted, err := grants(ctx, b, accountID, u, true)
	if err != nil {
		return nil, err
	}
	before := make(map[string]money.Amount, len(grants))
	for _, g := range grants {
		before[g.ID] = g.Burned
	}
	ledger.Allocate(grants, burned, posted)
	for _, g := range grants {
		if g.Burned == before[g.ID] {
			continue
		}
		if _, err := b.run(ctx, `UPDATE `+classes[u].grants+` SET burned = ? WHERE id = ?`, int64(g.Burned), g.ID); err != nil {
			return nil, err
		}
	}
	return grants, nil
}

// expire finds anew what is left, so that running it twice takes nothing twice.
func (b *batch) expire(ctx context.Context, e *ledger.Expire) (res ledger.Result, err error) {
	account, err := b.accountNumber(ctx, e.AccountID)
	if err != nil {
		return res, err
	}
	grants, err := b.allocate(ctx, e.AccountID, e.Unit)
	if err != nil {
		return res, err
	}
	c := classes[e.Unit]
	taken, left := e.Take(grants)
	for i, n := range taken {
		if n == 0 {
			continue
		}
		_, err := b.run(ctx, `INSERT INTO `+c.expiries+` (grant_id, number, amount, created_at)
			SELECT ?1, count(*) + 1, ?2, ?3 FROM `+c.expiries+` WHERE grant_id = ?1`, grants[i].ID, int64(n), micros(e.Now))
		if err == nil {
			_, err = b.run(ctx, `UPDATE `+c.grants+` SET expired = expired + ? WHERE id = ?`, int64(n), grants[i].ID)
		}
		if err != nil {
			return res, err
		}
		res.Amount += n
	}
	res.Applied, res.Left = true, left
	return res, b.raise(ctx, account, e.Unit, -res.Amount)
}

// optional is s, or NULL for none.
func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// debit takes credit as a charge does.
func (b *batch) debit(ctx context.Context, d *ledger.Debit) (ledger.Result, error) {
	if err := b.addDebit(ctx, d); err != nil {
		return ledger.Result{}, err
	}
	err := record(ctx, b, audit.Entry{At: d.CreatedAt, Actor: d.Actor, Origin: d.Origin, Action: audit.CreditAdjust, Target: d.AccountID}, nil,
		creditState{ID: d.ID, Amount: (-d.Amount).String(), Reason: d.Reason})
	return ledger.Result{Applied: true}, err
}

// addDebit writes a debit and what the account has less by it.
func (b *batch) addDebit(ctx context.Context, d *ledger.Debit) error {
	_, err := b.run(ctx, `INSERT INTO debit (id, account_id, amount, reason, actor, created_at) VALUES (?, ?, ?, ?, ?, ?)`,
		d.ID, d.AccountID, int64(d.Amount), d.Reason, d.Actor, micros(d.CreatedAt))
	if err != nil {
		return err
	}
	n, err := b.run(ctx, `UPDATE account SET posted = posted + ? WHERE id = ?`, int64(d.Amount), d.AccountID)
	if err == nil && n != 1 {
		err = fmt.Errorf("debit %s: no account %s", d.ID, d.AccountID)
	}
	return err
}

// Charged returns the charge of a call that has ended. It fails with [ledger.ErrNoCharge].
func (d *DB) Charged(ctx context.Context, requestID string) (ledger.Charged, error) {
	return charged(ctx, sqlTx{d.read}, requestID)
}

func charged(ctx context.Context, q querier, requestID string) (c ledger.Charged, err error) {
	list, err := q.list(ctx, `SELECT a.id, c.amount, (SELECT coalesce(sum(amount), 0) FROM credit_grant WHERE request_id = c.id)
		FROM charge_row c JOIN account a ON a.number = c.account WHERE c.id = ?`, requestID)
	if err != nil {
		return c, err
	}
	if len(list) == 0 {
		return c, fmt.Errorf("%w: %s", ledger.ErrNoCharge, requestID)
	}
	row := list[0]
	return ledger.Charged{AccountID: row[0].(string), Charge: money.Amount(row[1].(int64)), Refunded: money.Amount(row[2].(int64))}, nil
}
