package console

import (
	"context"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/telemetry"
)

// Operator is the rooms behind the operator's area. All fields are required.
type Operator struct {
	Accounts operatedAccounts
	Ledger   operatedBooks
	Store    operatedStore
	Prover   prover
	Catalog  offer
	Tokens   operatorTokens
	Settings []Setting
	// Health is how upstreams stand.
	Health func() Health
	// Hour is what calls of the last hour add up to.
	Hour hour
	// System is how the server stands.
	System func() System
}

// hour is what the operator's pages ask of telemetry.Hour.
type hour interface {
	Since(now time.Time, minutes int) telemetry.Traffic
}

// operatedAccounts is what the operator's pages ask of account.Directory.
type operatedAccounts interface {
	Create(ctx context.Context, name, plan string) (*account.Account, error)
	Change(ctx context.Context, id string, c account.Change) (*account.Account, error)
	Plans() []account.Plan
}

// operatedBooks is what they ask of ledger.Ledger.
type operatedBooks interface {
	Grant(ctx context.Context, g ledger.Grant) (ledger.Granted, error)
	Adjust(ctx context.Context, accountID string, amount money.Amount, reason string) error
}

// operatedStore is what they read from store.DB.
type operatedStore interface {
	Grants(ctx context.Context, accountID string) ([]ledger.GrantBalance, error)
	AuditPage(ctx context.Context, f audit.Filter) ([]audit.Entry, error)
	Emails(ctx context.Context, memberIDs []string) (map[string]string, error)
	Traffic(ctx context.Context, since time.Time) (ledger.Traffic, error)
	LastReceipts(ctx context.Context, most int) ([]ledger.Receipt, error)
	LastRefusals(ctx context.Context, most int) ([]refusal.Record, error)
}
