package console

import (
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// month is a statement: opening + credit − spent − taken − expired = closing.
type month struct {
	Value, Name                                     string // "2026-11", "November 2026"
	Opening, Credit, Spent, Taken, Expired, Closing money.Amount
	Open                                            bool
}

// monthsShown is how many statements a page has.
const monthsShown = 6

const monthLayout = "2006-01"

// months are the statements before the month of the address, newest first, back to the
// account's beginning.
func (v *visit) months() (list []month, earlier string, err error) {
	last := monthOf(v.now)
	if t, err := time.Parse(monthLayout, v.r.URL.Query().Get("before")); err == nil && t.Before(last) {
		last = t.AddDate(0, -1, 0)
	}
	begin := monthOf(v.account.CreatedAt)
	first := last.AddDate(0, 1-monthsShown, 0)
	if first.Before(begin) {
		first = begin
	}
	if last.Before(first) {
		return nil, "", nil
	}
	s, err := v.s.Records.MonthlyStatement(v.context(), v.account.ID, first, last.AddDate(0, 1, 0))
	if err != nil {
		return nil, "", err
	}
	opening := s.Opening
	for at := first; !at.After(last); at = at.AddDate(0, 1, 0) {
		m := month{Value: at.Format(monthLayout), Name: at.Format("January 2006"), Opening: opening, Closing: opening, Open: at.Equal(monthOf(v.now))}
		for i := range s.Lines {
			if l := &s.Lines[i]; monthOf(l.At).Equal(at) {
				m.add(l)
			}
		}
		opening = m.Closing
		list = append(list, m)
	}
	slices.Reverse(list)
	if first.After(begin) {
		earlier = "/billing?before=" + first.Format(monthLayout) + "#h-st"
	}
	return list, earlier, nil
}

func monthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// Kinds of lines that are no grants.
const (
	lineUsage  = "usage"
	lineDebit  = "debit"
	lineExpiry = "expiry"
)

func (m *month) add(l *ledger.Line) {
	m.Closing += l.Amount
	switch l.Kind {
	case lineUsage:
		m.Spent -= l.Amount
	case lineDebit:
		m.Taken -= l.Amount
	case lineExpiry:
		m.Expired -= l.Amount
	default:
		m.Credit += l.Amount
	}
}

// entriesPage is what templates/entries.html shows.
type entriesPage struct {
	Month    month
	Days     []entryDay
	Pager    pager
	CSV      string
	Previous string // the address of the month before
	Next     string
}

// entryDay is the lines of one day, newest first.
type entryDay struct {
	Name  string
	Lines []entryRow
}

// entryRow is one change of the balance.
type entryRow struct {
	Kind, Text, Link string
	Calls            int64
	Amount, Balance  money.Amount
	at               time.Time
}

// entriesShown is how many lines a page has.
const entriesShown = 100

// entries lists every change of the balance in one month, newest first.
func (s *Server) entries(v *visit) error {
	m, rows, err := v.entries()
	if err != nil {
		return err
	}
	p := entriesPage{Month: m, CSV: "/billing/entries/csv?month=" + m.Value}
	at, _ := time.Parse(monthLayout, m.Value) // it is one of ours
	if at.After(monthOf(v.account.CreatedAt)) {
		p.Previous = "/billing/entries?month=" + at.AddDate(0, -1, 0).Format(monthLayout)
	}
	if !m.Open {
		p.Next = "/billing/entries?month=" + at.AddDate(0, 1, 0).Format(monthLayout)
	}
	end, older := len(rows), ""
	if n, err := strconv.Atoi(v.r.URL.Query().Get("before")); err == nil && n >= 0 {
		end = min(n, end)
	}
	begin := max(0, end-entriesShown)
	if begin > 0 {
		older = strconv.Itoa(begin)
	}
	for _, r := range slices.Backward(rows[begin:end]) {
		name := longDay(r.at, v.now)
		if n := len(p.Days); n == 0 || p.Days[n-1].Name != name {
			p.Days = append(p.Days, entryDay{Name: name})
		}
		d := &p.Days[len(p.Days)-1]
		d.Lines = append(d.Lines, r)
	}
	p.Pager = v.pager("", older)
	return v.page("entries", "Entries of "+m.Name, p)
}

// entries reads the lines of the month of the address, oldest first, each with the balance
// after it.
func (v *visit) entries() (m month, rows []entryRow, err error) {
	at := monthOf(v.now)
	if t, err := time.Parse(monthLayout, v.r.URL.Query().Get("month")); err == nil && t.Before(at) {
		at = t
	}
	s, err := v.s.Records.Statement(v.context(), v.account.ID, at, at.AddDate(0, 1, 0))
	if err != nil {
		return m, nil, err
	}
	m = month{Value: at.Format(monthLayout), Name: at.Format("January 2006"), Opening: s.Opening, Closing: s.Opening, Open: at.Equal(monthOf(v.now))}
	for i := range s.Lines {
		l := &s.Lines[i]
		m.add(l)
		rows = append(rows, v.entryRow(l, m.Closing))
	}
	return m, rows, nil
}

func (v *visit) entryRow(l *ledger.Line, balance money.Amount) entryRow {
	r := entryRow{Kind: l.Kind, Text: l.Text, Calls: l.Usage.Calls, Amount: l.Amount, Balance: balance, at: l.At}
	switch l.Kind {
	case lineUsage:
		day := l.At.UTC().Format(time.DateOnly)
		r.Kind, r.Text = "Usage", v.keyName(l.KeyID)+", "+l.Model
		r.Link = "/requests?" + url.Values{"key": {l.KeyID}, "model": {l.Model}, "time": {day + ".." + day}}.Encode()
	case lineDebit:
		r.Kind = "Taken"
	case lineExpiry:
		r.Kind = "Expired"
	default:
		if name, ok := kindNames[ledger.Kind(l.Kind)]; ok {
			r.Kind = name
		}
	}
	return r
}

// entriesCSV is the lines of a month as a file, oldest first.
func (s *Server) entriesCSV(v *visit) error {
	m, rows, err := v.entries()
	if err != nil {
		return err
	}
	w := v.csvFile("statement-" + m.Value + ".csv")
	_ = w.Write([]string{"date", "kind", "text", "calls", "amount_iu", "amount_niu", "balance_iu", "balance_niu"}) // errors stay with w
	for _, r := range rows {
		line := []string{r.at.UTC().Format(time.DateOnly), r.Kind, cell(r.Text), strconv.FormatInt(r.Calls, 10)}
		_ = w.Write(append(append(line, amountColumns(r.Amount)...), amountColumns(r.Balance)...))
	}
	w.Flush()
	return nil
}
