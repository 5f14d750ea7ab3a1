package console

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/money"
)

// keyForm is the form of a key that is to be made or changed.
type keyForm struct {
	*form
	All    bool // every model
	Models []modelChoice
	plan   account.Plan
}

// modelChoice is a model that a key can be restricted to.
type modelChoice struct {
	ID      string
	Chosen  bool
	Outside bool // the plan has it not
}

// Choices of the form.
var (
	keyLives   = []formOption{{"30", "In 30 days"}, {"90", "In 90 days"}, {"365", "In 365 days"}, {"date", "At the end of a day"}, {"never", "Never"}}
	budgetKind = []formOption{{"month", "A month"}, {"total", "In all"}}
)

const (
	dateFormat  = "2006-01-02"
	budgetMonth = "month"
	expiryDate  = "date"
)

// lastOfDays is the last one that a form can name. Its end lies in a year that RFC 3339 does not write.
var lastOfDays = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// keyForm is the form with what the visitor has sent of it, or else with the settings of k.
func (v *visit) keyForm(k *apikey.Key) keyForm {
	f := keyForm{}
	if p, ok := v.s.Accounts.Plan(v.account.PlanAt(v.now)); ok {
		f.plan = *p
	}
	expires, date := expiryDate, ""
	switch {
	case k.ID == "":
		expires = "90"
	case k.ExpiresAt.IsZero():
		expires = "never"
	default:
		date = k.ExpiresAt.Add(-time.Nanosecond).UTC().Format(dateFormat)
	}
	budget, period := "", budgetMonth
	if k.Budget.Amount > 0 {
		if budget = k.Budget.Amount.String(); !k.Budget.Monthly {
			period = "total"
		}
	}
	f.form = v.form(
		field{Name: "name", Label: "Name", Value: k.Name, Hint: "What will use it. Shown in usage and receipts.", Maximum: 100, Autocomplete: "off", Wide: "w6"},
		field{Name: "expires", Label: "Expires", Value: expires, Choices: keyLives, Wide: "w3"},
		field{Name: "date", Label: "Last day", Type: "date", Value: date, Optional: true, Hint: "For “At the end of a day”, which ends in UTC.", Wide: "w3"},
		field{Name: "rpm", Label: "Requests per minute", Value: ofLimit(k.RPM), Unit: "rpm", Inputmode: "numeric", Maximum: 20, Optional: true, Hint: limitHint(f.plan.RPM), Wide: "w3"},
		field{Name: "tpm", Label: "Tokens per minute", Value: ofLimit(k.TPM), Unit: "tpm", Inputmode: "numeric", Maximum: 20, Optional: true, Hint: limitHint(f.plan.TPM), Wide: "w3"},
		field{Name: "budget", Label: "Budget", Value: budget, Unit: "IU", Inputmode: "decimal", Maximum: 24, Optional: true, Hint: "Calls beyond it get 402. Empty: no budget.", Wide: "w3"},
		field{Name: "period", Label: "Budget is", Value: period, Choices: budgetKind, Wide: "w3"},
		field{Name: "networks", Label: "Allowed networks", Value: strings.Join(apikey.Networks(k.Networks), "\n"), Rows: 3, Maximum: 6000, Optional: true, Hint: "One a line, as 10.0.0.0/8 or 203.0.113.7. Empty: from everywhere.", Wide: "w6"},
		field{Name: "models", Label: "Models"},
	)
	chosen := k.Models
	f.All = chosen == nil
	if v.unsafe() {
		f.All, chosen = v.value("models") != "some", v.r.Form["model"]
	}
	f.offer(v, chosen, k.Models)
	return f
}

// offer lists the models of the plan, and those that the key has already.
func (f *keyForm) offer(v *visit, chosen, has []string) {
	for _, m := range v.s.Models.List(v.now) {
		on := m.OnPlan(f.plan.ID)
		if on || slices.Contains(has, m.ID) {
			f.Models = append(f.Models, modelChoice{m.ID, slices.Contains(chosen, m.ID), !on})
		}
	}
}

