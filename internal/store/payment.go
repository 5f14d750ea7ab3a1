package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
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
	s, err := stand(ctx, b, r)
	if err != nil || s.told {
		return res, err
	}
	if s.news {
		_, err := b.run(ctx, `INSERT INTO payment_claim (account_id, payment, part, kind, back, whole, failed) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET back = excluded.back, whole = excluded.whole, failed = excluded.failed`,
			r.Payment.AccountID, r.Payment.Source, s.claim.Part, string(s.claim.Kind), s.claim.Back, s.claim.Of, s.claim.Failed)
		if err != nil {
			return res, err
		}
	}
	m := s.movement(r)
	// The sum of the refunds tells of each of them too: single ones are noted when they change something.
	if r.Claim.Kind == ledger.OneBack && m == (movement{}) && !(r.Claim.Failed && s.news) {
		return ledger.Result{Applied: s.news}, nil
	}
	return ledger.Result{Applied: true, Amount: m.taken, Left: m.writtenOff, Returned: m.returned}, b.noteReversal(ctx, r, m)
}

// Owed is what r makes due of its payment beyond what was taken and written off for it: below 0
// where that was too much, and 0 for a message that was told before.
func (d *DB) Owed(ctx context.Context, r *ledger.Reversal) (money.Amount, error) {
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // nothing was written
	s, err := stand(ctx, sqlTx{tx}, r)
	return s.owed, err
}

// standing is how a payment stands by a message.
type standing struct {
	told             bool         // before: nothing else is known
	news             bool         // it says something new of its part, which is claim by now
	claim            ledger.Claim // with what was told of the part before
	owed, writtenOff money.Amount
}

// stand compares what is due of a payment, by r too, with what was taken and written off.
func stand(ctx context.Context, q querier, r *ledger.Reversal) (s standing, err error) {
	told, err := q.list(ctx, `SELECT 1 FROM payment_event WHERE source = ?`, r.Source)
	if err != nil || len(told) > 0 {
		return standing{told: true}, err
	}
	list, err := q.list(ctx, `SELECT part, kind, back, whole, failed + 0 FROM payment_claim WHERE account_id = ? AND payment = ?`, r.Payment.AccountID, r.Payment.Source)
	if err != nil {
		return s, err
	}
	var claims []ledger.Claim
	for _, row := range list {
		claims = append(claims, ledger.Claim{
			Part: row[0].(string), Kind: ledger.ClaimKind(row[1].(string)), Back: row[2].(int64), Of: row[3].(int64), Failed: row[4].(int64) == 1,
		})
	}
	claims, s.news = r.Payment.Merge(claims, r.Claim)
	if i := slices.IndexFunc(claims, func(c ledger.Claim) bool { return c.Part == r.Claim.Part }); i >= 0 {
		s.claim = claims[i]
	}
	sums, err := q.list(ctx, `SELECT coalesce(sum(taken - returned), 0), coalesce(sum(written_off - written_back), 0) FROM payment_event WHERE account_id = ? AND payment = ?`,
		r.Payment.AccountID, r.Payment.Source)
	if err != nil {
		return s, err
	}
	s.writtenOff = money.Amount(sums[0][1].(int64))
	s.owed = r.Payment.Due(claims) - money.Amount(sums[0][0].(int64)) - s.writtenOff
	return s, nil
}

// movement is what makes them equal. What was written off is due no more before anything is granted
// again.
func (s *standing) movement(r *ledger.Reversal) (m movement) {
	switch {
	case s.owed > 0:
		m.taken = min(s.owed, r.Most)
		m.writtenOff = s.owed - m.taken
	case s.owed < 0 && r.Claim.Failed:
		m.writtenBack = min(-s.owed, s.writtenOff)
		m.returned = -s.owed - m.writtenBack
	}
	return m
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
