package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/parley-ai/parley/internal/member"
)

// kept is a form that was sent when the session of its sender was over. It waits in the pages of
// the door, and is shown to who has signed in to be sent again: who that is may be another.
type kept struct {
	Resend string // where it is sent; empty without one
	Sent   string // its fields, encoded as a form is
}

// keptForm is the form that waits in the page of the door that was sent.
func (v *visit) keptForm() kept {
	if v.r.PostFormValue("resend") == "" {
		return kept{}
	}
	return kept{localPath(v.r.PostFormValue("resend")), v.r.PostFormValue("sent")}
}

// unsent is what was typed into the form that was sent, and false where nothing was or where it
// must not be repeated: a password, what an island sends, and what somebody looked for.
func (v *visit) unsent() (kept, bool) {
	if waits := v.keptForm(); waits.Resend != "" {
		return waits, true
	}
	path, form := v.r.URL.RequestURI(), url.Values{}
	maps.Copy(form, v.r.Form)
	if v.route.path == "/prove" { // the form that waits there
		path = localPath(form.Get("again"))
		for _, name := range proofFields {
			form.Del(name)
		}
	}
	mode := v.r.Header.Get("Sec-Fetch-Mode")
	if mode != "" && mode != "navigate" || form.Has(passwordField) || slices.Contains([]string{"/", "/find", "/switch"}, path) {
		return kept{}, false
	}
	typed := false
	for name, values := range form {
		typed = typed || name != "account" && name != "token" && slices.ContainsFunc(values, func(s string) bool { return s != "" })
	}
	return kept{path, form.Encode()}, typed
}

// signedOut asks who is not signed in to be so first.
func (v *visit) signedOut() error {
	next := v.r.URL.RequestURI()
	if v.unsafe() {
		next = localPath(refererPath(v.r))
		if waits, ok := v.unsent(); ok {
			return v.doorFor(waits, next)
		}
		if v.route.path == "/prove" {
			next = v.next()
		}
	}
	return v.seeOther("/sign-in?next=" + url.QueryEscape(next))
}

// doorFor is the page of the door with a form that waits.
func (v *visit) doorFor(waits kept, next string) error {
	f := v.signInForm()
	f.Field("email").Value = "" // one of the form that waits may have the same name
	p := v.signInData(f)
	p.Next, p.kept = next, waits
	return v.page("sign-in", "Sign in", p)
}

// resendPage is what templates/resend.html shows.
type resendPage struct {
	Path    string
	Carried []carried
	Back    string
}

// resend shows a form that has waited to who has signed in, whose click sends it. It looks at the
// account that the form is of.
func (s *Server) resend(v *visit) error {
	waits := v.keptForm()
	form, err := url.ParseQuery(waits.Sent)
	if waits.Resend == "" || err != nil {
		return v.seeOther("/")
	}
	if id := form.Get("account"); v.who.Role(id) != member.None {
		if err := v.lookInto(id); err != nil {
			return err
		}
	}
	if waits.Resend == "/billing/checkout" {
		v.maySendToPayment()
	}
	return v.page("resend", "Send it again", resendPage{waits.Resend, carry(form), v.next()})
}

// tooLateForCode answers a code that nobody is asked for: entering it took too long, or the click
// before has entered it.
func (v *visit) tooLateForCode() error {
	waits := v.keptForm()
	switch {
	case waits.Resend == "":
		return v.seeOther(doorTo(v.next()))
	case v.signedIn():
		return v.redirect(http.StatusTemporaryRedirect, "/resend")
	}
	return v.doorFor(waits, v.next())
}
