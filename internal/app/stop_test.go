package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// choir is a provider whose streams all stop in the middle until they are let go on.
type choir struct {
	provider
	gate chan struct{}
}

// The words of a choir's answer before and behind its gate.
const before, behind = 3, 17

func (c *choir) Generate(ctx context.Context, _ *upstream.Call, yield func(upstream.Event) error) error {
	for i := range before + behind {
		if i == before {
			select {
			case <-c.gate:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := yield(upstream.Event{Text: fmt.Sprintf("<%d>", i), Completion: i + 1}); err != nil {
			return err
		}
	}
	return yield(upstream.Event{Completion: before + behind, Finish: wire.FinishStop})
}

// listener is a client of one stream.
type listener struct {
	text strings.Builder
	err  error
}

// listen reads a stream; half is called when it has come to the gate.
func (l *listener) listen(ctx context.Context, client *http.Client, url, key string, half func()) {
	half = sync.OnceFunc(half)
	defer half()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(strings.Replace(hello, `{`, `{"stream":true,"max_tokens":50,`, 1)))
	if err != nil {
		l.err = err
		return
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := client.Do(req)
	if err != nil {
		l.err = err
		return
	}
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	for {
		line, err := r.ReadString('\n')
		l.text.WriteString(line)
		if strings.Contains(line, fmt.Sprintf("<%d>", before-1)) {
			half()
		}
		if err != nil {
			if err != io.EOF { //nolint:errorlint // what a bufio.Reader returns at the end
				l.err = err
			}
			return
		}
	}
}

// words is how many words of the answer arrived, in their order and each once.
func (l *listener) words() int {
	text := l.text.String()
	for i := range before + behind {
		if strings.Count(text, fmt.Sprintf("<%d>", i)) != 1 || i > 0 && strings.Index(text, fmt.Sprintf("<%d>", i)) < strings.Index(text, fmt.Sprintf("<%d>", i-1)) {
			return i
		}
	}
	return before + behind
}

// sing starts n streams and returns when all of them are at the gate.
func sing(t *testing.T, n int) (r *running, o Options, c *choir, all []*listener, wait func()) {
	t.Helper()
	c = &choir{gate: make(chan struct{})}
	o, out, errs := options(t, t.TempDir(), nil)
	o.upstreams = func(*config.Config, *screen) (*upstreams, error) {
		return &upstreams{providers: map[string]upstream.Provider{"local": c}}, nil
	}
	for i := range o.Config.Plans {
		o.Config.Plans[i] = config.Plan{ID: o.Config.Plans[i].ID}
	}
	r = start(t, o, out, errs)
	key := secret.FindString(out.String())
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	var group, atGate sync.WaitGroup
	for range n {
		l := new(listener)
		all = append(all, l)
		atGate.Add(1)
		group.Go(func() { l.listen(t.Context(), &http.Client{Transport: transport}, r.URL(), key, atGate.Done) })
	}
	atGate.Wait()
	return r, o, c, all, group.Wait
}

// books reads what a stopped server has left.
func books(t *testing.T, o Options) (admin.Account, []admin.Receipt, admin.Verification) {
	t.Helper()
	off, err := OpenOffline(t.Context(), o.Config, false)
	if err != nil {
		t.Fatal(err)
	}
	defer off.Close()
	if n := off.rooms.recovery; n.Settled+n.Voided != 0 {
		t.Errorf("%d calls were left unresolved", n.Settled+n.Voided)
	}
	a, err1 := off.Client().Account(t.Context(), "default")
	list, err2 := off.Client().Receipts(t.Context(), "default", 10_000)
	v, err3 := off.Client().Verify(t.Context())
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return a, list, v
}

const streams = 240

// A server that is told to stop under many streams lets every one of them finish.
func TestServe_StopUnderLoad(t *testing.T) {
	t.Parallel()
	r, o, c, all, wait := sing(t, streams)
	r.stop()
	r.err.await(t, fmt.Sprintf("Stopping: %d calls running", streams))
	if r.ready() == nil {
		t.Error("a server that stops is ready")
	}
	close(c.gate)
	wait()
	if err := r.finish(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	r.err.await(t, fmt.Sprintf("Stopped. %d calls settled, books balanced.", streams))
	for i, l := range all {
		if l.err != nil || l.words() != before+behind || !strings.HasSuffix(l.text.String(), "data: [DONE]\n\n") {
			t.Fatalf("stream %d has %d of %d words, %v:\n%s", i, l.words(), before+behind, l.err, &l.text)
		}
	}
	a, list, v := books(t, o)
	// 5 tokens of prompt and 20 of answer.
	if len(list) != streams || a.Held != "0" || !v.OK || a.Balance != "99.46" {
		t.Errorf("%d receipts, account %+v, books %+v", len(list), a, v)
	}
	for _, rec := range list {
		if rec.State != "settled" || rec.Ending != "stop" || rec.Charge != "0.00225" {
			t.Fatalf("a receipt is %+v", rec)
		}
	}
}

// A second signal cuts what still runs: each client is told, and pays for exactly what
// it was sent.
func TestServe_CutUnderLoad(t *testing.T) {
	t.Parallel()
	r, o, _, all, wait := sing(t, streams)
	r.stop()
	r.err.await(t, fmt.Sprintf("Stopping: %d calls running", streams))
	r.Cut()
	wait()
	if err := r.finish(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	for i, l := range all {
		if l.err == nil || l.words() != before || !strings.Contains(l.text.String(), `data: {"error":{`) || strings.Contains(l.text.String(), "[DONE]") {
			t.Fatalf("stream %d has %d words, %v:\n%s", i, l.words(), l.err, &l.text)
		}
	}
	a, list, v := books(t, o)
	if len(list) != streams || a.Held != "0" || !v.OK {
		t.Errorf("%d receipts, account %+v, books %+v", len(list), a, v)
	}
	for _, rec := range list {
		if rec.State != "settled" || rec.Ending != "shutdown" || rec.CompletionTokens != before || rec.Charge != "0.00055" {
			t.Fatalf("a receipt is %+v", rec)
		}
	}
}

// Who loses the right to call loses what runs, too.
func TestServe_RevocationCutsStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   string
		revoke func(t *testing.T, c *admin.Client, key admin.Key) error
	}{
		"key": {"api_key_revoked", func(t *testing.T, c *admin.Client, key admin.Key) error {
			t.Helper()
			use, err := c.Key(t.Context(), key.ID)
			if err != nil || use.Running != 3 || use.Streams != 3 {
				t.Errorf("the key is used by %+v, %v", use, err)
			}
			gone, err := c.RevokeKey(t.Context(), key.ID)
			if gone.Status != "revoked" || gone.Confirmed != 1 || gone.Servers != 1 {
				t.Errorf("RevokeKey = %+v", gone)
			}
			return err
		}},
		"account": {"account_suspended", func(t *testing.T, c *admin.Client, _ admin.Key) error {
			t.Helper()
			_, err := c.SetAccount(t.Context(), "default", admin.Change{Status: new("suspended")})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, o, _, all, wait := sing(t, 3)
			operator := client(t, o.Config.Data)
			keys, err := operator.Keys(t.Context(), "default")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.revoke(t, operator, keys[0]); err != nil {
				t.Fatal(err)
			}
			wait() // the gate stays shut: only the revocation ends them
			for i, l := range all {
				if l.err == nil || l.words() != before || !strings.Contains(l.text.String(), `"code":"`+c.code+`"`) {
					t.Errorf("stream %d has %d words, %v:\n%s", i, l.words(), l.err, &l.text)
				}
			}
			if err := r.finish(t); err != nil {
				t.Errorf("Run: %v", err)
			}
			if _, list, _ := books(t, o); len(list) != 3 || list[0].Ending != "key_revoked" || list[0].CompletionTokens != before {
				t.Errorf("the receipts are %+v", list)
			}
		})
	}
}
