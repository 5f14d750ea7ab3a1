package console

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
)

// exhausted is the cursor of a list that has no more.
const exhausted = "end"

// feed is a part of a list that is read by cursors, newest first.
type feed struct {
	rows    []callRow
	cursors []string // behind each row
	start   string   // before the first
	end     string   // behind all that was looked at
}

// after is the cursor behind the first n rows.
func (f *feed) after(n int) string {
	switch n {
	case len(f.rows):
		return f.end
	case 0:
		return f.start
	}
	return f.cursors[n-1]
}

// open reports whether older rows may follow behind the first n, which are not read.
func (f *feed) open(n int) bool { return n > 0 && n == len(f.rows) && f.end != exhausted }

// merge puts two feeds in one page, newest first, and says where each goes on. It stops
// where one of them was not read on, because its next row may belong there.
func merge(a, b feed) (page []callRow, nextA, nextB string) {
	i, j := 0, 0
	for len(page) < ledger.DefaultPage && !a.open(i) && !b.open(j) {
		switch {
		case i < len(a.rows) && (j == len(b.rows) || a.rows[i].ID > b.rows[j].ID):
			page, i = append(page, a.rows[i]), i+1
			continue
		case j < len(b.rows):
			page, j = append(page, b.rows[j]), j+1
			continue
		}
		break
	}
	return page, a.after(i), b.after(j)
}

// calls reads one page of the account's calls: those that run, on the first one, then
// those that have ended and those that were refused. older is the cursor of the next page,
// empty on the last.
func (v *visit) calls(f callFilter) (page []callRow, older string, err error) {
	before := v.r.URL.Query().Get("before")
	atReceipt, atRefusal, _ := strings.Cut(before, "~")
	receipts, err := v.receiptFeed(f, atReceipt)
	if err != nil {
		return nil, "", err
	}
	refused, err := v.refusalFeed(f, atRefusal)
	if err != nil {
		return nil, "", err
	}
	page, atReceipt, atRefusal = merge(receipts, refused)
	if before == "" {
		page = slices.Concat(v.running(f), page)
	}
	if atReceipt == exhausted && atRefusal == exhausted {
		return page, "", nil
	}
	return page, atReceipt + "~" + atRefusal, nil
}

func (v *visit) receiptFeed(f callFilter, before string) (feed, error) {
	fd := feed{start: before, end: exhausted}
	if before == exhausted || f.Result == running {
		return fd, nil
	}
	q := f.receipts(v.account.ID)
	q.Before = before
	found, err := v.s.Records.ReceiptPage(v.context(), q)
	if errors.Is(err, ledger.ErrCursor) {
		return fd, errNotFound
	}
	if err != nil {
		return fd, err
	}
	for i := range found.Receipts {
		fd.rows = append(fd.rows, v.callRow(&found.Receipts[i]))
		fd.cursors = append(fd.cursors, found.Receipts[i].Cursor())
	}
	if found.Next != "" {
		fd.end = found.Next
	}
	return fd, nil
}

func (v *visit) refusalFeed(f callFilter, before string) (feed, error) {
	fd := feed{start: before, end: exhausted}
	if before == exhausted || !f.mayBeRefused() {
		return fd, nil
	}
	found, err := v.s.Records.Refusals(v.context(), refusal.Filter{
		AccountID: v.account.ID, KeyID: f.Key, Model: f.Model, From: f.span.from, To: f.span.to, Before: before, Limit: ledger.DefaultPage,
	})
	if err != nil {
		return fd, err
	}
	for i := range found {
		if r := &found[i]; f.refused(r) {
			fd.rows = append(fd.rows, v.refusedRow(r))
			fd.cursors = append(fd.cursors, r.RequestID)
		}
	}
	if n := len(found); n == ledger.DefaultPage {
		fd.end = found[n-1].RequestID
	}
	return fd, nil
}

// running are the calls that are under way, newest first.
func (v *visit) running(f callFilter) []callRow {
	if f.Result != "" && f.Result != running {
		return nil
	}
	var rows []callRow
	for _, r := range v.s.Ledger.Running(v.account.ID) {
		if (f.Key == "" || f.Key == r.KeyID) && (f.Model == "" || f.Model == r.Model) && f.least == 0 && f.span.has(r.CreatedAt) {
			rows = append(rows, v.callRow(&r))
		}
	}
	slices.SortFunc(rows, func(a, b callRow) int { return strings.Compare(b.ID, a.ID) })
	return rows
}

// callRow is a call that was admitted, as lists show it.
func (v *visit) callRow(r *ledger.Receipt) callRow {
	c := callRow{
		ID: r.RequestID, At: r.CreatedAt, Outcome: outcomeOf(r), Model: r.Model, Key: v.keyName(r.KeyID),
		In: count(r.PromptTokens), Out: count(r.CompletionTokens), First: none, Total: inSeconds(r.Total), Charge: r.Charge, PlanTokens: r.PlanTokens,
	}
	if r.FirstToken > 0 {
		c.First = inSeconds(r.FirstToken)
	}
	switch r.State {
	case ledger.Running:
		c.Out, c.Total, c.Charge, c.PlanTokens, c.Held = none, none, r.Hold, 0, true
	case ledger.Voided:
		c.Free = true
	}
	return c
}

// none stands where there is no figure.
const none = "–"

// refusedRow is a call that was refused, as lists show it.
func (v *visit) refusedRow(r *refusal.Record) callRow {
	c := callRow{
		ID: r.RequestID, At: r.At, Outcome: outcomeOfRefused(r), Model: r.Model, Key: none,
		In: none, Out: none, First: none, Total: none, Free: true,
	}
	if r.KeyID != "" {
		c.Key = v.keyName(r.KeyID)
	}
	if r.PromptTokens > 0 {
		c.In, c.Out = count(r.PromptTokens), "0"
	}
	if c.Model == "" {
		c.Model = none
	}
	return c
}

// callRow is one call of a list.
type callRow struct {
	ID      string
	At      time.Time
	Outcome outcome
	Model   string
	Key     string
	// Texts of figures.
	In, Out, First, Total string
	// Charge is what is held by a call that runs; it is Held. A call that is Free was not charged.
	Charge     money.Amount
	Held, Free bool
	PlanTokens int // that its plan has paid for; 0 while it runs
}
