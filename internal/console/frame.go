package console

import (
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
)

// frame is the dot of every template.
type frame struct {
	Title     string // of the document and, without "Error: ", of the page
	RequestID string
	Now       time.Time
	// Member is nil for who is not signed in; then there is no navigation.
	Member *member.Member
	// Account is the one that is looked at, nil without one. Role and Looking say as what.
	Account *account.Account
	Role    member.Role
	Looking bool
	Choices []choice // other accounts to switch to
	Plan    string
	Balance money.Amount
	// Operator says that the page is one of the operator's area.
	Operator bool
	// OperatorPath is the first page of that area, for those who may see it.
	OperatorPath string
	Menus        []menu
	Notes        []note
	// EndsSoon is when the session ends, where that is less than two minutes away.
	EndsSoon *time.Time
	// Page is what the handler handed over.
	Page any
}

// choice is an account of the switcher.
type choice struct{ ID, Name string }

// noteKind is how serious a note is: the class of its banner, and its icon.
type noteKind string

const (
	noteOK   noteKind = "ok"
	noteInfo noteKind = "info"
	noteWarn noteKind = "warn"
	noteBad  noteKind = "bad"
)

// Icon is the one in front of the note.
func (k noteKind) Icon() string {
	if k == noteInfo {
		return "clock"
	}
	return string(k)
}

// note is a banner: the fact, then its cause, and one thing to do.
type note struct {
	Kind       noteKind
	Bold, Rest string
	Link, Do   string // an address and the words of its button
}

func (v *visit) frame(title string, data any) frame {
	f := frame{Title: title, RequestID: v.id, Now: v.now, Notes: v.notes, Page: data}
	if !v.signedIn() {
		return f
	}
	m := v.who.Member
	f.Member, f.Role, f.Looking = &m, v.role, v.looking()
	f.Operator = v.route.who == forOperator && m.Operator
	f.Menus = v.menus(f.Operator)
	if m.Operator {
		if menus := v.menus(true); len(menus) > 0 {
			f.OperatorPath = menus[0].Entries[0].Path
		}
	}
	for _, ms := range v.who.Memberships {
		if a, ok := v.s.Accounts.ByID(ms.AccountID); ok && a != v.account {
			f.Choices = append(f.Choices, choice{a.ID, a.Name})
		}
	}
	if v.account != nil {
		f.Account, f.Plan = v.account, v.account.PlanAt(v.now)
		f.Balance = v.s.Ledger.Balance(v.account.ID).Available()
	}
	if ends := v.who.Session.EndsAt(); ends.Sub(v.now) < 2*time.Minute {
		f.EndsSoon = &ends
	}
	return f
}
