package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/wire"
)

// Credit for exactly k calls, and 1,000 at once: k are answered, whatever k and the order,
// and the balance is never below zero. 100 rounds under make prove, 10 elsewhere.
func TestOverspendStorm(t *testing.T) {
	t.Parallel()
	const at, tokens = 1000, 3
	const each = prompt*inPrice + tokens*outPrice
	dir, _ := furnish(t)
	l, err := open(dir)
	must(t, err)
	f := &figures{}
	var answered, refused int64
	for round := range size(100) {
		k := rand.Int64N(at + at/10)
		a := account.Account{ID: l.account(t), Plan: "p", Status: account.Active}
		if k > 0 {
			_, err := l.Ledger.Grant(t.Context(), ledger.Grant{AccountID: a.ID, Amount: money.Amount(k*each) + money.Amount(rand.Int64N(each))})
			must(t, err)
		}
		who := &account.Principal{Account: &a, Plan: &plans[0], KeyID: "key_x"}
		var yes, no, below atomic.Int64
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for i := range at {
			wg.Go(func() {
				<-begin
				switch err := storm(l, who, i%2 == 0, tokens); {
				case err == nil:
					yes.Add(1)
				case poor(err):
					no.Add(1)
				default:
					t.Error(err)
				}
				if b := l.Ledger.Balance(a.ID); b.Posted+b.Held > b.Granted {
					below.Add(1)
				}
			})
		}
		close(begin)
		wg.Wait()
		if yes.Load() != min(k, at) || yes.Load()+no.Load() != at || below.Load() > 0 {
			f.counted(&f.negative, "round %d: credit for %d calls answered %d and refused %d of %d; below zero %d times", round, k, yes.Load(), no.Load(), at, below.Load())
		}
		if b := l.Ledger.Balance(a.ID); b.Held != 0 || b.Posted != money.Amount(yes.Load()*each) {
			f.found("round %d: Balance = %+v after %d calls", round, b, yes.Load())
		}
		answered, refused = answered+yes.Load(), refused+no.Load()
	}
	f.verify(t, l)
	must(t, l.close())
	db := books(t, dir)
	f.obey(db)
	must(t, db.Close())
	f.tell(t, "T5", fmt.Sprintf("%d rounds of %d calls at once", size(100), at))
	for _, wrong := range f.wrong {
		t.Error(wrong)
	}
	t.Logf("%d rounds of %d calls at once: %d answered, %d refused, over by 0 unless told above", size(100), at, answered, refused)
}

func storm(l *line, who *account.Principal, stream bool, tokens int) error {
	sober := int64(0) // the provider fails for some seeds
	req := &wire.ChatRequest{
		Model: "m", Messages: []wire.Message{{Role: wire.RoleUser, Content: "Hi"}}, Stream: stream, N: 1, Seed: &sober,
		MaxTokens: tokens, ResponseFormat: wire.ResponseFormat{Kind: wire.FormatText},
	}
	w := &witness{stream: stream, log: &witnesses{who: who}}
	_, err := l.Complete(context.Background(), chat.Call{RequestID: ident.RequestID(), Caller: who, Request: req, Now: time.Now()}, w)
	return err
}

// poor says whether err is for want of credit.
func poor(err error) bool {
	_, short := errors.AsType[*chat.ShortfallError](err)
	return short || errors.Is(err, chat.ErrNoCredit)
}
