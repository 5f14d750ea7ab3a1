package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// What stands in a filled database: three months of calls of many accounts, the largest of
// which makes a tenth of them and the second a hundredth.
const (
	filledDays     = 90
	filledAccounts = 1000
	filledKeys     = 3 // of each account
	batchCalls     = 5000
)

// filled is a database with calls.
type filled struct {
	db       *store.DB
	accounts []string
	models   []catalog.Model
	begin    time.Time
	rng      *rand.Rand
}

// openFilled opens the database of dir, filling it with calls where it is new. They are
// committed as the ledger commits them, in the order of time, so the books are balanced.
func openFilled(ctx context.Context, dir string, calls int, w io.Writer) (*filled, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	f := &filled{db: db, rng: rand.New(rand.NewPCG(1, 2)), begin: time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)}
	for i := range 4 {
		price := money.Price{Input: 10, CachedInput: 5, Output: money.Amount(20 * (i + 1))}
		f.models = append(f.models, catalog.Model{ID: fmt.Sprint("model-", i), Price: price, Plans: []string{"pro"}})
	}
	if err := db.SaveCatalog(ctx, f.models, nil); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if all, err := db.Accounts(ctx); err != nil || len(all) > 0 {
		for _, a := range all {
			f.accounts = append(f.accounts, a.ID)
		}
		return f, err
	}
	begin := time.Now()
	if err := f.fill(ctx, calls); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	fmt.Fprintf(w, "\nfilled with %d calls of %d accounts over %d days in %.0f s\n", calls, filledAccounts, filledDays, time.Since(begin).Seconds())
	return f, nil
}

func (f *filled) fill(ctx context.Context, calls int) error {
	var ops []ledger.Op
	for i := range filledAccounts {
		id := ident.New(ident.Account)
		a := account.Account{ID: id, Name: fmt.Sprintf("Account %04d", i), Plan: "pro", Status: account.Active, CreatedAt: f.begin}
		if err := f.db.CreateAccount(ctx, a); err != nil {
			return err
		}
		f.accounts = append(f.accounts, id)
		for month := range 3 {
			ops = append(ops, ledger.Op{Grant: &ledger.Grant{
				ID: ident.New(ident.Grant), AccountID: id, Kind: ledger.Prepaid, Priority: 50, Amount: 100_000 * money.IU,
				Note: "filled", CreatedAt: f.begin.AddDate(0, month, 0),
			}})
		}
	}
	if _, err := f.db.Commit(ctx, ops); err != nil {
		return err
	}
	receipts := make([]ledger.Receipt, batchCalls)
	step := filledDays * 24 * time.Hour / time.Duration(calls)
	for n := 0; n < calls; n += batchCalls {
		ops = ops[:0]
		for i := range min(batchCalls, calls-n) {
			f.call(&receipts[i], f.begin.Add(time.Duration(n+i)*step))
			ops = append(ops, ledger.Op{Close: &receipts[i]})
		}
		if _, err := f.db.Commit(ctx, ops); err != nil {
			return err
		}
	}
	return nil
}

// call makes a call at that time: one in a hundred fails, one in a thousand is dear.
func (f *filled) call(r *ledger.Receipt, at time.Time) {
	who := 2 + f.rng.IntN(filledAccounts-2)
	switch d := f.rng.IntN(100); {
	case d < 10:
		who = 0
	case d == 10:
		who = 1
	}
	m := &f.models[f.rng.IntN(1+who%len(f.models))]
	at = at.Truncate(time.Microsecond)
	id := fmt.Sprintf("%s7000%016x", ident.RequestIDsSince(at), f.rng.Uint64())
	*r = ledger.Receipt{
		RequestID: id, CompletionID: ident.CompletionOf(id), AccountID: f.accounts[who], KeyID: fmt.Sprintf("key_%04d_%d", who, f.rng.IntN(filledKeys)),
		Model: m.ID, PriceID: m.PriceID, PlanVersion: "plan", CreatedAt: at, PromptTokens: 10 + f.rng.IntN(2000), OutputLimit: 4096,
		CompletionTokens: 1 + f.rng.IntN(300), Status: 200, State: ledger.Settled, Ending: ledger.EndStop, UsageSource: ledger.UsageProvider,
		Target: "rack/" + m.ID, Attempts: 1, FirstToken: 300 * time.Millisecond, Total: 2 * time.Second,
	}
	switch f.rng.IntN(1000) {
	case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
		r.State, r.Ending, r.UsageSource, r.Status, r.ErrorCode = ledger.Voided, ledger.EndUpstreamError, ledger.UsageNone, 502, "upstream_error"
		r.PromptTokens, r.CompletionTokens = 0, 0
	case 10:
		r.CompletionTokens = 4000
	}
	r.Charge = money.Amount(r.PromptTokens)*m.Price.Input + money.Amount(r.CompletionTokens)*m.Price.Output
	r.Hold = max(r.Charge, 50_000)
}

