package wire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	typeInvalidRequest = "invalid_request_error"
	typeAuthentication = "authentication_error"
	typePermission     = "permission_error"
	typeQuota          = "insufficient_quota"
	typeServer         = "server_error"
)

// Error is a refusal or failure as a client meets it. Its text is made for
// strangers: no upstream's words, addresses or keys are in it. Outside 429 no
// message speaks of rate limits, because clients classify by such words
// before they look at the status.
type Error struct {
	Status  int
	Type    string
	Code    string
	Param   *string // nil is null
	Message string
	// Header is to be set on the answer, where there is still one to set it on.
	Header []Header
}

// Header is one field of an answer.
type Header struct{ Name, Value string }

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// AppendJSON appends the envelope {"error":{...}} without a newline. It is
// the body of an answer and, unchanged, the payload of the error event of a
// stream: one client recognises that event only by error being the first key,
// without a space.
func (e *Error) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = appendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	if e.Param == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, *e.Param)
	}
	dst = append(dst, `,"code":`...)
	dst = appendString(dst, e.Code)
	return append(dst, "}}"...)
}

func refusal(status int, kind, code, message string, header ...Header) *Error {
	return &Error{Status: status, Type: kind, Code: code, Message: message, Header: header}
}

// retryAfter tells clients when to come back: whole seconds, 1..60, because
// some retry only then, and the exact milliseconds.
func retryAfter(d time.Duration) []Header {
	d = max(time.Millisecond, min(d, time.Minute))
	seconds := int(math.Ceil(d.Seconds()))
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return []Header{
		{"Retry-After", strconv.Itoa(seconds)},
		{"retry-after-ms", strconv.Itoa(int(ms))},
	}
}

func unauthorized(code, message string) *Error {
	return refusal(401, typeAuthentication, code, message, Header{"WWW-Authenticate", "Bearer"})
}

// MissingKey is the 401 for no key at all, or another scheme than Bearer.
func MissingKey() *Error {
	return unauthorized("missing_api_key", "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).")
}

// MalformedKey is the 401 for a value that no key can have.
func MalformedKey() *Error {
	return unauthorized("invalid_api_key", "Malformed API key: it is sent once, as one word, and must not contain spaces or line breaks.")
}

// IncorrectKey is the 401 for an unknown key. Of the key only the first five
// and the last four characters are shown, and nothing of a short one.
func IncorrectKey(key string) *Error {
	masked := "***"
	if len(key) >= 20 {
		masked = clip(key[:5]) + "***" + clip(key[len(key)-4:])
	}
	return unauthorized("invalid_api_key", "Incorrect API key provided: "+masked+".")
}

// KeyRevoked is the 401 for a revoked or disabled key.
func KeyRevoked() *Error {
	return unauthorized("api_key_revoked", "This API key has been revoked or disabled.")
}

// KeyExpired is the 401 for a key past its date.
func KeyExpired() *Error {
	return unauthorized("api_key_expired", "This API key has expired.")
}

// AccountSuspended is the 401 for every key of a suspended account.
func AccountSuspended() *Error {
	return unauthorized("account_suspended", "This account is suspended. Contact the operator of this service.")
}

// NoCredit is the 402 for an exhausted balance.
func NoCredit() *Error {
	return refusal(402, typeQuota, "insufficient_quota", "Insufficient credits: your balance is exhausted. Add credits to continue.")
}

// Shortfall is what a call would have taken and what there is, as decimal
// amounts in IU. Fits is the largest max_tokens the rest covers, 0 for none.
type Shortfall struct {
	Need, Left, Held string
	Fits             int
}

func (s Shortfall) sentences(whose string) string {
	fits := "No max_tokens is small enough to fit."
	if s.Fits > 0 {
		fits = fmt.Sprintf("The largest max_tokens that fits is %d.", s.Fits)
	}
	return fmt.Sprintf("this call needs up to %s IU, but %s has %s IU left (%s IU is held by running calls). %s", s.Need, whose, s.Left, s.Held, fits)
}

