package console

import (
	"context"
	"encoding/csv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/subscription"
)

// auditPage is what templates/audit.html shows.
type auditPage struct {
	Days    []auditDay
	People  []pick
	Actions []pick
	Times   []pick
	Chips   []chip
	Pager   pager
	CSV     string
}

// auditDay is the changes of one day, the last first.
type auditDay struct {
	Name    string
	Changes []auditRow
}

// auditRow is one change.
type auditRow struct {
	Seq               int64
	At                time.Time
	Who, What, Target string
	Facts             string // of it, as the log has them
	From              string // the address; empty of who is no member of the account
}

// actionWords say what was done, as people would.
var actionWords = map[audit.Action]string{
	audit.AccountCreate: "made the account", audit.AccountUpdate: "changed the account",
	audit.CreditGrant: "added credit", audit.CreditAdjust: "corrected the credit", audit.CreditRefund: "gave credit back",
	audit.PaymentRefund: "refunded a payment", audit.PaymentDispute: "told of a disputed payment", audit.PaymentReturn: "told of a refund that failed",
	audit.Subscription(string(subscription.Create)): "began a subscription", audit.Subscription(string(subscription.Renew)): "began a paid period",
	audit.Subscription(string(subscription.Pay)): "renewed the subscription", audit.Subscription(string(subscription.Change)): "changed the subscription",
	audit.Subscription(string(subscription.Cancel)): "canceled the subscription", audit.Subscription(string(subscription.Resume)): "took the cancellation back",
	audit.Subscription(string(subscription.Lapse)): "found the subscription past due", audit.Subscription(string(subscription.Expire)): "ended the subscription",
	audit.KeyCreate: "made the key", audit.KeyUpdate: "changed the key", audit.KeyRotate: "rotated the key", audit.KeyRevoke: "revoked the key",
	audit.LinkCreate: "invited a member", audit.LinkRevoke: "revoked an invitation",
	audit.MemberJoin: "joined", audit.MemberRole: "changed a role", audit.MemberRemove: "removed a member",
}

// auditShown is how many changes a page has.
const auditShown = 50

// auditFilter reads the filter of the address: of what was done to the account and its keys,
// by whomever.
func (v *visit) auditFilter() (audit.Filter, span) {
	q := v.r.URL.Query()
	f := audit.Filter{Targets: []string{v.account.ID}, Actor: q.Get("who"), Action: audit.Action(q.Get("action")), Limit: auditShown + 1}
	for _, k := range v.s.Keys.List(v.account.ID) {
		f.Targets = append(f.Targets, k.ID)
	}
	f.Before, _ = strconv.ParseInt(q.Get("before"), 10, 64) // nonsense is the first page
	f.Before = max(0, f.Before)
	if _, ok := actionWords[f.Action]; !ok {
		f.Action = ""
	}
	s := spanOf(q.Get("time"), v.now)
	f.From, f.To = s.from, s.to
	return f, s
}

// auditLog lists what was done to the account, its keys, its credit and its members, also by
// operators.
func (s *Server) auditLog(v *visit) error {
	f, sp := v.auditFilter()
	names, err := v.actorNames()
	if err != nil {
		return err
	}
	list, err := s.Records.AuditPage(v.context(), f)
	if err != nil {
		return err
	}
	older := ""
	if len(list) > auditShown {
		list = list[:auditShown]
		older = strconv.FormatInt(list[auditShown-1].Seq, 10)
	}
	p := auditPage{People: actorOptions(names, f.Actor), Times: timeOptions(v.r.URL.Query().Get("time"), v.now), Pager: v.pager("", older)}
	if sp.name == "" {
		choose(p.Times, "")
	}
	for _, e := range list {
		day := longDay(e.At, v.now)
		if n := len(p.Days); n == 0 || p.Days[n-1].Name != day {
			p.Days = append(p.Days, auditDay{Name: day})
		}
		d := &p.Days[len(p.Days)-1]
		d.Changes = append(d.Changes, v.auditRow(&e, names))
	}
	p.Actions = []pick{{Name: "Every change"}}
	for action, words := range actionWords {
		p.Actions = append(p.Actions, pick{Value: string(action), Name: strings.ToUpper(words[:1]) + words[1:]})
	}
	slices.SortFunc(p.Actions[1:], func(a, b pick) int { return strings.Compare(a.Name, b.Name) })
	choose(p.Actions, string(f.Action))
	for _, c := range []chip{{chosen(p.People), "who"}, {chosen(p.Actions), "action"}, {sp.name, "time"}} {
		if c.Name != "" {
			p.Chips = append(p.Chips, chip{c.Name, v.with(c.Without, "")})
		}
	}
	p.CSV = "/audit/csv?" + v.r.URL.Query().Encode()
	return v.page("audit", "Audit log", p)
}

