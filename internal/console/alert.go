package console

import (
	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/money"
)

// lowCredit is the balance below which the account's credit is low.
func (v *visit) lowCredit() money.Amount { return v.account.LowCredit.Or(v.s.LowCredit) }

// alertForm asks below which balance an account wants to be warned.
func (v *visit) alertForm() *form {
	own := ""
	if t := v.account.LowCredit; t.Own {
		own = t.Amount.String()
	}
	all := "Empty: never, as the operator has set it."
	if n := v.s.LowCredit; n > 0 {
		all = "Empty: " + decimals(n, 2, 9, down) + " IU, as the operator has set it. 0: never."
	}
	f := v.form(field{Name: "below", Label: "Warn below", Value: own, Unit: "IU", Inputmode: "decimal", Maximum: 24, Autocomplete: "off", Hint: all, Wide: "w3"})
	if v.route.path != "/billing/alert" { // another form of the page was sent
		f.Field("below").Value = own
	}
	return f
}

// alertWords says what was set.
func (v *visit) alertWords() string {
	if v.lowCredit() == 0 {
		return "There is no warning of low credit any more."
	}
	return "There is a warning as soon as less than " + decimals(v.lowCredit(), 2, 9, down) + " IU are left."
}

// setAlert keeps the balance below which the account is warned. The books tell of it at once
// where it makes credit low that was not.
func (s *Server) setAlert(v *visit) error {
	f, low := v.alertForm(), account.Threshold{}
	if text := v.value("below"); text != "" {
		amount, err := money.ParseAmount(text)
		if err != nil {
			f.fail("below", "Enter a number of IU such as 25 or 2.5, at most 1,000,000,000. Leave it empty for what the operator has set.")
			return v.billingPage(billingForms{alert: f})
		}
		low = account.Threshold{Own: true, Amount: amount}
	}
	if low != v.account.LowCredit {
		if _, err := s.Accounts.Change(v.context(), v.account.ID, account.Change{LowCredit: &low}); err != nil {
			return err
		}
	}
	return v.seeOther("/billing?done=alert")
}
