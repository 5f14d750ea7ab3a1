package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// screened says of which laws no query can find a breach in the charges.
type screened struct {
	charges int64
	// A field is false where the screen has found a breach, or cannot tell.
	priced, cited, voided, hourly, found, posted, tokens, budgeted, balanced bool
}

// screen reads every charge once, in the order of ids. Queries that need every charge read
// them once each, sort them or look each up: they take ten times as long. It has the sums of
// accounts and budgets in memory and the usage of two hours, not the charges.
//
// What it does not prove is left to the law's query, which says what is wrong. Whether two
// sets are equal it learns from sums of keyed hashes of their members, with keys that nobody
// knows: others have the same sums by chance, once in 2^64 proofs at most.
type screen struct {
	screened

	terms    map[int64]*price // nil where the price is gone
	outcomes map[int64]ended
	accounts map[int64]*spending
	budgets  map[int64]*money.Amount

	open     map[used]*uses // of hours that may have more charges
	newest   int64          // of these hours
	usage    sum            // of what charges make of usage by the hour, less what it is
	chain    sum            // of charges, less those that others and usage lead to
	iu, rest int64          // of all amounts: whole IU, and what is left

	text  []byte // that is hashed
	seeds [2]maphash.Seed
}

// price is that of tokens.
type price struct{ input, cached, output int64 }

// ended is how a call did.
type ended struct {
	class  ledger.Class
	voided bool
}

// sum is one of hashes.
type sum [2]uint64

func (s *sum) add(h sum)    { s[0], s[1] = s[0]+h[0], s[1]+h[1] }
func (s *sum) remove(h sum) { s[0], s[1] = s[0]-h[0], s[1]-h[1] }

// columns are a row as the driver has it. Converting each value, as Scan does, would take
// longer than all else here.
type columns struct {
	values []any
	odd    bool // a value was not what it was taken for
}

func (c *columns) null(i int) bool { return c.values[i] == nil }

func (c *columns) int(i int) int64 {
	n, ok := c.values[i].(int64)
	c.odd = c.odd || !ok
	return n
}

func (c *columns) text(i int) string {
	t, ok := c.values[i].(string)
	c.odd = c.odd || !ok
	return t
}

