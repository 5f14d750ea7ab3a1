// Package proof_test proves the promises about money (docs/money.md) on the whole line:
// real rooms over a real SQLite, whose disk fails, dies and forgets.
//
// The checker knows what callers saw, and reads the database by plain SQL.
package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/routing"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// proving is set by `make prove`: then everything has its full size.
func proving() bool { return os.Getenv("PARLEY_PROVE") != "" }

// size is full under `make prove`, else a tenth.
func size(full int) int {
	if proving() {
		return full
	}
	return full / 10
}

// What a token of the one model costs; a prompt has 10 tokens, and the provider writes as
// many as it may.
const prompt, inPrice, cachedPrice, outPrice = 10, 10, 5, 20

var (
	models = []catalog.Model{{
		ID: "m", ContextWindow: 1000, MaxOutput: 500, Price: money.Price{Input: inPrice, CachedInput: cachedPrice, Output: outPrice},
		Plans: []string{"p"}, Targets: []catalog.Target{{Upstream: "fake", Model: "x"}},
	}}
	plans = []account.Plan{{ID: "p"}}
)

// line is the line over a data directory.
type line struct {
	*chat.Service
	db       *store.DB
	progress *store.Progress
	recovery ledger.Recovery
	model    *catalog.Model
}

// seams are where a proof stands between the rooms; nil where it does not.
type seams struct {
	store    func(ledger.Store) ledger.Store
	progress func(ledger.Progress) ledger.Progress
}

// open opens the data directory dir.
func open(dir string) (*line, error) { return openWith(dir, seams{}) }

func openWith(dir string, between seams) (l *line, err error) {
	ctx := context.Background()
	l = &line{Service: new(chat.Service)}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.db, err = store.Open(ctx, dir); err != nil {
		return l, err
	}
	if l.progress, err = store.OpenProgress(dir); err != nil {
		return l, err
	}
	offer := append([]catalog.Model(nil), models...)
	if err = l.db.SaveCatalog(ctx, offer, append([]account.Plan(nil), plans...)); err != nil {
		return l, err
	}
	if l.Catalog, err = catalog.New(offer); err != nil {
		return l, err
	}
	var books ledger.Store = l.db
	if between.store != nil {
		books = between.store(books)
	}
	var progress ledger.Progress = l.progress
	if between.progress != nil {
		progress = between.progress(progress)
	}
	if l.Ledger, l.recovery, err = ledger.Open(ctx, books, progress); err != nil {
		return l, err
	}
	l.model, _ = l.Catalog.Lookup("m", time.Now())
	l.Limiter, l.Describe = ratelimit.New(time.Now()), api.Describe
	l.Router = routing.New(map[string]upstream.Provider{"fake": upstreamtest.Choice(script)})
	return l, nil
}

// script writes every token that it may; an odd seed fails half way.
func script(call *upstream.Call) upstreamtest.Script {
	pieces := make([]string, call.MaxTokens)
	for i := range pieces {
		pieces[i] = "w "
	}
	if call.Seed%7 == 1 {
		return upstreamtest.Script{upstreamtest.Text(pieces[:len(pieces)/2]...), upstreamtest.Fail(upstream.Failed)}
	}
	return upstreamtest.Script{upstreamtest.Text(pieces...), upstreamtest.Finish(wire.FinishStop)}
}

func (l *line) close() error {
	var errs []error
	if l.Ledger != nil {
		errs = append(errs, l.Ledger.Close())
	}
	if l.progress != nil {
		errs = append(errs, l.progress.Close())
	}
	if l.db != nil {
		errs = append(errs, l.db.Close())
	}
	return errors.Join(errs...)
}

// account makes one without credit and returns its id.
func (l *line) account(t testing.TB) string {
	t.Helper()
	a := account.Account{ID: ident.New(ident.Account), Name: ident.New("name "), Plan: "p", Status: account.Active, CreatedAt: time.Now()}
	must(t, l.db.CreateAccount(context.Background(), a))
	return a.ID
}

// furnish makes a data directory with an account that has credit.
func furnish(t *testing.T) (dir string, who *account.Principal) {
	t.Helper()
	dir = t.TempDir()
	l, err := open(dir)
	must(t, err)
	a := account.Account{ID: ident.New(ident.Account), Name: "a", Plan: "p", Status: account.Active, CreatedAt: time.Now()}
	must(t, l.db.CreateAccount(t.Context(), a))
	_, err = l.Ledger.Grant(t.Context(), ledger.Grant{AccountID: a.ID, Amount: 1_000_000 * money.IU})
	must(t, err)
	must(t, l.close())
	return dir, &account.Principal{Account: &a, Plan: &plans[0], KeyID: "key_x"}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// copyOf copies the books of dir into a directory of its own.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range []string{store.FileName, "progress"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(to, name), text, 0o600))
	}
	return to
}

