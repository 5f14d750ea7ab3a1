package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
)

// settledAccounts is how many accounts share the calls: a batch updates each once.
const settledAccounts = 1000

// settles measures the ledger over the real store: hold, charge, fsync. The reference
// is a file to which 512 bytes are appended and synced, over and over.
func settles(ctx context.Context, o *options, w io.Writer) error {
	fsync, err := reference(ctx, o)
	if err != nil {
		return fmt.Errorf("fsync: %w", err)
	}
	t := table{title: "Charges on SQLite, synchronous=FULL. Ratio: to the fsyncs a second of one writer of a plain file."}
	t.add("what", "callers", "a second", "ratio", "p50 ms", "p99 ms", "CPU us", "ops a commit")
	t.add("append 512 bytes, fsync", "1", number(fsync.rate()), "1.00", millis(fsync.p50), millis(fsync.p99), micros(fsync.perCall()), "1.0")
	defer t.print(w)
	for _, stream := range []bool{false, true} {
		name := "whole: reserve, settle"
		if stream {
			name = "stream: hold, 64 pieces, settle"
		}
		for _, callers := range []int{1, 16, 256, 2048} {
			r, batch, err := settle(ctx, o, callers, stream)
			if err != nil {
				return fmt.Errorf("%s by %d: %w", name, callers, err)
			}
			t.add(name, strconv.Itoa(callers), number(r.rate()), ratio(r.rate(), fsync.rate()), millis(r.p50), millis(r.p99),
				micros(r.perCall()), fmt.Sprintf("%.1f", batch))
		}
	}
	return nil
}

// reference is what the disk gives one writer that syncs every record.
func reference(ctx context.Context, o *options) (result, error) {
	f, err := os.Create(filepath.Join(o.dir, "fsync"))
	if err != nil {
		return result{}, err
	}
	defer f.Close()
	record := make([]byte, 512)
	return load{callers: 1, window: o.window(), cpu: ownCPU}.do(ctx, func(int) error {
		_, err := f.Write(record)
		return errors.Join(err, f.Sync())
	})
}

// counted is a store that counts what it commits.
type counted struct {
	*store.DB
	commits, ops atomic.Int64
}

func (c *counted) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Result, error) {
	c.commits.Add(1)
	c.ops.Add(int64(len(ops)))
	return c.DB.Commit(ctx, ops)
}

// settle measures one number of callers on books of its own, and proves the books.
func settle(ctx context.Context, o *options, callers int, stream bool) (r result, batch float64, err error) {
	dir, err := os.MkdirTemp(o.dir, "settle-")
	if err != nil {
		return r, 0, err
	}
	db, err := store.Open(ctx, dir)
	if err != nil {
		return r, 0, err
	}
	defer db.Close()
	progress, err := store.OpenProgress(dir)
	if err != nil {
		return r, 0, err
	}
	defer progress.Close()
	models := []catalog.Model{{ID: "m", Price: money.Price{Input: 10, CachedInput: 5, Output: 20}, Plans: []string{"pro"}}}
	if err := db.SaveCatalog(ctx, models, nil); err != nil {
		return r, 0, err
	}
	call := ledger.Call{
		KeyID: ident.New(ident.Key), Model: "m", PriceID: models[0].PriceID, Price: models[0].Price, PlanVersion: "plan",
		Stream: stream, PromptTokens: 100, Output: 256, LeastOutput: 256,
	}
	accounts, err := fund(ctx, db)
	if err != nil {
		return r, 0, err
	}
	s := &counted{DB: db}
	l, _, err := ledger.Open(context.WithoutCancel(ctx), s, progress)
	if err != nil {
		return r, 0, err
	}
	var turn atomic.Uint64
	r, err = load{callers: callers, window: o.window(), cpu: ownCPU}.do(ctx, func(int) error {
		c := call
		c.RequestID, c.CreatedAt = ident.RequestID(), time.Now()
		c.CompletionID = ident.CompletionOf(c.RequestID)
		c.AccountID = accounts[turn.Add(1)%settledAccounts]
		return charge(l, c)
	})
	if err := errors.Join(err, l.Close()); err != nil {
		return r, 0, err
	}
	return r, float64(s.ops.Load()) / float64(s.commits.Load()), proven(ctx, db, r.calls+settledAccounts)
}

// fund makes the accounts and their credit.
func fund(ctx context.Context, db *store.DB) ([]string, error) {
	ids := make([]string, settledAccounts)
	ops := make([]ledger.Op, settledAccounts)
	for i := range ids {
		ids[i] = ident.New(ident.Account)
		a := account.Account{ID: ids[i], Name: ids[i], Plan: "pro", Status: account.Active, CreatedAt: time.Now()}
		if err := db.CreateAccount(ctx, a); err != nil {
			return nil, err
		}
		ops[i].Grant = &ledger.Grant{ID: ident.New(ident.Grant), AccountID: ids[i], Kind: ledger.Prepaid, Amount: 1_000_000 * money.IU, CreatedAt: time.Now()}
	}
	_, err := db.Commit(ctx, ops)
	return ids, err
}

// charge is one call as the line makes it, without the line.
func charge(l *ledger.Ledger, c ledger.Call) error {
	h, err := l.Reserve(c)
	if err != nil {
		return err
	}
	if c.Stream {
		if err := h.Persist(); err != nil {
			return err
		}
		if err := h.Durable(); err != nil {
			return err
		}
		for n := range 64 {
			h.Delivered(n + 1)
		}
	}
	_, err = h.Settle(ledger.Outcome{
		PromptTokens: c.PromptTokens, CompletionTokens: 64, Status: 200,
		Ending: ledger.EndStop, UsageSource: ledger.UsageProvider, Target: "stub/m", Attempts: 1,
	})
	return err
}

// proven fails when the books are not balanced or do not have so many entries.
func proven(ctx context.Context, db *store.DB, entries int) error {
	report, err := db.Verify(ctx)
	if err != nil {
		return err
	}
	for _, i := range report.Invariants {
		if !i.OK {
			err = errors.Join(err, fmt.Errorf("%s: %s", i.Name, i.Detail))
		}
	}
	if report.Entries != int64(entries) {
		err = errors.Join(err, fmt.Errorf("%d entries in the books, %d expected", report.Entries, entries))
	}
	return err
}
