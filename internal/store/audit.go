package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/parley-ai/parley/internal/audit"
)

// auditFacts are the columns of every schema.
const (
	auditFacts   = `seq, at, actor, action, target, before, after, prev_hash, hash`
	auditColumns = auditFacts + `, origin`
)

// record adds to the audit log what the transaction of q has changed. before and after
// are nil where there was or is nothing.
func record(ctx context.Context, q querier, e audit.Entry, before, after any) error {
	head, err := q.list(ctx, `SELECT seq, hash FROM audit_head`)
	if err != nil {
		return err
	}
	if len(head) != 1 {
		return fmt.Errorf("the audit log has %d heads", len(head))
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if before != nil {
		e.Before = audit.State(before)
	}
	if after != nil {
		e.After = audit.State(after)
	}
	if e.Origin == "" {
		e.Origin = audit.Origin(ctx)
	}
	e.Follow(head[0][0].(int64), head[0][1].(string))
	columns, marks, values := auditFacts, `?, ?, ?, ?, ?, ?, ?, ?, ?`, []any{e.Seq, micros(e.At), e.Actor, string(e.Action), e.Target, e.Before, e.After, e.Prev, e.Hash}
	if e.Origin != "" { // a backup of an older schema, which has no such column, has no such entry
		columns, marks, values = auditColumns, marks+`, ?`, append(values, e.Origin)
	}
	_, err = q.run(ctx, `INSERT INTO audit_log (`+columns+`) VALUES (`+marks+`)`, values...)
	if err != nil {
		return err
	}
	_, err = q.run(ctx, `UPDATE audit_head SET seq = ?, hash = ?`, e.Seq, e.Hash)
	return err
}

// AuditLog returns at most limit entries, the last first; all of them about target, or
// about anything when it is empty.
func (d *DB) AuditLog(ctx context.Context, target string, limit int) ([]audit.Entry, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+auditColumns+` FROM audit_log WHERE $1 = '' OR target = $1 ORDER BY seq DESC LIMIT $2`, target, limit)
	return rows(rs, err, scanEntry)
}

// SearchAudit returns the entries that f finds, the last first.
func (d *DB) SearchAudit(ctx context.Context, f audit.Search) ([]audit.Entry, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+auditColumns+` FROM audit_log
		WHERE ($1 = 0 OR seq < $1) AND ($2 = '' OR target = $2) AND ($3 = '' OR actor = $3) AND ($4 = '' OR substr(action, 1, length($4) + 1) = $4 || '.')
		ORDER BY seq DESC LIMIT $5`, f.Before, f.Target, f.Actor, f.Kind, f.Limit)
	return rows(rs, err, scanEntry)
}

// AuditPage lists entries, the last first, as [audit.Filter] says.
func (d *DB) AuditPage(ctx context.Context, f audit.Filter) ([]audit.Entry, error) {
	targets, err := json.Marshal(f.Targets)
	if err != nil {
		return nil, err
	}
	before, to := f.Before, int64(math.MaxInt64)
	if before == 0 {
		before = math.MaxInt64
	}
	if !f.To.IsZero() {
		to = f.To.UnixMicro()
	}
	rs, err := d.read.QueryContext(ctx, `SELECT `+auditColumns+` FROM audit_log
		WHERE target IN (SELECT value FROM json_each($1)) AND seq < $2 AND ($3 = '' OR actor = $3) AND ($4 = '' OR action = $4) AND at >= $5 AND at < $6
		ORDER BY seq DESC LIMIT $7`, string(targets), before, f.Actor, string(f.Action), f.From.UnixMicro(), to, f.Limit)
	return rows(rs, err, scanEntry)
}

func scanEntry(rs *sql.Rows, e *audit.Entry) error {
	var at sql.NullInt64
	err := rs.Scan(&e.Seq, &at, &e.Actor, &e.Action, &e.Target, &e.Before, &e.After, &e.Prev, &e.Hash, &e.Origin)
	e.At = instant(at)
	return err
}

// checkAudit follows the chain from its first entry to its head and says what is wrong,
// empty when nothing is.
func checkAudit(ctx context.Context, tx reader) (wrong string, err error) {
	rs, err := tx.QueryContext(ctx, `SELECT `+auditColumns+` FROM audit_log ORDER BY seq`)
	if err != nil {
		return "", err
	}
	defer rs.Close()
	var seq int64
	var hash string
	for rs.Next() {
		var e audit.Entry
		if err := scanEntry(rs, &e); err != nil {
			return "", err
		}
		if err := e.Check(seq, hash); err != nil {
			return err.Error(), nil
		}
		seq, hash = e.Seq, e.Hash
	}
	if err := rs.Err(); err != nil {
		return "", err
	}
	var headSeq int64
	var headHash string
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(seq), -1), coalesce(max(hash), '') FROM audit_head`).Scan(&headSeq, &headHash); err != nil {
		return "", err
	}
	if headSeq != seq || headHash != hash {
		return fmt.Sprintf("it ends at entry %d, its head says %d", seq, headSeq), nil
	}
	return "", nil
}
