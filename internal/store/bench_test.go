package store_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// BenchmarkCommit writes batches of charges of 1,000 accounts, which share no row, or of
// one, which share them all. Ns and the microseconds of CPU time are of one charge. With
// TMPDIR in memory, where a sync costs nothing, they are what goes before the sync.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{1, 16, 128} {
		for _, accounts := range []int{1, 1000} {
			b.Run(fmt.Sprintf("batch=%d/accounts=%d", size, accounts), func(b *testing.B) { charges(b, size, accounts) })
		}
	}
}

func charges(b *testing.B, size, accounts int) {
	b.Helper()
	db := open(b, b.TempDir())
	price := savePrice(b, db, model())
	ids := make([]string, accounts)
	for i := range ids {
		ids[i] = addAccount(b, db, fmt.Sprint("a", i))
		commit(b, db, grant(ids[i], money.MaxAmount, ""))
	}
	before := cpu(b)
	var ops []ledger.Op
	for n := 0; b.Loop(); n++ {
		r := receipt(ids[n%accounts], price, false)
		r.RequestID, r.CreatedAt = ident.RequestID(), time.Now()
		if ops = append(ops, ledger.Op{Close: &r}); len(ops) < size {
			continue
		}
		if _, err := db.Commit(context.Background(), ops); err != nil {
			b.Fatal(err)
		}
		ops = ops[:0]
	}
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1000/float64(b.N), "cpu-us/op")
}

// cpu is the CPU time of this process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
