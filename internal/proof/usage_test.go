package proof_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/routing"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/openai"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// What a provider may say of the tokens that it used, and what is charged. The answer is
// three words in three events, whose tokens are its words; our own estimate of the prompt
// is not the provider's 7. Charges are those of docs/money.md.
var usages = []struct {
	name    string
	send    func(e *upstreamtest.Exchange)
	in, out int // 0 in: what we counted
	cached  int
	by      ledger.UsageSource
	state   ledger.State
}{
	{"as it should be", ends(stop, told(7, 3)), 7, 3, 0, ledger.UsageProvider, ledger.Settled},
	{"of cached tokens", ends(stop, `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}}`), 7, 3, 5, ledger.UsageProvider, ledger.Settled},
	{"missing", ends(stop), 0, 3, 0, ledger.UsageEstimated, ledger.Settled},
	{"zero", ends(stop, told(0, 0)), -1, 0, 0, ledger.UsageProvider, ledger.Settled},
	{"in the event of the end", ends(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`), 7, 3, 0, ledger.UsageProvider, ledger.Settled},
	{"split over reads", split(stop, told(7, 3)), 7, 3, 0, ledger.UsageProvider, ledger.Settled},
	{"twice", ends(stop, told(6, 2), told(7, 3)), 7, 3, 0, ledger.UsageProvider, ledger.Settled},
	{"before the end only", ends(told(7, 1), stop), 0, 3, 0, ledger.UsageEstimated, ledger.Settled},
	{"negative", ends(stop, told(7, -3)), 0, 3, 0, ledger.UsageEstimated, ledger.Settled},
	{"not a number", ends(stop, `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":"NaN"}}`), 0, 3, 0, ledger.UsageEstimated, ledger.Settled},
	{"beyond any number", ends(stop, `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":99999999999999999999}}`), 0, 3, 0, ledger.UsageEstimated, ledger.Settled},
	{"more answer than was asked for", ends(stop, told(7, 500)), 7, 20, 0, ledger.UsageProvider, ledger.Settled},
	{"a prompt beyond the window", ends(stop, told(5000, 3)), 0, 3, 0, ledger.UsageEstimated, ledger.Settled},
	{"more prompt than the hold", ends(stop, told(900, 3)), 900, 3, 0, ledger.UsageProvider, ledger.Settled},
	{"cut before it", func(e *upstreamtest.Exchange) { words(e); e.Reset() }, 0, 3, 0, ledger.UsageEstimated, ledger.Settled},
	{"an error before anything", func(e *upstreamtest.Exchange) { e.Stream(); e.Event(`{"error":{"message":"no"}}`); e.Done() }, -1, 0, 0, ledger.UsageNone, ledger.Voided},
}

const stop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

func told(in, out int) string {
	return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, in, out)
}

func words(e *upstreamtest.Exchange) {
	e.Stream()
	for i := range 3 {
		e.Event(fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":"w%d "}}]}`, i))
	}
}

func ends(events ...string) func(*upstreamtest.Exchange) {
	return func(e *upstreamtest.Exchange) {
		words(e)
		for _, event := range events {
			e.Event(event)
		}
		e.Done()
	}
}

// split sends every byte by itself.
func split(events ...string) func(*upstreamtest.Exchange) {
	return func(e *upstreamtest.Exchange) {
		words(e)
		for b := range strings.SplitSeq("data: "+strings.Join(events, "\n\ndata: ")+"\n\n", "") {
			e.Bytes(b)
		}
		e.Done()
	}
}

// wordCounter counts words.
type wordCounter struct{}

func (wordCounter) Count(text string, _ int) (int, error) { return len(strings.Fields(text)), nil }

// TestUsage runs every line of the table, whole and streamed, through the real client of
// upstreams.
func TestUsage(t *testing.T) {
	t.Parallel()
	dir, who := furnish(t)
	l, err := open(dir)
	must(t, err)
	var now sync.Map // "case" -> what it sends
	stub := upstreamtest.NewHTTP(t, func(e *upstreamtest.Exchange) {
		send, _ := now.Load("case")
		send.(func(*upstreamtest.Exchange))(e)
	})
	p, err := openai.New(openai.Options{BaseURL: stub.URL, Counter: wordCounter{}, Timeouts: openai.Timeouts{Connect: time.Minute}})
	must(t, err)
	t.Cleanup(p.Close)
	l.Router = routing.New(map[string]upstream.Provider{"fake": p})
	f := &figures{}
	for _, tt := range usages {
		for _, stream := range []bool{false, true} {
			now.Store("case", tt.send)
			// The connection that a whole answer is read from breaks before anything was shown.
			state, in, out, by := tt.state, tt.in, tt.out, tt.by
			if tt.name == "cut before it" && !stream {
				state, in, out, by = ledger.Voided, -1, 0, ledger.UsageNone
			}
			id := ident.RequestID()
			req := &wire.ChatRequest{
				Model: "m", Messages: []wire.Message{{Role: wire.RoleUser, Content: "Hi"}}, Stream: stream, N: 1, MaxTokens: 20,
				ResponseFormat: wire.ResponseFormat{Kind: wire.FormatText},
			}
			_, _ = l.Complete(context.Background(), chat.Call{RequestID: id, Caller: who, Request: req, Now: time.Now()}, &witness{log: &witnesses{}, stream: stream})
			r := await(t, l, dir, who.Account.ID, id)
			if in == 0 {
				in = r.in // what we counted: it need not be exact
			}
			in = max(in, 0)
			want := charged{
				string(state), string(by), in, tt.cached, out,
				(in-tt.cached)*inPrice + tt.cached*cachedPrice + out*outPrice, 0,
			}
			if r != want {
				f.found("usage %s, stream %v: %+v, want %+v", tt.name, stream, r, want)
			}
		}
	}
	t.Logf("%d kinds of usage, whole and streamed, charged as published unless told above", len(usages))
	f.verify(t, l)
	must(t, l.close())
	f.tell(t, "T11", fmt.Sprintf("%d kinds of usage, whole and streamed", len(usages)))
	for _, wrong := range f.wrong {
		t.Error(wrong)
	}
}

// charged is what the database says of a call.
type charged struct {
	state, by                        string
	in, cached, out, amount, written int
}

// await reads the charge of a call. That of a void follows its answer: a grant behind it is
// durable only after it.
func await(t *testing.T, l *line, dir, account, id string) (c charged) {
	t.Helper()
	_, err := l.Ledger.Grant(t.Context(), ledger.Grant{AccountID: account, Amount: 1})
	must(t, err)
	db := books(t, dir)
	defer db.Close()
	must(t, db.QueryRowContext(t.Context(), `SELECT state, usage_source, prompt_tokens, cached_tokens, completion_tokens, amount, written_off FROM charge WHERE id = ?`, id).
		Scan(&c.state, &c.by, &c.in, &c.cached, &c.out, &c.amount, &c.written))
	return c
}
