package console

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
)

// keysShown is how many keys a page lists.
const keysShown = 50

// endsSoon is how long before its end a key or a grant is called expiring.
const endsSoon = 7 * 24 * time.Hour

const daysOfWeek = 7

// keysPage is what templates/keys.html shows.
type keysPage struct {
	Keys     []keyRow
	Query    string
	Status   string
	Statuses []formOption
	Chips    []filterChip // of filters that are on
	Owners   bool         // whether their column is shown
	Any      bool         // whether there are keys at all
	Counted  bool         // whether usage could be read
	Top      int64        // of the sparks
	Pager    pager
}

// filterChip is a filter that is on; its link takes it off.
type filterChip struct{ Name, Link string }

// keyRow is a key in a list.
type keyRow struct {
	apikey.Key
	Kind, State string // of the status
	Owner       string
	Spent       money.Amount // this month
	Week        []int64      // spent in each of the last days
	Budget      *budgetUse
}

// budgetUse is how much of a key's budget is used.
type budgetUse struct {
	Amount, Spent, Held money.Amount
	Monthly             bool
}

// keyStates are what the list can be filtered by.
var keyStates = []formOption{{"", "Active and expiring"}, {"ended", "Revoked and expired"}, {"all", "All"}}

// keys lists the account's keys: an owner's all, a member's own.
func (s *Server) keys(v *visit) error {
	v.sayRevoked()
	q := v.r.URL.Query()
	p := keysPage{Query: mask(strings.TrimSpace(q.Get("q"))), Status: q.Get("status"), Statuses: keyStates, Owners: v.role != member.Regular}
	if !slices.ContainsFunc(keyStates, func(o formOption) bool { return o.Value == p.Status }) {
		p.Status = ""
	}
	var found []apikey.Key
	before, more := q.Get("before"), false
	n := 0
	owners := v.owners()
	for _, k := range slices.Backward(s.Keys.List(v.account.ID)) {
		if !v.mayKey(&k) {
			continue
		}
		p.Any = true
		if !v.keyMatches(&k, p, owners) {
			continue
		}
		n++
		switch {
		case before != "" && k.ID >= before:
		case len(found) == keysShown:
			more = true
		default:
			found = append(found, k)
		}
	}
	older := ""
	if more {
		older = found[len(found)-1].ID
	}
	p.Pager = v.pager(english.Plural(n, "key"), older)
	p.Keys, p.Counted = v.keyRows(found, owners)
	for _, r := range p.Keys {
		p.Top = max(p.Top, slices.Max(append(r.Week, 0)))
	}
	if p.Query != "" {
		p.Chips = append(p.Chips, filterChip{p.Query, v.with("q", "")})
	}
	if i := slices.IndexFunc(keyStates, func(o formOption) bool { return o.Value == p.Status }); p.Status != "" {
		p.Chips = append(p.Chips, filterChip{keyStates[i].Name, v.with("status", "")})
	}
	return v.page("keys", "API keys", p)
}

// mayKey reports whether the visitor sees a key: members see their own.
func (v *visit) mayKey(k *apikey.Key) bool {
	return k.AccountID == v.account.ID && (v.role != member.Regular || k.CreatedBy == v.who.Member.ID)
}

// keyMatches holds a key to the filters.
func (v *visit) keyMatches(k *apikey.Key, p keysPage, owners map[string]string) bool {
	active := k.Status(v.now) == "active"
	if p.Status == "" && !active || p.Status == "ended" && active {
		return false
	}
	return p.Query == "" || p.Query == k.ID || keyNamed(k, p.Query) || p.Owners && strings.Contains(v.owner(k, owners), strings.ToLower(p.Query))
}

// keyState is the status of a key in a word, with its icon.
func keyState(k *apikey.Key, now time.Time) (kind, words string) {
	switch k.Status(now) {
	case "revoked":
		return "dash", "Revoked"
	case "expired":
		return "dash", "Expired"
	}
	switch {
	case k.ReplacedBy != "":
		return "clock", "Replaced"
	case !k.ExpiresAt.IsZero() && k.ExpiresAt.Sub(now) < endsSoon:
		return "clock", "Expires soon"
	}
	return "ok", "Active"
}

