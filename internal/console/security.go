package console

import (
	"errors"

	"github.com/parley-ai/parley/internal/member"
)

// securityPage is what templates/security.html shows.
type securityPage struct {
	Sessions []member.Session
	This     string // the id of the visitor's own
	Passkeys []member.Passkey
	// Here says that passkeys work at this address; Elsewhere is where they do otherwise.
	Here      bool
	Elsewhere string
	Password  *form
	Themes    []theme
}

// theme is one of the choices of how the console looks.
type theme struct {
	Value, Name string
	Chosen      bool
}

func (v *visit) passwordForm() *form {
	return v.form(field{Name: "password", Label: "New password", Type: "password", Autocomplete: "new-password", Maximum: 256, Hint: "12 characters or more.", Wide: "w3"})
}

// security shows how the visitor signs in and where it is signed in.
func (s *Server) security(v *visit) error {
	v.done(map[string]string{
		"password": "The password is changed. Your other sessions have ended.",
		"taste":    "Saved.",
		"ended":    "The session has ended.",
		"passkey":  "The passkey is added.",
		"removed":  "The passkey is removed.",
		"codes":    "One-time codes are off. Your other sessions have ended.",
		"others":   "All other sessions have ended.",
	})
	if v.r.URL.Query().Get("refused") == "last" {
		v.say(noteWarn, "The last way to sign in stays.", "Choose a password first, then remove the passkey.")
	}
	data, err := v.securityPage(v.passwordForm())
	if err != nil {
		return err
	}
	return v.page("security", "Security", data)
}

func (v *visit) securityPage(password *form) (securityPage, error) {
	all, err := v.s.Gate.Store.Sessions(v.context(), v.who.Member.ID)
	if err != nil {
		return securityPage{}, err
	}
	p := securityPage{This: v.who.Session.ID, Password: password, Here: v.passkeysHere()}
	if v.s.Passkeys != nil && !p.Here {
		p.Elsewhere = v.s.PublicURL.String()
	}
	if p.Passkeys, err = v.s.Gate.Store.Passkeys(v.context(), v.who.Member.ID); err != nil {
		return securityPage{}, err
	}
	for _, x := range all {
		if x.Stage == member.Open && !x.Ended(v.now) {
			p.Sessions = append(p.Sessions, x)
		}
	}
	for _, t := range []theme{{Value: "", Name: "As the system has it"}, {Value: "light", Name: "Light"}, {Value: "dark", Name: "Dark"}} {
		t.Chosen = t.Value == v.who.Member.Theme
		p.Themes = append(p.Themes, t)
	}
	return p, nil
}

func (s *Server) setPassword(v *visit) error {
	token, err := s.Gate.SetPassword(v.context(), v.who, v.r.PostFormValue("password"))
	if err == nil {
		v.keep(token)
		if err := v.endPlayground(v.otherSession); err != nil {
			return err
		}
		return v.seeOther("/security?done=password")
	}
	f := v.passwordForm()
	if !f.refuse(err, v.now) {
		return err
	}
	data, err := v.securityPage(f)
	if err != nil {
		return err
	}
	return v.wrong("security", "Security", data)
}

// setTaste changes how the console looks for the visitor.
func (s *Server) setTaste(v *visit) error {
	m := v.who.Member
	m.Shortcuts = v.value("shortcuts") != ""
	switch t := v.value("theme"); t {
	case "", "light", "dark":
		m.Theme = t
	default:
		return errForm
	}
	if err := s.Gate.Store.SetTaste(v.context(), m); err != nil {
		return err
	}
	return v.seeOther("/security?done=taste")
}

func (s *Server) endSession(v *visit) error {
	ended := func(session string) bool { return session == v.r.PathValue("id") }
	if err := v.endPlayground(ended); err != nil {
		return err
	}
	err := s.Gate.Store.EndSession(v.context(), v.who.Member.ID, v.r.PathValue("id"))
	if err != nil && !errors.Is(err, member.ErrNoSession) { // it may have ended by itself
		return err
	}
	return v.seeOther("/security?done=ended")
}

func (s *Server) endOthers(v *visit) error {
	if err := v.endPlayground(v.otherSession); err != nil {
		return err
	}
	if err := s.Gate.Store.EndOthers(v.context(), v.who.Member.ID, v.who.Session.ID); err != nil {
		return err
	}
	return v.seeOther("/security?done=others")
}
