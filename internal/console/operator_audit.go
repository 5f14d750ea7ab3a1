package console

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/parley-ai/parley/internal/audit"
)

// operatorAuditPage is what templates/operator-audit.html shows.
type operatorAuditPage struct {
	Rows   []changeRow
	Filter audit.Filter
	Target string // of the filter
	Kinds  []string
	Pager  pager
	// Whole is what the last proof said of the chain; its name is empty before the first.
	Whole  struct{ Icon, Words string }
	Proved Proof
}

// Filtered reports whether the list leaves entries out.
func (p operatorAuditPage) Filtered() bool { return p.Target+p.Filter.Actor+p.Filter.Kind != "" }

// changeRow is an entry for people.
type changeRow struct {
	audit.Entry
	Who     string // an email, or a name that is nobody's id
	On      string // the account's name, or the id
	Link    string // to it; empty where it has no page
	Changes string
}

// auditKinds are what actions are of, as the filter has them.
func auditKinds() []string {
	return []string{"account", "subscription", "credit", "code", "key", "token", "member", "link", "session", "plan", "price", "webhook", "books"}
}

// changesListed is how many entries a page of the audit log has.
const changesListed = 50

// operatorAudit lists every change that anybody has made, with the state of the chain.
func (s *Server) operatorAudit(v *visit) error {
	q := v.r.URL.Query()
	f := audit.Filter{Kind: q.Get("kind"), Limit: changesListed + 1}
	p := operatorAuditPage{Target: strings.TrimSpace(q.Get("target")), Kinds: auditKinds(), Proved: s.Operator.Prover.Proof()}
	if p.Target != "" {
		f.Targets = []string{p.Target}
	}
	if before := q.Get("before"); before != "" {
		n, err := strconv.ParseInt(before, 10, 64)
		if err != nil || n < 1 {
			return errNotFound
		}
		f.Before = n
	}
	f.Actor = strings.TrimSpace(q.Get("actor"))
	p.Filter = f
	if strings.Contains(f.Actor, "@") {
		m, err := s.Gate.Store.MemberByEmail(v.context(), strings.ToLower(f.Actor))
		if err == nil {
			f.Actor = m.ID // an email of nobody finds nothing
		}
	}
	entries, err := s.Operator.Store.AuditPage(v.context(), f)
	if err != nil {
		return err
	}
	next := ""
	if len(entries) > changesListed {
		entries = entries[:changesListed]
		next = strconv.FormatInt(entries[changesListed-1].Seq, 10)
	}
	if p.Rows, err = v.changeRows(entries); err != nil {
		return err
	}
	p.Pager = v.pager("", next)
	p.Whole.Icon, p.Whole.Words = "dash", "Chain not proved yet"
	for _, law := range p.Proved.Report.Invariants {
		switch {
		case law.Name != audit.Whole:
		case law.OK:
			p.Whole.Icon, p.Whole.Words = "ok", "Chain is whole"
		default:
			p.Whole.Icon, p.Whole.Words = "bad", "Chain is broken"
			v.say(noteBad, "The audit log was changed by something else than Parley.", law.Detail+". Keep a copy of the data directory and compare it with a backup.")
		}
	}
	return v.page("operator-audit", "Audit log", p)
}

// changeRows are entries with the names of who and what they are about.
func (v *visit) changeRows(entries []audit.Entry) ([]changeRow, error) {
	actors := map[string]bool{}
	for _, e := range entries {
		actors[e.Actor] = true
	}
	emails, err := v.s.Operator.Store.Emails(v.context(), slices.Sorted(maps.Keys(actors)))
	if err != nil {
		return nil, err
	}
	rows := make([]changeRow, 0, len(entries))
	for _, e := range entries {
		r := changeRow{Entry: e, Who: e.Actor, On: e.Target, Changes: auditChanges(e.Before, e.After)}
		if email, ok := emails[e.Actor]; ok {
			r.Who = email
		}
		if a, ok := v.s.Accounts.ByID(e.Target); ok {
			r.On, r.Link = a.Name, "/operator/accounts/"+a.ID
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// auditChanges are the fields in which two states differ, as "status: active → suspended".
// What is no JSON object is shown as it is.
func auditChanges(before, after string) string {
	was, is := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if !states(before, was) || !states(after, is) {
		return before + " → " + after
	}
	names := maps.Clone(is)
	maps.Copy(names, was)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, now := plain(was[name]), plain(is[name])
		label := strings.ReplaceAll(name, "_", " ") + ": "
		switch {
		case old == now:
		case old == "":
			all = append(all, label+now)
		case now == "":
			all = append(all, label+old+" → –")
		default:
			all = append(all, label+old+" → "+now)
		}
	}
	return strings.Join(all, ", ")
}

// states reads what an entry shows; empty is nothing.
func states(text string, into map[string]json.RawMessage) bool {
	return text == "" || json.Unmarshal([]byte(text), &into) == nil
}

// plain is a value of JSON for people: a text without its quotes, nothing for what is empty.
func plain(value json.RawMessage) string {
	switch string(value) {
	case "null", "false", "0", "[]", "{}":
		return ""
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}
