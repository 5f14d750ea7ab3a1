package console

import (
	"errors"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/member"
)

// invitations are those of an account that still lead somewhere, as the template of that name
// shows them.
type invitations struct {
	Of   *account.Account
	Rows []invitationRow // the newest first
	At   string          // the address of one, without its id
	May  bool            // revoke one
	Now  time.Time
}

// invitationRow is an invitation and who has made it.
type invitationRow struct {
	member.Link
	By string
}

// invitations reads those of an account of these people. Its members see no name of an operator
// who is none of them; operators see everybody's.
func (v *visit) invitations(a *account.Account, people []member.Person) (invitations, error) {
	p := invitations{Of: a, At: "/members/invitations/", May: v.role == member.Owner, Now: v.now}
	open, err := v.s.Gate.Store.Invitations(v.context(), a.ID, v.now)
	if err != nil {
		return p, err
	}
	names := namesOf(people)
	if v.route.who == forOperator {
		p.At, p.May = "/operator/accounts/"+a.ID+"/invitations/", true
		var makers []string
		for _, l := range open {
			makers = append(makers, l.CreatedBy)
		}
		if names, err = v.s.Operator.Store.Emails(v.context(), makers); err != nil {
			return p, err
		}
	}
	for _, l := range open {
		p.Rows = append(p.Rows, invitationRow{l, actorName(l.CreatedBy, names)})
	}
	return p, nil
}

// invitePage is what templates/invite.html shows.
type invitePage struct {
	// Title is of the form, Into the account's name, At where the form goes, and Back where it
	// was come from.
	Title, Into, At, Back, BackName string

	Form  *form
	Token string // of the form
	Owner bool   // is the role that was chosen
	// Link and Email are of an invitation that was made; it is shown once.
	Link  secret
	Email string
}

func (v *visit) inviteForm() *form {
	return v.form(field{Name: "email", Label: "Email", Type: "email", Autocomplete: "off", Maximum: 254, Wide: "w3", Focus: true})
}

// inviting is the page on which an owner invites into the account that is looked at, or an
// operator into the one that the path names, which may have nobody yet.
func (v *visit) inviting(a *account.Account) invitePage {
	p := invitePage{Title: "Invite a member", Into: a.Name, At: "/members/invite", Back: "/members", BackName: "Members", Form: v.inviteForm()}
	if v.route.who == forOperator {
		p.Title, p.Back, p.BackName, p.Owner = "Invite to "+a.Name, "/operator/accounts/"+a.ID, a.Name, true
		p.At = p.Back + "/invite"
	}
	return p
}

// invited is the account that somebody is invited into. An operator invites nobody into one that
// is suspended.
func (v *visit) invited() (*account.Account, error) {
	if v.route.who != forOperator {
		return v.account, nil
	}
	a, err := v.operated()
	if err == nil && a.Status == account.Suspended {
		return nil, account.ErrSuspended
	}
	return a, err
}

func (s *Server) invitePage(v *visit) error {
	a, err := v.invited()
	if err != nil {
		return err
	}
	p := v.inviting(a)
	p.Token = s.once.token(v)
	return v.page("invite", p.Title, p)
}

// invite makes a link and answers with it: nothing can show it again.
func (s *Server) invite(v *visit) error {
	a, err := v.invited()
	if err != nil {
		return err
	}
	p, role := v.inviting(a), member.Role(v.value("role"))
	f := p.Form
	wrong := func() error {
		p.Token, p.Owner = s.once.token(v), role == member.Owner
		return v.wrong("invite", p.Title, p)
	}
	d, ok := s.once.take(v)
	if !ok {
		f.failAll(staleForm)
		return wrong()
	}
	defer d.mu.Unlock()
	if !d.at.IsZero() {
		if p, ok := d.again(v.now).(invitePage); ok {
			return v.page("invite", "The invitation is ready", p)
		}
		return v.seeOther(p.Back)
	}
	token, link, err := s.Gate.Invite(v.context(), a.ID, v.value("email"), role)
	switch {
	case errors.Is(err, member.ErrEmail):
		f.refuse(err, v.now)
		return wrong()
	case errors.Is(err, member.ErrRole):
		return errForm
	case err != nil:
		return err
	}
	p.Email, p.Link = link.Email, secret{ID: "link", Label: "Invitation", Value: s.PublicURL.String() + member.JoinPath(token)}
	d.done(v.now, p)
	return v.page("invite", "The invitation is ready", p)
}

// closedInvitation is said of one that is to be revoked from a page that is too old.
const closedInvitation = "That invitation is not open any more: it was used or revoked before."

// revokeInvitation makes a link worthless: of the account that is looked at, or of the one that
// an operator's path names, which may be suspended.
func (s *Server) revokeInvitation(v *visit) error {
	a, back := v.account, "/members"
	if v.route.who == forOperator {
		var err error
		if a, err = v.operated(); err != nil {
			return err
		}
		back = "/operator/accounts/" + a.ID
	}
	err := s.Gate.Store.RevokeLink(v.context(), a.ID, v.r.PathValue("link"))
	if errors.Is(err, member.ErrLinkUnknown) {
		return v.seeOther(back + "?late=invitation")
	}
	if err != nil {
		return err
	}
	return v.seeOther(back + "?done=revoked")
}
