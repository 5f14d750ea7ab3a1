package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/idempotency"
	"github.com/parley-ai/parley/internal/ledger"
)

var _ idempotency.Store = (*DB)(nil)

// FindIdempotent returns what is known of an account's key.
func (d *DB) FindIdempotent(ctx context.Context, accountID string, key [32]byte) (r idempotency.Record, found bool, err error) {
	var body []byte
	var created sql.NullInt64
	err = d.read.QueryRowContext(ctx, `SELECT i.request_id, i.completion_id, i.body, i.running, i.answer, i.created_at
		FROM idempotency i JOIN account a ON a.number = i.account WHERE a.id = ? AND i.key = ?`, accountID, key[:]).
		Scan(&r.RequestID, &r.CompletionID, &body, &r.Running, &r.Answer, &created)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return r, false, nil
	case err != nil:
		return r, false, err
	case len(body) != len(r.Body):
		return r, false, fmt.Errorf("idempotency of %s: a hash of %d bytes", r.RequestID, len(body))
	}
	r.Body, r.CreatedAt = [32]byte(body), instant(created)
	return r, true, nil
}

// KeptAnswers returns how many bytes of answers there are, by account.
func (d *DB) KeptAnswers(ctx context.Context) (map[string]int64, error) {
	return bytesBy(d.read.QueryContext(ctx, `SELECT a.id, sum(length(i.answer)) FROM idempotency i JOIN account a ON a.number = i.account
		WHERE i.answer IS NOT NULL GROUP BY a.id`))
}

// ForgetIdempotent forgets at most that many keys older than before, never those of
// running calls, and returns how many, and the bytes of their answers by account.
func (d *DB) ForgetIdempotent(ctx context.Context, before time.Time, most int) (n int, freed map[string]int64, err error) {
	const these = `SELECT number FROM idempotency WHERE created_at <= ?1 AND NOT running ORDER BY created_at, number LIMIT ?2`
	err = d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		freed, err = bytesBy(tx.QueryContext(ctx, `SELECT a.id, coalesce(sum(length(i.answer)), 0) FROM idempotency i JOIN account a ON a.number = i.account
			WHERE i.number IN (`+these+`) GROUP BY a.id`, micros(before), most))
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `DELETE FROM idempotency WHERE number IN (`+these+`)`, micros(before), most)
		if err != nil {
			return err
		}
		gone, err := res.RowsAffected()
		n = int(gone)
		return err
	})
	return n, freed, err
}

// ForgetKey forgets an account's key that is older than before and not of a running call,
// and returns the bytes of its answer.
func (d *DB) ForgetKey(ctx context.Context, accountID string, key [32]byte, before time.Time) (freed int64, err error) {
	err = d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `DELETE FROM idempotency WHERE account = (SELECT number FROM account WHERE id = $1) AND key = $2 AND created_at <= $3 AND NOT running
			RETURNING coalesce(length(answer), 0)`, accountID, key[:], micros(before)).Scan(&freed)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return freed, err
}

func bytesBy(rs *sql.Rows, err error) (map[string]int64, error) {
	type sum struct {
		id string
		n  int64
	}
	all, err := rows(rs, err, func(rs *sql.Rows, s *sum) error { return rs.Scan(&s.id, &s.n) })
	by := make(map[string]int64, len(all))
	for _, s := range all {
		by[s.id] = s.n
	}
	return by, err
}

// name writes that the key of r stands for r, or is free again: with its hold, and with
// its charge.
func (b *batch) name(ctx context.Context, account int64, r *ledger.Receipt) error {
	i := r.Idempotency
	if r.State == ledger.Voided {
		_, err := b.exec(ctx, b.unnamed, account, i.Key[:], r.RequestID)
		return err
	}
	var answer any // NULL
	if i.Answer != nil {
		answer = i.Answer
	}
	n, err := b.exec(ctx, b.named, account, i.Key[:], i.Body[:], r.RequestID, r.CompletionID, r.State == ledger.Running, answer, micros(r.CreatedAt), micros(i.FreeBefore))
	if err == nil && n != 1 {
		err = fmt.Errorf("call %s: its idempotency key stands for another call", r.RequestID)
	}
	return err
}
