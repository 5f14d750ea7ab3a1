package console

import (
	"fmt"
	"html/template"
	"net/url"
	"reflect"
)

// secret is shown once. The template "secret" shows it with a button that copies it.
type secret struct{ ID, Label, Value string }

// snippet is code to copy, in one language of several. The template "code" shows it.
type snippet struct {
	ID       string
	Language string
	Others   []language
	Text     string
}

// language is a tab of a snippet: a link to the same page with that language.
type language struct {
	Name, Link string
	Current    bool
}

// pager leads through a list that is read by cursors. The template "pager" shows it.
type pager struct {
	Said          string // "5 keys", where that is known without counting
	Newest, Older string // links; empty where there is nothing
}

// pager makes the links of a list: older is the cursor behind its last row, or empty when
// nothing follows. All other parameters of the address stay.
func (v *visit) pager(said, older string) pager {
	p := pager{Said: said}
	q := v.r.URL.Query()
	q.Del("done") // what was done is said once
	q.Del("late")
	link := func() string {
		if len(q) == 0 {
			return v.r.URL.Path
		}
		return v.r.URL.Path + "?" + q.Encode()
	}
	if q.Has("before") {
		q.Del("before")
		p.Newest = link()
	}
	if older != "" {
		q.Set("before", older)
		p.Older = link()
	}
	return p
}

// with is the address of the visit with another value of a parameter: of filters, ranges and
// orders. It leads to the first page of a list.
func (v *visit) with(name, value string) string {
	q := v.r.URL.Query()
	q.Del("before")
	q.Del("done")
	q.Del("late")
	if q.Set(name, value); value == "" {
		q.Del(name)
	}
	return (&url.URL{Path: v.r.URL.Path, RawQuery: q.Encode()}).String()
}

// status is a word with the icon that says it without colour: ok, warn, bad, info, run, half,
// clock or dash.
func (s *Server) status(kind, words string) (template.HTML, error) {
	return s.badge("st", kind, words)
}

// pill is a status on a ground of its colour, for heads.
func (s *Server) pill(kind, words string) (template.HTML, error) {
	return s.badge("st pill", kind, words)
}

func (s *Server) badge(class, kind, words string) (template.HTML, error) {
	icon, err := s.icon(noteKind(kind).Icon())
	switch kind {
	case "clock", "half":
		class += " warn"
	case "run":
		class += " info"
	default:
		class += " " + kind
	}
	return template.HTML(fmt.Sprintf(`<span class="%s">%s%s</span>`, class, icon, template.HTMLEscapeString(words))), err
}

// integer is any integer of Go's, for templates, which do not convert them.
func integer(n any) int64 { return reflect.ValueOf(n).Int() }