// actorNames are the members of the account by their ids.
func (v *visit) actorNames() (map[string]string, error) {
	people, err := v.s.Gate.Store.People(v.context(), v.account.ID)
	return namesOf(people), err
}

func namesOf(people []member.Person) map[string]string {
	names := map[string]string{}
	for _, p := range people {
		names[p.ID] = p.Email
	}
	return names
}

func actorOptions(names map[string]string, value string) []pick {
	options := []pick{{Name: "Everybody"}}
	for id, email := range names {
		options = append(options, pick{Value: id, Name: email})
	}
	slices.SortFunc(options[1:], func(a, b pick) int { return strings.Compare(a.Name, b.Name) })
	options = append(options, pick{Value: audit.System, Name: "Parley itself"})
	if !slices.ContainsFunc(options, func(o pick) bool { return o.Value == value }) {
		options = append(options, pick{Value: value, Name: middle(value)})
	}
	choose(options, value)
	return options
}

// actorName is who has done something, for members of the account; names are theirs by their ids.
func actorName(actor string, names map[string]string) string {
	switch {
	case names[actor] != "":
		return names[actor]
	case actor == audit.System:
		return "Parley"
	case strings.HasPrefix(actor, ident.Member):
		return "operator or former member " + middle(actor)
	}
	return "operator " + middle(actor)
}

// auditRow is an entry for people. Who is no member of the account is one no more, or an
// operator, whose name is theirs.
func (v *visit) auditRow(e *audit.Entry, names map[string]string) auditRow {
	r := auditRow{Seq: e.Seq, At: e.At, Who: actorName(e.Actor, names), What: actionWords[e.Action], Facts: e.After}
	if names[e.Actor] != "" {
		r.From = e.Origin
	}
	if r.What == "" {
		r.What = string(e.Action)
	}
	if strings.HasPrefix(e.Target, ident.Key) {
		r.Target = v.keyName(e.Target)
	}
	return r
}

// auditCSV is every change that the filter takes, the last first.
func (s *Server) auditCSV(v *visit) error {
	f, _ := v.auditFilter()
	f.Limit = callsMost
	names, err := v.actorNames()
	if err != nil {
		return err
	}
	list, err := s.Records.AuditPage(v.context(), f)
	if err != nil {
		return err
	}
	w := v.csvFile("audit.csv")
	_ = w.Write([]string{"at", "seq", "actor", "who", "action", "target", "name", "from", "before", "after"}) // errors stay with w
	for v.auditLines(w, list, names) && len(list) == f.Limit {
		f.Before = list[len(list)-1].Seq
		ctx, cancel := context.WithTimeout(context.WithoutCancel(v.context()), deadline)
		list, err = s.Records.AuditPage(ctx, f)
		cancel()
		if err != nil {
			v.err = err
			panic(http.ErrAbortHandler) // a file that ends early must not look whole
		}
	}
	return nil
}

// auditLines writes lines and reports whether somebody still reads.
func (v *visit) auditLines(w *csv.Writer, list []audit.Entry, names map[string]string) bool {
	for _, e := range list {
		r := v.auditRow(&e, names)
		_ = w.Write([]string{
			e.At.UTC().Format(time.RFC3339Nano), strconv.FormatInt(e.Seq, 10), cell(e.Actor), cell(r.Who), string(e.Action), e.Target, cell(r.Target), r.From, cell(e.Before), cell(e.After),
		})
	}
	w.Flush()
	return w.Error() == nil
}
