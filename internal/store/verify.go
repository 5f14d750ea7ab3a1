package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// difference is how most laws say that they are broken.
const difference = "%[1]s: the books say %[2]s, it should be %[3]s, difference %[4]s"

// question is one law that a query can prove. It returns the first account or entry that breaks
// it: what it is, what stands in the books and what should. A query that needs every charge is
// not asked where the screen has proved the law: screened says so; it is nil for the others.
type question struct {
	name, query, detail string
	screened            func(*screened) bool
}

// invariants are the laws of the books; those of plans are in planLaws.
var invariants = []question{
	{
		"granted is the sum of the grants",
		`SELECT a.id, a.granted, coalesce(g.total, 0) FROM account a
		 LEFT JOIN (SELECT account_id, sum(amount - expired) AS total FROM credit_grant GROUP BY account_id) g ON g.account_id = a.id
		 WHERE a.granted <> coalesce(g.total, 0) ORDER BY a.id LIMIT 1`,
		difference,
		nil,
	},
	{
		"no grant gave more than it had",
		// Charges know no grants: burned is what was noted of them at a time before.
		`SELECT g.id, g.burned + g.expired, g.amount FROM credit_grant g
		 WHERE g.burned < 0 OR g.expired < 0 OR g.burned + g.expired > g.amount
		 UNION ALL
		 SELECT a.id, g.total, a.posted FROM account a
		 JOIN (SELECT account_id, sum(burned) AS total FROM credit_grant GROUP BY account_id) g ON g.account_id = a.id
		 WHERE g.total > a.posted LIMIT 1`,
		difference,
		nil,
	},
	{
		"what budgets spent is the sum of their charges",
		`SELECT b.id || CASE b.period WHEN 0 THEN '' ELSE ' in ' || b.period END, b.spent, coalesce(c.total, 0) FROM budget b
		 LEFT JOIN (SELECT budget, sum(amount) AS total FROM charge_row WHERE budget IS NOT NULL GROUP BY budget) c ON c.budget = b.number
		 WHERE b.spent <> coalesce(c.total, 0) ORDER BY b.id, b.period LIMIT 1`,
		difference,
		func(s *screened) bool { return s.budgeted },
	},
	{
		"what a grant lost is the sum of its expiries",
		`SELECT g.id, g.expired, coalesce(e.total, 0) FROM credit_grant g
		 LEFT JOIN (SELECT grant_id, sum(amount) AS total FROM grant_expiry GROUP BY grant_id) e ON e.grant_id = g.id
		 WHERE g.expired <> coalesce(e.total, 0)
		 UNION ALL
		 SELECT e.grant_id, e.amount, 0 FROM grant_expiry e WHERE NOT EXISTS (SELECT 1 FROM credit_grant g WHERE g.id = e.grant_id)
		 LIMIT 1`,
		difference,
		nil,
	},
	{
		"posted is the sum of the charges and debits",
		`SELECT a.id, a.posted, coalesce(c.total, 0) + coalesce(d.total, 0) FROM account a
		 LEFT JOIN (SELECT account, sum(amount) AS total FROM charge_row GROUP BY account) c ON c.account = a.number
		 LEFT JOIN (SELECT account_id, sum(amount) AS total FROM debit GROUP BY account_id) d ON d.account_id = a.id
		 WHERE a.posted <> coalesce(c.total, 0) + coalesce(d.total, 0) ORDER BY a.id LIMIT 1`,
		difference,
		func(s *screened) bool { return s.posted },
	},
	{
		"no charge was given back more than once",
		`SELECT r.request_id, r.total, coalesce(c.amount, 0) FROM
		   (SELECT request_id, min(account_id) AS account_id, count(DISTINCT account_id) AS payers, sum(amount) AS total
		    FROM credit_grant WHERE request_id IS NOT NULL GROUP BY request_id) r
		 LEFT JOIN charge_row c ON c.id = r.request_id LEFT JOIN account a ON a.number = c.account
		 WHERE c.id IS NULL OR r.total > c.amount OR r.payers <> 1 OR r.account_id <> a.id LIMIT 1`,
		"%[1]s: %[2]s was given back of %[3]s, or not to who paid",
		nil,
	},
	{
		"usage by the hour is the sum of the charges",
		`WITH due (account, hour, terms, calls, prompt, cached, completion, amount, lost, plan, failed, refused, gone, most) AS
		   (SELECT account, created_at / 3600000000, terms, count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), sum(amount), sum(written_off), sum(plan_tokens),
		      count(CASE o.class WHEN 'failed' THEN 1 END), count(CASE o.class WHEN 'refused' THEN 1 END), count(CASE o.class WHEN 'left' THEN 1 END), max(amount)
		    FROM charge_row LEFT JOIN outcome o ON o.number = outcome GROUP BY 1, 2, 3),
		 kept AS (SELECT account, hour, terms, calls, prompt_tokens, cached_tokens, completion_tokens, amount, written_off, plan_tokens, failed, refused, gone, most FROM usage_row),
		 wrong (account, hour, terms) AS
		   (SELECT account, hour, terms FROM (SELECT * FROM due EXCEPT SELECT * FROM kept)
		    UNION SELECT account, hour, terms FROM (SELECT * FROM kept EXCEPT SELECT * FROM due))
		 SELECT coalesce(a.id, 'account ' || w.account) || ' in the hour from ' || strftime('%Y-%m-%dT%H:00Z', w.hour * 3600, 'unixepoch'),
		   coalesce((SELECT amount FROM usage_row u WHERE u.account = w.account AND u.hour = w.hour AND u.terms = w.terms), 0),
		   coalesce((SELECT amount FROM due d WHERE d.account = w.account AND d.hour = w.hour AND d.terms = w.terms), 0)
		 FROM wrong w LEFT JOIN account a ON a.number = w.account ORDER BY 1 LIMIT 1`,
		"%[1]s: calls, their endings, tokens or amounts differ; the amount is %[2]s, it should be %[3]s",
		func(s *screened) bool { return s.hourly },
	},
	{
		"posted and held are covered by what was granted",
		`SELECT a.id, a.posted + coalesce(h.total, 0), a.granted FROM account a
		 LEFT JOIN (SELECT account, sum(amount) AS total FROM hold_row GROUP BY account) h ON h.account = a.number
		 WHERE a.posted < 0 OR a.posted + coalesce(h.total, 0) > a.granted ORDER BY a.id LIMIT 1`,
		difference,
		nil,
	},
	{
		"no call is both running and ended",
		`SELECT c.id, h.amount, c.amount FROM hold_row h CROSS JOIN charge_row c ON c.id = h.id ORDER BY h.id LIMIT 1`,
		"%[1]s: it still holds %[2]s and has a charge of %[3]s",
		nil,
	},
	{
		"every charge is its tokens at its price",
		// Included tokens pay for the prompt at full price, then for its cached part, then
		// for the answer; what is free takes none. A charge whose price is gone should be
		// nothing. A product that does not fit is floating, which CAST brings back to the
		// end of the range.
		`WITH
		   used (id, charged, plan, n1, p1, n2, p2, n3, p3) AS
		     (SELECT c.id, c.amount + c.written_off, c.plan_tokens, c.prompt_tokens - c.cached_tokens, p.input, c.cached_tokens, p.cached, c.completion_tokens, p.output
		      FROM charge_row c LEFT JOIN terms t ON t.number = c.terms LEFT JOIN model_price p ON p.id = t.price_id),
		   paid (id, charged, plan, cost, c1, p1, c2, p2, c3, p3) AS
		     (SELECT id, charged, plan, n1 * p1 + n2 * p2 + n3 * p3, iif(p1 > 0, n1, 0), p1, iif(p2 > 0, n2, 0), p2, iif(p3 > 0, n3, 0), p3 FROM used),
		   due (id, charged, plan, most, amount) AS
		     (SELECT id, charged, plan, c1 + c2 + c3, iif(plan = 0, cost, cost - min(plan, c1) * p1 - min(max(plan - c1, 0), c2) * p2 - min(max(plan - c1 - c2, 0), c3) * p3) FROM paid)
		 SELECT id, charged, coalesce(CAST(amount AS BIGINT), 0) FROM due
		 WHERE amount IS NULL OR charged <> amount OR plan < 0 OR plan > most ORDER BY id LIMIT 1`,
		difference,
		func(s *screened) bool { return s.priced },
	},
	{
		"every entry cites rows that are there",
		// The first charge of an account, hour and terms cites none before it.
		`SELECT c.id, 0, 0 FROM charge_row c
		 WHERE NOT EXISTS (SELECT 1 FROM account a WHERE a.number = c.account)
		    OR NOT EXISTS (SELECT 1 FROM terms t WHERE t.number = c.terms)
		    OR NOT EXISTS (SELECT 1 FROM outcome o WHERE o.number = c.outcome)
		    OR c.budget IS NOT NULL AND NOT EXISTS (SELECT 1 FROM budget b WHERE b.number = c.budget)
		    OR c.previous IS NOT NULL AND NOT EXISTS (SELECT 1 FROM charge_row p
		      WHERE p.id = c.previous AND p.account = c.account AND p.terms = c.terms AND p.created_at / 3600000000 = c.created_at / 3600000000)
		 UNION ALL
		 SELECT h.id, 0, 0 FROM hold_row h
		 WHERE NOT EXISTS (SELECT 1 FROM account a WHERE a.number = h.account)
		    OR NOT EXISTS (SELECT 1 FROM terms t WHERE t.number = h.terms)
		    OR h.budget IS NOT NULL AND NOT EXISTS (SELECT 1 FROM budget b WHERE b.number = h.budget)
		 UNION ALL
		 SELECT coalesce(u.last, 'usage of account ' || u.account), 0, 0 FROM usage_row u
		 WHERE NOT EXISTS (SELECT 1 FROM charge_row c
		   WHERE c.id = u.last AND c.account = u.account AND c.terms = u.terms AND c.created_at / 3600000000 = u.hour)
		 LIMIT 1`,
		"%[1]s: its account, terms, outcome, budget or the charge before it is not there",
		func(s *screened) bool { return s.cited },
	},
	{
		"every charge is found from the usage of its hour",
		`SELECT id, 0, 0 FROM (SELECT id FROM charge_row EXCEPT SELECT previous FROM charge_row EXCEPT SELECT last FROM usage_row) ORDER BY id LIMIT 1`,
		"%[1]s: neither a charge nor the usage of its hour leads to it",
		func(s *screened) bool { return s.found },
	},
	{
		"what was voided cost nothing",
		`SELECT c.id, c.amount + c.written_off, 0 FROM charge_row c JOIN outcome o ON o.number = c.outcome
		 WHERE o.state = 'voided' AND (c.amount <> 0 OR c.written_off <> 0 OR c.plan_tokens <> 0) ORDER BY c.id LIMIT 1`,
		difference,
		func(s *screened) bool { return s.voided },
	},
	{
		"all balances add up to all entries",
		// sum() fails above 9.2e9 IU, which many accounts have together: whole IU and
		// the rest are added up apart, and only the difference is put together.
		`WITH
		   balance (n) AS (SELECT granted - posted FROM account),
		   entry (n) AS (SELECT amount FROM credit_grant UNION ALL SELECT -amount FROM grant_expiry UNION ALL SELECT -amount FROM debit UNION ALL SELECT -amount FROM charge_row),
		   b (iu, rest) AS (SELECT coalesce(sum(n / 1000000000), 0), coalesce(sum(n % 1000000000), 0) FROM balance),
		   e (iu, rest) AS (SELECT coalesce(sum(n / 1000000000), 0), coalesce(sum(n % 1000000000), 0) FROM entry)
		 SELECT 'all accounts', (b.iu - e.iu) * 1000000000 + b.rest - e.rest, 0 FROM b, e
		 WHERE (b.iu - e.iu) * 1000000000 + b.rest - e.rest <> 0`,
		"%[1]s: the balances and the entries differ by %[2]s",
		func(s *screened) bool { return s.balanced },
	},
}

