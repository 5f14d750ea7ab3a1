package console

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/subscription"
)

const (
	// warningsShown is how many banners a page has at most.
	warningsShown = 2
	// refusalsCounted bounds what is read to count those of an hour.
	refusalsCounted = 1000
	// shortCredit is when credit is called short.
	shortCredit = 3 * 24 * time.Hour
	percent     = 100
	budgetWarn  = 80 // percent of a budget
)

// warning is a note with how much it matters: the lower the more.
type warning struct {
	rank int
	note
}

// warn puts above the page what needs a person now, what matters most first.
func (v *visit) warn(grants []ledger.GrantBalance, pace ledger.Pace, b ledger.Balance) {
	all := slices.Concat(v.creditWarnings(grants, pace, b), v.refusalWarnings(), v.keyWarnings())
	slices.SortStableFunc(all, func(a, b warning) int { return cmp.Compare(a.rank, b.rank) })
	for _, w := range all[:min(len(all), warningsShown)] {
		v.notes = append(v.notes, w.note)
	}
}

func (v *visit) creditWarnings(grants []ledger.GrantBalance, pace ledger.Pace, b ledger.Balance) (all []warning) {
	add := func(rank int, kind noteKind, bold, rest string) {
		w := warning{rank, note{Kind: kind, Bold: bold, Rest: rest}}
		if w.Link = v.linked("/billing", "/billing"); w.Link != "" {
			w.Do = "Billing"
		}
		all = append(all, w)
	}
	at, ok := ledger.RunOut(v.now, grants, b.Held, pace.PerDay)
	short := grants != nil && pace.Days > 0 && ok && at.Sub(v.now) < shortCredit
	until := "Credit lasts until " + day(at, v.now) + ", " + clock(at) + " UTC"
	switch {
	case b.Available() == 0:
		add(0, noteBad, "No credit is left.", "Calls are refused with 402 until credit is added.")
	case b.Balance() < v.lowCredit():
		rest := "The account warns below " + decimals(v.lowCredit(), 2, 9, down) + " IU."
		if short {
			rest += " " + until + ", at the pace of the last days."
		}
		add(1, noteWarn, "Credit is low: "+decimals(b.Available(), 2, 2, down)+" IU are left.", rest)
	case short:
		add(1, noteWarn, until+".", "That is at the pace of the last days.")
	}
	s := &v.account.Subscription
	switch s.Status(v.now) {
	case subscription.PastDue:
		add(2, noteWarn, "The subscription is past due.", "Its period was not renewed: the "+s.Plan+" plan ends on "+day(s.Ends(), v.now)+" at "+clock(s.Ends())+" UTC unless it is.")
	case subscription.Expired:
		add(2, noteWarn, "The subscription ended on "+day(s.Until, v.now)+".", "The account is on the "+v.account.Plan+" plan now.")
	}
	for i := range grants {
		g := &grants[i]
		if g.Remaining() > 0 && !g.ExpiresAt.IsZero() && g.ExpiresAt.After(v.now) && g.ExpiresAt.Sub(v.now) < endsSoon {
			add(5, noteWarn, decimals(g.Remaining(), 2, 2, down)+" IU expire on "+day(g.ExpiresAt, v.now)+" at "+clock(g.ExpiresAt)+" UTC.", "What is not used by then is lost.")
			break // the first to burn is the first to end
		}
	}
	return all
}

func (v *visit) refusalWarnings() []warning {
	refused, ok := partial(v, func(ctx context.Context) ([]refusal.Record, error) {
		return v.s.Records.Refusals(ctx, refusal.Filter{AccountID: v.account.ID, From: v.now.Add(-time.Hour), Limit: refusalsCounted})
	})
	if !ok || len(refused) == 0 {
		return nil
	}
	n := note{Kind: noteWarn, Bold: english.Plural(len(refused), "call") + " were refused in the last hour.", Rest: "The last one: " + refused[0].Message}
	if len(refused) == 1 {
		n.Bold = "1 call was refused in the last hour."
		n.Rest = refused[0].Message
	}
	if n.Link = v.linked("/requests/{id}", "/requests/"+refused[0].RequestID); n.Link != "" {
		n.Do = "Explain"
	}
	return []warning{{3, n}}
}

func (v *visit) keyWarnings() (all []warning) {
	for _, k := range v.s.Keys.List(v.account.ID) {
		if !v.mayKey(&k) || k.Status(v.now) != "active" || k.Name == playgroundName && k.ExpiresAt.Sub(v.now) <= playgroundLife {
			continue
		}
		link, do := "/keys/"+k.ID, "Show"
		if b := v.budgetUse(&k); b != nil && b.Spent/budgetWarn >= b.Amount/percent {
			all = append(all, warning{4, note{noteWarn, "Key " + k.Name + " has spent " + decimals(b.Spent, 2, 2, halfUp) + " of its " + decimals(b.Amount, 2, 2, down) + " IU.", "Calls beyond it get 402.", link, do}})
		}
		if !k.ExpiresAt.IsZero() && k.ExpiresAt.Sub(v.now) < endsSoon {
			all = append(all, warning{6, note{noteWarn, "Key " + k.Name + " ends on " + day(k.ExpiresAt, v.now) + " at " + clock(k.ExpiresAt) + " UTC.", "", link, do}})
		}
	}
	return all
}
