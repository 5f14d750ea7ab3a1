// Package money imports a room above it.
package money

import "github.com/parley-ai/parley/internal/ledger"

func init() {
	_ = ledger.Zero
}

// TODO: nobody owns this one.

// TODO(ann): one too many.
var _ = 1
