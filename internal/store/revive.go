package store

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Revived is a key, an account or an operator's token that has an end in the books that a
// restore takes the place of, and none, or a later one, in those it restores.
type Revived struct {
	Kind    string // "key", "account" or "token"
	ID      string
	Name    string
	Account string // the name of a key's; else empty
}

// revived compares the copy of a backup with the books of dir. It is not ok where there
// are none, or where the two are not of one schema or cannot be read.
func revived(ctx context.Context, part, dir string, now time.Time) (list []Revived, ok bool) {
	old := filepath.Join(dir, FileName)
	if _, err := os.Stat(old); err != nil {
		return nil, false
	}
	db, err := open(part, "mode=ro", 1)
	if err != nil {
		return nil, false
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `ATTACH $1 AS old`, "file:"+(&url.URL{Path: old}).EscapedPath()+"?mode=ro"); err != nil {
		return nil, false
	}
	// The end of a key or token is when it was revoked, else when it expires.
	const (
		never = `9223372036854775807`
		lives = ` coalesce(n.revoked_at, n.expires_at, ` + never + `) > max($1, coalesce(o.revoked_at, o.expires_at, ` + never + `))`
	)
	rs, err := db.QueryContext(ctx, `SELECT 'key', n.id, n.name, a.name FROM main.api_key n JOIN old.api_key o ON o.id = n.id JOIN main.account a ON a.id = n.account_id WHERE`+lives+`
		UNION ALL SELECT 'account', n.id, n.name, '' FROM main.account n JOIN old.account o ON o.id = n.id WHERE o.status = 'suspended' AND n.status <> 'suspended'
		UNION ALL SELECT 'token', n.id, n.name, '' FROM main.operator_token n JOIN old.operator_token o ON o.id = n.id WHERE`+lives+` ORDER BY 1, 2`, micros(now))
	list, err = rows(rs, err, func(rs *sql.Rows, r *Revived) error { return rs.Scan(&r.Kind, &r.ID, &r.Name, &r.Account) })
	return list, err == nil
}
