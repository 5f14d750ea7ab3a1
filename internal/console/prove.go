package console

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/parley-ai/parley/internal/member"
)

// provePage is what templates/prove.html shows.
type provePage struct {
	signInPage
	Again   string    // where the carried form is sent; empty without one
	Carried []carried // what was typed into it
}

// carried is a field of a form that waits for a proof of who sent it.
type carried struct{ Name, Value string }

// proofFields are those of the page itself.
var proofFields = []string{"again", "next", passwordField}

const passwordField = "password"

func (v *visit) proveForm() *form {
	return v.form(field{Name: passwordField, Label: "Password", Type: "password", Autocomplete: "current-password", Maximum: 256, Focus: true})
}

// carries reports whether the form that was sent can wait in the page that asks for the proof.
// Passwords do not, because no page repeats them, and an island sends its own again.
func (v *visit) carries() bool {
	mode := v.r.Header.Get("Sec-Fetch-Mode")
	return (mode == "" || mode == "navigate") && !v.r.Form.Has(passwordField)
}

// proveData is the page with the form that waits to be sent to again.
func (v *visit) proveData(f *form, again string) provePage {
	p := provePage{signInPage: v.signInData(f), Again: again}
	if again == "" {
		return p
	}
	p.Carried = carry(v.r.Form)
	p.Next = localPath(refererPath(v.r))
	if again == "/billing/checkout" {
		v.maySendToPayment()
	}
	return p
}

// carry is the fields of a form for a page that has it wait, without those of the page itself.
func carry(form url.Values) (fields []carried) {
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, value := range form[name] {
			if !slices.Contains(proofFields, name) {
				fields = append(fields, carried{name, value})
			}
		}
	}
	return fields
}

// proveFirst answers a form with the question who has sent it.
func (v *visit) proveFirst() error {
	return v.page("prove", "Prove it is you", v.proveData(v.proveForm(), v.r.URL.RequestURI()))
}

// provePage asks for the password again.
func (s *Server) provePage(v *visit) error {
	return v.page("prove", "Prove it is you", v.proveData(v.proveForm(), ""))
}

func (s *Server) prove(v *visit) error {
	token, err := s.Gate.Prove(v.context(), v.who, v.r.FormValue(passwordField), v.from())
	f := v.proveForm()
	again := v.r.FormValue("again")
	if throttled, ok := errors.AsType[*member.ThrottledError](err); ok {
		f.fail(passwordField, tooManyTries(throttled))
	} else if errors.Is(err, member.ErrWrong) {
		f.fail(passwordField, "The password is wrong. Try again.")
	} else if err != nil {
		return err
	}
	if f.Failed() {
		p := v.proveData(f, again)
		p.Next = v.next()
		return v.wrong("prove", "Prove it is you", p)
	}
	v.keep(token)
	if again != "" {
		// The browser sends the same form there: what was typed, and the password, which
		// nothing there reads.
		return v.redirect(http.StatusTemporaryRedirect, localPath(again))
	}
	return v.seeOther(v.next())
}

// maySendToPayment lets the page's form lead to the payment provider.
func (v *visit) maySendToPayment() {
	v.w.Header().Set("Content-Security-Policy", strings.Replace(policy, "form-action 'self'", "form-action 'self' "+paymentHost, 1))
}

// refererPath is the page whose form was sent.
func refererPath(r *http.Request) string {
	u, err := url.Parse(r.Referer())
	if err != nil {
		return "/"
	}
	return u.RequestURI()
}
