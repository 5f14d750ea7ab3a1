package app

import (
	"context"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/store/storetest"
)

// The job runs once a day and when it is asked for, and not after the end.
func TestEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		begin, times, asked := time.Now(), []time.Duration{}, make(chan struct{})
		go every(ctx, proofPause, asked, func() { times = append(times, time.Since(begin)) })
		time.Sleep(2*proofPause + time.Minute)
		asked <- struct{}{}
		time.Sleep(proofPause + time.Second)
		stop()
		synctest.Wait()
		if !slices.Equal(times, []time.Duration{proofPause, 2 * proofPause, 2*proofPause + time.Minute, 3*proofPause + time.Minute}) {
			t.Errorf("it ran at %v", times)
		}
	})
}

// A proof that fails is told to everybody: the log with what to do, the metrics, the
// doctor and webhooks. One that holds again is, too.
func TestProveOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	o, out, errs := options(t, dir, &provider{})
	o.Config.Metrics.Listen, o.Config.Source = "127.0.0.1:0", "test.yaml"
	o.Config.Webhooks = []config.Webhook{{URL: "http://127.0.0.1:9/", Secret: "0123456789abcdef"}}
	r := start(t, o, out, errs)
	r.awaitMetric(t, "parley_ledger_proof_timestamp_seconds 1") // of new books: no alert about an old proof
	change := func(statement string) {
		t.Helper()
		db := storetest.Plain(t, filepath.Join(dir, store.FileName))
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	const plenty = 100 << 30
	for _, c := range []struct {
		change, metric string
		standing       Standing
		says           string
		told           int
	}{
		{`SELECT 1`, "parley_ledger_proof_ok 1", Fine, "", 0},
		{`UPDATE account SET granted = granted + 5`, "parley_ledger_proof_ok 0", Wrong, "run parley ledger verify", 1},
		{`UPDATE account SET granted = granted - 5`, "parley_ledger_proof_ok 1", Fine, "", 1},
	} {
		change(c.change)
		r.proofs.ProveNow()
		r.proofs.ProveNow() // one is under way
		r.awaitProof(t)
		if p := r.proofs.Proof(); p.At.IsZero() || p.Failed != "" || p.Report.OK() != (c.standing == Fine) {
			t.Errorf("%s: the console is told %+v", c.change, p)
		}
		r.awaitMetric(t, c.metric)
		if got, all := standings(t, dir, plenty, time.Now()); got["proof"] != c.standing || got["books"] != c.standing {
			t.Errorf("%s: the doctor says %+v, want the proof %s", c.change, all, c.standing)
		}
		if !strings.Contains(errs.String(), c.says) {
			t.Errorf("%s: the log lacks %q:\n%s", c.change, c.says, errs)
		}
		list, err := r.rooms.db.Deliveries(t.Context(), 10)
		if err != nil || len(list) != c.told || len(list) > 0 && !strings.Contains(string(list[0].Body), `"law":"granted is the sum of the grants"`) {
			t.Errorf("%s: deliveries %+v, %v, want %d", c.change, list, err, c.told)
		}
	}
	if text := r.metrics(t); !strings.Contains(text, "parley_ledger_proof_timestamp_seconds 1") {
		t.Errorf("the metrics do not say when:\n%s", text)
	}
}

// Books that take long to prove keep nobody waiting: neither a start, which has them
// proved beside the calls, nor a stop.
func TestProve_LargeBooks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	if err := serve(t, dir, &provider{}).finish(t); err != nil {
		t.Fatal(err)
	}
	o, out, errs := options(t, dir, &provider{})
	o.patience = 1 // ns
	r := start(t, o, out, errs)
	errs.await(t, "books    large; not proved yet; they are proved again beside the calls")
	for deadline := time.Now().Add(3 * time.Minute); ; runtime.Gosched() {
		p, err := r.rooms.db.LastProof(t.Context())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no proof: %v", err)
		}
		if p.Law != "" {
			t.Errorf("%s: %s", p.Law, p.Detail)
		}
		if !p.At.IsZero() {
			break
		}
	}
	if err := r.finish(t); err != nil {
		t.Error(err)
	}
	errs.await(t, "Stopped. 0 calls settled; the books were balanced at ")
}

// Of books that were too large the last time nobody waits to see that they still are.
func TestProve_HugeBooks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	if err := serve(t, dir, &provider{}).finish(t); err != nil {
		t.Fatal(err)
	}
	db := storetest.Plain(t, filepath.Join(dir, store.FileName))
	if _, err := db.ExecContext(t.Context(), `INSERT INTO proof (one, at, took_us, entries, law, detail) VALUES (1, 1, 1, 5000001, '', '')`); err != nil {
		t.Fatal(err)
	}
	o, out, errs := options(t, dir, &provider{})
	o.patience = time.Hour
	r := start(t, o, out, errs)
	errs.await(t, "books    large; balanced at 1970-01-01 00:00 UTC; they are proved again beside the calls")
	if err := r.finish(t); err != nil {
		t.Error(err)
	}
}

// awaitProof waits until no proof is under way.
func (r *running) awaitProof(t *testing.T) {
	t.Helper()
	late := time.After(3 * time.Minute)
	for !r.proofs.Proof().Since.IsZero() {
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatal("the proof does not end")
		}
	}
}

// A stop that has no time for a proof does not forget what the last one has found.
func TestProve_LargeBrokenBooks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	o, out, errs := options(t, dir, &provider{})
	o.patience = 1 // ns
	r := start(t, o, out, errs)
	db := storetest.Plain(t, filepath.Join(dir, store.FileName))
	if _, err := db.ExecContext(t.Context(), `UPDATE account SET granted = granted + 5`); err != nil {
		t.Fatal(err)
	}
	r.proveOnce(t.Context())
	if err := r.finish(t); err == nil || !strings.Contains(err.Error(), "not balanced") {
		t.Errorf("Run: %v, want that the books are not balanced", err)
	}
}