// keyRows adds to keys what was spent with them; false when that cannot be read.
func (v *visit) keyRows(keys []apikey.Key, owners map[string]string) ([]keyRow, bool) {
	spent, ok := partial(v, v.keySpending)
	rows := make([]keyRow, len(keys))
	for i, k := range keys {
		r := keyRow{Key: k, Owner: v.owner(&k, owners), Budget: v.budgetUse(&k)}
		r.Kind, r.State = keyState(&k, v.now)
		if ok {
			r.Spent = spent.month[k.ID]
			for _, day := range spent.days {
				r.Week = append(r.Week, int64(day[k.ID]))
			}
		}
		rows[i] = r
	}
	return rows, ok
}

// keySpending is what each key of an account has spent.
type keySpending struct {
	month map[string]money.Amount
	days  []map[string]money.Amount // the last of them is today
}

func (v *visit) keySpending(ctx context.Context) (k keySpending, err error) {
	read := func(from, to time.Time) map[string]money.Amount {
		byKey := map[string]money.Amount{}
		if err != nil {
			return byKey
		}
		var us []ledger.Usage
		us, err = v.s.Records.UsageOf(ctx, ledger.UsageFilter{AccountID: v.account.ID, From: from, To: to}, ledger.ByKey)
		for _, u := range us {
			byKey[u.Group] = u.Charge
		}
		return byKey
	}
	tomorrow := midnight(v.now).AddDate(0, 0, 1)
	k.month = read(firstOfMonth(v.now), tomorrow)
	for i := range daysOfWeek {
		from := tomorrow.AddDate(0, 0, i-daysOfWeek)
		k.days = append(k.days, read(from, from.AddDate(0, 0, 1)))
	}
	return k, err
}

// midnight is when the day of t began, in UTC.
func midnight(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// firstOfMonth is when the month of t began, in UTC.
func firstOfMonth(t time.Time) time.Time {
	year, month, _ := t.UTC().Date()
	return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
}

// owners are the emails of the account's members, by their ids.
func (v *visit) owners() map[string]string {
	people, _ := partial(v, func(ctx context.Context) ([]member.Person, error) {
		return v.s.Gate.Store.People(ctx, v.account.ID)
	})
	emails := map[string]string{}
	for i := range people {
		emails[people[i].ID] = people[i].Email
	}
	return emails
}

// owner says who made a key.
func (v *visit) owner(k *apikey.Key, owners map[string]string) string {
	switch k.CreatedBy {
	case "":
		return "the operator"
	case v.who.Member.ID:
		return "you"
	}
	return cmp.Or(owners[k.CreatedBy], "a former member")
}

func (v *visit) budgetUse(k *apikey.Key) *budgetUse {
	if k.Budget.ID == "" {
		return nil
	}
	sp := v.s.Ledger.Spending(v.account.ID, ledger.Budget{ID: k.Budget.ID, Period: k.Budget.Period(v.now)})
	return &budgetUse{k.Budget.Amount, sp.Spent, sp.Held, k.Budget.Monthly}
}

// sayRevoked says that a key was revoked, when the page before this one did that.
func (v *visit) sayRevoked() {
	k, ok := v.s.Keys.Find(v.r.URL.Query().Get("done"))
	if !ok || !v.mayKey(&k) || k.RevokedAt.IsZero() {
		return
	}
	// No other server shares the data directory: the keyring of this process admits every call.
	v.say(noteOK, k.Name+" is revoked.", "The only server confirmed at "+k.RevokedAt.UTC().Format("15:04:05")+" UTC: calls with it are refused.")
	if old := v.outlived(&k); old != nil {
		v.notes = append(v.notes, note{
			Kind: noteWarn, Bold: "The key whose place it took works until " + day(old.ExpiresAt, v.now) + ", " + clock(old.ExpiresAt) + " UTC.",
			Rest: "Programs with the older secret go on until then.", Link: "/keys/" + old.ID + "/revoke", Do: "Revoke it too",
		})
	}
}

// outlived is the key whose place k took, while it works still and the visitor sees it, or nil: who
// revokes k may believe that both are closed.
func (v *visit) outlived(k *apikey.Key) *apikey.Key {
	keys := v.s.Keys.List(k.AccountID)
	i := slices.IndexFunc(keys, func(old apikey.Key) bool {
		return old.ReplacedBy == k.ID && old.Status(v.now) == "active" && v.mayKey(&old)
	})
	if i < 0 {
		return nil
	}
	return &keys[i]
}