// NotEnoughCredit is the 402 for a call that needs more than is left.
func NotEnoughCredit(s Shortfall) *Error {
	return refusal(402, typeQuota, "insufficient_quota", "Insufficient credits: "+s.sentences("your balance"))
}

// KeyBudgetExceeded is the 402 for a call that needs more than is left of the
// budget of its key.
func KeyBudgetExceeded(s Shortfall) *Error {
	return refusal(402, typeQuota, "key_budget_exceeded", "Key budget exceeded: "+s.sentences("the budget of this API key"))
}

// SubscriptionInactive is the 402 for an account whose subscription has ended
// and that has no credit to fall back on.
func SubscriptionInactive() *Error {
	return refusal(402, typeQuota, "billing_not_active", "Your subscription is not active. Renew it or add credits to continue.")
}

// PlanLacksModel is the 403 for a model outside the plan of the account.
func PlanLacksModel(model string) *Error {
	return refusal(403, typePermission, "model_access_denied", "Your plan does not have access to model '"+clip(model)+"'. Upgrade your plan.")
}

// KeyLacksModel is the 403 for a model outside the list of the key.
func KeyLacksModel(model string) *Error {
	return refusal(403, typePermission, "model_access_denied", "This API key does not have access to model '"+clip(model)+"'. Use another key or change the models of this one.")
}

// AddressNotAllowed is the 403 for a caller outside the addresses of the key.
func AddressNotAllowed() *Error {
	return refusal(403, typePermission, "address_not_allowed", "This API key may not be used from your network address.")
}

// ScopeMissing is the 403 for a key without the right that a call needs.
func ScopeMissing(scope string) *Error {
	return refusal(403, typePermission, "scope_missing", "This API key does not have the scope '"+clip(scope)+"' that this request needs.")
}

// ModelNotFound is the 404 for a model that is unknown, deprecated or hidden.
func ModelNotFound(model string) *Error {
	e := refusal(404, typeInvalidRequest, "model_not_found", "The model '"+clip(model)+"' does not exist or you do not have access to it.")
	e.Param = new("model")
	return e
}

// UnknownURL is the 404 for a path nobody serves, with a hint for the paths
// that clients of other interfaces ask for.
func UnknownURL(method, path string) *Error {
	message := "Unknown request URL: " + clip(method) + " " + clip(path) + ". Please check the URL for typos."
	path = strings.TrimRight(path, "/")
	switch path[strings.LastIndexByte(path, '/')+1:] {
	case "v1", "chat", "completions", "responses", "embeddings", "messages":
		message += " Use /v1/chat/completions."
	case "models":
		message += " Use /v1/models."
	}
	return refusal(404, typeInvalidRequest, "unknown_url", message)
}

// MethodNotAllowed is the 405 for a path that takes only the methods in allow,
// written as for the header Allow.
func MethodNotAllowed(method, path, allow string) *Error {
	return refusal(405, typeInvalidRequest, "method_not_allowed",
		"Not allowed to "+clip(method)+" on "+clip(path)+". Use "+allow+".", Header{"Allow", allow})
}

// BodyTooLarge is the 413 for a body over limit bytes. The rest of the body is
// unread, so the connection cannot be kept.
func BodyTooLarge(limit int64) *Error {
	return refusal(413, typeInvalidRequest, "request_too_large",
		fmt.Sprintf("Request body too large: the limit is %d bytes.", limit), Header{"Connection", "close"})
}

// UnsupportedContentType is the 415 for a body that does not claim to be JSON.
func UnsupportedContentType(contentType string) *Error {
	return refusal(415, typeInvalidRequest, "unsupported_media_type", "Unsupported content type '"+clip(contentType)+"'. Use application/json.")
}

