package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
)

// dayHours is how many hours a day has.
const dayHours = 24

// daySettles is how long after its end a day is taken for over.
const daySettles = time.Hour

// Bounds of what is remembered: about 40 MB of usage by the day, and names of terms.
const (
	mostDayRows = 300_000
	mostTerms   = 200_000
	// farDays is how far days may lie from those that are known to be remembered with them,
	// and someDays how many are read at once.
	farDays  = 31
	someDays = 7
)

// usageRow is what was used on terms in an hour or in a day, which then is its first hour.
type usageRow struct {
	hour, terms int64
	ledger.Usage
}

// days remembers usage by the day, of days that are over: they are a tenth of the rows, and
// do not change but for a charge that comes late. It is safe for concurrent use.
type days struct {
	mu      sync.Mutex
	known   map[int64]daysOf // by the number of the account
	rows    int              // of all
	changes int              // how often something was forgotten because it changed
	terms   map[int64]termsName
}

// daysOf are the days of an account from first to before end.
type daysOf struct {
	first, end int64
	rows       []usageRow // in the order of time
}

// termsName is what of terms usage is told by.
type termsName struct{ keyID, model string }

// over is the first day that is not over.
func over(now time.Time) int64 { return now.Add(-daySettles).UnixMicro() / hour / dayHours }

// forget drops accounts of which a day has changed.
func (d *days) forget(accounts []int64) {
	if len(accounts) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	for _, a := range accounts {
		d.rows -= len(d.known[a].rows)
		delete(d.known, a)
	}
}

// look is what is known of an account, and how many changes there were.
func (d *days) look(account int64) (daysOf, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[account], d.changes
}

// keep remembers the days of an account, which were read when there were so many changes.
func (d *days) keep(account int64, of daysOf, changes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changes != changes || len(of.rows) > mostDayRows/2 {
		return
	}
	if d.known == nil {
		d.known = map[int64]daysOf{}
	}
	d.rows += len(of.rows) - len(d.known[account].rows)
	d.known[account] = of
	for other, rest := range d.known { // in no order
		if d.rows <= mostDayRows {
			break
		}
		if other != account {
			d.rows -= len(rest.rows)
			delete(d.known, other)
		}
	}
}

// usageByDay is the usage of an account from the day first to before end, which are over.
func (d *DB) usageByDay(ctx context.Context, account, first, end int64) ([]usageRow, error) {
	known, changes := d.days.look(account)
	if known.first == known.end {
		known = daysOf{first: end, end: end}
	}
	if end < known.first-farDays || first > known.end+farDays {
		return d.readUsage(ctx, account, first*dayHours, end*dayHours, dayHours)
	}
	// Some at a time: who runs out of time finds them remembered at the next try.
	for known.end < end || known.first > first {
		from, to := known.end, min(end, known.end+someDays)
		if from >= to {
			from, to = max(first, known.first-someDays), known.first
		}
		more, err := d.readUsage(ctx, account, from*dayHours, to*dayHours, dayHours)
		if err != nil {
			return nil, err
		}
		if from == known.end {
			known = daysOf{known.first, to, slices.Concat(known.rows, more)}
		} else {
			known = daysOf{from, known.end, slices.Concat(more, known.rows)}
		}
		d.days.keep(account, known, changes)
	}
	from, _ := slices.BinarySearchFunc(known.rows, first*dayHours, byHour)
	to, _ := slices.BinarySearchFunc(known.rows, end*dayHours, byHour)
	return known.rows[from:to], nil
}

func byHour(r usageRow, hour int64) int { return int(r.hour - hour) }

// readUsage reads the usage of an account from an hour to before another, added up by so
// many hours.
func (d *DB) readUsage(ctx context.Context, account, first, end, by int64) ([]usageRow, error) {
	if first >= end {
		return nil, nil
	}
	text := `SELECT hour, terms, calls, prompt_tokens, cached_tokens, completion_tokens, amount, written_off, plan_tokens, failed, refused, gone
		FROM usage_row WHERE account = $1 AND hour >= $2 AND hour < $3 ORDER BY hour, terms`
	args := []any{account, first, end}
	if by > 1 {
		text = `SELECT hour / $4 * $4 AS begins, terms, ` + sums + ` FROM usage_row WHERE account = $1 AND hour >= $2 AND hour < $3
			GROUP BY begins, terms ORDER BY begins, terms`
		args = append(args, by)
	}
	rs, err := d.read.QueryContext(ctx, text, args...)
	return rows(rs, err, func(rs *sql.Rows, u *usageRow) error {
		return rs.Scan(&u.hour, &u.terms, &u.Calls, &u.PromptTokens, &u.CachedTokens, &u.CompletionTokens, &u.Charge, &u.WrittenOff, &u.PlanTokens, &u.Failed, &u.Refused, &u.Left)
	})
}

// usage is the usage of an account from an hour to before another: by the hour where hourly
// is set, else by the day where days are whole and over.
func (d *DB) usage(ctx context.Context, account, first, end int64, hourly bool) ([]usageRow, error) {
	begin, stop := (first+dayHours-1)/dayHours, min(end/dayHours, over(time.Now()))
	if hourly || begin >= stop {
		return d.readUsage(ctx, account, first, end, 1)
	}
	head, err := d.readUsage(ctx, account, first, begin*dayHours, 1)
	if err != nil {
		return nil, err
	}
	whole, err := d.usageByDay(ctx, account, begin, stop)
	if err != nil {
		return nil, err
	}
	tail, err := d.readUsage(ctx, account, stop*dayHours, end, 1)
	return slices.Concat(head, whole, tail), err
}

// termsNames are the names of the terms of rows.
func (d *DB) termsNames(ctx context.Context, list []usageRow) (map[int64]termsName, error) {
	names, missing := map[int64]termsName{}, map[int64]bool{}
	d.days.mu.Lock()
	for i := range list {
		n, ok := d.days.terms[list[i].terms]
		if names[list[i].terms] = n; !ok {
			missing[list[i].terms] = true
		}
	}
	d.days.mu.Unlock()
	if len(missing) == 0 {
		return names, nil
	}
	numbers, err := json.Marshal(slices.Collect(maps.Keys(missing)))
	if err != nil {
		return nil, err
	}
	rs, err := d.read.QueryContext(ctx, `SELECT number, key_id, model FROM terms WHERE number IN (SELECT value FROM json_each($1))`, string(numbers))
	_, err = rows(rs, err, func(rs *sql.Rows, _ *struct{}) error {
		var number int64
		var n termsName
		err := rs.Scan(&number, &n.keyID, &n.model)
		names[number] = n
		return err
	})
	if err != nil { // a page that has no more time for it must not leave keys without names
		return nil, err
	}
	d.days.mu.Lock()
	defer d.days.mu.Unlock()
	if d.days.terms == nil || len(d.days.terms) > mostTerms {
		d.days.terms = map[int64]termsName{}
	}
	for number := range missing {
		d.days.terms[number] = names[number]
	}
	return names, nil
}
