package admin

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ledger"
)

// Error is a refusal of the operator's API. Codes are final once published.
type Error struct {
	Status  int    `json:"-"` // of HTTP
	Message string `json:"message"`
	Code    string `json:"code"`
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

type envelope struct {
	Error *Error `json:"error"`
}

// refusals says how the rooms' errors look to an operator, who may see everything.
var refusals = [...]struct {
	err     error
	status  int
	code    string
	message string
}{
	{account.ErrExists, http.StatusConflict, "account_exists", "An account of that name exists."},
	{account.ErrNotFound, http.StatusNotFound, "account_not_found", "There is no such account."},
	{account.ErrName, http.StatusBadRequest, "invalid_name", "An account's name has 1 to 100 printable characters and no space at its ends."},
	{account.ErrPlan, http.StatusBadRequest, "plan_not_found", "There is no such plan."},
	{account.ErrStatus, http.StatusBadRequest, "invalid_status", "An account's status is active or suspended."},
	{account.ErrUntil, http.StatusBadRequest, "invalid_until", "The subscription would end in the past."},
	{apikey.ErrNotFound, http.StatusNotFound, "key_not_found", "There is no such key."},
	{apikey.ErrName, http.StatusBadRequest, "invalid_name", "A key's name has 1 to 100 printable characters."},
	{apikey.ErrExpiry, http.StatusBadRequest, "invalid_expiry", "The key would expire in the past."},
	{ledger.ErrAmount, http.StatusBadRequest, "invalid_amount", "The amount must be above 0, and no balance can exceed 9.2e9 IU."},
	{ledger.ErrExpiry, http.StatusBadRequest, "invalid_expiry", "The credit would expire in the past."},
	{ledger.ErrUnavailable, http.StatusInternalServerError, "ledger_unavailable", "The books cannot be written now, so nothing was added."},
}

// refusal gives err its place in the table; what has none is 500 with its own text.
func refusal(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return &Error{Status: r.status, Code: r.code, Message: r.message}
		}
	}
	return &Error{Status: http.StatusInternalServerError, Code: "internal_error", Message: err.Error()}
}

func invalid(code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

func missing(code, format string, args ...any) *Error {
	return &Error{Status: http.StatusNotFound, Code: code, Message: fmt.Sprintf(format, args...)}
}
