// Package admin is the operator's door: a JSON API on a Unix socket in the data
// directory, and the client with which the command line speaks to it.
//
// There is no token: whoever may open the socket owns the data directory. The API
// gives the same answers in a process that has opened the directory without serving
// it, through [Direct]. The shapes of its answers are a contract with scripts.
package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/explain"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
)

// accounts is what admin asks of account.Directory.
type accounts interface {
	All() []*account.Account
	ByName(name string) (*account.Account, bool)
	ByID(id string) (*account.Account, bool)
	Create(ctx context.Context, name, plan string) (*account.Account, error)
	Change(ctx context.Context, id string, c account.Change) (*account.Account, error)
	Plans() []account.Plan
	Plan(id string) (*account.Plan, bool)
}

// keys is what admin asks of apikey.Keyring.
type keys interface {
	Create(ctx context.Context, n apikey.NewKey) (apikey.Key, apikey.Secret, error)
	Change(ctx context.Context, id string, c apikey.Change) (apikey.Key, error)
	Revoke(ctx context.Context, id string) (apikey.Key, error)
	Rotate(ctx context.Context, id string, overlap time.Duration) (fresh apikey.Key, secret apikey.Secret, old apikey.Key, err error)
	Find(id string) (apikey.Key, bool)
	List(accountID string) []apikey.Key
}

// books is what admin asks of ledger.Ledger.
type books interface {
	Grant(ctx context.Context, g ledger.Grant) (ledger.Granted, error)
	Adjust(ctx context.Context, accountID string, amount money.Amount, reason string) error
	Refund(ctx context.Context, requestID string, amount money.Amount, reason string) (ledger.Charged, error)
	Redeem(ctx context.Context, accountID, text string) (ledger.Code, error)
	Balance(accountID string) ledger.Balance
	Running(accountID string) []ledger.Receipt
	Spending(accountID string, b ledger.Budget) ledger.Spending
}

// archive is what admin asks of store.DB.
type archive interface {
	Receipts(ctx context.Context, accountID string, limit int) ([]ledger.Receipt, error)
	Verify(ctx context.Context) (ledger.Report, error)
	Usage(ctx context.Context, accountID string, from, to time.Time, by ledger.By) ([]ledger.Usage, error)
	Statement(ctx context.Context, accountID string, from, to time.Time) (ledger.Statement, error)
	AuditLog(ctx context.Context, target string, limit int) ([]audit.Entry, error)
	Grants(ctx context.Context, accountID string) ([]ledger.GrantBalance, error)
	Pace(ctx context.Context, accountID string, now time.Time) (ledger.Pace, error)
	Backup(ctx context.Context, to string) (ledger.Report, error)
	outbox
	Refusals(ctx context.Context, f refusal.Filter) ([]refusal.Record, error)
	Periods(ctx context.Context, subscriptionID string) ([]ledger.Period, error)
	codes
	invitations
}

// offer is what admin asks of catalog.Catalog.
type offer interface {
	List(now time.Time) []*catalog.Model
}

// gate is what admin asks of member.Gate.
type gate interface {
	MakeOperatorLink(ctx context.Context, accountID string) (member.Token, member.Link, error)
	Invite(ctx context.Context, accountID, email string, role member.Role) (member.Token, member.Link, error)
}

// Config is the rooms behind the door. Every field but Status, Engines and Payments is required.
type Config struct {
	Accounts      accounts
	Subscriptions subscriptions
	Keys          keys
	Ledger        books
	Store         archive
	Catalog       offer
	Gate          gate
	// Status describes the process. Its Serving tells whether customers are served.
	Status func() Status
	// Payments makes pages to pay on; nil where the configuration has none.
	Payments checkout
	// Explain tells what became of a request.
	Explain *explain.Room
	// Tokens are those of operators.
	Tokens tokens
	// Engines are those of the process, in any order.
	Engines func() []Engine
	// LowCredit is the balance below which the credit of an account without a threshold of
	// its own is low.
	LowCredit money.Amount
}

// actorHeader names who makes a change. Whoever may open the socket may say it: it is
// for the record, not a permission.
const actorHeader = "Parley-Actor"

// prefix is where the API begins.
const prefix = "/admin/v1"

type service struct {
	Config
}

// New returns the API. It is safe for concurrent use.
func New(c Config) http.Handler {
	if c.Status == nil {
		c.Status = func() Status { return Status{} }
	}
	if c.Engines == nil {
		c.Engines = func() []Engine { return nil }
	}
	s := &service{c}
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.Handle(r.pattern, answer(r.handle))
	}
	mux.Handle("/", answer(func(r *http.Request) (any, error) {
		return nil, &Error{Status: http.StatusNotFound, Code: "unknown_url", Message: "There is no " + r.Method + " " + r.URL.Path + "."}
	}))
	return mux
}

// answer writes what handle returns, or its error by the table of refusals.
func answer(handle func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		value, err := handle(r.WithContext(audit.WithActor(r.Context(), r.Header.Get(actorHeader))))
		if err != nil {
			e := refused(err)
			status, value = e.Status, envelope{Error: e}
		}
		body, err := encode(value)
		if err != nil { // what cannot be written as JSON must not look like an answer
			e := refused(err)
			status = e.Status
			body, _ = encode(envelope{Error: e})
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(body) // The operator's client is gone if this fails; there is nobody to tell.
	})
}

func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return b.Bytes(), err
}

// decode reads the request's body into v, strictly: a misspelt field is an error.
func decode(r *http.Request, v any) error {
	const most = 1 << 20 // No body of this API comes near it.
	dec := json.NewDecoder(io.LimitReader(r.Body, most))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return &Error{Status: http.StatusBadRequest, Code: "invalid_request", Message: "The body is not the JSON that was expected: " + err.Error() + "."}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &Error{Status: http.StatusBadRequest, Code: "invalid_request", Message: "The body goes on after its JSON."}
	}
	return nil
}
