package proof_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/httpserver"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/store/storetest"
	"github.com/parley-ai/parley/internal/telemetry"
	"github.com/parley-ai/parley/internal/wire"
)

// victimOrder, in the environment, makes the test binary the server that kills itself.
const victimOrder = "PARLEY_TEST_VICTIM"

// order says where a victim dies.
type order struct {
	Dir   string
	Who   account.Account
	Step  string
	Times int // that the step is passed, the last one of which kills
}

func TestMain(m *testing.M) {
	if text := os.Getenv(victimOrder); text != "" {
		var o order
		err := json.Unmarshal([]byte(text), &o)
		if err == nil {
			err = victim(o)
		}
		fmt.Fprintln(os.Stderr, "victim:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// failpoint ends the process with SIGKILL, at once and without a last word, when its step
// is passed for the last time. The binary that ships has no failpoints: a victim is the
// same rooms, wired by this test, which stands at the interfaces between them, and below
// SQLite (storetest).
type failpoint struct {
	step string
	left atomic.Int64
}

func (f *failpoint) pass(step string) {
	if step == f.step && f.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// around passes a step before and after f.
func (f *failpoint) around(step string, do func()) {
	f.pass("before " + step)
	do()
	f.pass("after " + step)
}

// steps are all there are: everything that happens between the start of a process and the
// last byte of an answer, and what can be told apart in between.
func steps() (all []string) {
	for _, step := range []string{
		"commit of a hold", "commit of a charge", "commit of a void", "commit of the recovery",
		"claim of a slot", "note of a token", "release of a slot", "reset of the progress",
		"write of the WAL", "sync of the WAL", "truncate of the WAL", "write of the database", "sync of the database",
		"start of an answer", "text of a stream", "end of an answer",
	} {
		all = append(all, "before "+step, "after "+step)
	}
	return all
}

// victim serves o.Dir until it dies.
func victim(o order) error {
	f := &failpoint{step: o.Step}
	f.left.Store(int64(o.Times))
	d, err := storetest.Mount(o.Dir)
	if err != nil {
		return err
	}
	name := func(c storetest.Call) string {
		if strings.HasSuffix(c.File, "-wal") {
			return fmt.Sprintf("%s of the WAL", c.Op)
		}
		return fmt.Sprintf("%s of the database", c.Op)
	}
	d.Before(func(c storetest.Call) storetest.Fault { f.pass("before " + name(c)); return storetest.None })
	d.After(func(c storetest.Call) { f.pass("after " + name(c)) })
	books := &steppedStore{f: f}
	l, err := openWith(o.Dir, seams{
		store:    func(s ledger.Store) ledger.Store { books.Store = s; return books },
		progress: func(p ledger.Progress) ledger.Progress { return &steppedProgress{p, f} },
	})
	if err != nil {
		return err
	}
	books.opened.Store(true)
	who := &account.Principal{Account: &o.Who, Plan: &plans[0], KeyID: "key_x", Scopes: account.ScopeChat}
	config := api.Config{
		Chat: steppedChat{l.Service, f}, Keys: anybody{who}, Catalog: l.Catalog, Limiter: l.Limiter,
		Ready: l.Ledger.Available, Draining: func() bool { return false }, Log: telemetry.NewLines(io.Discard, true),
	}
	s := &httpserver.Server{Handler: api.New(config), Reject: api.Reject(config)}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	return s.Serve(listener)
}

// anybody is let in as one caller.
type anybody struct{ who *account.Principal }

func (a anybody) Authenticate([]string, time.Time) (*account.Principal, error) { return a.who, nil }

type steppedStore struct {
	ledger.Store
	f      *failpoint
	opened atomic.Bool
}

func (s *steppedStore) Commit(ctx context.Context, ops []ledger.Op) ([]ledger.Result, error) {
	var names []string
	for _, op := range ops {
		switch {
		case !s.opened.Load():
			names = append(names, "commit of the recovery")
		case op.Open != nil:
			names = append(names, "commit of a hold")
		case op.Close != nil && op.Close.State == ledger.Voided:
			names = append(names, "commit of a void")
		case op.Close != nil:
			names = append(names, "commit of a charge")
		}
	}
	for _, name := range names {
		s.f.pass("before " + name)
	}
	results, err := s.Store.Commit(ctx, ops)
	for _, name := range names {
		s.f.pass("after " + name)
	}
	return results, err
}

type steppedProgress struct {
	ledger.Progress
	f *failpoint
}

func (p *steppedProgress) Claim(id string) (slot ledger.Slot, err error) {
	p.f.around("claim of a slot", func() { slot, err = p.Progress.Claim(id) })
	return steppedSlot{slot, p.f}, err
}

func (p *steppedProgress) Reset() (err error) {
	p.f.around("reset of the progress", func() { err = p.Progress.Reset() })
	return err
}

type steppedSlot struct {
	ledger.Slot
	f *failpoint
}

func (s steppedSlot) Set(n int) { s.f.around("note of a token", func() { s.Slot.Set(n) }) }
func (s steppedSlot) Release()  { s.f.around("release of a slot", s.Slot.Release) }

type steppedChat struct {
	*chat.Service
	f *failpoint
}

func (c steppedChat) Complete(ctx context.Context, call chat.Call, emit chat.Emitter) (chat.Summary, error) {
	return c.Service.Complete(ctx, call, steppedEmitter{emit, c.f, call.Request.Stream})
}

type steppedEmitter struct {
	chat.Emitter
	f      *failpoint
	stream bool
}

func (e steppedEmitter) Start(h wire.Head) (err error) {
	e.f.around("start of an answer", func() { err = e.Emitter.Start(h) })
	return err
}

func (e steppedEmitter) Text(choice int, s string, logprobs []wire.Logprob) (err error) {
	if !e.stream {
		return e.Emitter.Text(choice, s, logprobs) // it is collected
	}
	e.f.around("text of a stream", func() { err = e.Emitter.Text(choice, s, logprobs) })
	return err
}

func (e steppedEmitter) Finish(reasons []wire.FinishReason, u wire.Usage) (err error) {
	e.f.around("end of an answer", func() { err = e.Emitter.Finish(reasons, u) })
	return err
}
