package console

import (
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"strings"

	"rsc.io/qr"

	"github.com/parley-ai/parley/internal/member"
)

// codePage is what templates/code.html shows.
type codePage struct {
	Next     string
	Recovery bool // a recovery code is asked for
	Form     *form
	kept
}

// doorTo is the address of the door for a sign-in that leads to next.
func doorTo(next string) string {
	if next == "/" {
		return "/sign-in"
	}
	return "/sign-in?next=" + url.QueryEscape(next)
}

func (v *visit) codePage(recovery bool) codePage {
	return codePage{v.next(), recovery, v.codeForm(recovery), v.keptForm()}
}

func (v *visit) codeForm(recovery bool) *form {
	f := field{Name: "code", Label: "Code", Autocomplete: "one-time-code", Inputmode: "numeric", Maximum: 30, Focus: true, Hint: "6 digits, of your authenticator app."}
	if recovery {
		f.Label, f.Autocomplete, f.Inputmode, f.Hint = "Recovery code", "off", "", "One of those that you have stored. Each works once."
	}
	x := v.form(f)
	x.Field("code").Value = ""
	return x
}

// codePage asks for the code behind a password.
func (s *Server) codePage(v *visit) error {
	switch {
	case v.signedIn():
		return v.seeOther(v.next())
	case v.who == nil:
		return v.seeOther(doorTo(v.next()))
	}
	recovery := v.r.URL.Query().Has("recovery")
	return v.page("code", "Code", v.codePage(recovery))
}

func (s *Server) enterCode(v *visit) error {
	if v.who == nil || v.signedIn() {
		return v.tooLateForCode()
	}
	token, err := s.Gate.EnterCode(v.context(), v.who, v.value("code"), v.from())
	if err == nil {
		return v.welcome(token)
	}
	p := v.codePage(v.value("recovery") != "")
	f := p.Form
	if throttled, ok := errors.AsType[*member.ThrottledError](err); ok {
		f.fail("code", tooManyTries(throttled))
	} else if errors.Is(err, member.ErrWrong) {
		f.fail("code", "The code is wrong, or it was used before. Enter the next one.")
	} else {
		return err
	}
	return v.wrong("code", "Code", p)
}

// codesPage is what templates/codes.html shows.
type codesPage struct {
	Picture template.HTML
	Secret  secret
	Form    *form
	Token   string // of the form
	// Recovery are codes that were just made; they are shown once.
	Recovery []string
}

func (v *visit) codesPage() (codesPage, error) {
	key := v.s.Gate.BeginCodes(v.who)
	picture, err := drawCode(key.URL(v.who.Member.Email))
	f := v.form(field{Name: "code", Label: "Code", Hint: "6 digits, that the app shows now.", Autocomplete: "one-time-code", Inputmode: "numeric", Maximum: 10})
	f.Field("code").Value = ""
	return codesPage{Picture: picture, Secret: secret{ID: "totp", Label: "Secret of the app", Value: key.Text()}, Form: f, Token: v.s.once.token(v)}, err
}

// beginCodes shows the secret of one-time codes to a visitor who wants them.
func (s *Server) beginCodes(v *visit) error {
	if v.who.Member.TOTP != nil {
		return v.seeOther("/security")
	}
	p, err := v.codesPage()
	if err != nil {
		return err
	}
	return v.page("codes", "One-time codes", p)
}

// confirmCodes turns codes on. The answer is the only page that ever has the recovery codes.
func (s *Server) confirmCodes(v *visit) error {
	const ready = "Store your recovery codes"
	d, ok := s.once.take(v)
	if ok {
		defer d.mu.Unlock()
		if p, again := d.again(v.now).(codesPage); again {
			return v.page("codes", ready, p)
		}
	}
	if v.who.Member.TOTP != nil {
		return v.seeOther("/security")
	}
	p, err := v.codesPage()
	if err != nil {
		return err
	}
	if !ok {
		p.Form.failAll(staleForm)
		return v.wrong("codes", "One-time codes", p)
	}
	recovery, token, err := s.Gate.ConfirmCodes(v.context(), v.who, v.value("code"))
	switch {
	case errors.Is(err, member.ErrWrong):
		p.Form.fail("code", "That is not the code of now. Check the clock of the device, then enter the next code.")
		return v.wrong("codes", "One-time codes", p)
	case err != nil:
		return err
	}
	v.keep(token)
	p = codesPage{Recovery: recovery}
	d.done(v.now, p)
	return v.page("codes", ready, p)
}

func (s *Server) endCodes(v *visit) error {
	if err := s.Gate.EndCodes(v.context(), v.who); err != nil {
		return err
	}
	return v.seeOther("/security?done=codes")
}

// drawCode draws a text as a code for cameras: dark on light in every theme, as they need it.
func drawCode(text string) (template.HTML, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", err
	}
	const quiet = 4 // empty modules around it, which the standard asks for
	side := code.Size + 2*quiet
	var b strings.Builder
	fmt.Fprintf(&b, `<svg width="200" height="200" viewBox="0 0 %d %d" role="img" aria-label="The secret as a code for a camera"><rect width="%d" height="%d" fill="#fff"/><path fill="#000" d="`, side, side, side, side)
	for y := range code.Size {
		for x := range code.Size {
			if code.Black(x, y) {
				fmt.Fprintf(&b, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	b.WriteString(`"/></svg>`)
	return template.HTML(b.String()), nil
}