// rows measures what pages read of a database with o.rows calls, which it fills where
// there is none. With -keep it stays there for the next run.
func rows(ctx context.Context, o *options, w io.Writer) error {
	dir := o.keep
	if dir == "" {
		dir = filepath.Join(o.dir, "rows")
	}
	f, err := openFilled(ctx, dir, o.rows, w)
	if err != nil {
		return err
	}
	defer f.db.Close()
	t := table{title: fmt.Sprintf("What pages read of %d calls over %d days: ms of %d loads, and of CPU a load.", o.rows, filledDays, loads)}
	t.add("page", "largest: p50", "p95", "CPU", "a hundredth: p50", "p95", "CPU", "others: p50", "p95", "CPU")
	for _, p := range f.pages() {
		row := []string{p.name}
		for _, pick := range []func(int) string{
			func(int) string { return f.accounts[0] },
			func(int) string { return f.accounts[1] },
			func(n int) string { return f.accounts[2+n*7%(len(f.accounts)-2)] },
		} {
			cells, err := f.loads(ctx, p, pick)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			row = append(row, cells...)
		}
		t.add(row...)
	}
	t.print(w)
	report, err := f.db.Verify(ctx)
	if err != nil {
		return err
	}
	for _, i := range report.Invariants {
		if !i.OK {
			return fmt.Errorf("%s: %s", i.Name, i.Detail)
		}
	}
	fmt.Fprintf(w, "\nbalanced, %d entries, proved in %.0f s\n", report.Entries, report.Took.Seconds())
	return nil
}

// loads is how often a page is read for one figure.
const loads = 200

// page is what one page of the console asks of the database. n differs from load to load.
type page struct {
	name string
	read func(ctx context.Context, accountID string, n int) error
}

func (f *filled) loads(ctx context.Context, p page, pick func(n int) string) ([]string, error) {
	took, cpu := make([]time.Duration, loads), ownCPU()
	for n := range took {
		begin := time.Now()
		if err := p.read(ctx, pick(n), n); err != nil {
			return nil, err
		}
		took[n] = time.Since(begin)
	}
	slices.Sort(took)
	return []string{millis(took[loads/2]), millis(took[loads*95/100]), millis((ownCPU() - cpu) / loads)}, nil
}

func (f *filled) pages() []page {
	end := f.begin.AddDate(0, 0, filledDays)
	month := end.AddDate(0, 0, -30)
	somewhen := func(n int) string { // the middle of the list, differently each time
		return strconv.FormatInt(f.begin.Add(time.Duration(n+1)*10*time.Hour).Unix()/3600, 10)
	}
	list := func(change func(*ledger.Filter, int)) func(context.Context, string, int) error {
		return func(ctx context.Context, id string, n int) error {
			filter := ledger.Filter{AccountID: id}
			change(&filter, n)
			_, err := f.db.ReceiptPage(ctx, filter)
			return err
		}
	}
	sum := func(by ledger.By, from time.Time) func(context.Context, string, int) error {
		return func(ctx context.Context, id string, _ int) error {
			_, err := f.db.UsageOf(ctx, ledger.UsageFilter{AccountID: id, From: from, To: end}, by)
			return err
		}
	}
	return []page{
		{"requests, newest", list(func(*ledger.Filter, int) {})},
		{"requests, somewhere in the middle", list(func(q *ledger.Filter, n int) { q.Before = somewhen(n) })},
		{"requests of a model", list(func(q *ledger.Filter, n int) { q.Model, q.Before = "model-0", somewhen(n) })},
		{"requests that failed (1 %)", list(func(q *ledger.Filter, n int) { q.Class, q.Before = ledger.Failed, somewhen(n) })},
		{"requests that failed, of a day", list(func(q *ledger.Filter, n int) {
			q.Class, q.From = ledger.Failed, f.begin.AddDate(0, 0, n%filledDays)
			q.To = q.From.AddDate(0, 0, 1)
		})},
		{"requests that cost much (0.1 %)", list(func(q *ledger.Filter, n int) { q.Least, q.Before = 60_000, somewhen(n) })},
		{"requests that cost more than any", list(func(q *ledger.Filter, _ int) { q.Least = money.IU })},
		{"usage of 30 days by model", sum(ledger.ByModel, month)},
		{"usage of 30 days by day", sum(ledger.ByDay, month)},
		{"usage of 90 days by key", sum(ledger.ByKey, f.begin)},
		{"pace of 7 days", func(ctx context.Context, id string, _ int) error {
			_, err := f.db.Pace(ctx, id, end)
			return err
		}},
		{"grants", func(ctx context.Context, id string, _ int) error {
			_, err := f.db.Grants(ctx, id)
			return err
		}},
	}
}
