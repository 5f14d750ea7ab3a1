package refusal_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/wire"
)

// keeper is a store that counts, and that can hang or fail.
type keeper struct {
	mu      sync.Mutex
	batches []int
	ids     map[string]bool
	pruned  []string
	before  time.Time
	fail    error
	hang    chan struct{}
}

func (k *keeper) AddRefusals(_ context.Context, rs []refusal.Record) error {
	if k.hang != nil {
		<-k.hang
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return k.fail
	}
	k.batches = append(k.batches, len(rs))
	for _, r := range rs {
		k.ids[r.RequestID] = true
	}
	return nil
}

func (k *keeper) PruneRefusals(_ context.Context, t time.Time, accounts []string, most, limit int) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if most != refusal.Most || limit <= 0 {
		return 0, fmt.Errorf("most %d, limit %d", most, limit)
	}
	k.pruned, k.before = append(k.pruned, accounts...), t
	return 0, nil
}

func record(n int, account string) refusal.Record {
	return refusal.Record{RequestID: fmt.Sprint("req_", n), AccountID: account}
}

// What is added is written within a second, in batches, and at the end at once; old ones
// are looked for each minute, of the accounts that had new ones.
func TestRecorder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{ids: map[string]bool{}}
		c := refusal.NewRecorder(k, func(err error) { t.Error(err) })
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { c.Run(ctx) })
		begin := time.Now()
		for n := range 300 {
			c.Add(record(n, "acct_a"))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if fmt.Sprint(k.batches) != "[128 128 44]" || len(k.ids) != 300 {
			t.Errorf("batches %v of %d refusals", k.batches, len(k.ids))
		}
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if fmt.Sprint(k.pruned) != "[acct_a]" || !k.before.Equal(begin.Add(time.Minute-refusal.Lifetime)) {
			t.Errorf("pruned %v before %v", k.pruned, k.before)
		}
		c.Add(record(300, "acct_b"))
		stop()
		wg.Wait()
		if len(k.ids) != 301 || c.Dropped() != 0 {
			t.Errorf("%d refusals after the end, %d dropped", len(k.ids), c.Dropped())
		}
	})
}

// A flood is dropped and counted and keeps nobody waiting; those of nobody known leave half
// of the room to others.
func TestRecorder_Flood(t *testing.T) {
	t.Parallel()
	k := &keeper{ids: map[string]bool{}, hang: make(chan struct{})}
	c := refusal.NewRecorder(k, func(err error) { t.Error(err) })
	for n := range 3000 {
		c.Add(record(n, ""))
	}
	nobody := 3000 - c.Dropped()
	for n := range 3000 {
		c.Add(record(10_000+n, "acct_a"))
	}
	known := 6000 - c.Dropped() - nobody
	if nobody < 500 || nobody > 520 || known < 500 || known+nobody != 1024 {
		t.Errorf("%d of nobody and %d of an account were taken", nobody, known)
	}
	close(k.hang)
	c.Flush(t.Context())
	if len(k.ids) != 1024 {
		t.Errorf("%d were written", len(k.ids))
	}
	// What cannot be written counts as dropped too.
	before := c.Dropped()
	var told error
	k.fail = errors.New("disk full")
	c = refusal.NewRecorder(k, func(err error) { told = err })
	c.Add(record(1, "acct_a"))
	c.Flush(t.Context())
	if c.Dropped() != 1 || !errors.Is(told, k.fail) {
		t.Errorf("%d dropped after %d, told %v", c.Dropped(), before, told)
	}
}

// Nothing that is added takes memory: the room is there from the start.
func TestRecorder_Allocations(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	c := refusal.NewRecorder(&keeper{}, nil)
	r := record(1, "acct_a")
	if n := testing.AllocsPerRun(500, func() { c.Add(r) }); n != 0 {
		t.Errorf("Add allocates %v times", n)
	}
}

// Amounts of money are shown as IU, everything else as counts.
func TestRecord_Reason(t *testing.T) {
	t.Parallel()
	r := refusal.Record{Rule: wire.RuleHeld, Status: 402, Code: "insufficient_quota", Asked: 2_000_000_000, Limit: 500_000_000, Held: 1_600_000_000}
	if got, want := r.Reason(wire.Refused{}).Why, "This call needs up to 2 IU. 0.5 IU were free, and running calls held 1.6 IU."; got != want {
		t.Errorf("credit: %q, want %q", got, want)
	}
	r = refusal.Record{Rule: wire.RuleConcurrency, Limit: 4, Used: 4, Asked: 1}
	if got, want := r.Reason(wire.Refused{Owner: "the account"}).Heading, "Refused: 4 calls at once of the account"; got != want {
		t.Errorf("concurrency: %q, want %q", got, want)
	}
}
