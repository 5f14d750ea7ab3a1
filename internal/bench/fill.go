package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/wire"
)

// What stands in a filled database: three months of calls of many accounts, by the law of
// Zipf, with which the largest of them makes one call in six.
const (
	filledDays     = 90
	filledAccounts = 5000
	filledModels   = 4
	mostKeys       = 50  // of the largest account; one of rank n has 50/n of them, and no fewer than 2
	mostPeople     = 100 // likewise, and no fewer than 1
	mostGrants     = 300 // likewise, and no fewer than 3
	filledChanges  = 20_000
	filledRefusals = 60_000 // of the last week; at most [refusal.Most] of one account are kept
	smallRank      = 2000   // of the account that stands for small ones
	batchCalls     = 20_000
)

// filled is a database with calls.
type filled struct {
	db       *store.DB
	gate     *member.Gate
	accounts []account.Account // the largest first
	keys     [][]apikey.Key    // of each
	models   []catalog.Model
	plans    []account.Plan
	begin    time.Time
	rng      *rand.Rand
}

// openFilled opens the database of dir, filling it with calls where it is new. They are
// committed as the ledger commits them, in the order of time, so the books are balanced.
func openFilled(ctx context.Context, dir string, calls int, w io.Writer) (*filled, error) {
	db, err := store.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	f := &filled{db: db, gate: member.NewGate(db), rng: rand.New(rand.NewPCG(1, 2)), begin: time.Now().UTC().Truncate(time.Hour).AddDate(0, 0, -filledDays)}
	err = f.load(ctx)
	if err == nil && len(f.accounts) == 0 {
		begin := time.Now()
		err = f.fill(ctx, calls)
		fmt.Fprintf(w, "\nfilled with %d calls of %d accounts over %d days in %.0f s\n", calls, filledAccounts, filledDays, time.Since(begin).Seconds())
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return f, nil
}

// load reads what was filled before.
func (f *filled) load(ctx context.Context) error {
	all, err := f.db.Accounts(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	slices.SortFunc(all, func(a, b account.Account) int { return strings.Compare(a.Name, b.Name) })
	keys, err := f.db.Keys(ctx)
	if err != nil {
		return err
	}
	rank := map[string]int{}
	for i := range all {
		rank[all[i].ID] = i
	}
	f.accounts, f.keys, f.begin = all, make([][]apikey.Key, len(all)), all[0].CreatedAt
	for i := range keys {
		n := rank[keys[i].AccountID]
		f.keys[n] = append(f.keys[n], keys[i])
	}
	return nil
}

func (f *filled) fill(ctx context.Context, calls int) error {
	for i := range filledModels {
		price := money.Price{Input: 1000, CachedInput: 250, Output: money.Amount(2000 * (i + 1))}
		f.models = append(f.models, catalog.Model{ID: fmt.Sprint("model-", i), Price: price, Plans: []string{"pro"}})
	}
	f.plans = []account.Plan{{ID: "pro", RPM: 600, TPM: 600_000, Concurrency: 64}}
	if err := f.db.SaveCatalog(ctx, f.models, f.plans); err != nil {
		return err
	}
	token := apikey.Token{ID: ident.New(ident.Token), Name: "deploys", Prefix: "op-parley", Hash: sha256.Sum256(nil), CreatedAt: f.begin, CreatedBy: "bench"}
	if err := f.db.CreateToken(ctx, token); err != nil {
		return err
	}
	for i := range filledAccounts {
		if err := f.open(ctx, i); err != nil {
			return err
		}
	}
	for i := range filledChanges {
		n := f.rng.IntN(filledAccounts) * (i % 4) / 3 // one in four is of the largest account
		k := f.keys[n][f.rng.IntN(len(f.keys[n]))]
		k.Name = fmt.Sprintf("service %d", i)
		if err := f.db.UpdateKey(ctx, k); err != nil {
			return err
		}
	}
	if err := f.settle(ctx, calls); err != nil {
		return err
	}
	return f.refuse(ctx)
}

// share is how many of something the account of that rank has.
func share(rank, most, least int) int { return max(least, most/(rank+1)) }

// open makes the account of that rank, its credit, keys and people.
func (f *filled) open(ctx context.Context, rank int) error {
	a := account.Account{ID: ident.New(ident.Account), Name: fmt.Sprintf("Account %04d", rank), Plan: "pro", Status: account.Active, CreatedAt: f.begin}
	if err := f.db.CreateAccount(ctx, a); err != nil {
		return err
	}
	var ops []ledger.Op
	grants := share(rank, mostGrants, 3)
	for i := range grants {
		ops = append(ops, ledger.Op{Grant: &ledger.Grant{
			ID: ident.New(ident.Grant), AccountID: a.ID, Kind: ledger.Prepaid, Priority: 50, Amount: 1_000_000 * money.IU / money.Amount(grants),
			Note: fmt.Sprint("invoice ", i), CreatedAt: f.begin.Add(time.Duration(i) * filledDays * 24 * time.Hour / time.Duration(grants)),
		}})
	}
	if _, err := f.db.Commit(ctx, ops); err != nil {
		return err
	}
	var keys []apikey.Key
	for i := range share(rank, mostKeys, 2) {
		id := ident.New(ident.Key)
		k := apikey.Key{
			ID: id, AccountID: a.ID, Name: fmt.Sprint("service ", i), Prefix: "sk-parley-" + id[len(id)-4:], Last4: id[len(id)-4:],
			Hash: sha256.Sum256([]byte(id)), Scopes: account.DefaultScopes, CreatedAt: f.begin,
		}
		if err := f.db.CreateKey(ctx, k); err != nil {
			return err
		}
		keys = append(keys, k)
	}
	for i := range share(rank, mostPeople, 1) {
		if err := f.join(ctx, a.ID, fmt.Sprintf("person%d.%d@example.test", rank, i)); err != nil {
			return err
		}
	}
	f.accounts, f.keys = append(f.accounts, a), append(f.keys, keys)
	return nil
}

// join makes somebody an owner of an account who has no password, because deriving one from
// what is typed is slow by design.
func (f *filled) join(ctx context.Context, accountID, email string) error {
	token, link, err := f.gate.Invite(ctx, accountID, email, member.Owner)
	if err != nil {
		return err
	}
	id, at := ident.New(ident.Member), link.CreatedAt
	return f.db.Enter(ctx, token.Hash(), member.Entry{
		Member: member.Member{ID: id, Email: email, CreatedAt: at},
		Session: member.Session{
			ID: ident.New(ident.Session), Hash: sha256.Sum256([]byte(id)), MemberID: id, AccountID: accountID, Stage: member.Open,
			From: member.From{Address: "192.0.2.1", Agent: "bench"}, CreatedAt: at, SeenAt: at, ProvedAt: at,
		},
	})
}

// settle commits calls over all days.
func (f *filled) settle(ctx context.Context, calls int) error {
	who := rand.NewZipf(f.rng, 1.1, 1, filledAccounts-1)
	receipts := make([]ledger.Receipt, batchCalls)
	ops := make([]ledger.Op, 0, batchCalls)
	step := filledDays * 24 * time.Hour / time.Duration(calls)
	for n := 0; n < calls; n += batchCalls {
		ops = ops[:0]
		for i := range min(batchCalls, calls-n) {
			f.call(&receipts[i], int(who.Uint64()), f.begin.Add(time.Duration(n+i)*step))
			ops = append(ops, ledger.Op{Close: &receipts[i]})
		}
		if _, err := f.db.Commit(ctx, ops); err != nil {
			return err
		}
	}
	return nil
}

// requestID is one of a request that was made at that time.
func (f *filled) requestID(at time.Time) string {
	return fmt.Sprintf("%s7000%016x", ident.RequestIDsSince(at), f.rng.Uint64())
}

// call is a call of the account of that rank at that time. A key has one model that it calls
// most, one call in a hundred fails and one in a thousand is dear.
func (f *filled) call(r *ledger.Receipt, rank int, at time.Time) {
	keys := f.keys[rank]
	key := f.rng.IntN(1 + f.rng.IntN(len(keys)))
	m := &f.models[key%len(f.models)]
	if f.rng.IntN(20) == 0 {
		m = &f.models[f.rng.IntN(len(f.models))]
	}
	at = at.Truncate(time.Microsecond)
	id := f.requestID(at)
	*r = ledger.Receipt{
		RequestID: id, CompletionID: ident.CompletionOf(id), AccountID: f.accounts[rank].ID, KeyID: keys[key].ID, Stream: f.rng.IntN(2) == 0,
		Model: m.ID, PriceID: m.PriceID, PlanVersion: f.plans[0].Version, CreatedAt: at, PromptTokens: 10 + f.rng.IntN(2000), OutputLimit: 4096,
		CompletionTokens: 1 + f.rng.IntN(300), Status: 200, State: ledger.Settled, Ending: ledger.EndStop, UsageSource: ledger.UsageProvider,
		Target: "rack/" + m.ID, Attempts: 1, FirstToken: time.Duration(100+f.rng.IntN(400)) * time.Millisecond, Total: 2 * time.Second,
	}
	r.CachedTokens = r.PromptTokens * f.rng.IntN(3) / 4
	switch f.rng.IntN(1000) {
	case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
		r.State, r.Ending, r.UsageSource, r.Status, r.ErrorCode = ledger.Voided, ledger.EndUpstreamError, ledger.UsageNone, 502, "upstream_error"
		r.PromptTokens, r.CachedTokens, r.CompletionTokens = 0, 0, 0
	case 10:
		r.CompletionTokens = 4000
	}
	p := m.Price
	r.Charge = money.Amount(r.PromptTokens-r.CachedTokens)*p.Input + money.Amount(r.CachedTokens)*p.CachedInput + money.Amount(r.CompletionTokens)*p.Output
	r.Hold = r.Charge
}

// refuse adds what was refused in the last week.
func (f *filled) refuse(ctx context.Context) error {
	who := rand.NewZipf(f.rng, 1.1, 1, filledAccounts-1)
	end := f.begin.AddDate(0, 0, filledDays)
	step := refusal.Lifetime / filledRefusals
	var batch []refusal.Record
	for i := range filledRefusals {
		at := end.Add(time.Duration(i-filledRefusals) * step).Truncate(time.Microsecond)
		rank := int(who.Uint64())
		batch = append(batch, refusal.Record{
			RequestID: f.requestID(at), AccountID: f.accounts[rank].ID, KeyID: f.keys[rank][0].ID, Model: "model-0", At: at, Status: 429,
			Code: "rate_limit_exceeded", Rule: wire.RuleRequests, Scope: refusal.Account, Limit: 600, Used: 600, Asked: 1, Clears: time.Second,
			Message: "The account is at its limit of 600 requests a minute.",
		})
		if len(batch) == 1000 {
			if err := f.db.AddRefusals(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return f.db.AddRefusals(ctx, batch)
}
