package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Inspection is a data directory as it lies there.
type Inspection struct {
	Checked
	// Holds are streams that run or, where no process has the directory, did when the
	// last one ended.
	Holds int
	// Slots are the places taken in the file of progress; those of running streams too.
	Slots int
	// Proof is what the server's last proof found.
	Proof Proof
	// Undecided is what went back of payments and waits for somebody to decide.
	Undecided []Undecided
	// Waiting is what the endpoints of webhooks have not taken yet.
	Waiting []WaitingEvents
	// Parts are what backups have left that were killed, or are making now: in backups, and where
	// the last ones were made.
	Parts []Part
	// Newest is when the last call was made of those that have ended; zero without one.
	Newest time.Time
}

// Inspect looks at the database of dir as an outsider, also while a process uses it,
// and changes nothing. It fails with the errors of [Check], with [ErrRestoring] and [ErrGone].
func Inspect(ctx context.Context, dir string) (i Inspection, err error) {
	if _, err := os.Lstat(filepath.Join(dir, restoring)); err == nil {
		return i, fmt.Errorf("%s: %w", dir, ErrRestoring)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return i, err
	}
	path := filepath.Join(dir, FileName)
	if err := gone(dir); err != nil {
		return i, err
	}
	if _, err := os.Stat(path); err != nil {
		return i, err
	}
	db, err := open(path, "mode=ro&_pragma=busy_timeout(10000)", 1)
	if err != nil {
		return i, err
	}
	i.Parts = partsIn(filepath.Join(dir, backups))
	err = i.read(ctx, dir, db)
	if err = errors.Join(err, db.Close()); err != nil {
		return i, explain(path, err)
	}
	i.Slots, err = takenSlots(dir)
	return i, err
}

func (i *Inspection) read(ctx context.Context, dir string, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing was written
	all, err := known(migrations)
	if err != nil {
		return err
	}
	var broken error
	if i.Checked, broken = check(ctx, tx, all); i.Report.Invariants == nil || broken != nil && !errors.Is(broken, ErrUnbalanced) {
		return broken
	}
	var newest sql.NullInt64
	err = tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM hold_row), (SELECT created_at FROM charge_row ORDER BY id DESC LIMIT 1)`).Scan(&i.Holds, &newest)
	i.Newest = instant(newest)
	if err == nil {
		i.Proof, err = lastProof(ctx, tx)
	}
	if err == nil {
		i.Undecided, err = undecided(ctx, sqlTx{tx})
	}
	if err == nil {
		i.Waiting, err = waitingEvents(ctx, sqlTx{tx}, `TRUE`)
	}
	if err == nil {
		var beside []Part
		beside, err = partsBesideBackups(ctx, sqlTx{tx}, filepath.Join(dir, backups))
		i.Parts = append(i.Parts, beside...)
	}
	return errors.Join(broken, err)
}

// takenSlots counts the slots of dir/progress that have a request id.
func takenSlots(dir string) (n int, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "progress"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	var free [16]byte
	for at := 0; at+slotBytes <= len(text); at += slotBytes {
		if !bytes.Equal(text[at:at+len(free)], free[:]) {
			n++
		}
	}
	return n, err
}
