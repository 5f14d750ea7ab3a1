package console

import (
	"errors"
	"slices"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/member"
)

// personRow is a member of the account and how many keys of it are in use.
type personRow struct {
	member.Person
	Keys int
}

// membersPage is what templates/members.html shows.
type membersPage struct {
	People      []personRow
	Invitations []member.Link
	May         bool // change something
}

func (s *Server) members(v *visit) error {
	v.done(map[string]string{
		"role":    "The role is changed. It counts from now on.",
		"removed": "Removed. The pages of this account are closed to that member from now on.",
		"ended":   "Removed. The pages of this account are closed to that member, and its API keys are revoked.",
		"revoked": "The invitation is revoked.",
	})
	people, err := s.Gate.Store.People(v.context(), v.account.ID)
	if err != nil {
		return err
	}
	open, err := s.Gate.Store.Invitations(v.context(), v.account.ID, v.now)
	if err != nil {
		return err
	}
	p := membersPage{Invitations: open, May: v.role == member.Owner}
	keys := map[string]int{} // that work, by who made them: listed once, not for everybody
	for _, k := range s.Keys.List(v.account.ID) {
		if k.Status(v.now) == "active" {
			keys[k.CreatedBy]++
		}
	}
	for _, person := range people {
		p.People = append(p.People, personRow{person, keys[person.ID]})
	}
	return v.page("members", "Members", p)
}

// keysOf are the keys that work and that a member has made for the account.
func (v *visit) keysOf(memberID string) []apikey.Key {
	return slices.DeleteFunc(v.s.Keys.List(v.account.ID), func(k apikey.Key) bool {
		return k.CreatedBy != memberID || k.Status(v.now) != "active"
	})
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

func (s *Server) revokeInvitation(v *visit) error {
	err := s.Gate.Store.RevokeLink(v.context(), v.account.ID, v.r.PathValue("id"))
	if errors.Is(err, member.ErrLinkUnknown) {
		return errNotFound
	}
	if err != nil {
		return err
	}
	return v.seeOther("/members?done=revoked")
}

// memberPage is what templates/member.html shows.
type memberPage struct {
	personRow
	LastOwner bool
	Self      bool
}

func (s *Server) memberPage(v *visit) error {
	p, err := v.memberOf(v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return v.page("member", p.Email, p)
}

// memberOf is somebody of the account; errNotFound for everybody else.
func (v *visit) memberOf(id string) (memberPage, error) {
	people, err := v.s.Gate.Store.People(v.context(), v.account.ID)
	if err != nil {
		return memberPage{}, err
	}
	found, owners := memberPage{}, 0
	for _, p := range people {
		if p.Role == member.Owner {
			owners++
		}
		if p.ID == id {
			found.Person = p
		}
	}
	if found.ID == "" {
		return found, errNotFound
	}
	found.Keys = len(v.keysOf(id))
	found.LastOwner, found.Self = owners == 1 && found.Role == member.Owner, id == v.who.Member.ID
	return found, nil
}

func (s *Server) setRole(v *visit) error {
	role := member.Role(v.value("role"))
	if !role.Valid() {
		return errForm
	}
	err := s.Gate.Store.SetRole(v.context(), member.Membership{AccountID: v.account.ID, MemberID: v.r.PathValue("id"), Role: role})
	return v.placed(err, "/members?done=role")
}

// removeMember takes somebody out of the account, and its keys where the form asks for that.
func (s *Server) removeMember(v *visit) error {
	id := v.r.PathValue("id")
	err := s.Gate.Store.Remove(v.context(), v.account.ID, id)
	if err != nil || v.value("keys") != "revoke" {
		return v.placed(err, "/members?done=removed")
	}
	for _, k := range v.keysOf(id) {
		if _, err := s.Keys.Revoke(v.context(), k.ID); err != nil {
			return err
		}
	}
	return v.seeOther("/members?done=ended")
}

// placed answers what became of a member's place.
func (v *visit) placed(err error, next string) error {
	switch {
	case errors.Is(err, member.ErrNotFound):
		return errNotFound
	case errors.Is(err, member.ErrLastOwner):
		return v.seeOther("/members/" + v.r.PathValue("id"))
	case err != nil:
		return err
	}
	return v.seeOther(next)
}

// joinPage is what templates/join.html shows.
type joinPage struct {
	Account, Email string
	Token          member.Token
	Role           member.Role
	// Known says that the member exists, As who is signed in.
	Known bool
	As    string
	Form  *form
}

func (v *visit) joinForm() *form {
	return v.form(field{Name: "password", Label: "Password", Type: "password", Autocomplete: "new-password", Maximum: 256, Hint: "12 characters or more.", Focus: true})
}

// joinData is what is known of an invitation.
func (v *visit) joinData(f *form) (joinPage, error) {
	t := member.Token(v.r.PathValue("token"))
	l, err := v.s.Gate.OpenLink(v.context(), t, member.Invitation)
	if err != nil {
		return joinPage{}, err
	}
	p := joinPage{Email: l.Email, Role: l.Role, Token: t, Form: f}
	if a, ok := v.s.Accounts.ByID(l.AccountID); ok {
		p.Account = a.Name
	}
	if v.signedIn() {
		p.As = v.who.Member.Email
	}
	_, err = v.s.Gate.Store.MemberByEmail(v.context(), l.Email)
	if p.Known = err == nil; errors.Is(err, member.ErrNotFound) {
		err = nil
	}
	return p, err
}

func (s *Server) joinPage(v *visit) error {
	p, err := v.joinData(v.joinForm())
	if err != nil {
		return err
	}
	return v.page("join", "Join "+p.Account, p)
}

// join accepts an invitation: as who is signed in, or as a new member.
func (s *Server) join(v *visit) error {
	t := member.Token(v.r.PathValue("token"))
	var token member.Token
	var err error
	if v.signedIn() {
		token, err = s.Gate.Accept(v.context(), t, v.who, v.from())
	} else {
		token, err = s.Gate.Join(v.context(), t, v.r.PostFormValue("password"), v.from())
	}
	if err == nil {
		v.keep(token)
		return v.seeOther("/sign-in/check?next=%2F")
	}
	if errors.Is(err, member.ErrWrong) || errors.Is(err, member.ErrKnown) {
		return v.seeOther(member.JoinPath(t)) // the page says what is to be done
	}
	f := v.joinForm()
	if errors.Is(err, member.ErrWeak) {
		f.refuse(err, v.now)
		p, err := v.joinData(f)
		if err != nil {
			return err
		}
		return v.wrong("join", "Join "+p.Account, p)
	}
	return err
}
