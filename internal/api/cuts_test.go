package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/store/storetest"
	"github.com/parley-ai/parley/internal/upstream/openai"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
)

// cutEvents is how many pieces of text the whole stream has.
const cutEvents = 200

// words counts the words of a text as its tokens.
type words struct{}

func (words) Count(text string, _ int) (int, error) { return len(strings.Fields(text)), nil }

// view is what a client saw of a stream, and what it was charged.
type view struct {
	status  int
	pieces  int
	end     string // done, error event, broken, left
	receipt ledger.Receipt
}

// cutCase lets a client lead its provider.
type cutCase struct {
	asked chan struct{} // closed when the provider has the request
	let   chan struct{} // one for each event that the provider may send
}

// TestCutAtEveryEvent cuts a stream of 200 events at each of them, by the provider and
// by the client, and holds what the client saw against what it was charged. Run it
// with -v for the table.
func TestCutAtEveryEvent(t *testing.T) {
	t.Parallel()
	// A case is told by the text of its request: who cuts, and behind which event.
	var steps sync.Map // text -> *cutCase
	stub := upstreamtest.NewHTTP(t, func(e *upstreamtest.Exchange) { cutProvider(e, &steps) })
	p, err := openai.New(openai.Options{BaseURL: stub.URL, Counter: words{}, Timeouts: openai.Timeouts{Connect: time.Minute}})
	must(t, err)
	t.Cleanup(p.Close)
	d := open(t, p)
	rows := map[string][]view{"provider": make([]view, cutEvents+1), "client": make([]view, cutEvents+1)}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for side, views := range rows {
		for n := range views {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				views[n] = d.cut(t, side, n, &steps)
			})
		}
	}
	wg.Wait()
	d.Close() // waits for the calls that clients have left
	must(t, d.ledger.Close())
	byID := d.chargesInBooks(t)
	if len(byID) != 2*(cutEvents+1) {
		t.Errorf("%d receipts, want one for each of %d calls", len(byID), 2*(cutEvents+1))
	}
	for _, views := range rows {
		for n := range views {
			if v := &views[n]; v.receipt.RequestID != "" {
				v.receipt = byID[v.receipt.RequestID]
				delete(byID, v.receipt.RequestID)
			}
		}
	}
	for _, r := range byID { // who left before the first byte was told no request id
		rows["client"][0].receipt = r
	}
	for side, views := range rows {
		for n := range views {
			checkCut(t, side, n, &views[n])
		}
	}
	rep, err := d.db.Verify(context.Background())
	must(t, err)
	if !rep.OK() {
		t.Errorf("Verify = %+v", rep)
	}
	if !t.Failed() {
		t.Attr("proof", fmt.Sprintf("T10; %d cuts, at each of %d events by both sides; lost 0; duplicate 0; wrong 0; negative 0", 2*(cutEvents+1), cutEvents))
	}
	t.Log("\n" + table(rows))
}

// chargesInBooks reads, by plain SQL, what the calls of the door's account became.
func (d *door) chargesInBooks(t *testing.T) map[string]ledger.Receipt {
	t.Helper()
	books := storetest.PlainReader(t, filepath.Join(d.dir, store.FileName))
	rows, err := books.QueryContext(t.Context(), `SELECT id, state, ending, prompt_tokens, completion_tokens, amount FROM charge WHERE account_id = ?`, d.account.ID)
	must(t, err)
	defer rows.Close()
	all := map[string]ledger.Receipt{}
	for rows.Next() {
		var r ledger.Receipt
		must(t, rows.Scan(&r.RequestID, &r.State, &r.Ending, &r.PromptTokens, &r.CompletionTokens, &r.Charge))
		all[r.RequestID] = r
	}
	must(t, rows.Err())
	return all
}

// cutProvider sends as many events as the case has, each when it is let.
func cutProvider(e *upstreamtest.Exchange, steps *sync.Map) {
	var req struct{ Messages []struct{ Content string } }
	if err := json.Unmarshal(e.Body, &req); err != nil {
		return
	}
	text := req.Messages[0].Content
	var side string
	var n int
	if _, err := fmt.Sscanf(text, "%s %d", &side, &n); err != nil {
		return
	}
	e.Stream()
	if side == "provider" {
		for i := range n {
			e.Event(piece(i))
		}
		if n < cutEvents {
			return // and the connection with it
		}
		e.Event(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
		e.Done()
		return
	}
	v, _ := steps.Load(text)
	c := v.(*cutCase)
	close(c.asked)
	for i := 0; ; i++ {
		select {
		case <-c.let:
			e.Event(piece(i))
		case <-e.Gone(): // the client has left and we were told
			return
		}
	}
}

func piece(i int) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":"w%d "}}]}`, i)
}

