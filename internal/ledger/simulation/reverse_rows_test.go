package simulation_test

import (
	"context"
	"fmt"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// standing is what a message makes due of its payment beyond what was taken and written off, and
// that; told says that it was told before.
func (r *rows) standing(v *ledger.Reversal) (owed, off money.Amount, told bool) {
	var claims []ledger.Claim
	var taken money.Amount
	for _, old := range r.reversed {
		if old.message.Source == v.Source {
			return 0, 0, true
		}
		if old.message.Payment.Source == v.Payment.Source {
			claims, _ = v.Payment.Merge(claims, old.message.Claim)
			taken += old.taken - old.returned
			off += old.writtenOff - old.writtenUp
		}
	}
	claims, _ = v.Payment.Merge(claims, v.Claim)
	return v.Payment.Due(claims) - taken - off, off, false
}

func (r *rows) Owed(_ context.Context, v *ledger.Reversal) (money.Amount, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	owed, _, _ := r.standing(v)
	return owed, nil
}

// reverse takes what is due and was not taken before, or gives it again, once a message.
func (r *rows) reverse(v *ledger.Reversal) ledger.Result {
	owed, off, told := r.standing(v)
	if told {
		return ledger.Result{}
	}
	row := reversed{message: *v}
	if owed > 0 {
		row.taken = min(owed, v.Most)
		row.writtenOff = owed - row.taken
	} else if v.Claim.Failed {
		row.writtenUp = min(-owed, off)
		row.returned = -owed - row.writtenUp
	}
	r.note("reverse %d, %d written off, %d returned", row.taken, row.writtenOff, row.returned)
	r.reversed = append(r.reversed, row)
	of := purse{v.Payment.AccountID, ledger.Credit}
	r.posted[of] += row.taken
	r.debits += row.taken
	if row.returned > 0 {
		r.add(&ledger.Grant{ID: v.GrantID, AccountID: of.account, Kind: ledger.Prepaid, Priority: 50, Amount: row.returned, CreatedAt: v.CreatedAt})
	}
	return ledger.Result{Applied: true, Amount: row.taken, Left: row.writtenOff, Returned: row.returned}
}

// checkReversed holds what was taken of each payment to what its messages say, counted anew. All
// that say something are of one whole, which is small.
func (r *rows) checkReversed() {
	type told struct {
		credit, taken, off money.Amount
		of, all            int64
		refunds, disputes  map[string]int64
		failed             map[string]bool
	}
	payments := map[string]*told{}
	for _, v := range r.reversed {
		p := payments[v.message.Payment.Source]
		if p == nil {
			p = &told{credit: v.message.Payment.Credit, refunds: map[string]int64{}, disputes: map[string]int64{}, failed: map[string]bool{}}
			payments[v.message.Payment.Source] = p
		}
		c := v.message.Claim
		p.of = max(p.of, c.Of)
		switch c.Kind {
		case ledger.Refunds:
			p.all = max(p.all, c.Back)
		case ledger.OneBack:
			p.refunds[c.Part] = c.Back
			p.failed[c.Part] = p.failed[c.Part] || c.Failed
		case ledger.Dispute:
			p.disputes[c.Part] = max(p.disputes[c.Part], min(c.Back, c.Of))
		}
		p.taken += v.taken - v.returned
		p.off += v.writtenOff - v.writtenUp
	}
	for source, p := range payments {
		known, arrived := int64(0), int64(0)
		for part, n := range p.refunds {
			known += n
			if !p.failed[part] {
				arrived += n
			}
		}
		arrived += max(0, p.all-known) // of refunds that only the sum tells
		due := p.credit * money.Amount(min(arrived, p.of)) / money.Amount(max(1, p.of))
		for _, n := range p.disputes {
			due += p.credit * money.Amount(n) / money.Amount(p.of)
		}
		if due = min(due, p.credit); p.taken+p.off != due || p.taken < 0 || p.off < 0 {
			r.broken = append(r.broken, fmt.Sprintf("%s: %d taken and %d written off of %d that are due", source, p.taken, p.off, due))
		}
	}
}
