package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
)

// trafficSpan is what the figures of the traffic are of, and trafficShown how many calls
// its list has.
const (
	trafficSpan  = time.Minute
	trafficShown = 50
)

// trafficRow is a call of any account.
type trafficRow struct {
	callRow
	Account, AccountID string
	Target             string // upstream/model; empty where none was asked
}

// operatorTrafficPage is what templates/operator-traffic.html shows.
type operatorTrafficPage struct {
	ledger.Traffic
	Running int
	Rows    []trafficRow
	Follow  follow
	Hour    lastHour
}

// PerSecond is how many calls begin in a second.
func (p operatorTrafficPage) PerSecond() string {
	return fmt.Sprintf("%.1f", float64(p.Ended+p.Refused)/trafficSpan.Seconds())
}

// TokensPerSecond are those of answers.
func (p operatorTrafficPage) TokensPerSecond() string {
	return fmt.Sprintf("%.1f", float64(p.CompletionTokens)/trafficSpan.Seconds())
}

// operatorTraffic shows what happens now: the last minute, the last hour, and the last calls of
// everybody.
func (s *Server) operatorTraffic(v *visit) error {
	p := operatorTrafficPage{Follow: v.following(), Hour: v.lastHour()}
	var err error
	if p.Traffic, err = s.Operator.Store.Traffic(v.context(), v.now.Add(-trafficSpan)); err != nil {
		return err
	}
	receipts, err := s.Operator.Store.LastReceipts(v.context(), trafficShown)
	if err != nil {
		return err
	}
	refused, err := s.Operator.Store.LastRefusals(v.context(), trafficShown)
	if err != nil {
		return err
	}
	for _, a := range s.Accounts.All() {
		running := s.Ledger.Running(a.ID)
		p.Running += len(running)
		receipts = append(receipts, running...)
	}
	for i := range receipts {
		r := &receipts[i]
		p.Rows = append(p.Rows, v.trafficRow(v.callRow(r), r.AccountID, r.Target))
	}
	for i := range refused {
		p.Rows = append(p.Rows, v.trafficRow(v.refusedRow(&refused[i]), refused[i].AccountID, ""))
	}
	slices.SortFunc(p.Rows, func(a, b trafficRow) int { return strings.Compare(b.ID, a.ID) })
	p.Rows = p.Rows[:min(len(p.Rows), trafficShown)]
	return v.page("operator-traffic", "Traffic", p)
}

func (v *visit) trafficRow(c callRow, accountID, target string) trafficRow {
	r := trafficRow{callRow: c, Account: none, AccountID: accountID, Target: target}
	if a, ok := v.s.Accounts.ByID(accountID); ok {
		r.Account = a.Name
	}
	return r
}
