package admin

import (
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/explain"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/payment"
	"github.com/parley-ai/parley/internal/subscription"
	"github.com/parley-ai/parley/internal/webhook"
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
	{account.ErrSuspended, http.StatusConflict, "account_suspended", "The account is suspended.\nResume it first: parley account set NAME --status active"},
	{member.ErrEmail, http.StatusBadRequest, "invalid_email", "An email address has a name, an @ and a domain, 254 characters at most."},
	{member.ErrLinkUnknown, http.StatusNotFound, "invitation_not_found", "There is no such invitation, or it was used."},
	{member.ErrRole, http.StatusBadRequest, "invalid_role", "A role is owner or member."},
	{account.ErrFrozen, http.StatusConflict, "plans_unknown", "The books are of another configuration than the built-in one, so it is not known here what plans include.\nName the file with --config, or start the server."},
	{account.ErrWhen, http.StatusBadRequest, "invalid_when", "A plan changes now or at period_end."},
	{subscription.ErrUntil, http.StatusBadRequest, "invalid_until", "The subscription would end in the past, or after the year 9999."},
	{subscription.ErrFixed, http.StatusConflict, "subscription_ends", "A subscription with a fixed end is not renewed by hand.\nMove its end: parley subscription set NAME --plan PLAN --until TIME"},
	{subscription.ErrNone, http.StatusConflict, "subscription_not_active", "No subscription runs.\nBegin one: parley subscription set"},
	{subscription.ErrRenews, http.StatusConflict, "subscription_renews", "The subscription renews itself."},
	{subscription.ErrDiffers, http.StatusConflict, "period_differs", "The periods of the two plans are not of one length, so the plan changes with the next period.\nSay so: --at period-end"},
	{subscription.ErrChanged, http.StatusConflict, "subscription_changed", "The subscription was changed by somebody else meanwhile. Try again."},
	{ledger.ErrCode, http.StatusNotFound, "code_not_found", "There is no such code."},
	{ledger.ErrCodeRedeemed, http.StatusConflict, "code_redeemed", "The code was redeemed already."},
	{ledger.ErrCodeRevoked, http.StatusConflict, "code_revoked", "The code is revoked."},
	{ledger.ErrCodeExpired, http.StatusConflict, "code_expired", "The code has expired."},
	{account.ErrScope, http.StatusBadRequest, "invalid_scope", "The scopes of a key are one or more of " + account.Scopes(math.MaxUint8).String() + "."},
	{account.ErrBudget, http.StatusBadRequest, "invalid_budget", "A budget is an amount of IU above 0 with at most 9 decimals, or one with /month, as 25 or 25/month."},
	{apikey.ErrNetwork, http.StatusBadRequest, "invalid_network", "A key's list has at most 100 networks, as 10.0.0.0/8, 2001:db8::/32 or 203.0.113.7; behind the length of a network all bits are 0."},
	{apikey.ErrNotFound, http.StatusNotFound, "key_not_found", "There is no such key."},
	{apikey.ErrToken, http.StatusNotFound, "token_not_found", "There is no such operator token."},
	{apikey.ErrName, http.StatusBadRequest, "invalid_name", "A key's name has 1 to 100 printable characters."},
	{apikey.ErrExpiry, http.StatusBadRequest, "invalid_expiry", "The key would expire in the past, or after the year 9999."},
	{apikey.ErrOverlap, http.StatusBadRequest, "invalid_overlap", "The overlap of two keys lies between 0s and 2160h."},
	{apikey.ErrRevoked, http.StatusConflict, "key_revoked", "The key is revoked.\nMake a new one: parley key create"},
	{apikey.ErrExpired, http.StatusConflict, "key_expired", "The key has expired.\nMake a new one: parley key create"},
	{payment.ErrPrice, http.StatusBadRequest, "price_not_found", "The configuration's payment has no such price."},
	{webhook.ErrNotFound, http.StatusNotFound, "delivery_not_found", "There is no such delivery; see parley webhook ls."},
	{webhook.ErrEndpoint, http.StatusConflict, "endpoint_gone", "No webhook of the configuration has the delivery's address any more, so nobody would send it.\nStart the server with that webhook and try again."},
	{explain.ErrNotFound, http.StatusNotFound, "request_not_found", "Nothing is known of that request.\nIt was never made here, or it was refused more than 7 days ago, or so many were refused at once that it was not noted."},
	{ledger.ErrAmount, http.StatusBadRequest, "invalid_amount", "The amount must be above 0, and no balance can exceed 9.2e9 IU."},
	{ledger.ErrExpiry, http.StatusBadRequest, "invalid_expiry", "The credit would expire in the past, or after the year 9999."},
	{ledger.ErrUnavailable, http.StatusInternalServerError, "ledger_unavailable", "The books cannot be written now, so nothing was added."},
}

// refused gives err its place in the table; what has none is 500 with its own text.
func refused(err error) *Error {
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
