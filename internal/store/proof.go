package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/webhook"
)

// idle is how long [DB.Prove] does nothing after the screen and after each law, as a multiple
// of the time that it took: it has a fifth of one core at most.
const idle = 4

// Prove proves the same laws as [DB.Verify] beside the work of a server. The screen and each
// law have a snapshot of their own, so that none keeps the log from being folded in for long,
// and a pause after it. No law speaks of two moments, so the books are balanced when every law holds. It
// never makes a call wait: it only reads.
func (d *DB) Prove(ctx context.Context) (rep ledger.Report, err error) {
	var s screened
	steps := []func(reader) error{func(tx reader) (err error) {
		if s, err = screenCharges(ctx, tx); err != nil {
			return err
		}
		return census(ctx, tx, &s, &rep)
	}}
	for _, law := range laws() {
		steps = append(steps, func(tx reader) error {
			i, err := law(ctx, tx, &s)
			rep.Invariants = append(rep.Invariants, i)
			return err
		})
	}
	begin := time.Now()
	for _, step := range steps {
		start := time.Now()
		if err := d.moment(ctx, step); err != nil {
			return rep, err
		}
		pause := time.NewTimer(idle * time.Since(start))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return rep, context.Cause(ctx)
		}
	}
	rep.Took = time.Since(begin)
	return rep, nil
}

// moment runs f on a snapshot.
func (d *DB) moment(ctx context.Context, f func(reader) error) error {
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing was written
	return f(tx)
}

// Proof is what the last proof found.
type Proof struct {
	At      time.Time // its end; zero when there was none
	Took    time.Duration
	Entries int64
	// Law is the first that was broken, empty when none was, and Detail where.
	Law, Detail string
}

// NoteProof keeps rep as the last proof. Where it is broken, endpoints are told.
func (d *DB) NoteProof(ctx context.Context, rep ledger.Report) error {
	broken := rep.Broken()
	return d.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO proof (one, at, took_us, entries, law, detail) VALUES (1, $1, $2, $3, $4, $5)
			ON CONFLICT (one) DO UPDATE SET at = excluded.at, took_us = excluded.took_us, entries = excluded.entries, law = excluded.law, detail = excluded.detail`,
			micros(time.Now()), rep.Took.Microseconds(), rep.Entries, broken.Name, broken.Detail)
		if err != nil || broken.Name == "" {
			return err
		}
		return emit(ctx, sqlTx{tx}, webhook.LedgerUnbalanced, "", map[string]any{"law": broken.Name, "detail": broken.Detail})
	})
}

// LastProof returns what was noted last, the zero value when nothing was.
func (d *DB) LastProof(ctx context.Context) (p Proof, err error) {
	err = d.moment(ctx, func(tx reader) error {
		p, err = lastProof(ctx, tx)
		return err
	})
	return p, err
}

// lastProof is what was noted last.
func lastProof(ctx context.Context, tx reader) (p Proof, err error) {
	var at sql.NullInt64
	var took int64
	err = tx.QueryRowContext(ctx, `SELECT at, took_us, entries, law, detail FROM proof`).Scan(&at, &took, &p.Entries, &p.Law, &p.Detail)
	if errors.Is(err, sql.ErrNoRows) {
		return Proof{}, nil
	}
	p.At, p.Took = instant(at), time.Duration(took)*time.Microsecond
	return p, err
}
