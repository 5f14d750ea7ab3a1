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
	DebitID     string `json:"debit_id,omitzero"`
	GrantID     string `json:"grant_id,omitzero"`
	Taken       string `json:"taken"`
	WrittenOff  string `json:"written_off"`
	Returned    string `json:"returned,omitzero"`
	WrittenBack string `json:"written_back,omitzero"`
	ByHand      bool   `json:"by_hand,omitzero"` // somebody has to decide
	Reason      string `json:"reason"`
	Payment     string `json:"payment"`
	Source      string `json:"source"`
}

// movement is what a message changes: credit that is taken, written off because it is not there,
// granted again, and written off no more.
type movement struct{ taken, writtenOff, returned, writtenBack money.Amount }

// reverse finds anew what is due and what was taken before, so that neither repeats nor their
// order matter.
func (b *batch) reverse(ctx context.Context, r *ledger.Reversal) (res ledger.Result, err error) {
	told, err := b.list(ctx, `SELECT 1 FROM payment_event WHERE source = ?`, r.Source)
	if err != nil || len(told) > 0 {
		return res, err
	}
	due, news, err := b.claim(ctx, r)
	if err != nil {
		return res, err
	}
	m, err := b.settle(ctx, r, due)
	if err != nil {
		return res, err
	}
	// The sum of the refunds tells of each of them too: single ones are noted when they change something.
	if r.Claim.Kind == ledger.OneBack && m == (movement{}) && !(r.Claim.Failed && news) {
		return ledger.Result{Applied: news}, nil
	}
	return ledger.Result{Applied: true, Amount: m.taken, Left: m.writtenOff, Returned: m.returned}, b.noteReversal(ctx, r, m)
}

// claim writes what r says of its part of the payment. It returns what all parts make due, and
// whether r says anything new.
func (b *batch) claim(ctx context.Context, r *ledger.Reversal) (due money.Amount, news bool, err error) {
	list, err := b.list(ctx, `SELECT part, kind, back, whole, failed + 0 FROM payment_claim WHERE account_id = ? AND payment = ?`, r.Payment.AccountID, r.Payment.Source)
	if err != nil {
		return 0, false, err
	}
	var claims []ledger.Claim
	for _, row := range list {
		claims = append(claims, ledger.Claim{
			Part: row[0].(string), Kind: ledger.ClaimKind(row[1].(string)), Back: row[2].(int64), Of: row[3].(int64), Failed: row[4].(int64) == 1,
		})
	}
	claims, news = r.Payment.Merge(claims, r.Claim)
	for _, c := range claims {
		if !news || c.Part != r.Claim.Part {
			continue
		}
		_, err = b.run(ctx, `INSERT INTO payment_claim (account_id, payment, part, kind, back, whole, failed) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET back = excluded.back, whole = excluded.whole, failed = excluded.failed`,
			r.Payment.AccountID, r.Payment.Source, c.Part, string(c.Kind), c.Back, c.Of, c.Failed)
	}
	return r.Payment.Due(claims), news, err
}

// settle compares what is due of a payment with what was taken and written off, and says what
// makes them equal. What was written off is due no more before anything is granted again.
func (b *batch) settle(ctx context.Context, r *ledger.Reversal, due money.Amount) (m movement, err error) {
	sums, err := b.list(ctx, `SELECT coalesce(sum(taken - returned), 0), coalesce(sum(written_off - written_back), 0) FROM payment_event WHERE account_id = ? AND payment = ?`,
		r.Payment.AccountID, r.Payment.Source)
	if err != nil {
		return m, err
	}
	taken, writtenOff := money.Amount(sums[0][0].(int64)), money.Amount(sums[0][1].(int64))
	switch more := due - taken - writtenOff; {
	case more > 0:
		m.taken = min(more, r.Most)
		m.writtenOff = more - m.taken
	case more < 0 && r.Claim.Failed:
		m.writtenBack = min(-more, writtenOff)
		m.returned = -more - m.writtenBack
	}
	return m, nil
}

// noteReversal writes what a message has changed.
func (b *batch) noteReversal(ctx context.Context, r *ledger.Reversal, m movement) error {
	reason := r.Reason
	state := reversalState{Taken: m.taken.String(), WrittenOff: m.writtenOff.String(), ByHand: r.ByHand, Payment: r.Payment.Source, Source: r.Source}
	if m.writtenOff > 0 {
		reason = fmt.Sprintf("%s; %s IU that the account did not have are written off", reason, m.writtenOff)
	}
	if m.writtenBack > 0 {
		reason = fmt.Sprintf("%s; %s IU are written off no more", reason, m.writtenBack)
		state.WrittenBack = m.writtenBack.String()
	}
	state.Reason = reason
	if m.taken > 0 {
		state.DebitID = r.DebitID
		if err := b.addDebit(ctx, &ledger.Debit{
			ID: r.DebitID, AccountID: r.Payment.AccountID, Amount: m.taken, Reason: reason, Actor: r.Actor, CreatedAt: r.CreatedAt,
		}); err != nil {
			return err
		}
	}
	if m.returned > 0 {
		state.GrantID, state.Returned = r.GrantID, m.returned.String()
		if err := b.addGrant(ctx, &ledger.Grant{
			ID: r.GrantID, AccountID: r.Payment.AccountID, Kind: ledger.Prepaid, Priority: ledger.Prepaid.Priority(), Amount: m.returned,
			Note: reason, Source: r.Source, Actor: r.Actor, CreatedAt: r.CreatedAt,
		}); err != nil {
			return err
		}
	}
	_, err := b.run(ctx, `INSERT INTO payment_event (source, account_id, payment, part, reason, taken, written_off, debit_id, created_at, by_hand, returned, written_back, grant_id)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.Source, r.Payment.AccountID, r.Payment.Source, r.Claim.Part, reason, int64(m.taken), int64(m.writtenOff), optional(state.DebitID), micros(r.CreatedAt),
		r.ByHand, int64(m.returned), int64(m.writtenBack), optional(state.GrantID))
	if err != nil {
		return err
	}
	return record(ctx, b, audit.Entry{At: r.CreatedAt, Actor: r.Actor, Action: r.Action, Target: r.Payment.AccountID}, nil, state)
}
