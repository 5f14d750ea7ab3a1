package chat_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// line is the whole line over a real database and a scripted provider. Its model m
// has 100 tokens, 50 of them of answer; a prompt has 10, and a call costs
// 100 + 20·answer nano-IU.
type line struct {
	*chat.Service
	db     *store.DB
	disk   *disk
	caller *account.Principal
}

func open(t testing.TB, credit money.Amount, p *upstreamtest.Provider) *line {
	t.Helper()
	ctx := context.Background()
	dir := t.TempDir()
	db, err := store.Open(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	progress, err := store.OpenProgress(dir)
	if err != nil {
		t.Fatal(err)
	}
	models := []catalog.Model{
		{ID: "m", ContextWindow: 100, MaxOutput: 50, Price: money.Price{Input: 10, CachedInput: 5, Output: 20}, Plans: []string{"p"}, Targets: []catalog.Target{{Upstream: "fake", Model: "x"}}},
		{ID: "free", ContextWindow: 100, MaxOutput: 50, Plans: []string{"p"}, Targets: []catalog.Target{{Upstream: "fake", Model: "x"}}},
		{ID: "dear", ContextWindow: 10_000_000, MaxOutput: 1, Price: money.Price{Output: money.MaxPerToken}, Plans: []string{"p"}, Targets: []catalog.Target{{Upstream: "fake", Model: "x"}}},
		{ID: "titan", ContextWindow: 100, MaxOutput: 50, Plans: []string{"pro"}, Targets: []catalog.Target{{Upstream: "fake", Model: "x"}}},
	}
	plans := []account.Plan{{ID: "p"}}
	if err := db.SaveCatalog(ctx, models, plans); err != nil {
		t.Fatal(err)
	}
	l := &line{Service: new(chat.Service), db: db, disk: &disk{Store: db}}
	if l.Catalog, err = catalog.New(models); err != nil {
		t.Fatal(err)
	}
	if l.Ledger, _, err = ledger.Open(ctx, l.disk, progress); err != nil {
		t.Fatal(err)
	}
	l.Limiter = ratelimit.New(time.Now())
	l.Router, l.Describe = routing.New(map[string]upstream.Provider{"fake": p}), api.Describe
	a := account.Account{ID: ident.New(ident.Account), Name: "a", Plan: "p", Status: account.Active, CreatedAt: time.Now()}
	if err := db.CreateAccount(ctx, a); err != nil {
		t.Fatal(err)
	}
	if credit > 0 {
		if _, err := l.Ledger.Grant(ctx, ledger.Grant{AccountID: a.ID, Amount: credit}); err != nil {
			t.Fatal(err)
		}
	}
	l.caller = &account.Principal{Account: &a, Plan: &plans[0], KeyID: "key_x"}
	t.Cleanup(func() {
		l.disk.release()
		_ = l.Ledger.Close() // fails where the disk did
		_ = progress.Close()
		_ = db.Close()
	})
	return l
}

// provider answers every call by the steps. Its prompts have 10 tokens.
func provider(steps ...upstreamtest.Step) *upstreamtest.Provider {
	p := upstreamtest.New(steps)
	p.Prompt, p.Fingerprint = 10, fingerprint
	return p
}

const fingerprint = "fp_0123456789"

// reached closes ch, which tells the test how far the call is.
func reached(ch chan<- struct{}) upstreamtest.Step {
	return upstreamtest.Do(func(context.Context) error { close(ch); return nil })
}

func (l *line) call(stream bool, change ...func(*wire.ChatRequest)) chat.Call {
	req := &wire.ChatRequest{
		Model: "m", Messages: []wire.Message{{Role: wire.RoleUser, Content: "Hi"}}, Stream: stream, N: 1,
		ResponseFormat: wire.ResponseFormat{Kind: wire.FormatText},
	}
	for _, f := range change {
		f(req)
	}
	return chat.Call{RequestID: ident.RequestID(), Caller: l.caller, Request: req, Now: time.Now()}
}

// receipt is the only one of the account, once everything queued is on the disk.
func (l *line) receipt(t testing.TB) ledger.Receipt {
	t.Helper()
	if err := l.Ledger.Close(); err != nil {
		t.Fatal(err)
	}
	rs, err := l.db.Receipts(context.Background(), l.caller.Account.ID, 10)
	if err != nil || len(rs) != 1 {
		t.Fatalf("Receipts = %+v, %v, want one", rs, err)
	}
	return rs[0]
}

func (l *line) verify(t testing.TB) {
	t.Helper()
	rep, err := l.db.Verify(context.Background())
	if err != nil || !rep.OK() {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}

// disk is a store that can be made to wait and to fail.
type disk struct {
	ledger.Store
	mu      sync.Mutex
	gate    chan struct{} // commits wait until it is closed
	waiting chan struct{} // closed when one waits
	fails   bool
}

var errDisk = errors.New("disk I/O error")

func (d *disk) block() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate, d.waiting = make(chan struct{}), make(chan struct{})
}

func (d *disk) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate != nil {
		close(d.gate)
		d.gate = nil
	}
}

func (d *disk) fail() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = true
}

func (d *disk) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Result, error) {
	d.mu.Lock()
	gate, waiting := d.gate, d.waiting
	d.mu.Unlock()
	if gate != nil {
		select {
		case <-waiting:
		default:
			close(waiting)
		}
		<-gate
	}
	d.mu.Lock()
	fails := d.fails
	d.mu.Unlock()
	if fails {
		return nil, errDisk
	}
	return d.Store.Commit(ctx, ops)
}

// recorder is a caller that notes what it gets and leaves when it is told to.
type recorder struct {
	mu    sync.Mutex
	got   []string
	leave string // the first note at which the caller is gone

	limits ratelimit.Status // the last that was told
}

var errPipe = errors.New("broken pipe")

func (r *recorder) note(s string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leave != "" && strings.HasPrefix(s, r.leave) {
		return errPipe
	}
	r.got = append(r.got, s)
	return nil
}

func (r *recorder) Start(h wire.Head) error {
	if h.Model == "" || h.Fingerprint != fingerprint || !strings.HasPrefix(h.ID, ident.Completion) || h.Created == 0 {
		return fmt.Errorf("head %+v is not complete", h)
	}
	return r.note("start")
}

func (r *recorder) Limits(s ratelimit.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limits = s
}

func (r *recorder) Hurry() {}

func (r *recorder) Alive() error { return r.note("alive") }

// of is how a note of a choice begins.
func of(choice int) string {
	if choice == 0 {
		return ""
	}
	return fmt.Sprintf("#%d ", choice)
}

func (r *recorder) Text(choice int, s string, logprobs []wire.Logprob) error {
	for _, l := range logprobs {
		s += "{" + l.Token + "}"
	}
	return r.note(of(choice) + s)
}

func (r *recorder) Reasoning(choice int, s string) error { return r.note(of(choice) + "(" + s + ")") }

func (r *recorder) Refusal(choice int, s string) error { return r.note(of(choice) + "!" + s) }

func (r *recorder) Tool(choice int, d *upstream.ToolDelta) error {
	return r.note(of(choice) + fmt.Sprintf("[%d %s %s %s]", d.Index, d.ID, d.Name, d.Arguments))
}

func (r *recorder) Finish(reasons []wire.FinishReason, u wire.Usage) error {
	var note strings.Builder
	for _, reason := range reasons {
		note.WriteString(string(reason) + " ")
	}
	return r.note(note.String() + fmt.Sprintf("%d+%d", u.PromptTokens, u.CompletionTokens))
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.got, ",")
}