// screenCharges screens the charges of tx.
func screenCharges(ctx context.Context, tx reader) (screened, error) {
	s := screen{
		screened: screened{0, true, true, true, true, true, true, true, true, true},
		terms:    map[int64]*price{}, outcomes: map[int64]ended{}, accounts: map[int64]*spending{}, budgets: map[int64]*money.Amount{},
		open: map[used]*uses{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
	for _, read := range []func(context.Context, reader) error{s.readCited, s.readHolds, s.readCharges, s.readUsage, s.readBooks} {
		if err := read(ctx, tx); err != nil {
			return screened{}, fmt.Errorf("reading all charges: %w", err)
		}
	}
	return s.screened, nil
}

// doubt leaves every law to its query.
func (s *screen) doubt() { s.screened = screened{charges: s.charges} }

// each calls f with every row of a query, of that many columns.
func (s *screen) each(ctx context.Context, tx reader, width int, query string, f func(*columns)) error {
	rs, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rs.Close()
	row, places := columns{values: make([]any, width)}, make([]any, width)
	for i := range places {
		places[i] = &row.values[i]
	}
	for rs.Next() {
		if err := rs.Scan(places...); err != nil {
			return err
		}
		f(&row)
	}
	if row.odd {
		s.doubt()
	}
	return rs.Err()
}

// readCited reads what charges cite.
func (s *screen) readCited(ctx context.Context, tx reader) error {
	err := s.each(ctx, tx, 4, `SELECT t.number, p.input, p.cached, p.output FROM terms t LEFT JOIN model_price p ON p.id = t.price_id`, func(c *columns) {
		s.terms[c.int(0)] = nil
		if !c.null(1) {
			s.terms[c.int(0)] = &price{c.int(1), c.int(2), c.int(3)}
		}
	})
	if err != nil {
		return err
	}
	err = s.each(ctx, tx, 3, `SELECT number, class, state FROM outcome`, func(c *columns) {
		s.outcomes[c.int(0)] = ended{ledger.Class(c.text(1)), c.text(2) == string(ledger.Voided)}
	})
	if err != nil {
		return err
	}
	err = s.each(ctx, tx, 1, `SELECT number FROM account`, func(c *columns) { s.accounts[c.int(0)] = new(spending) })
	if err != nil {
		return err
	}
	return s.each(ctx, tx, 1, `SELECT number FROM budget`, func(c *columns) { s.budgets[c.int(0)] = new(money.Amount) })
}

// readHolds reads the calls that run.
func (s *screen) readHolds(ctx context.Context, tx reader) error {
	return s.each(ctx, tx, 3, `SELECT account, terms, budget FROM hold_row`, func(c *columns) {
		_, known := s.terms[c.int(1)]
		s.cited = s.cited && known && s.accounts[c.int(0)] != nil && (c.null(2) || s.budgets[c.int(2)] != nil)
	})
}

// readCharges reads the charges.
func (s *screen) readCharges(ctx context.Context, tx reader) error {
	err := s.each(ctx, tx, 13, `SELECT id, previous, account, terms, outcome, budget, created_at, prompt_tokens, cached_tokens,
		completion_tokens, plan_tokens, amount, written_off FROM charge_row ORDER BY id`, func(c *columns) {
		s.charges++
		row := used{c.int(2), c.int(6) / hour, c.int(3)}
		u := uses{
			calls: 1, prompt: c.int(7), cached: c.int(8), completion: c.int(9), plan: c.int(10),
			amount: money.Amount(c.int(11)), writtenOff: money.Amount(c.int(12)), most: money.Amount(c.int(11)), last: c.text(0),
		}
		if min(u.prompt, u.cached, u.completion, u.plan, int64(u.amount), int64(u.writtenOff), c.int(6)) < 0 {
			s.doubt()
		}
		s.chain.add(s.link(u.last, row))
		if !c.null(1) {
			s.chain.remove(s.link(c.text(1), row))
		}
		terms, known := s.terms[row.terms]
		if !known || terms == nil || !terms.made(&u) {
			s.cited, s.priced = s.cited && known, false
		}
		s.count(c, &u)
		s.roll(row, &u)
	})
	s.closeBefore(math.MaxInt64)
	return err
}

// made reports whether that usage costs its amount at that price.
func (p *price) made(u *uses) bool {
	left, cost := u.plan, uint64(0)
	for _, part := range [3]struct{ tokens, price int64 }{{u.prompt - u.cached, p.input}, {u.cached, p.cached}, {u.completion, p.output}} {
		if part.tokens < 0 || part.price < 0 {
			return false
		}
		free := int64(0)
		if part.price > 0 {
			free = min(left, part.tokens)
			left -= free
		}
		over, product := bits.Mul64(uint64(part.tokens-free), uint64(part.price))
		if cost += product; over > 0 || cost > math.MaxInt64 || product > math.MaxInt64 {
			return false
		}
	}
	return left == 0 && uint64(u.amount)+uint64(u.writtenOff) == cost
}

// count adds a charge up for what it cites.
func (s *screen) count(c *columns, u *uses) {
	if a := s.accounts[c.int(2)]; a != nil {
		a.amount, a.tokens = a.amount+u.amount, a.tokens+u.plan
		if a.amount < 0 || a.tokens < 0 {
			s.doubt()
		}
	} else {
		s.cited = false
	}
	if !c.null(5) {
		if b := s.budgets[c.int(5)]; b != nil {
			if *b += u.amount; *b < 0 {
				s.doubt()
			}
		} else {
			s.cited = false
		}
	}
	o, known := s.outcomes[c.int(4)]
	if !known {
		s.cited = false
	}
	if o.voided && (u.amount != 0 || u.writtenOff != 0 || u.plan != 0) {
		s.voided = false
	}
	switch o.class {
	case ledger.Failed:
		u.failed = 1
	case ledger.Refused:
		u.refused = 1
	case ledger.Left:
		u.gone = 1
	}
	s.iu += int64(u.amount / money.IU)
	s.rest += int64(u.amount % money.IU)
}

// roll adds a charge to the usage of its hour. The order of ids is that of time but for
// moments: when an hour begins, the last but one has all its charges. One that comes later
// makes the sums differ, and the query decides.
func (s *screen) roll(row used, u *uses) {
	if row.hour > s.newest {
		s.newest = row.hour
		s.closeBefore(row.hour - 1)
	}
	sum := s.open[row]
	if sum == nil {
		sum = new(uses)
		s.open[row] = sum
	}
	sum.add(u)
	if min(sum.prompt, sum.cached, sum.completion, sum.plan, int64(sum.amount), int64(sum.writtenOff)) < 0 {
		s.doubt()
	}
}

// closeBefore takes the usage of earlier hours for complete.
func (s *screen) closeBefore(hour int64) {
	for row, u := range s.open {
		if row.hour < hour {
			s.usage.add(s.row(row, u))
			delete(s.open, row)
		}
	}
}

// readUsage compares usage by the hour, and where it leads, with the charges.
func (s *screen) readUsage(ctx context.Context, tx reader) error {
	err := s.each(ctx, tx, 15, `SELECT account, hour, terms, calls, prompt_tokens, cached_tokens, completion_tokens, plan_tokens,
		failed, refused, gone, amount, written_off, most, last FROM usage_row`, func(c *columns) {
		row := used{c.int(0), c.int(1), c.int(2)}
		s.usage.remove(s.row(row, &uses{
			calls: c.int(3), prompt: c.int(4), cached: c.int(5), completion: c.int(6), plan: c.int(7), failed: c.int(8), refused: c.int(9), gone: c.int(10),
			amount: money.Amount(c.int(11)), writtenOff: money.Amount(c.int(12)), most: money.Amount(c.int(13)),
		}))
		if c.null(14) {
			s.cited = false
			return
		}
		s.chain.remove(s.link(c.text(14), row))
	})
	s.hourly = s.hourly && s.usage == sum{}
	// Each charge has one that leads to it from its own hour, and what leads somewhere leads
	// to a charge of that hour.
	s.found, s.cited = s.found && s.chain == sum{}, s.cited && s.chain == sum{}
	return err
}

// readBooks compares the sums of accounts and budgets with the charges.
func (s *screen) readBooks(ctx context.Context, tx reader) error {
	err := s.each(ctx, tx, 4, `SELECT a.number, a.posted, a.tokens_posted, coalesce(d.total, 0) FROM account a
		LEFT JOIN (SELECT account_id, sum(amount) AS total FROM debit GROUP BY account_id) d ON d.account_id = a.id`, func(c *columns) {
		spent := s.accounts[c.int(0)]
		s.posted = s.posted && c.int(1)-c.int(3) == int64(spent.amount)
		s.tokens = s.tokens && c.int(2) == spent.tokens
	})
	if err != nil {
		return err
	}
	err = s.each(ctx, tx, 2, `SELECT number, spent FROM budget`, func(c *columns) {
		s.budgeted = s.budgeted && c.int(1) == int64(*s.budgets[c.int(0)])
	})
	if err != nil {
		return err
	}
	return s.each(ctx, tx, 2, `WITH n (n) AS (SELECT granted - posted FROM account UNION ALL SELECT -amount FROM credit_grant
		UNION ALL SELECT amount FROM grant_expiry UNION ALL SELECT amount FROM debit)
		SELECT coalesce(sum(n / 1000000000), 0), coalesce(sum(n % 1000000000), 0) FROM n`, func(c *columns) {
		iu, rest := c.int(0)+s.iu, c.int(1)+s.rest
		s.balanced = s.balanced && rest%int64(money.IU) == 0 && iu+rest/int64(money.IU) == 0
	})
}

// link is a charge of that hour.
func (s *screen) link(id string, row used) sum {
	s.text = append(s.text[:0], id...)
	return s.hash(row.account, row.hour, row.terms)
}

// row is a row of usage by the hour.
func (s *screen) row(row used, u *uses) sum {
	s.text = s.text[:0]
	return s.hash(row.account, row.hour, row.terms, u.calls, u.prompt, u.cached, u.completion, u.plan, u.failed, u.refused, u.gone,
		int64(u.amount), int64(u.writtenOff), int64(u.most))
}

// hash is that of the text and the numbers behind it.
func (s *screen) hash(numbers ...int64) sum {
	for _, n := range numbers {
		s.text = binary.LittleEndian.AppendUint64(s.text, uint64(n))
	}
	return sum{maphash.Bytes(s.seeds[0], s.text), maphash.Bytes(s.seeds[1], s.text)}
}