// UnsupportedContentEncoding is the 415 for a compressed body.
func UnsupportedContentEncoding(encoding string) *Error {
	return refusal(415, typeInvalidRequest, "unsupported_media_type",
		"Unsupported content encoding '"+clip(encoding)+"'. Send the body uncompressed.", Header{"Accept-Encoding", "identity"})
}

// RequestsPerMinute is the 429 for too many requests: used of limit stand in
// the window, and a place is free after wait.
func RequestsPerMinute(model string, limit, used int, wait time.Duration) *Error {
	return limited("requests", fmt.Sprintf("Rate limit reached for %s on requests per min (RPM): Limit %d, Used %d, Requested 1.", clip(model), limit, used), wait)
}

// TokensPerMinute is the 429 for too many tokens.
func TokensPerMinute(model string, limit, used, requested int, wait time.Duration) *Error {
	return limited("tokens", fmt.Sprintf("Rate limit reached for %s on tokens per min (TPM): Limit %d, Used %d, Requested %d.", clip(model), limit, used, requested), wait)
}

// TooManyRunning is the 429 for a call over the concurrency cap.
func TooManyRunning(model string, limit int) *Error {
	return limited("requests", fmt.Sprintf("Rate limit reached for %s on concurrent requests: Limit %d, Running %d.", clip(model), limit, limit), time.Second)
}

// TooLargeForLimit is the 429 for one call above the tokens of a whole minute.
// No waiting helps, so it tells clients not to try again.
func TooLargeForLimit(model string, limit, requested int) *Error {
	return refusal(429, "tokens", "rate_limit_exceeded",
		fmt.Sprintf("Request too large for %s on tokens per min (TPM): Limit %d, Requested %d. The input or output tokens must be reduced in order to run successfully.", clip(model), limit, requested),
		Header{"x-should-retry", "false"})
}

func limited(kind, message string, wait time.Duration) *Error {
	wait = max(time.Millisecond, wait.Round(time.Millisecond))
	return refusal(429, kind, "rate_limit_exceeded", message+" Please try again in "+wait.String()+".", retryAfter(wait)...)
}

// Internal is the 500 for everything that should not happen.
func Internal() *Error {
	return refusal(500, typeServer, "internal_error", "The server had an error while processing your request. Sorry about that!")
}

// LedgerUnavailable is the 500 for a charge that cannot be made durable.
func LedgerUnavailable() *Error {
	return refusal(500, typeServer, "ledger_unavailable", "The server cannot record usage at the moment, so the request was not run or not finished. Please try again later.", retryAfter(5*time.Second)...)
}

// UpstreamFailed is the 502 for a provider that answered with an error, with
// nothing of use, or not at all.
func UpstreamFailed() *Error {
	return refusal(502, typeServer, "upstream_error", "The upstream provider returned an error.")
}

// UpstreamRefused is the 502 for a provider that does not take this one request, where
// nothing tells whether the caller or the configuration is at fault.
func UpstreamRefused() *Error {
	return refusal(502, typeServer, "upstream_error", "The upstream provider refused this request and does not say which part of it. It will refuse it again: try it without optional fields.")
}

// UpstreamCut is the error event for a provider that failed after the first
// byte was sent.
func UpstreamCut() *Error {
	return refusal(502, typeServer, "upstream_error", "The upstream provider failed while generating.")
}

// UpstreamTimeout is the 502 for a provider that took too long.
func UpstreamTimeout() *Error {
	return refusal(502, typeServer, "upstream_timeout", "The upstream provider timed out.")
}

// UpstreamOverloaded is the 502 for a provider that still turned us away after
// our own retries.
func UpstreamOverloaded() *Error {
	return refusal(502, typeServer, "upstream_overloaded", "The upstream provider is overloaded. Please try again later.")
}

// Overloaded is the 503 of a server that is full or shutting down.
func Overloaded(wait time.Duration) *Error {
	wait = max(time.Second, min(wait, 5*time.Second))
	return refusal(503, typeServer, "server_is_overloaded", "The server is currently overloaded, please try again later.", retryAfter(wait)...)
}
