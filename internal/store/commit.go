package store

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// Commit applies all ops or none, in one transaction that is on the disk when it
// returns.
func (d *DB) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Result, error) {
	results := make([]ledger.Result, len(ops))
	var late []int64
	err := d.withJournal(ctx, func(j *journal) error {
		return j.transact(ctx, func() error {
			b := batch{journal: j, spent: map[int64]spending{}, used: map[used]uses{}}
			for i, op := range ops {
				var err error
				switch {
				case op.Open != nil:
					results[i], err = b.open(ctx, op.Open)
				case op.Extend != nil:
					results[i], err = b.extend(ctx, op.Extend)
				case op.Close != nil:
					results[i], err = b.close(ctx, op.Close)
				case op.Grant != nil:
					results[i], err = b.grant(ctx, op.Grant)
				case op.Expire != nil:
					results[i], err = b.expire(ctx, op.Expire)
				case op.Debit != nil:
					results[i], err = b.debit(ctx, op.Debit)
				case op.Turn != nil:
					results[i], err = b.turn(ctx, op.Turn)
				case op.Redeem != nil:
					results[i], err = b.redeem(ctx, op.Redeem)
				case op.Reverse != nil:
					results[i], err = b.reverse(ctx, op.Reverse)
				}
				if err != nil {
					return err
				}
			}
			err := b.post(ctx)
			late = b.late
			return err
		})
	})
	d.days.forget(late)
	return results, err
}

// withJournal runs f while it has the writing connection.
func (d *DB) withJournal(ctx context.Context, f func(*journal) error) error {
	conn, err := d.write.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // gives it back
	return conn.Raw(func(raw any) error {
		if d.journal == nil || d.journal.conn != raw { // database/sql may open it anew
			j, err := newJournal(ctx, raw.(driver.Conn))
			if err != nil {
				return err
			}
			d.journal = j
		}
		return f(d.journal)
	})
}

// batch is one transaction of the committer. It adds up what each account spends, so
// that a busy account is one update.
type batch struct {
	*journal
	spent map[int64]spending // by the number of the account
	// budgets is what is spent of each, by its number; nil until there is one.
	budgets map[int64]money.Amount
	used    map[used]uses
	late    []int64 // accounts with charges of days that were over
}

// spending is what an account spends in a batch.
type spending struct {
	amount money.Amount
	tokens int64 // included ones
}

func (b *batch) open(ctx context.Context, r *ledger.Receipt) (ledger.Result, error) {
	account, err := b.accountNumber(ctx, r.AccountID)
	if err != nil {
		return ledger.Result{}, err
	}
	terms, err := b.termsNumber(ctx, r)
	if err != nil {
		return ledger.Result{}, err
	}
	budget, err := b.budgetNumber(ctx, r)
	if err != nil {
		return ledger.Result{}, err
	}
	_, err = b.exec(ctx, b.journal.open, r.RequestID, r.CompletionID, account, terms,
		int64(r.PromptTokens), int64(r.OutputLimit), int64(r.Hold), micros(r.CreatedAt), budget, int64(r.PlanTokens))
	if err == nil && r.Idempotency != nil {
		err = b.name(ctx, account, r)
	}
	return ledger.Result{Applied: true}, err
}

// extend fails for a hold that is not there: what it covers is about to be released.
func (b *batch) extend(ctx context.Context, r *ledger.Receipt) (ledger.Result, error) {
	n, err := b.exec(ctx, b.extendHold, int64(r.OutputLimit), int64(r.Hold), int64(r.PlanTokens), r.RequestID)
	if err == nil && n != 1 {
		err = fmt.Errorf("extend %s: it has no hold", r.RequestID)
	}
	return ledger.Result{Applied: true}, err
}

