package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
)

// Bounds of the work for one page of receipts. What was not looked at is left to the next.
const (
	mostBuckets = 20_000 // rows of usage_row
	mostWalked  = 5_000  // charges of chains, unless one hour alone has more
	mostScanned = 20_000 // charges in the order of their ids, of whatever account
)

// spread is how far the time of a call may lie behind that in its id, on a machine that
// stalls.
const spread = 10 * time.Second

// Receipts returns the ended calls of an account, those that were admitted last first, at
// most limit.
func (d *DB) Receipts(ctx context.Context, accountID string, limit int) (all []ledger.Receipt, err error) {
	for f := (ledger.Filter{AccountID: accountID}); len(all) < limit; {
		f.Limit = limit - len(all)
		page, err := d.ReceiptPage(ctx, f)
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Receipts...); page.Next == "" {
			break
		}
		f.Before = page.Next
	}
	return all, nil
}

// ReceiptPage lists ended calls, those that were admitted last first. Usage by the hour says
// which hours have some: of those it reads all that could be meant, or, of an account that
// is so busy that this would be too much, everybody's in the order of time. It fails with
// [ledger.ErrCursor].
func (d *DB) ReceiptPage(ctx context.Context, f ledger.Filter) (page ledger.Page, err error) {
	if f.Limit <= 0 {
		f.Limit = ledger.DefaultPage
	}
	s := search{Filter: f, left: mostBuckets, walk: mostWalked}
	s.Limit = min(f.Limit, ledger.MostPage)
	if s.at, err = parsePlace(f.Before); err != nil {
		return page, err
	}
	s.tx, err = d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return page, err
	}
	defer s.tx.Rollback() // nothing was written
	err = s.tx.QueryRowContext(ctx, `SELECT number FROM account WHERE id = $1`, f.AccountID).Scan(&s.account)
	if errors.Is(err, sql.ErrNoRows) {
		return page, nil
	}
	if err != nil {
		return page, err
	}
	for {
		hours, err := s.next(ctx) // also when the page is full: are there more?
		if err != nil || len(hours) == 0 {
			return ledger.Page{Receipts: s.found}, err
		}
		if s.full() {
			return ledger.Page{Receipts: s.found, Next: s.at.String()}, nil
		}
		if err := s.read(ctx, hours); err != nil {
			return page, err
		}
	}
}

// place is where a list goes on: before the call of that id in that hour, or, without an
// id, before the hour.
type place struct {
	hour int64 // since 1970; 0 is the end of time
	id   string
}

func (p place) String() string {
	if p.id == "" {
		return strconv.FormatInt(p.hour, 10)
	}
	return strconv.FormatInt(p.hour, 10) + "." + p.id
}

func parsePlace(text string) (p place, err error) {
	if text == "" {
		return p, nil
	}
	number, id, named := strings.Cut(text, ".")
	p.hour, err = strconv.ParseInt(number, 10, 32)
	p.id = id
	if err != nil || p.hour <= 0 || named && !strings.HasPrefix(id, ident.Request) {
		return place{}, fmt.Errorf("%w: %.64q", ledger.ErrCursor, text)
	}
	return p, nil
}

// search is a list of receipts that is being made.
type search struct {
	ledger.Filter
	tx      *sql.Tx
	account int64
	at      place // what is before it was not looked at
	found   []ledger.Receipt
	left    int // rows of usage_row that may still be looked at
	walk    int // charges of chains
}

func (s *search) full() bool { return len(s.found) >= s.Limit || s.left <= 0 || s.walk <= 0 }

// span is an hour with charges that could be meant.
type span struct {
	hour  int64
	calls int
	heads []string // of their chains
}

// next returns the hours before s.at that have some, newest first: together as many
// charges as are needed, and at least one hour. None means that there are no more.
func (s *search) next(ctx context.Context) (hours []span, err error) {
	last := s.at.hour
	switch {
	case last == 0:
		last = math.MaxInt64
	case s.at.id == "":
		last-- // the hour itself is done
	}
	if !s.To.IsZero() {
		last = min(last, (s.To.UnixMicro()-1)/hour)
	}
	var first int64
	if !s.From.IsZero() {
		first = s.From.UnixMicro() / hour
	}
	rs, err := s.tx.QueryContext(ctx, `SELECT hour, calls, last FROM usage_row JOIN terms ON number = terms
		WHERE account = $1 AND hour BETWEEN $2 AND $3 AND ($4 = '' OR key_id = $4) AND ($5 = '' OR model = $5) AND most >= $6
		AND CASE $7 WHEN '' THEN 1 WHEN 'failed' THEN failed WHEN 'refused' THEN refused WHEN 'left' THEN gone
			ELSE calls - failed - refused - gone END > 0
		ORDER BY hour DESC LIMIT $8`, s.account, first, last, s.KeyID, s.Model, int64(s.Least), string(s.Class), max(1, s.left))
	if err != nil {
		return nil, err
	}
	defer rs.Close()
	for sum := 0; rs.Next(); {
		var at int64
		var calls int
		var head string
		if err := rs.Scan(&at, &calls, &head); err != nil {
			return nil, err
		}
		if n := len(hours); n == 0 || hours[n-1].hour != at {
			// A filter on single calls may leave out most of them.
			if n > 0 && (sum >= s.Limit || sum+calls > mostWalked) {
				break
			}
			hours = append(hours, span{hour: at})
		}
		h := &hours[len(hours)-1]
		h.calls += calls
		h.heads = append(h.heads, head)
		sum += calls
		s.left--
	}
	return hours, rs.Err()
}