func ofLimit(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func limitHint(plan int64) string {
	if plan == 0 {
		return "Empty: no limit."
	}
	return "Empty: the account’s " + count(plan) + "."
}

// settings are what the form says of a key. Where it says something that cannot be, the form
// has failed.
func (f keyForm) settings(now time.Time) apikey.NewKey {
	n := apikey.NewKey{Name: f.Field("name").Value, RPM: f.limit("rpm", f.plan.RPM), TPM: f.limit("tpm", f.plan.TPM)}
	n.ExpiresAt, n.Budget, n.Networks = f.expiry(now), f.budget(), f.networks()
	if f.All {
		return n
	}
	for _, m := range f.Models {
		if m.Chosen {
			n.Models = append(n.Models, m.ID)
		}
	}
	if n.Models == nil {
		f.fail("models", "Tick at least one model, or choose every model of the plan.")
	}
	return n
}

// limit reads one of the limits; plan is the account's own.
func (f keyForm) limit(name string, plan int64) int64 {
	text := strings.ReplaceAll(f.Field(name).Value, ",", "")
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		f.fail(name, "Enter a whole number, or leave it empty.")
	case n < 1:
		f.fail(name, "Enter 1 or more, or leave it empty.")
	case plan > 0 && n > plan:
		f.fail(name, "The account allows "+count(plan)+". Enter "+count(plan)+" or less.")
	case err != nil:
		f.fail(name, "Enter a number of at most 18 digits.")
	}
	return n
}

func (f keyForm) expiry(now time.Time) time.Time {
	choice := f.Field("expires").Value
	switch choice {
	case "never":
		return time.Time{}
	case expiryDate:
		last, err := time.Parse(dateFormat, f.Field("date").Value)
		switch {
		case err != nil:
			f.fail("date", "Enter a day, as "+now.AddDate(0, 0, 90).UTC().Format(dateFormat)+".")
		case last.Before(midnight(now)):
			f.fail("date", "That day is over. Enter "+midnight(now).Format(dateFormat)+" or later.")
		case last.Equal(lastOfDays):
			f.fail("date", "Enter an earlier day, or choose Never above.")
		}
		return last.AddDate(0, 0, 1)
	}
	days, err := strconv.Atoi(choice)
	if err != nil || !slices.ContainsFunc(keyLives, func(o formOption) bool { return o.Value == choice }) {
		f.fail("expires", "Choose when the key ends.")
	}
	return now.AddDate(0, 0, days)
}

func (f keyForm) budget() account.Budget {
	text := strings.ReplaceAll(f.Field("budget").Value, ",", "")
	if text == "" {
		return account.Budget{}
	}
	amount, err := money.ParseAmount(text)
	if err != nil || amount <= 0 {
		f.fail("budget", "Enter an amount above 0 with at most 9 decimals, as 25 or 0.5.")
	}
	return account.Budget{Amount: amount, Monthly: f.Field("period").Value == budgetMonth}
}

func (f keyForm) networks() []netip.Prefix {
	lines := strings.Fields(f.Field("networks").Value)
	for _, line := range lines {
		if _, err := apikey.ParseNetworks([]string{line}); err != nil {
			f.fail("networks", "“"+middle(line)+"” is no network. Write it as 10.0.0.0/8, 2001:db8::/32 or 203.0.113.7, one a line.")
			return nil
		}
	}
	all, err := apikey.ParseNetworks(lines)
	if err != nil {
		f.fail("networks", "A key has at most 100 networks; these are "+count(len(lines))+".")
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// refuseKey says in the form why the keyring does not take it; false when err is another.
func (f keyForm) refuseKey(err error) bool {
	switch {
	case errors.Is(err, apikey.ErrName):
		f.fail("name", "Enter 1 to 100 printable characters.")
	case errors.Is(err, apikey.ErrExpiry):
		f.fail("expires", "That time is over. Choose a later one.")
	case errors.Is(err, apikey.ErrLimit):
		f.failAll("The account’s plan has just become smaller.")
	default:
		return false
	}
	return true
}
