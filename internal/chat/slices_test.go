package chat_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// letters are that many tokens, and how a recorder notes them.
func letters(n int) (pieces []string, noted string) {
	for i := range n {
		pieces = append(pieces, string(rune('a'+i)))
	}
	return pieces, strings.Join(pieces, ",")
}

// A stream without max_tokens goes on as long as there is credit and ends like one that
// has reached max_tokens, with all its tokens charged and none above.
func TestSlices_CreditEnds(t *testing.T) {
	t.Parallel()
	for _, extra := range []money.Amount{0, 19} {
		pieces, _ := letters(26)
		l := open(t, 100+20*13+extra, provider(upstreamtest.Text(pieces...), upstreamtest.Finish(wire.FinishStop)))
		l.Slice = 4
		out := &recorder{}
		s, err := l.Complete(t.Context(), l.call(true), out)
		_, noted := letters(13)
		if want := "start," + noted + ",length 10+13"; err != nil || out.String() != want {
			t.Errorf("Complete = %v, %s, want %s", err, out, want)
		}
		if s.Charge != 360 || s.Ending != ledger.EndLength {
			t.Errorf("summary %+v", s)
		}
		if b := l.Ledger.Balance(l.caller.Account.ID); b.Held != 0 || b.Available() != extra {
			t.Errorf("%+v is left, want %d", b, extra)
		}
		if r := l.receipt(t); r.State != ledger.Settled || r.Status != 200 || r.WrittenOff != 0 || r.OutputLimit != 13 {
			t.Errorf("receipt %+v", r)
		}
		l.verify(t)
	}
}

// While one stream runs, the credit that it may come to need is there for others.
func TestSlices_LeaveTheRest(t *testing.T) {
	t.Parallel()
	running, goOn := make(chan struct{}), make(chan struct{})
	long := upstreamtest.Script{upstreamtest.Text("a"), reached(running), upstreamtest.Wait(goOn), upstreamtest.Finish(wire.FinishStop)}
	short := upstreamtest.Script{upstreamtest.Text("b"), upstreamtest.Finish(wire.FinishStop)}
	p := upstreamtest.New(long, short)
	p.Prompt, p.Fingerprint = 10, fingerprint
	l := open(t, 1000, p) // 50 tokens are 1,100
	l.Slice = 4
	ended := make(chan error)
	go func() {
		_, err := l.Complete(context.Background(), l.call(true), &recorder{})
		ended <- err
	}()
	<-running
	if held := l.Ledger.Balance(l.caller.Account.ID).Held; held != 180 {
		t.Errorf("%d are held, want the prompt and a slice", held)
	}
	out := &recorder{}
	if _, err := l.Complete(t.Context(), l.call(true), out); err != nil || out.String() != "start,b,stop 10+1" {
		t.Errorf("beside it: %v, %s", err, out)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for i, c := range p.Calls() {
		if c.MaxTokens != 50 {
			t.Errorf("call %d may have %d tokens, want those of the model", i, c.MaxTokens)
		}
	}
	l.verify(t)
}

// What has an end of its own, or a form that must be closed, is held whole.
func TestSlices_NotForForms(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wire.ChatRequest){
		"whole":      func(r *wire.ChatRequest) { r.Stream = false },
		"max_tokens": maxTokens(40),
		"JSON":       func(r *wire.ChatRequest) { r.ResponseFormat.Kind = wire.FormatJSONObject },
		"tools":      func(r *wire.ChatRequest) { r.Tools = []wire.Tool{{}} },
		"free":       func(r *wire.ChatRequest) { r.Model = "free" },
	} {
		p := provider(upstreamtest.Text("{}"), upstreamtest.Finish(wire.FinishStop))
		p.Can = wire.Capabilities{JSONObject: true, Tools: true}
		l := open(t, 100_000, p)
		l.Slice = 4
		out := &recorder{}
		if _, err := l.Complete(t.Context(), l.call(true, change), out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := 50
		if name == "max_tokens" {
			want = 40
		}
		if r := l.receipt(t); r.OutputLimit != want {
			t.Errorf("%s: the hold covered %d tokens, want %d", name, r.OutputLimit, want)
		}
	}
}

// Choices share the hold; those that have not ended when credit does end together.
func TestSlices_Choices(t *testing.T) {
	t.Parallel()
	steps := upstreamtest.Script{}
	for i := range 30 {
		e := upstream.Event{Choice: i % 2, Text: fmt.Sprintf("%d", i), Completion: i + 1, Fingerprint: fingerprint}
		steps = append(steps, upstreamtest.Event(e))
	}
	l := open(t, 100+20*11, can(provider(steps...)))
	l.Slice = 4
	out := &recorder{}
	if _, err := l.Complete(t.Context(), l.call(true, func(r *wire.ChatRequest) { r.N = 2 }), out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasSuffix(got, "#1 9,10,length length 10+11") {
		t.Errorf("it ended with %s", got)
	}
	l.verify(t)
}
