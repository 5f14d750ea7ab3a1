package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/member"
)

// visit is one request and what is known of who makes it. It serves one goroutine.
type visit struct {
	s     *Server
	w     http.ResponseWriter
	r     *http.Request
	route route
	id    string // of the request, in the header x-request-id
	now   time.Time

	who     *member.Visitor  // nil for who is not signed in
	account *account.Account // that is looked at; nil without one
	role    member.Role      // in it; none for an operator who looks into it
	notes   []note
	status  int
	err     error
	missed  error // why a part of the page is missing
}

func (s *Server) newVisit(w http.ResponseWriter, r *http.Request, rt route) *visit {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if a := s.Address(r); a.IsValid() {
		r = r.WithContext(audit.WithOrigin(r.Context(), a.String()))
	}
	return &visit{s: s, w: w, r: r, route: rt, id: ident.RequestID(), now: s.Now().UTC()}
}

// unsafe reports whether the request may change something.
func (v *visit) unsafe() bool {
	return v.r.Method != http.MethodGet && v.r.Method != http.MethodHead
}

// admit lets in who may have the route. Its order is that of what must be known first.
func (v *visit) admit() error {
	v.headers()
	if !v.secure() {
		return errInsecure
	}
	if err := v.s.foreign.Check(v.r); err != nil {
		return errForeign
	}
	who, err := v.s.Gate.Visit(v.r.Context(), v.token())
	switch {
	case err == nil:
		v.enter(who)
	case !errors.Is(err, member.ErrNoSession):
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if v.unsafe() {
		if err := v.r.ParseForm(); err != nil {
			return errForm
		}
	}
	return v.allowed()
}

// enter notes who visits and which account is looked at: the one of the session, or else the
// member's first.
func (v *visit) enter(who *member.Visitor) {
	v.who = who
	if who.Session.Stage != member.Open {
		return
	}
	v.r = v.r.WithContext(audit.WithActor(v.r.Context(), who.Member.ID))
	id := who.Session.AccountID
	if who.Role(id) == member.None && !who.Member.Operator {
		id = ""
	}
	if id == "" && len(who.Memberships) > 0 {
		id = who.Memberships[0].AccountID
	}
	if a, ok := v.s.Accounts.ByID(id); ok {
		v.account, v.role = a, who.Role(id)
	}
}

// signedIn reports whether the visitor has proved itself, with every proof that is asked for.
func (v *visit) signedIn() bool { return v.who != nil && v.who.Session.Stage == member.Open }

// looking reports whether an operator looks into an account that is not its own.
func (v *visit) looking() bool {
	return v.account != nil && v.role == member.None && v.who.Member.Operator
}

// allowed holds the visitor to the route's row.
func (v *visit) allowed() error {
	who := v.route.who
	switch {
	case who == forAnyone:
		return nil
	case !v.signedIn():
		return errSignedOut
	case who == forPerson:
		return nil
	case who == forOperator:
		if !v.who.Member.Operator {
			return &roleError{needs: "an operator"}
		}
		return nil
	case v.account == nil:
		return errNoAccount
	case v.looking():
		if v.unsafe() {
			return errReadOnly
		}
		return nil
	case who == forOwner && v.role != member.Owner:
		return &roleError{needs: "an owner of " + v.account.Name}
	case v.unsafe() && v.r.PostFormValue("account") != v.account.ID:
		return errOtherAccount
	}
	return nil
}

// proved lets a visitor in who has proved lately who it is; others prove it first. A form that
// was being filled in when the last proof became too old is sent again once there is another.
func proved(h handler) handler {
	return func(s *Server, v *visit) error {
		switch {
		case v.who.Session.Proved(v.now):
			return h(s, v)
		case !v.unsafe():
			return v.seeOther("/prove?next=" + url.QueryEscape(v.r.URL.RequestURI()))
		case v.carries():
			return v.proveFirst()
		}
		return v.seeOther("/prove?next=" + url.QueryEscape(localPath(refererPath(v.r))))
	}
}

// localPath is p where it is a path of this server, else the root: what follows a sign-in
// must not lead away.
func localPath(p string) string {
	u, err := url.Parse(p)
	if err != nil || !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || strings.ContainsAny(p, "\\\r\n") || u.Host != "" || u.Scheme != "" {
		return "/"
	}
	return p
}

// page answers with a template of templates/, as the page of that title.
func (v *visit) page(name, title string, data any) error {
	return v.pageWith(http.StatusOK, name, title, data)
}

// wrong answers with the page of a form that was not filled in right.
func (v *visit) wrong(name, title string, data any) error {
	return v.pageWith(http.StatusUnprocessableEntity, name, "Error: "+title, data)
}

func (v *visit) pageWith(status int, name, title string, data any) error {
	var body bytes.Buffer
	if err := v.s.pages[name].ExecuteTemplate(&body, "layout", v.frame(title, data)); err != nil {
		return err
	}
	v.write(status, body.Bytes())
	return nil
}

// write sends a page.
func (v *visit) write(status int, body []byte) {
	v.writeAs(status, "text/html; charset=utf-8", body)
}

// writeAs sends something of that media type.
func (v *visit) writeAs(status int, kind string, body []byte) {
	h := v.w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	v.status = status
	v.w.WriteHeader(status)
	_, _ = v.w.Write(body) // who does not read a page is not told so
}

// seeOther sends the browser to another page.
func (v *visit) seeOther(path string) error { return v.redirect(http.StatusSeeOther, path) }

func (v *visit) redirect(status int, path string) error {
	v.w.Header().Set("Location", path)
	v.status = status
	v.w.WriteHeader(status)
	return nil
}

// say puts a note above the page. Two are shown at most.
func (v *visit) say(kind noteKind, bold, rest string) {
	v.notes = append(v.notes, note{Kind: kind, Bold: bold, Rest: rest})
}

// done says what the page before this one did, in the words that texts has for it.
func (v *visit) done(texts map[string]string) {
	if text, ok := texts[v.r.URL.Query().Get("done")]; ok {
		v.say(noteOK, text, "")
	}
}

// late says why the page before this one changed nothing, in the words that texts has for it: what
// it was about had changed since that page was made.
func (v *visit) late(texts map[string]string) {
	if text, ok := texts[v.r.URL.Query().Get("late")]; ok {
		v.say(noteWarn, text, "Nothing was changed.")
	}
}

// from is where the visitor is, for lists that it reads.
func (v *visit) from() member.From {
	address := ""
	if a := v.s.Address(v.r); a.IsValid() {
		address = a.String()
	}
	return member.From{Address: address, Agent: v.r.UserAgent()}
}

// value is what was typed into a field.
func (v *visit) value(name string) string { return strings.TrimSpace(v.r.PostFormValue(name)) }

// close logs the visit and answers a panic.
func (v *visit) close() {
	stack := ""
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
			panic(p)
		}
		stack = string(debug.Stack())
		v.fail(&panicError{value: p})
	}
	level := slog.LevelInfo
	if v.status >= http.StatusInternalServerError {
		level = slog.LevelError
	}
	line := v.s.Log.Begin(time.Now(), level, "page")
	line.String("request_id", v.id)
	line.String("route", v.route.path)
	line.String("method", v.r.Method[:min(len(v.r.Method), 16)])
	line.Int("status", v.status)
	if v.who != nil {
		line.String("member", v.who.Member.ID)
	}
	if v.account != nil {
		line.String("account", v.account.ID)
	}
	if level == slog.LevelError && v.err != nil {
		line.String("error", v.err.Error())
	}
	if v.missed != nil {
		line.String("missing", v.missed.Error())
	}
	if stack != "" {
		line.String("stack", stack)
	}
	line.Float("duration_ms", float64(v.s.Now().Sub(v.now).Microseconds())/1000)
	line.End()
}

// context is the request's, with the member as the actor of what is changed.
func (v *visit) context() context.Context { return v.r.Context() }