// cut makes one call and reads it to its end, or leaves after n events.
func (d *door) cut(t *testing.T, side string, n int, steps *sync.Map) (v view) {
	t.Helper()
	text := fmt.Sprintf("%s %d", side, n)
	c := &cutCase{asked: make(chan struct{}), let: make(chan struct{}, 1)}
	steps.Store(text, c)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	body := fmt.Sprintf(`{"model":"svc-pulse","stream":true,"max_tokens":1000,"messages":[{"role":"user","content":%q}]}`, text)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/v1/chat/completions", strings.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+d.key)
	switch {
	case side == "client" && n == 0: // nothing will come: leave once the provider is at it
		go func() { <-c.asked; leave() }()
	case side == "client":
		c.let <- struct{}{}
	}
	res, err := d.client.Do(req)
	if err != nil {
		v.end = "left"
		return v
	}
	defer res.Body.Close()
	v.status, v.receipt.RequestID = res.StatusCode, res.Header.Get("X-Request-Id")
	lines := bufio.NewReader(res.Body)
	if v.status != http.StatusOK {
		v.end = "JSON"
		return v
	}
	for {
		line, err := lines.ReadString('\n')
		switch {
		case err != nil:
			if v.end == "" {
				v.end = "broken"
			} else if errors.Is(err, io.EOF) && v.end == "error event" {
				v.end = "error event, clean end"
			}
			return v
		case strings.Contains(line, `"content":"w`):
			v.pieces++
			if side == "client" && v.pieces == n {
				v.end = "left"
				return v
			}
			if side == "client" {
				c.let <- struct{}{}
			}
		case strings.HasPrefix(line, `data: {"error":{`):
			v.end = "error event"
		case line == "data: [DONE]\n":
			v.end = "done"
			return v
		}
	}
}

// checkCut holds one row against the published rule.
func checkCut(t *testing.T, side string, n int, v *view) {
	t.Helper()
	r := &v.receipt
	want := view{status: 200, pieces: n, end: "error event"}
	want.receipt = ledger.Receipt{State: ledger.Settled, Ending: ledger.EndUpstreamCut, PromptTokens: r.PromptTokens, CompletionTokens: n}
	switch {
	case side == "client" && n == 0:
		want.status, want.end, want.receipt.Ending = 0, "left", ledger.EndClientGone
	case side == "client":
		want.end, want.receipt.Ending = "left", ledger.EndClientGone
	case n == 0:
		want.status, want.end = 502, "JSON"
		want.receipt = ledger.Receipt{State: ledger.Voided, Ending: ledger.EndUpstreamError}
	case n == cutEvents:
		want.end, want.receipt.Ending = "done", ledger.EndStop
	}
	if v.status != want.status || v.pieces != want.pieces || v.end != want.end {
		t.Errorf("%s cuts at %d: the client saw %d, %d pieces, %s; want %d, %d, %s", side, n, v.status, v.pieces, v.end, want.status, want.pieces, want.end)
	}
	if r.State != want.receipt.State || r.Ending != want.receipt.Ending || r.CompletionTokens != want.receipt.CompletionTokens {
		t.Errorf("%s cuts at %d: %s %s with %d tokens, want %s %s with %d", side, n, r.State, r.Ending, r.CompletionTokens, want.receipt.State, want.receipt.Ending, want.receipt.CompletionTokens)
	}
	charge := int64(r.PromptTokens)*10 + int64(n)*20
	if want.receipt.State == ledger.Voided {
		charge = 0
	}
	if int64(r.Charge) != charge || charge != 0 && r.PromptTokens == 0 {
		t.Errorf("%s cuts at %d: charged %d for %d+%d tokens, want %d", side, n, r.Charge, r.PromptTokens, r.CompletionTokens, charge)
	}
}

func table(rows map[string][]view) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "cut by\tat event\tstatus\tpieces seen\tend seen\tending\tprompt\tanswer\tcharge IU\t")
	for _, side := range []string{"provider", "client"} {
		for n, v := range rows[side] {
			r := v.receipt
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s %s\t%d\t%d\t%s\t\n", side, n, v.status, v.pieces, v.end, r.State, r.Ending, r.PromptTokens, r.CompletionTokens, r.Charge)
		}
	}
	_ = w.Flush() // into memory
	return b.String()
}