// auditLaw is the one law that no query can prove.
const auditLaw = audit.Whole

// Verify proves the books from the rows alone, in one snapshot, while calls go on.
func (d *DB) Verify(ctx context.Context) (ledger.Report, error) {
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return ledger.Report{}, err
	}
	defer tx.Rollback() // nothing was written
	return prove(ctx, tx)
}

// prove is the proof of what tx sees, which does not change meanwhile.
func prove(ctx context.Context, tx reader) (rep ledger.Report, err error) {
	start := time.Now()
	s, err := screenCharges(ctx, tx)
	if err != nil {
		return rep, err
	}
	if err := census(ctx, tx, &s, &rep); err != nil {
		return rep, err
	}
	for _, law := range laws() {
		i, err := law(ctx, tx, &s)
		if err != nil {
			return rep, err
		}
		rep.Invariants = append(rep.Invariants, i)
	}
	rep.Took = time.Since(start)
	return rep, nil
}

// census counts what the proof is about.
func census(ctx context.Context, tx reader, s *screened, rep *ledger.Report) error {
	return tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM account), (SELECT count(*) FROM credit_grant)
		+ (SELECT count(*) FROM grant_expiry) + (SELECT count(*) FROM debit) + $1`, s.charges).
		Scan(&rep.Accounts, &rep.Entries)
}

// law is one of the laws of the books. It asks one question, unless the screen has answered
// it, and fails when it cannot.
type law func(ctx context.Context, tx reader, s *screened) (ledger.Invariant, error)

// laws are all of them: those that a query can prove, and the audit log's.
func laws() []law {
	var all []law
	for _, inv := range slices.Concat(invariants, planLaws, paymentLaws) {
		all = append(all, func(ctx context.Context, tx reader, s *screened) (ledger.Invariant, error) {
			if inv.screened != nil && inv.screened(s) {
				return ledger.Invariant{Name: inv.name, OK: true}, nil
			}
			var (
				what      string
				have, due money.Amount
			)
			err := tx.QueryRowContext(ctx, inv.query).Scan(&what, &have, &due)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				return ledger.Invariant{Name: inv.name, OK: true}, nil
			case err != nil:
				return ledger.Invariant{}, fmt.Errorf("%s: %w", inv.name, err)
			}
			return ledger.Invariant{Name: inv.name, Detail: fmt.Sprintf(inv.detail, what, have, due, have-due)}, nil
		})
	}
	return append(all, func(ctx context.Context, tx reader, _ *screened) (ledger.Invariant, error) {
		wrong, err := checkAudit(ctx, tx)
		if err != nil {
			err = fmt.Errorf("%s: %w", auditLaw, err)
		}
		return ledger.Invariant{Name: auditLaw, OK: wrong == "", Detail: wrong}, err
	})
}
