package console

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/parley-ai/parley/internal/member"
)

// signInPage is what templates/sign-in.html shows.
type signInPage struct {
	Next      string
	Form      *form
	Passkeys  bool   // work at this address
	Elsewhere string // where they do, if they do not here
	kept
}

func (v *visit) signInData(f *form) signInPage {
	p := signInPage{Next: v.next(), Form: f, Passkeys: v.passkeysHere(), kept: v.keptForm()}
	if v.s.Passkeys != nil && !p.Passkeys {
		p.Elsewhere = v.s.PublicURL.String()
	}
	return p
}

func (v *visit) signInForm() *form {
	return v.form(
		field{Name: "email", Label: "Email", Type: "email", Autocomplete: "username", Maximum: 254, Focus: true},
		field{Name: "password", Label: "Password", Type: "password", Autocomplete: "current-password", Maximum: 256},
	)
}

// next is where a sign-in leads.
func (v *visit) next() string {
	if v.unsafe() {
		return localPath(v.r.PostFormValue("next"))
	}
	return localPath(v.r.URL.Query().Get("next"))
}

func (s *Server) signInPage(v *visit) error {
	if v.signedIn() {
		return v.seeOther(v.next())
	}
	return v.page("sign-in", "Sign in", v.signInData(v.signInForm()))
}

// signIn takes email and password. Whatever was wrong, the answer is one sentence.
func (s *Server) signIn(v *visit) error {
	c := member.Credentials{Email: v.value("email"), Password: v.r.PostFormValue("password")}
	token, session, err := s.Gate.SignIn(v.context(), c, v.from(), v.token())
	if err == nil {
		return v.arrive(token, session.Stage)
	}
	f := v.signInForm()
	if throttled, ok := errors.AsType[*member.ThrottledError](err); ok {
		f.fail("password", tooManyTries(throttled))
	} else if errors.Is(err, member.ErrWrong) {
		f.fail("password", "Email or password is wrong. Try again.")
	} else {
		return err
	}
	return v.wrong("sign-in", "Sign in", v.signInData(f))
}

// arrive lets in whose password was right, or asks it for its code.
func (v *visit) arrive(token member.Token, stage member.Stage) error {
	if stage == member.Code {
		v.keep(token)
		if v.keptForm().Resend != "" {
			return v.page("code", "Code", v.codePage(false))
		}
		return v.seeOther("/sign-in/code?next=" + url.QueryEscape(v.next()))
	}
	return v.welcome(token)
}

// arriveAgain signs in who sends the form of a link a second time, as by a double click: the first
// answer, with the session, does not reach the page then. It reports whether it has answered: it
// does only where err says that the link was used, and where c would open the door by itself.
func (v *visit) arriveAgain(err error, c member.Credentials) bool {
	if _, used := errors.AsType[*member.UsedError](err); !used {
		return false
	}
	token, session, err := v.s.Gate.SignIn(v.context(), c, v.from(), v.token())
	return err == nil && v.arrive(token, session.Stage) == nil
}

// welcome gives the browser its session and sees whether it keeps it.
func (v *visit) welcome(token member.Token) error {
	v.keep(token)
	if v.keptForm().Resend != "" {
		return v.redirect(http.StatusTemporaryRedirect, "/resend")
	}
	return v.seeOther("/sign-in/check?next=" + url.QueryEscape(v.next()))
}

// signedIn is where a sign-in leads first: a browser that comes here without the cookie has
// not kept it, and would ask for the password for ever.
func (s *Server) signedIn(v *visit) error {
	if !v.signedIn() {
		return v.page("no-cookie", "No session", nil)
	}
	return v.seeOther(v.next())
}

func (s *Server) signOut(v *visit) error {
	if err := v.endPlayground(v.thisSession); err != nil {
		return err
	}
	if err := s.Gate.SignOut(v.context(), v.who); err != nil && !errors.Is(err, member.ErrNoSession) {
		return err
	}
	v.keep("")
	return v.seeOther("/sign-in")
}

// switchAccount looks at another account of the member's.
func (s *Server) switchAccount(v *visit) error {
	to := v.value("to")
	if v.who.Role(to) == member.None && !v.who.Member.Operator {
		return errNotFound
	}
	if _, ok := s.Accounts.ByID(to); !ok {
		return errNotFound
	}
	if err := v.lookInto(to); err != nil {
		return err
	}
	return v.seeOther("/")
}

// lookInto makes an account the one that the session looks at. The visitor may.
func (v *visit) lookInto(id string) error {
	if err := v.endPlayground(v.thisSession); err != nil {
		return err
	}
	return v.s.Gate.Look(v.context(), v.who, id)
}

// claimPage is what templates/claim.html shows.
type claimPage struct {
	Account string
	Form    *form
}

func (v *visit) claimForm() *form {
	return v.form(
		field{Name: "token", Label: "Token", Hint: "The end of the link, behind the #.", Autocomplete: "off", Maximum: 64},
		field{Name: "email", Label: "Email", Type: "email", Autocomplete: "username", Maximum: 254},
		field{Name: "password", Label: "Password", Type: "password", Autocomplete: "new-password", Maximum: 256, Hint: "12 characters or more."},
	)
}

// claimPage is the first page of a new server. The token comes behind the # of its address,
// which no server, log or history of a proxy sees; an island puts it into its field.
func (s *Server) claimPage(v *visit) error {
	return v.page("claim", "Claim", claimPage{Form: v.claimForm()})
}

func (s *Server) claim(v *visit) error {
	f := v.claimForm()
	c := member.Credentials{Email: v.value("email"), Password: v.r.PostFormValue("password")}
	token, err := s.Gate.Claim(v.context(), member.Token(v.value("token")), c, v.from())
	if err == nil {
		return v.welcome(token)
	}
	if v.arriveAgain(err, c) {
		return nil
	}
	if !f.refuse(err, v.now) {
		return err
	}
	return v.wrong("claim", "Claim", claimPage{Form: f})
}

// refuse says in the form what is wrong with a link, an email or a new password; false when
// err is something else.
func (f *form) refuse(err error, now time.Time) bool {
	const another = " Run parley operator link on the server for a new one."
	used, isUsed := errors.AsType[*member.UsedError](err)
	throttled, isThrottled := errors.AsType[*member.ThrottledError](err)
	switch {
	case isUsed:
		f.failAll("This link was used on " + day(used.At, now) + " at " + clock(used.At) + " UTC." + another)
	case isThrottled:
		f.failAll(tooManyTries(throttled))
	case errors.Is(err, member.ErrLinkUnknown):
		f.failAll("There is no such link. Copy all of it." + another)
	case errors.Is(err, member.ErrLinkExpired):
		f.failAll("This link has expired." + another)
	case errors.Is(err, member.ErrEmail):
		f.fail("email", "Enter an address like ada@example.org.")
	case errors.Is(err, member.ErrWeak):
		f.fail("password", "Enter 12 to 256 characters.")
	default:
		return false
	}
	return true
}
