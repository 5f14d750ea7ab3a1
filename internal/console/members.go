package console

import (
	"errors"
	"slices"

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
	Invitations invitations
	May         bool // change something
}

func (s *Server) members(v *visit) error {
	v.done(map[string]string{
		"role":    "The role is changed. It counts from now on.",
		"removed": "Removed. The pages of this account are closed to that member from now on.",
		"ended":   "Removed. The pages of this account are closed to that member, and its API keys are revoked.",
		"revoked": "The invitation is revoked.",
	})
	v.late(map[string]string{"invitation": closedInvitation, "member": "That member does not belong to the account any more."})
	people, err := s.Gate.Store.People(v.context(), v.account.ID)
	if err != nil {
		return err
	}
	p := membersPage{May: v.role == member.Owner}
	if p.Invitations, err = v.invitations(v.account, people); err != nil {
		return err
	}
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
	if errors.Is(err, member.ErrNotFound) {
		return v.seeOther("/members?late=member")
	}
	return v.placed(err, "/members?done=role")
}

// removeMember takes somebody out of the account, and its keys where the form asks for that. Sent
// twice it does the same, and what was left to do of it.
func (s *Server) removeMember(v *visit) error {
	id := v.r.PathValue("id")
	err := s.Gate.Store.Remove(v.context(), v.account.ID, id)
	if err != nil && !errors.Is(err, member.ErrNotFound) {
		return v.placed(err, "")
	}
	next := "/members?done=removed"
	if v.value("keys") == "revoke" {
		next = "/members?done=ended"
		for _, k := range v.keysOf(id) {
			if _, err := s.Keys.Revoke(v.context(), k.ID); err != nil {
				return err
			}
		}
	}
	if id == v.who.Member.ID {
		next = "/" // the members of this account are none of its business any more
	}
	return v.seeOther(next)
}

// placed answers what became of a member's place.
func (v *visit) placed(err error, next string) error {
	switch {
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
	if _, used := errors.AsType[*member.UsedError](err); used && v.joinedBefore(t) {
		return nil
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

// joinedBefore answers the form of an invitation that its own member sends a second time.
func (v *visit) joinedBefore(t member.Token) bool {
	l, err := v.s.Gate.OpenLink(v.context(), t, member.Invitation)
	if v.signedIn() {
		return v.who.Member.Email == l.Email && v.who.Role(l.AccountID) != member.None && v.seeOther("/") == nil
	}
	return v.arriveAgain(err, member.Credentials{Email: l.Email, Password: v.r.PostFormValue("password")})
}
