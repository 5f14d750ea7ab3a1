// Package store is as it should be.
package store

import (
	"database/sql"

	"github.com/parley-ai/parley/internal/ledger"
)

var (
	_ = ledger.Zero
	_ sql.DB
)
