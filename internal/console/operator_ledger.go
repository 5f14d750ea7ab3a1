package console

import (
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
)

// Proof is how the proof of the books stands.
type Proof struct {
	// Report is what the last one found, and At its end; zero before the first. Invariants are
	// nil where it could not be made, and Failed says why.
	Report ledger.Report
	At     time.Time
	Failed string
	// Since is when the one under way began or was asked for; zero without one.
	Since time.Time
}

// prover proves the books in the background, one proof at a time.
type prover interface {
	Proof() Proof
	// ProveNow begins a proof where none is under way. It does not wait.
	ProveNow()
}

// operatorLedgerPage is what templates/operator-ledger.html shows.
type operatorLedgerPage struct {
	Sum               sum
	Accounts, Running int
	Proof
}

// Took is how long the last proof took.
func (p operatorLedgerPage) Took() string { return took(p.Report.Took) }

// took is a duration in prose: "644 ms", "4.21 s", "2 min".
func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.Itoa(int(d.Milliseconds())) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
	}
	return strconv.Itoa(int(d.Round(time.Minute).Minutes())) + " min"
}

// standing is the result of the last proof.
func (p Proof) standing() (icon, words string) {
	switch {
	case p.Failed != "":
		return "warn", "Not proved"
	case p.At.IsZero():
		return "dash", "Not proved yet"
	case !p.Report.OK():
		return "bad", "Not balanced"
	}
	return "ok", "Balanced"
}

// Icon is that of the standing.
func (p Proof) Icon() string { icon, _ := p.standing(); return icon }

// Words say the standing.
func (p Proof) Words() string { _, words := p.standing(); return words }

// operatorLedger shows what the books of all accounts add up to, and the last proof of their
// laws. While one is under way the page refreshes itself.
func (s *Server) operatorLedger(v *visit) error {
	p := operatorLedgerPage{Proof: s.Operator.Prover.Proof()}
	var all ledger.Balance
	for _, a := range s.Accounts.All() {
		b := s.Ledger.Balance(a.ID)
		p.Accounts++
		all.Granted += b.Granted
		all.Posted += b.Posted
		all.Held += b.Held
		all.Expiring += b.Expiring
		all.Running += b.Running
	}
	p.Sum, p.Running = booksSum(all, sumLinks{}), all.Running
	if !p.Since.IsZero() {
		v.refresh(2 * time.Second)
	}
	if broken := p.Report.Broken(); broken.Name != "" {
		v.say(noteBad, "The books are not balanced.", "The law “"+broken.Name+"” is broken: "+broken.Detail+". Stop the server, keep a copy of the data directory, and report it.")
	}
	return v.page("operator-ledger", "Ledger", p)
}

// refresh makes the browser ask again. It is a header, so that the page itself stays still for
// who reads it saved.
func (v *visit) refresh(every time.Duration) {
	v.w.Header().Set("Refresh", strconv.Itoa(int(every.Seconds())))
}

func (s *Server) verifyLedger(v *visit) error {
	s.Operator.Prover.ProveNow()
	return v.seeOther("/operator/ledger")
}