// read adds what the hours have and moves on behind what it has looked at.
func (s *search) read(ctx context.Context, hours []span) error {
	var calls int
	var heads []string
	for _, h := range hours {
		calls += h.calls
		heads = append(heads, h.heads...)
	}
	end := place{hour: hours[len(hours)-1].hour}
	if calls > mostWalked { // one hour alone
		return s.scan(ctx, end)
	}
	s.walk -= calls
	list, err := json.Marshal(heads)
	if err != nil {
		return err
	}
	return s.add(ctx, end, `WITH RECURSIVE these (id, previous) AS (
			SELECT id, previous FROM charge_row WHERE id IN (SELECT value FROM json_each($1))
			UNION ALL
			SELECT c.id, c.previous FROM these JOIN charge_row c ON c.id = these.previous)`, string(list))
}

// scan reads a part of a busy hour in the order of ids, of all accounts.
func (s *search) scan(ctx context.Context, end place) error {
	from := ident.RequestIDsSince(time.UnixMicro(end.hour * hour).Add(-spread))
	before := ident.RequestIDsSince(time.UnixMicro((end.hour + 1) * hour))
	if s.at.hour == end.hour && s.at.id != "" {
		before = s.at.id
	}
	var oldest sql.NullString
	err := s.tx.QueryRowContext(ctx, `SELECT min(id) FROM (SELECT id FROM charge_row WHERE id >= $1 AND id < $2 ORDER BY id DESC LIMIT $3)`,
		from, before, mostScanned).Scan(&oldest)
	if err != nil {
		return err
	}
	if !oldest.Valid {
		s.at = end
		return nil
	}
	s.walk -= mostWalked
	return s.add(ctx, place{hour: end.hour, id: oldest.String}, `WITH these (id) AS (
			SELECT id FROM charge_row WHERE id >= $1 AND id < $2 AND account = $3 AND created_at / 3600000000 = $4)`,
		oldest.String, before, s.account, end.hour)
}

// add adds what is meant of these, in their order, and moves on to end, or, when the page
// is full, behind its last.
func (s *search) add(ctx context.Context, end place, these string, args ...any) error {
	to := s.To.UnixMicro()
	if s.To.IsZero() {
		to = math.MaxInt64
	}
	args = append(args, make([]any, 4-len(args))...) // so that these may have up to 4 of their own
	rs, err := s.tx.QueryContext(ctx, these+` SELECT `+chargeColumns+` FROM these JOIN charge USING (id)
		WHERE ($5 = '' OR key_id = $5) AND ($6 = '' OR model = $6) AND ($7 = '' OR class = $7) AND amount >= $8
			AND created_at >= $9 AND created_at < $10 AND ($11 = '' OR created_at / 3600000000 <> $12 OR id < $11)
		ORDER BY created_at / 3600000000 DESC, id DESC LIMIT $13`,
		append(args, s.KeyID, s.Model, string(s.Class), int64(s.Least), s.From.UnixMicro(), to, s.at.id, s.at.hour, s.Limit-len(s.found)+1)...)
	more, err := rows(rs, err, scanReceipt)
	if err != nil {
		return err
	}
	s.at = end
	if room := s.Limit - len(s.found); len(more) > room {
		more = more[:room]
		if s.at, err = parsePlace(more[room-1].Cursor()); err != nil {
			return err
		}
	}
	s.found = append(s.found, more...)
	return nil
}

// Receipt returns the receipt of an ended call with its price. It fails with
// [ledger.ErrNoCharge].
func (d *DB) Receipt(ctx context.Context, requestID string) (ledger.Receipt, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT `+chargeColumns+` FROM charge WHERE id = $1`, requestID)
	list, err := rows(rs, err, scanReceipt)
	if err != nil {
		return ledger.Receipt{}, err
	}
	if len(list) == 0 {
		return ledger.Receipt{}, fmt.Errorf("%w: %.64s", ledger.ErrNoCharge, requestID)
	}
	r := list[0]
	err = d.read.QueryRowContext(ctx, `SELECT input, cached, output FROM model_price WHERE id = $1`, r.PriceID).
		Scan(&r.Price.Input, &r.Price.CachedInput, &r.Price.Output)
	return r, err
}

// Refunds lists what was given back of a charge, in the order of time.
func (d *DB) Refunds(ctx context.Context, requestID string) ([]ledger.Refunded, error) {
	rs, err := d.read.QueryContext(ctx, `SELECT amount, note, created_at FROM credit_grant WHERE request_id = $1 ORDER BY created_at, id`, requestID)
	return rows(rs, err, func(rs *sql.Rows, r *ledger.Refunded) error {
		var at sql.NullInt64
		err := rs.Scan(&r.Amount, &r.Reason, &at)
		r.At = instant(at)
		return err
	})
}
