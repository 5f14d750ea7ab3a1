package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

// named is the account that the path names, by its name or by its id.
func (s *service) named(r *http.Request) (*account.Account, error) {
	name := r.PathValue("account")
	if a, ok := s.Accounts.ByName(name); ok {
		return a, nil
	}
	if a, ok := s.Accounts.ByID(name); ok {
		return a, nil
	}
	return nil, missing("account_not_found", "No account is called %q.", name)
}

func (s *service) view(a *account.Account) Account {
	b := s.Ledger.Balance(a.ID)
	v := Account{
		ID: a.ID, Name: a.Name, Plan: a.Plan, Status: string(a.Status),
		Balance: b.Balance().String(), Held: b.Held.String(), Available: b.Available().String(),
		LowCredit: a.LowCredit.Or(s.LowCredit).String(), OwnThreshold: a.LowCredit.Own,
	}
	now := time.Now()
	if sub := &a.Subscription; sub.Status(now) != subscription.None {
		v.Subscription = &Subscription{Plan: sub.Plan, Status: string(sub.Status(now)), Until: sub.LastsUntil(), Renews: renewal(sub) == renewsItself}
	}
	return v
}

func (s *service) listAccounts(*http.Request) (any, error) {
	all := s.Accounts.All()
	out := make([]Account, 0, len(all))
	for _, a := range all {
		out = append(out, s.view(a))
	}
	return out, nil
}

func (s *service) showAccount(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	return s.view(a), nil
}

func (s *service) createAccount(r *http.Request) (any, error) {
	var in NewAccount
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	var credit money.Amount
	if in.Credit != "" {
		// Before the account is made: a mistyped amount must not leave half the work.
		var err error
		if credit, err = amount(in.Credit); err != nil {
			return nil, err
		}
	}
	if _, err := s.plan(in.Plan, http.StatusBadRequest); err != nil {
		return nil, err
	}
	if _, ok := s.Accounts.ByName(in.Name); ok {
		return nil, &Error{Status: http.StatusConflict, Code: "account_exists", Message: fmt.Sprintf("An account called %q exists.", in.Name)}
	}
	a, err := s.Accounts.Create(r.Context(), in.Name, in.Plan)
	if err != nil {
		return nil, err
	}
	if credit > 0 {
		if _, err := s.Ledger.Grant(r.Context(), ledger.Grant{AccountID: a.ID, Amount: credit, Note: "credit at creation", Source: "creation"}); err != nil {
			return nil, err
		}
	}
	return Created{ID: a.ID, Name: a.Name}, nil
}

func (s *service) setAccount(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	var in Change
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Plan != nil {
		if _, err := s.plan(*in.Plan, http.StatusBadRequest); err != nil {
			return nil, err
		}
	}
	low, err := read(in.LowCredit, threshold)
	if err != nil {
		return nil, err
	}
	if a, err = s.Accounts.Change(r.Context(), a.ID, account.Change{Plan: in.Plan, Status: in.Status, LowCredit: low}); err != nil {
		return nil, err
	}
	return s.view(a), nil
}

// threshold reads the balance below which an account wants to be warned.
func threshold(text string) (account.Threshold, error) {
	value, err := money.ParseAmount(text)
	if err != nil {
		return account.Threshold{}, invalid("invalid_amount", "A threshold is a number of IU, at most 1,000,000,000, with at most 9 decimals, not %q. 0 is never, null is what the configuration says.", text)
	}
	return account.Threshold{Own: true, Amount: value}, nil
}

// plan finds a plan or says, as status, which plans there are.
func (s *service) plan(id string, status int) (*account.Plan, error) {
	if p, ok := s.Accounts.Plan(id); ok {
		return p, nil
	}
	var ids []string
	for _, p := range s.Accounts.Plans() {
		ids = append(ids, p.ID)
	}
	return nil, &Error{Status: status, Code: "plan_not_found", Message: fmt.Sprintf("No plan is called %q. Plans: %s.", id, strings.Join(ids, ", "))}
}

