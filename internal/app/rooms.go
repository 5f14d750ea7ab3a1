package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/explain"
	"github.com/parley-ai/parley/internal/idempotency"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/member"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/payment"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/subscription"
	"github.com/parley-ai/parley/internal/telemetry"
)

// rooms is everything on a data directory that needs no network and no weights.
type rooms struct {
	lock          *os.File
	db            *store.DB
	progress      *store.Progress
	ledger        *ledger.Ledger
	recovery      ledger.Recovery
	accounts      *account.Directory
	subscriptions *account.Subscriptions
	keys          *apikey.Keyring
	gate          *member.Gate
	tokens        *apikey.Tokens
	catalog       *catalog.Catalog
	repeats       *idempotency.Room
	payments      *payment.Room      // nil without
	metrics       *telemetry.Metrics // nil measures nothing
	lowCredit     money.Amount       // of accounts without a threshold of their own
}

// openRooms locks the data directory of c, which is prepared, and opens its rooms, for a
// server or for one command. The caller closes them, unless it fails.
func openRooms(ctx context.Context, c *config.Config, m *telemetry.Metrics, command bool) (_ *rooms, err error) {
	dir, r := c.Data, &rooms{metrics: m, lowCredit: c.LowCredit}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.lock, err = lock(dir); err != nil {
		return nil, err
	}
	if r.db, err = store.Open(ctx, dir); err != nil {
		return nil, explainOpen(dir, err)
	}
	if r.progress, err = store.OpenProgress(dir); err != nil {
		return nil, err
	}
	models, plans := offer(c)
	known, err := r.saveOffer(ctx, c.Source == config.BuiltIn, command, models, plans)
	if err != nil {
		return nil, err
	}
	// Before anything is written: recovery may take an account below the threshold. A
	// command without a configuration leaves what the server's one has asked for.
	if c.Source != config.BuiltIn {
		if err = r.db.Announce(ctx, endpoints(c), c.LowCredit); err != nil {
			return nil, err
		}
	}
	if r.catalog, err = catalog.New(models); err != nil {
		return nil, err
	}
	// The ledger outlives ctx: what ends a server must not end the writing of its books.
	if r.ledger, r.recovery, err = ledger.Open(context.WithoutCancel(ctx), countedBooks{r.db, m}, r.progress); err != nil {
		return nil, fmt.Errorf("the books cannot be opened: %w", err)
	}
	if r.payments, err = payments(c, r.ledger, r.db); err != nil {
		return nil, err
	}
	// After the ledger: it resolves what ran under a key.
	if r.repeats, err = idempotency.Open(ctx, r.db); err != nil {
		return nil, err
	}
	r.accounts = account.NewDirectory(r.db)
	r.accounts.SetPlans(plans)
	if err = r.accounts.Load(ctx); err != nil {
		return nil, err
	}
	// After a long stop a period may have ended, and another begun, before the first call.
	// Trouble with a single one is told by the server, which tries again.
	r.subscriptions = account.NewSubscriptions(r.accounts, r.ledger)
	if !known {
		r.subscriptions.Freeze()
	}
	if _, err = r.subscriptions.Due(ctx, time.Now()); errors.Is(err, ledger.ErrUnavailable) {
		return nil, fmt.Errorf("the subscriptions cannot be brought up to date: %w", err)
	}
	r.keys = apikey.NewKeyring(r.db, r.accounts)
	r.gate = member.NewGate(r.db)
	r.tokens = apikey.NewTokens(r.db)
	if err = r.tokens.Load(ctx); err != nil {
		return nil, err
	}
	if err = r.keys.Load(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// saveOffer writes what is on offer into the books. One that was only assumed, because nobody named
// a configuration, may be another than was served last. Who was not told of that must not say what
// plans include, and renew or end subscriptions by it: for a command such an offer is not known,
// and not written, and a server that lacks the plan of a subscription is refused.
func (r *rooms) saveOffer(ctx context.Context, assumed, command bool, models []catalog.Model, plans []account.Plan) (known bool, err error) {
	switch {
	case assumed && command:
		if known, err = r.db.KnowsPlans(ctx, models, plans); !known || err != nil {
			return false, err
		}
	case assumed:
		if err := r.hasPlans(ctx, plans); err != nil {
			return false, err
		}
	}
	return true, r.db.SaveCatalog(ctx, models, plans)
}

// hasPlans refuses books with subscriptions to other plans.
func (r *rooms) hasPlans(ctx context.Context, plans []account.Plan) error {
	lost, err := r.db.SubscribedPlans(ctx)
	if err != nil {
		return err
	}
	lost = slices.DeleteFunc(lost, func(id string) bool {
		return slices.ContainsFunc(plans, func(p account.Plan) bool { return p.ID == id })
	})
	if len(lost) == 0 {
		return nil
	}
	return refuse("plans_unknown",
		"The books have subscriptions to plans that the built-in configuration does not have, and would end: "+strings.Join(lost, ", ")+".",
		"Name the configuration: parley serve --config FILE")
}

// close writes what is queued and lets the directory go. It is for any state that
// openRooms left.
func (r *rooms) close() error {
	var errs []error
	if r.ledger != nil {
		errs = append(errs, r.ledger.Close())
	}
	if r.progress != nil {
		errs = append(errs, r.progress.Close())
	}
	if r.db != nil {
		errs = append(errs, r.db.Close())
	}
	if r.lock != nil {
		errs = append(errs, giveBack(filepath.Dir(r.lock.Name())), unlock(r.lock))
	}
	return errors.Join(errs...)
}

// api is the operator's API over the rooms. engines may be nil.
func (r *rooms) api(status func() admin.Status, engines func() []admin.Engine) http.Handler {
	config := admin.Config{
		Accounts: countedAccounts{r.accounts, r.metrics}, Keys: countedKeys{r.keys, r.metrics},
		Subscriptions: r.subscriptions, Ledger: r.ledger, Store: r.db, Catalog: r.catalog, Gate: r.gate, Status: status, Engines: engines, Explain: r.explain(), Tokens: r.tokens, LowCredit: r.lowCredit,
	}
	if r.payments != nil {
		config.Payments = r.payments
	}
	return admin.New(config)
}

// explain knows what became of requests.
func (r *rooms) explain() *explain.Room {
	return &explain.Room{
		Store: r.db, Running: r.ledger.Find, Account: r.accounts.ByID, Key: r.keys.Find, Models: r.catalog.List, Nearest: config.Nearest,
	}
}

// offer is the configuration in the rooms' own words.
func offer(c *config.Config) (models []catalog.Model, plans []account.Plan) {
	for _, m := range c.Models {
		v := catalog.Model{
			ID: m.ID, Description: m.Description, ContextWindow: m.ContextWindow, MaxOutput: m.MaxOutput,
			Price: m.Price, Created: m.Created, Deprecated: m.Deprecated, Plans: m.Plans,
		}
		for _, t := range m.Targets {
			v.Targets = append(v.Targets, catalog.Target{Upstream: t.Upstream, Model: t.Model})
		}
		models = append(models, v)
	}
	for i, p := range c.Plans {
		v := account.Plan{ID: p.ID, RPM: p.RPM, TPM: p.TPM, Concurrency: p.Concurrency, MaxOutput: p.MaxOutput, Rank: i}
		v.Terms = subscription.Terms{Tokens: p.Included.Tokens, Credit: p.Included.Credit, Grace: p.Grace}
		// A plan of which nothing is said but the month keeps its version.
		if every, err := subscription.ParseInterval(p.Period); err == nil && every != subscription.Month {
			v.Terms.Interval = every
		}
		for _, l := range p.Limits {
			if v.ModelLimits == nil {
				v.ModelLimits = map[string]ratelimit.Limits{}
			}
			v.ModelLimits[l.Model] = ratelimit.Limits{Requests: l.RPM, Tokens: l.TPM}
		}
		plans = append(plans, v)
	}
	return models, plans
}

// explainOpen says what an operator can do about a database that cannot be opened.
func explainOpen(dir string, err error) error {
	switch {
	case errors.Is(err, store.ErrNewerSchema):
		return refuse("newer_schema",
			"The data directory "+dir+" was written by a newer version of Parley: "+err.Error()+".",
			"Start that version, or restore a backup made before it was first used.")
	case errors.Is(err, store.ErrRestoring):
		return refuse("restore_unfinished",
			"A restore into "+dir+" was cut short.",
			"Run it again: parley restore FILE --data "+dir)
	case errors.Is(err, store.ErrGone):
		return refuse("data_gone",
			store.FileName+" is not in "+dir+", or empty, though Parley has served from there.",
			"Restore a backup: parley restore FILE --data "+dir,
			"To begin anew, choose another directory with --data.")
	case errors.Is(err, store.ErrNotOurs):
		return refuse("data_damaged",
			store.FileName+" in "+dir+" is damaged or no database of Parley's: "+err.Error()+".",
			"Restore it from a backup, or choose another directory with --data.")
	default:
		return fmt.Errorf("the data directory %s cannot be opened: %w", dir, err)
	}
}

// Offline is a data directory that this process has opened without serving it, for
// commands that find no server.
type Offline struct {
	rooms *rooms
	api   http.Handler
}

// OpenOffline opens the data directory c.Data. Unless create is true, one that was
// never used is an [*Error], so that a mistyped path is not taken for an empty one.
// It fails with [*InUseError] while another process has the directory.
func OpenOffline(ctx context.Context, c *config.Config, create bool) (*Offline, error) {
	if !create && !exists(c.Data) {
		return nil, refuse("no_data",
			"There is no Parley data in "+c.Data+".",
			"Point --data at the right directory, or start a server on it: parley serve")
	}
	if err := prepare(c.Data); err != nil {
		return nil, err
	}
	r, err := openRooms(ctx, c, nil, true)
	if err != nil {
		return nil, err
	}
	status := admin.Status{Version: Version(""), PID: os.Getpid(), Schema: r.db.SchemaVersion(), Console: publicURL(c, c.Listen, false).String()}
	return &Offline{rooms: r, api: r.api(func() admin.Status { return status }, nil)}, nil
}

// Client speaks to the directory's rooms.
func (o *Offline) Client() *admin.Client { return admin.Direct(o.api) }

// Close writes what is queued and lets the directory go.
func (o *Offline) Close() error { return o.rooms.close() }