// witness is what one caller saw. It is an emitter.
type witness struct {
	id       string
	stream   bool
	leave    int // after so many pieces; 0 for a caller who stays
	log      *witnesses
	pieces   atomic.Int64
	finished atomic.Bool
	usage    wire.Usage // once finished
	counted  bool       // by the checker
}

var errGone = errors.New("broken pipe")

// seen runs f unless the world has ended: then nothing reaches anybody.
func (w *witness) seen(f func()) {
	w.log.mu.RLock()
	defer w.log.mu.RUnlock()
	if !w.log.ended {
		f()
	}
}

func (w *witness) Limits(ratelimit.Status)             {}
func (w *witness) Start(wire.Head) error               { return nil }
func (w *witness) Alive() error                        { return nil }
func (w *witness) Hurry()                              {}
func (w *witness) Reasoning(int, string) error         { return nil }
func (w *witness) Refusal(int, string) error           { return nil }
func (w *witness) Tool(int, *upstream.ToolDelta) error { return nil }
func (w *witness) Text(_ int, _ string, _ []wire.Logprob) error {
	if !w.stream {
		return nil // it is collected
	}
	if w.leave > 0 && int(w.pieces.Load()) == w.leave {
		return errGone
	}
	w.seen(func() { w.pieces.Add(1) })
	return nil
}

func (w *witness) Finish(_ []wire.FinishReason, u wire.Usage) error {
	w.seen(func() { w.usage = u; w.finished.Store(true) })
	return nil
}

// witnesses is what all callers of a data directory saw.
type witnesses struct {
	who      *account.Principal
	inFlight int // calls whose id their caller may not learn when a server dies

	mu    sync.RWMutex
	ended bool // by a loss of power
	list  []*witness
}

// end freezes what was seen, until begin. While f runs, every stream stands at the piece
// that it is about to show.
func (ws *witnesses) end(f func()) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ended = true
	f()
}

func (ws *witnesses) begin() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ended = false
}

// call makes one call of a random kind.
func (ws *witnesses) call(ctx context.Context, l *line, chance *rand.Rand) error {
	w := &witness{id: ident.RequestID(), stream: chance.IntN(2) == 0, log: ws}
	seed := int64(chance.IntN(1000))
	req := &wire.ChatRequest{
		Model: "m", Messages: []wire.Message{{Role: wire.RoleUser, Content: "Hi"}}, Stream: w.stream, N: 1, Seed: &seed,
		MaxTokens: 1 + chance.IntN(12), ResponseFormat: wire.ResponseFormat{Kind: wire.FormatText},
	}
	if chance.IntN(4) == 0 {
		w.leave = 1 + chance.IntN(req.MaxTokens)
	}
	ws.mu.Lock()
	ws.list = append(ws.list, w)
	ws.mu.Unlock()
	_, err := l.Complete(ctx, chat.Call{RequestID: w.id, Caller: ws.who, Request: req, Now: time.Now()}, w)
	return err
}

// load makes n calls from several callers, or fewer when the books fail.
func (ws *witnesses) load(l *line, n int, seed uint64) {
	var made atomic.Int64
	var wg sync.WaitGroup
	for caller := range 4 {
		wg.Go(func() {
			chance := rand.New(rand.NewPCG(seed, uint64(caller)))
			for made.Add(1) <= int64(n) {
				if err := ws.call(context.Background(), l, chance); errors.Is(err, ledger.ErrUnavailable) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// figures are what a proof counts.
type figures struct {
	rounds, finished, streams, recovered, voided, lostTokens, ahead, unheard, ofStarts int
	lost, duplicate, negative                                                          int // of wrong
	wrong                                                                              []string
}

// counted is found, of one of the kinds that are counted.
func (f *figures) counted(kind *int, format string, args ...any) {
	*kind++
	f.found(format, args...)
}

// tell puts a row into the table of make prove: which proof this is, and how much it tried.
func (f *figures) tell(t *testing.T, proof, size string) {
	t.Helper()
	t.Attr("proof", fmt.Sprintf("%s; %s; lost %d; duplicate %d; wrong %d; negative %d",
		proof, size, f.lost, f.duplicate, len(f.wrong)-f.lost-f.duplicate-f.negative, f.negative))
}

func (f *figures) found(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

// report fails the test for everything that is wrong and prints the figures.
func (f *figures) report(t *testing.T, what string, more ...string) {
	t.Helper()
	for _, w := range f.wrong[:min(len(f.wrong), 20)] {
		t.Error(w)
	}
	if len(f.wrong) > 0 {
		t.Errorf("%d contradictions in all", len(f.wrong))
	}
	t.Logf("%s: %d; answers received whole %d, streams cut %d; recovered %d, voided %d; wrong %d%s",
		what, f.rounds, f.finished, f.streams, f.recovered, f.voided, len(f.wrong), strings.Join(more, ""))
}