func (s *service) summary(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	b := s.Ledger.Balance(a.ID)
	out := Summary{Granted: b.Granted.String(), Spent: b.Posted.String(), Running: b.Running}
	now := time.Now()
	for _, k := range s.Keys.List(a.ID) {
		switch k.Status(now) {
		case "active":
			out.KeysActive++
		case "expired":
			out.KeysExpired++
		default:
			out.KeysRevoked++
		}
	}
	if p, ok := s.Accounts.Plan(a.PlanAt(now)); ok {
		v := s.planView(p, now)
		out.Plan = &v
	}
	return out, s.forecast(r.Context(), a.ID, b.Held, now, &out)
}

// forecast says how long the credit lasts at the pace of the last days.
func (s *service) forecast(ctx context.Context, accountID string, held money.Amount, now time.Time, out *Summary) error {
	pace, err := s.Store.Pace(ctx, accountID, now)
	if err != nil || pace.Days == 0 {
		return err
	}
	grants, err := s.Store.Grants(ctx, accountID)
	if err != nil {
		return err
	}
	out.PerDay = pace.PerDay.String()
	if at, ok := ledger.RunOut(now, grants, held, pace.PerDay); ok {
		out.LastsUntil = &at
	}
	return nil
}

// mostPriority bounds the priorities of grants.
const mostPriority = 100

// listCredits shows grants in the order in which they burn.
func (s *service) listCredits(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	grants, err := s.Store.Grants(r.Context(), a.ID)
	if err != nil {
		return nil, err
	}
	out := make([]GrantBalance, 0, len(grants))
	for _, g := range grants {
		v := GrantBalance{
			ID: g.ID, Kind: string(g.Kind), Amount: g.Amount.String(), Burned: g.Burned.String(), Expired: g.Expired.String(),
			Remaining: g.Remaining().String(), Priority: g.Priority, CreatedAt: g.CreatedAt, Note: g.Note, Source: g.Source,
		}
		if !g.ExpiresAt.IsZero() {
			v.ExpiresAt = &g.ExpiresAt
		}
		out = append(out, v)
	}
	return out, nil
}

// addCredit grants once for each reference. References are kept apart from the
// sources that Parley itself writes.
func (s *service) addCredit(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	var in NewCredit
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Note) == "" {
		return nil, invalid("invalid_note", "Credit needs a note that says why it is added.")
	}
	value, err := amount(in.Amount)
	if err != nil {
		return nil, err
	}
	g := ledger.Grant{AccountID: a.ID, Kind: ledger.Kind(in.Kind), Amount: value, Priority: in.Priority, Note: in.Note}
	switch g.Kind {
	case "", ledger.Prepaid, ledger.Included, ledger.Promo:
	default:
		return nil, invalid("invalid_kind", "Credit is prepaid, included or promo, not %q. Refunds and adjustments have commands of their own.", in.Kind)
	}
	if in.Priority < 0 || in.Priority > mostPriority {
		return nil, invalid("invalid_priority", "A priority is a whole number from 1 to %d; lower burns first.", mostPriority)
	}
	if in.ExpiresAt != nil {
		g.ExpiresAt = in.ExpiresAt.UTC().Truncate(time.Microsecond)
	}
	if in.Ref != "" {
		g.Source = "ref:" + in.Ref
	}
	granted, err := s.Ledger.Grant(r.Context(), g)
	if err != nil {
		return nil, err
	}
	return Credit{
		Account: a.Name, Added: granted.Added, Amount: value.String(), At: granted.At.UTC(),
		Available: s.Ledger.Balance(a.ID).Available().String(),
	}, nil
}

func amount(text string) (money.Amount, error) {
	value, err := money.ParseAmount(text)
	if err != nil || value <= 0 {
		return 0, invalid("invalid_amount", "An amount is a number of IU above 0, at most 1,000,000,000, with at most 9 decimals, not %q.", text)
	}
	return value, nil
}