func (b *batch) close(ctx context.Context, r *ledger.Receipt) (ledger.Result, error) {
	if r.Stream {
		// A stream that ended before its hold was sent has none: the charge row decides.
		if _, err := b.exec(ctx, b.closeHold, r.RequestID); err != nil {
			return ledger.Result{}, err
		}
	}
	account, err := b.accountNumber(ctx, r.AccountID)
	if err != nil {
		return ledger.Result{}, err
	}
	terms, err := b.termsNumber(ctx, r)
	if err != nil {
		return ledger.Result{}, err
	}
	outcome, err := b.outcomeNumber(ctx, r)
	if err != nil {
		return ledger.Result{}, err
	}
	budget, err := b.budgetNumber(ctx, r)
	if err != nil {
		return ledger.Result{}, err
	}
	row := used{account, r.CreatedAt.UnixMicro() / hour, terms}
	previous := optional(b.used[row].last) // NULL: the last of the batches before
	n, err := b.exec(ctx, b.charge, r.RequestID, r.CompletionID, account, terms, outcome, previous, micros(r.CreatedAt),
		int64(r.PromptTokens), int64(r.CachedTokens), int64(r.CompletionTokens), int64(r.OutputLimit),
		int64(r.Hold), int64(r.Charge), int64(r.WrittenOff), r.FirstToken.Microseconds(), r.Total.Microseconds(), budget, int64(r.PlanTokens))
	if err != nil || n == 0 {
		return ledger.Result{}, err
	}
	if r.Idempotency != nil {
		if err := b.name(ctx, account, r); err != nil {
			return ledger.Result{}, err
		}
	}
	spent := b.spent[account]
	b.spent[account] = spending{spent.amount + r.Charge, spent.tokens + int64(r.PlanTokens)}
	if n, ok := budget.(int64); ok {
		if b.budgets == nil {
			b.budgets = map[int64]money.Amount{}
		}
		b.budgets[n] += r.Charge
	}
	b.use(row, r)
	return ledger.Result{Applied: true}, nil
}

// post writes what the accounts have spent and used so far.
func (b *batch) post(ctx context.Context) error {
	for account, spent := range b.spent {
		n, err := b.exec(ctx, b.journal.post, int64(spent.amount), spent.tokens, account)
		if err == nil && n != 1 {
			err = fmt.Errorf("no account of number %d", account)
		}
		if err != nil {
			return err
		}
	}
	for budget, amount := range b.budgets {
		n, err := b.exec(ctx, b.spend, int64(amount), budget)
		if err == nil && n != 1 {
			err = fmt.Errorf("no budget of number %d", budget)
		}
		if err != nil {
			return err
		}
	}
	clear(b.spent)
	clear(b.budgets)
	return b.roll(ctx)
}

// terms and outcome are what many calls have in common: rows that charges cite.
type terms struct{ keyID, model, priceID, planVersion string }

type outcome struct {
	stream      bool
	status      int64
	errorCode   string
	state       ledger.State
	ending      ledger.Ending
	usageSource ledger.UsageSource
	target      string
	attempts    int64
}

// budget is what a charge counts for beside its account.
type budget struct {
	id     string
	period int64
}

func (b *batch) accountNumber(ctx context.Context, id string) (int64, error) {
	if n, ok := b.accounts[id]; ok {
		return n, nil
	}
	n, found, err := b.find(ctx, b.account, id)
	if err == nil && !found {
		err = fmt.Errorf("charge: no account %s", id)
	}
	if err != nil {
		return 0, err
	}
	remember(b.accounts, id, n)
	return n, nil
}

func (b *batch) termsNumber(ctx context.Context, r *ledger.Receipt) (int64, error) {
	t := terms{r.KeyID, r.Model, r.PriceID, r.PlanVersion}
	if n, ok := b.terms[t]; ok {
		return n, nil
	}
	return number(ctx, b.journal, b.terms, t, [2]statement{b.findTerms, b.addTerms}, t.keyID, t.model, t.priceID, t.planVersion)
}

func (b *batch) outcomeNumber(ctx context.Context, r *ledger.Receipt) (int64, error) {
	o := outcome{r.Stream, int64(r.Status), r.ErrorCode, r.State, r.Ending, r.UsageSource, r.Target, int64(r.Attempts)}
	if n, ok := b.outcomes[o]; ok {
		return n, nil
	}
	return number(ctx, b.journal, b.outcomes, o, [2]statement{b.findOutcome, b.addOutcome},
		o.stream, o.status, o.errorCode, string(o.state), string(o.ending), string(o.usageSource), o.target, o.attempts)
}

// budgetNumber is nil, which is NULL, for a call without a budget.
func (b *batch) budgetNumber(ctx context.Context, r *ledger.Receipt) (any, error) {
	if r.Budget.ID == "" {
		return nil, nil
	}
	row := budget{r.Budget.ID, r.Budget.Period}
	if n, ok := b.journal.budgets[row]; ok {
		return n, nil
	}
	return number(ctx, b.journal, b.journal.budgets, row, [2]statement{b.findBudget, b.addBudget}, row.id, row.period)
}

// number is the number of a row that is not known yet: found or added, by the statements, and remembered.
func number[K comparable](ctx context.Context, j *journal, known map[K]int64, row K, st [2]statement, args ...any) (int64, error) {
	for _, st := range st {
		n, ok, err := j.find(ctx, st, args...)
		if err != nil {
			return 0, err
		}
		if ok {
			remember(known, row, n)
			return n, nil
		}
	}
	return 0, fmt.Errorf("%+v has no number", row)
}
