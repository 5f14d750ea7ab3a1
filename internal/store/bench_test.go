package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// BenchmarkCommit writes batches of 128 charges of 1,000 accounts, which share no row,
// or of one, which share them all. Ns are of one charge.
func BenchmarkCommit(b *testing.B) {
	for _, accounts := range []int{1, 1000} {
		b.Run(fmt.Sprint("accounts=", accounts), func(b *testing.B) {
			db := open(b, b.TempDir())
			price := savePrice(b, db, model())
			ids := make([]string, accounts)
			for i := range ids {
				ids[i] = addAccount(b, db, fmt.Sprint("a", i))
				commit(b, db, grant(ids[i], money.MaxAmount, ""))
			}
			var ops []ledger.Op
			for n := 0; b.Loop(); n++ {
				r := receipt(ids[n%accounts], price, false)
				r.RequestID, r.CreatedAt = ident.RequestID(), time.Now()
				if ops = append(ops, ledger.Op{Close: &r}); len(ops) < 128 {
					continue
				}
				if _, err := db.Commit(context.Background(), ops); err != nil {
					b.Fatal(err)
				}
				ops = ops[:0]
			}
		})
	}
}
