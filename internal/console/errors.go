package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/member"
)

// Errors of handlers and of the frame.
var (
	errNotFound     = errors.New("no such page")
	errSignedOut    = errors.New("not signed in")
	errNoAccount    = errors.New("no account")
	errReadOnly     = errors.New("an operator looks into an account read only")
	errOtherAccount = errors.New("the form is of another account")
	errForeign      = errors.New("sent by another site")
	errInsecure     = errors.New("plain HTTP")
	// errUnreadable means that nobody can be recognised, whatever they present.
	errUnreadable = errors.New("sessions cannot be read")
	errForm       = errors.New("a form that cannot be read")
)

// roleError refuses a page to who has not the role for it.
type roleError struct{ needs string }

func (e *roleError) Error() string { return "needs " + e.needs }

// panicError is a bug, kept for the log.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// problem is what an error's page says.
type problem struct {
	Status int
	Title  string
	Text   string
	Quote  bool // the request's id: the operator is to be asked
	// Address and Port are filled for the page about plain HTTP.
	Address, Port string
}

// problemOf is the one table from errors to pages. What it does not know is 500.
func problemOf(err error) problem {
	if e, ok := errors.AsType[*roleError](err); ok {
		return problem{Status: http.StatusForbidden, Title: "Not yours to open", Text: "This page is for " + e.needs + "."}
	}
	if e, ok := errors.AsType[*member.ThrottledError](err); ok {
		return problem{Status: http.StatusTooManyRequests, Title: "Too many tries", Text: tooManyTries(e)}
	}
	if _, ok := errors.AsType[*member.UsedError](err); ok {
		return problem{Status: http.StatusGone, Title: "This link was used", Text: "It has let somebody in already. Ask for a new one, or sign in."}
	}
	for _, row := range []struct {
		err    error
		answer problem
	}{
		{errUnreadable, problem{503, "The database cannot be read", "Parley cannot tell who you are, because its database does not answer. Calls with API keys may go on. Reload in a minute, or quote the id below to your operator.", true, "", ""}},
		{errNotFound, problem{404, "Not found", "There is no page at this address, or it belongs to another account.", false, "", ""}},
		{errNoAccount, problem{403, "No account", "You belong to no account. An owner of one can invite you.", false, "", ""}},
		{errReadOnly, problem{403, "Read only", "You look into this account as operator. Nothing can be changed here; the operator's pages can.", false, "", ""}},
		{errOtherAccount, problem{409, "Another account", "This form was made for another account than the one you look at now. Go back to that account and send it again. Nothing was changed.", false, "", ""}},
		{account.ErrSuspended, problem{409, "The account is suspended", "Nobody is invited into it. Resume it first.", false, "", ""}},
		{errForeign, problem{403, "Sent by another site", "This form came from a page of another site, so nothing was done.", false, "", ""}},
		{errForm, problem{400, "Not readable", "The form that was sent could not be read. Go back and send it again.", false, "", ""}},
		{errInsecure, problem{403, "This address is not secure", "", false, "", ""}},
		{member.ErrLinkUnknown, problem{404, "No such link", "There is no such link, or it was revoked. Copy all of it, or ask for a new one.", false, "", ""}},
		{member.ErrLinkExpired, problem{410, "This link has expired", "Ask for a new one.", false, "", ""}},
		{member.ErrBusy, problem{429, "Busy", "Too many people sign in at this moment. Try again in a few seconds.", false, "", ""}},
		{context.DeadlineExceeded, problem{503, "Too slow", "The page took longer than 10 seconds to read. Reload it, or quote the id below to your operator.", true, "", ""}},
	} {
		if errors.Is(err, row.err) {
			return row.answer
		}
	}
	return problem{Status: http.StatusInternalServerError, Title: "Parley has failed", Text: "The page could not be made. Nothing is known to be wrong with your account. Reload, or quote the id below to your operator.", Quote: true}
}

func tooManyTries(e *member.ThrottledError) string {
	return "Too many tries. Try again at " + e.Until.UTC().Add(time.Second).Format("15:04:05") + " UTC."
}

// fail answers with the page of err.
func (v *visit) fail(err error) {
	v.err = err
	if errors.Is(err, errSignedOut) {
		if err = v.signedOut(); err == nil {
			return
		}
	}
	if errors.Is(err, errNoAccount) && v.who.Member.Operator {
		if menus := v.menus(true); len(menus) > 0 {
			_ = v.seeOther(menus[0].Entries[0].Path) // an operator may have no account
			return
		}
	}
	p := problemOf(err)
	if e, ok := errors.AsType[*member.ThrottledError](err); ok {
		v.w.Header().Set("Retry-After", strconv.Itoa(int(e.Until.Sub(v.now).Seconds())+1))
	}
	if errors.Is(err, errInsecure) {
		p.Address, p.Port = v.r.Host, v.s.PublicURL.Port()
	}
	if v.pageWith(p.Status, "problem", p.Title, p) != nil { // only a broken template gets here
		http.Error(v.w, "Parley has failed. Quote "+v.id+" to your operator.", http.StatusInternalServerError)
		v.status = http.StatusInternalServerError
	}
}
