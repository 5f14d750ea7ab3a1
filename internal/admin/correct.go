package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// adjust corrects the credit of an account.
func (s *service) adjust(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	var in NewAdjustment
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if err := reasoned(in.Reason); err != nil {
		return nil, err
	}
	digits, taken := strings.CutPrefix(in.Amount, "-")
	value, err := amount(digits)
	if err != nil {
		return nil, err
	}
	if taken {
		value = -value
	}
	err = s.Ledger.Adjust(r.Context(), a.ID, value, in.Reason)
	if short, ok := errors.AsType[*ledger.InsufficientError](err); ok {
		return nil, &Error{Status: http.StatusConflict, Code: "insufficient_credit", Message: fmt.Sprintf(
			"%s IU cannot be taken from %s: %s IU are available, %s IU are held by running calls.", short.Need, a.Name, short.Available, short.Held)}
	}
	if err != nil {
		return nil, err
	}
	return Adjustment{Account: a.Name, Amount: value.String(), Available: s.Ledger.Balance(a.ID).Available().String()}, nil
}

// refund gives back what a call was charged, or a part of it.
func (s *service) refund(r *http.Request) (any, error) {
	var in NewRefund
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if err := reasoned(in.Reason); err != nil {
		return nil, err
	}
	id := r.PathValue("request")
	var value money.Amount // 0: all that is left
	if in.Amount != "" {
		var err error
		if value, err = amount(in.Amount); err != nil {
			return nil, err
		}
	}
	c, err := s.Ledger.Refund(r.Context(), id, value, in.Reason)
	switch {
	case errors.Is(err, ledger.ErrNoCharge):
		return nil, missing("charge_not_found", "No call that has ended has the id %q.", id)
	case errors.Is(err, ledger.ErrRefunded):
		return nil, &Error{Status: http.StatusConflict, Code: "refund_exceeds_charge", Message: fmt.Sprintf(
			"%s was charged %s IU, of which %s IU were given back: at most the rest can be.", id, c.Charge, c.Refunded)}
	case err != nil:
		return nil, err
	}
	out := Refund{RequestID: id, Charge: c.Charge.String(), Refunded: c.Refunded.String(), Available: s.Ledger.Balance(c.AccountID).Available().String()}
	if a, ok := s.Accounts.ByID(c.AccountID); ok {
		out.Account = a.Name
	}
	return out, nil
}

// reasoned refuses what nobody could explain later.
func reasoned(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return invalid("invalid_reason", "This needs a reason, which stays in the books.")
	}
	return nil
}
