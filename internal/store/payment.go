package store

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// Payment returns the grant of that source. It fails with [ledger.ErrPayment].
func (d *DB) Payment(ctx context.Context, source string) (p ledger.Payment, err error) {
	list, err := sqlTx{d.read}.list(ctx, `SELECT account_id, amount, paid, currency FROM credit_grant WHERE source = ?`, source)
	if err != nil {
		return p, err
	}
	if len(list) != 1 {
		return p, fmt.Errorf("%w: %s", ledger.ErrPayment, source)
	}
	row := list[0]
	return ledger.Payment{AccountID: row[0].(string), Source: source, Credit: money.Amount(row[1].(int64)), Paid: row[2].(int64), Currency: row[3].(string)}, nil
}

// Undecided is what went back of a payment and cannot be compared with it.
type Undecided struct {
	AccountID string
	Name      string       // of the account
	Part      string       // of the payment: what a correction has to name in its reason to decide it
	Reason    string       // what was told, and why nothing was taken
	Credit    money.Amount // that the payment has brought: the most that can be taken
	At        time.Time
}

// undecided are those that no correction of their account has named since, the oldest first.
func undecided(ctx context.Context, q querier) (all []Undecided, err error) {
	list, err := q.list(ctx, `SELECT e.account_id, a.name, e.part, e.reason, g.amount, min(e.created_at)
		FROM payment_event e JOIN account a ON a.id = e.account_id JOIN credit_grant g ON g.account_id = e.account_id AND g.source = e.payment
		WHERE e.by_hand
		  AND NOT EXISTS (SELECT 1 FROM debit d WHERE d.account_id = e.account_id AND d.created_at >= e.created_at AND instr(d.reason, e.part) > 0)
		  AND NOT EXISTS (SELECT 1 FROM credit_grant c WHERE c.account_id = e.account_id AND c.kind = 'adjust' AND c.created_at >= e.created_at AND instr(c.note, e.part) > 0)
		GROUP BY e.account_id, e.part ORDER BY min(e.created_at)`)
	for _, row := range list {
		all = append(all, Undecided{
			AccountID: row[0].(string), Name: row[1].(string), Part: row[2].(string), Reason: row[3].(string),
			Credit: money.Amount(row[4].(int64)), At: time.UnixMicro(row[5].(int64)).UTC(),
		})
	}
	return all, err
}

// reversalState is what the audit log says of a reversal.
type reversalState struct {
	DebitID    string `json:"debit_id,omitzero"`
	Taken      string `json:"taken"`
	WrittenOff string `json:"written_off"`
	ByHand     bool   `json:"by_hand,omitzero"` // somebody has to decide
	Reason     string `json:"reason"`
	Payment    string `json:"payment"`
	Source     string `json:"source"`
}

// reverse finds anew what was taken before, so that neither repeats nor their order matter.
func (b *batch) reverse(ctx context.Context, r *ledger.Reversal) (res ledger.Result, err error) {
	told, err := b.list(ctx, `SELECT 1 FROM payment_event WHERE source = ?`, r.Source)
	if err != nil || len(told) > 0 {
		return res, err
	}
	sums, err := b.list(ctx, `SELECT coalesce(sum(CASE WHEN part = ? THEN taken + written_off END), 0), coalesce(sum(taken + written_off), 0)
		FROM payment_event WHERE account_id = ? AND payment = ?`, r.Part, r.Payment.AccountID, r.Payment.Source)
	if err != nil {
		return res, err
	}
	ofPart, ofAll := money.Amount(sums[0][0].(int64)), money.Amount(sums[0][1].(int64))
	due := max(0, min(r.Due-ofPart, r.Payment.Credit-ofAll))
	res = ledger.Result{Applied: true, Amount: min(due, r.Most)}
	res.Left = due - res.Amount
	reason := r.Reason
	if res.Left > 0 {
		reason = fmt.Sprintf("%s; %s IU that the account did not have are written off", reason, res.Left)
	}
	state := reversalState{Taken: res.Amount.String(), WrittenOff: res.Left.String(), ByHand: r.ByHand, Reason: reason, Payment: r.Payment.Source, Source: r.Source}
	if res.Amount > 0 {
		state.DebitID = r.DebitID
		if err := b.addDebit(ctx, &ledger.Debit{
			ID: r.DebitID, AccountID: r.Payment.AccountID, Amount: res.Amount, Reason: reason, Actor: r.Actor, CreatedAt: r.CreatedAt,
		}); err != nil {
			return res, err
		}
	}
	_, err = b.run(ctx, `INSERT INTO payment_event (source, account_id, payment, part, reason, taken, written_off, debit_id, created_at, by_hand) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.Source, r.Payment.AccountID, r.Payment.Source, r.Part, reason, int64(res.Amount), int64(res.Left), optional(state.DebitID), micros(r.CreatedAt), r.ByHand)
	if err != nil {
		return res, err
	}
	return res, record(ctx, b, audit.Entry{At: r.CreatedAt, Actor: r.Actor, Action: r.Action, Target: r.Payment.AccountID}, nil, state)
}
