package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/idempotency"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/store/storetest"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// charges are the calls of the door's account that were charged.
func (d *door) charges(t testing.TB) []ledger.Receipt {
	t.Helper()
	rs, err := d.db.Receipts(context.Background(), d.account.ID, 100_000)
	must(t, err)
	return slices.DeleteFunc(rs, func(r ledger.Receipt) bool { return r.State == ledger.Voided })
}

const idem = "Idempotency-Key"

// A whole answer is given again as it was, and charged once.
func TestIdempotency_Replay(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	first := d.post(t, body(""), idem, "order 66")
	if first.StatusCode != http.StatusOK || first.Header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("the first call: %d %v", first.StatusCode, first.Header)
	}
	for range 3 {
		again := d.post(t, body(""), idem, "order 66")
		if again.StatusCode != http.StatusOK || again.body != first.body || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("again: %d %v\n%s\nwant\n%s", again.StatusCode, again.Header, again.body, first.body)
		}
		if a, b := again.Header.Get("Content-Type"), first.Header.Get("Content-Type"); a != b {
			t.Errorf("Content-Type %q, want %q", a, b)
		}
	}
	if r := d.post(t, body(`,"seed":1`), idem, "order 66"); r.StatusCode != http.StatusBadRequest || r.code() != "idempotency_key_reuse" {
		t.Errorf("another body: %d %s", r.StatusCode, r.code())
	}
	if n := len(d.charges(t)); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
	// Another key and another account are other calls.
	if r := d.post(t, body(""), idem, "order 67"); r.StatusCode != http.StatusOK || r.body == first.body {
		t.Errorf("another key: %d", r.StatusCode)
	}
	_, other := d.customer(t, "b", "pro", credit)
	if r := d.post(t, body(`,"seed":1`), idem, "order 66", "Authorization", "Bearer "+other); r.StatusCode != http.StatusOK {
		t.Errorf("another account: %d %s", r.StatusCode, r.body)
	}
	// What is kept is not readable for who has the books only.
	rec := d.record(t)
	if strings.Contains(string(rec.Answer), "Hello") || strings.Contains(string(rec.Answer), "chatcmpl") {
		t.Error("the answer is kept in the clear")
	}
}

// What is given again counts nothing, and says what is left as every answer to a key does.
func TestIdempotency_ReplayHasLimits(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	_, secret, err := d.keys.Create(t.Context(), apikey.NewKey{AccountID: d.account.ID, Name: "k", RPM: 5})
	must(t, err)
	for range 3 {
		r := d.post(t, body(""), idem, "order 66", "Authorization", "Bearer "+string(secret))
		if left := r.Header.Get("X-Ratelimit-Remaining-Requests"); r.StatusCode != http.StatusOK || left != "4" {
			t.Errorf("%d, replayed %q: %q requests remain, want 4", r.StatusCode, r.Header.Get("Idempotent-Replayed"), left)
		}
	}
}

// sql runs plain SQL behind the back of the rooms.
func (d *door) sql(t testing.TB, statement string, args ...any) {
	t.Helper()
	db := storetest.Plain(t, filepath.Join(d.dir, store.FileName))
	defer db.Close()
	_, err := db.ExecContext(context.Background(), statement, args...)
	must(t, err)
}

// idempotentKeys are all keys in the books.
func (d *door) idempotentKeys(t testing.TB) (keys [][32]byte, err error) {
	t.Helper()
	db := storetest.PlainReader(t, filepath.Join(d.dir, store.FileName))
	defer db.Close()
	rs, err := db.QueryContext(context.Background(), `SELECT key FROM idempotency ORDER BY number`)
	if err != nil {
		return nil, err
	}
	defer rs.Close()
	for rs.Next() {
		var key []byte
		if err := rs.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, [32]byte(key))
	}
	return keys, rs.Err()
}

// record is the only one of the door's account, or the oldest.
func (d *door) record(t testing.TB) (r idempotency.Record) {
	t.Helper()
	keys, err := d.idempotentKeys(t)
	must(t, err)
	r, found, err := d.db.FindIdempotent(context.Background(), d.account.ID, keys[0])
	must(t, err)
	if !found {
		t.Fatal("the key is not found")
	}
	return r
}

func TestIdempotency_Keys(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	for _, key := range []string{strings.Repeat("k", 255), "!", "a b", `~"{}'`} {
		if r := d.post(t, body(""), idem, key); r.StatusCode != http.StatusOK {
			t.Errorf("key %q: %d %s", key, r.StatusCode, r.body)
		}
	}
	for _, key := range []string{strings.Repeat("k", 256), "tab\there", "ключ", "\xff"} {
		if r := d.post(t, body(""), idem, key); r.StatusCode != http.StatusBadRequest || r.code() != "invalid_idempotency_key" {
			t.Errorf("key %q: %d %s", key, r.StatusCode, r.body)
		}
	}
	req, err := http.NewRequest("POST", d.URL+"/v1/chat/completions", strings.NewReader(body("")))
	must(t, err)
	req.Header = http.Header{"Authorization": {"Bearer " + d.key}, idem: {"a", "a"}}
	res, err := d.client.Do(req)
	must(t, err)
	if r := read(t, res); r.StatusCode != http.StatusBadRequest || r.code() != "invalid_idempotency_key" {
		t.Errorf("two keys: %d %s", r.StatusCode, r.body)
	}
}

// A stream is not kept: who asks again is told which completion it was.
func TestIdempotency_Stream(t *testing.T) {
	t.Parallel()
	d := open(t, hello())
	first := d.post(t, body(`,"stream":true`), idem, "s")
	if first.StatusCode != http.StatusOK || !strings.HasSuffix(first.body, "data: [DONE]\n\n") {
		t.Fatalf("the stream: %d %s", first.StatusCode, first.body)
	}
	again := d.post(t, body(`,"stream":true`), idem, "s")
	id := d.charges(t)[0].CompletionID
	if again.StatusCode != http.StatusConflict || again.code() != "idempotency_completed" || !strings.Contains(again.body, id) || again.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("again: %d %v %s, want 409 that names %s", again.StatusCode, again.Header, again.body, id)
	}
	if n := len(d.charges(t)); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

func TestIdempotency_InProgress(t *testing.T) {
	t.Parallel()
	for _, extra := range []string{"", `,"stream":true`} {
		running, goOn := make(chan struct{}), make(chan struct{})
		d := open(t, provider(upstreamtest.Text("a"), reached(running), upstreamtest.Wait(goOn), upstreamtest.Finish(wire.FinishStop)))
		var first *reply
		var wg sync.WaitGroup
		wg.Go(func() { first = d.post(t, body(extra), idem, "k") })
		<-running
		r := d.post(t, body(extra), idem, "k")
		if r.StatusCode != http.StatusConflict || r.code() != "idempotency_in_progress" || r.Header.Get("Retry-After") == "" {
			t.Errorf("while it runs: %d %s %v", r.StatusCode, r.code(), r.Header)
		}
		if r := d.post(t, body(extra+`,"seed":5`), idem, "k"); r.code() != "idempotency_key_reuse" {
			t.Errorf("another body while it runs: %d %s", r.StatusCode, r.code())
		}
		close(goOn)
		wg.Wait()
		if first.StatusCode != http.StatusOK {
			t.Errorf("the call itself: %d %s", first.StatusCode, first.body)
		}
	}
}

// A call that was not charged leaves its key free.
func TestIdempotency_NotCharged(t *testing.T) {
	t.Parallel()
	p := upstreamtest.New(
		upstreamtest.Script{upstreamtest.Fail(upstream.Failed)},
		upstreamtest.Script{upstreamtest.Fail(upstream.Failed)},
		upstreamtest.Script{upstreamtest.Text("Hello"), upstreamtest.Finish(wire.FinishStop)},
	)
	p.Prompt = 10
	d := open(t, p)
	if r := d.post(t, body(`,"model":1`), idem, "k"); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a body that is refused: %d", r.StatusCode)
	}
	var codes []string
	for range 4 {
		r := d.post(t, body(`,"n":1`), idem, "k")
		codes = append(codes, fmt.Sprint(r.StatusCode, r.code(), r.Header.Get("Idempotent-Replayed")))
	}
	if last := codes[len(codes)-1]; last != "200true" {
		t.Errorf("the answers are %v, want the last to be a replay", codes)
	}
	if n := len(d.charges(t)); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

// Who loses the connection comes back for the answer: the call went on.
func TestIdempotency_CallerGone(t *testing.T) {
	t.Parallel()
	running, goOn := make(chan struct{}), make(chan struct{})
	d := open(t, provider(upstreamtest.Text("Hel"), reached(running), upstreamtest.Wait(goOn), upstreamtest.Text("lo"), upstreamtest.Finish(wire.FinishStop)))
	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", d.URL+"/v1/chat/completions", strings.NewReader(body("")))
	must(t, err)
	req.Header = http.Header{"Authorization": {"Bearer " + d.key}, idem: {"k"}}
	var wg sync.WaitGroup
	wg.Go(func() {
		if res, err := d.client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			t.Error("the caller that left has an answer")
		}
	})
	<-running
	leave()
	wg.Wait()
	close(goOn)
	var r *reply
	for r = d.post(t, body(""), idem, "k"); r.code() == "idempotency_in_progress"; r = d.post(t, body(""), idem, "k") {
	}
	if r.StatusCode != http.StatusOK || !strings.Contains(r.body, "Hello") || r.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("who came back has %d %s", r.StatusCode, r.body)
	}
	if n := len(d.charges(t)); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

// The end of the server cuts a call that outlived its caller, and leaves its key free.
func TestIdempotency_Shutdown(t *testing.T) {
	t.Parallel()
	running := make(chan struct{})
	d := open(t, provider(upstreamtest.Text("Hel"), reached(running), upstreamtest.Hang()))
	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", d.URL+"/v1/chat/completions", strings.NewReader(body("")))
	must(t, err)
	req.Header = http.Header{"Authorization": {"Bearer " + d.key}, idem: {"k"}}
	var wg sync.WaitGroup
	wg.Go(func() {
		if res, err := d.client.Do(req); err == nil {
			res.Body.Close()
		}
	})
	<-running
	leave()
	wg.Wait()
	d.end(chat.ErrShutdown)
	d.Close()
	if n := len(d.charges(t)); n != 0 {
		t.Errorf("%d charges of an answer that nobody was shown", n)
	}
	keys, err := d.idempotentKeys(t)
	if err != nil || len(keys) != 0 {
		t.Errorf("keys %v, %v, want none", keys, err)
	}
}

// Many at once and again, whole and streamed: one charge for each key. make prove with
// 500 kills does 10,000 keys.
func TestIdempotency_Storm(t *testing.T) {
	t.Parallel()
	keys := 40
	const callers = 64
	if kills, err := strconv.Atoi(os.Getenv("PARLEY_PROVE")); err == nil {
		keys = max(keys, 20*kills)
	}
	d := open(t, hello())
	d.log.mute()
	// Each caller keeps its connection: a port that was used once rests for a minute, and there are 28,000.
	d.client.Transport = &http.Transport{MaxIdleConnsPerHost: 2 * callers}
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]map[string]bool{}
	slots := make(chan struct{}, 2*callers)
	for k := range keys {
		key, extra := fmt.Sprint("key ", k), ""
		if k%4 == 3 {
			extra = `,"stream":true`
		}
		for range callers {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				r := d.post(t, body(extra), idem, key)
				mu.Lock()
				defer mu.Unlock()
				if answers[key] == nil {
					answers[key] = map[string]bool{}
				}
				switch {
				case r.StatusCode == http.StatusOK:
					answers[key][r.body] = true
				case r.StatusCode != http.StatusConflict:
					t.Errorf("%s: %d %s", key, r.StatusCode, r.body)
				}
			})
		}
	}
	wg.Wait()
	wrong := 0
	for key, bodies := range answers {
		if len(bodies) != 1 {
			wrong++
			t.Errorf("%s has %d different answers, want 1", key, len(bodies))
		}
	}
	books := storetest.PlainReader(t, filepath.Join(d.dir, store.FileName))
	var charges, twice, below int
	must(t, books.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM charge WHERE state <> 'voided'),
		(SELECT count(*) - count(DISTINCT completion_id) FROM charge), (SELECT count(*) FROM account WHERE posted > granted)`).Scan(&charges, &twice, &below))
	if charges != keys || twice+below != 0 {
		t.Errorf("%d charges for %d keys, %d of them twice; %d accounts below zero", charges, keys, twice, below)
	}
	t.Attr("proof", fmt.Sprintf("T6; %d keys, %d callers each; lost %d; duplicate %d; wrong %d; negative %d",
		keys, callers, max(0, keys-charges), twice+max(0, charges-keys), wrong, below))
	if rep, err := d.db.Verify(context.Background()); err != nil || !rep.OK() {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}

// After a day a key is free, whether it was swept or not.
func TestIdempotency_Expiry(t *testing.T) {
	t.Parallel()
	for _, sweep := range []bool{false, true} {
		d := open(t, hello())
		first := d.post(t, body(""), idem, "k")
		d.sql(t, `UPDATE idempotency SET created_at = created_at - $1`, idempotency.Lifetime.Microseconds())
		if sweep {
			must(t, d.repeats.Sweep(context.Background(), time.Now()))
			if keys, err := d.idempotentKeys(t); err != nil || len(keys) != 0 {
				t.Errorf("after the sweep: %v, %v", keys, err)
			}
		}
		second := d.post(t, body(`,"seed":7`), idem, "k")
		if second.StatusCode != http.StatusOK || second.body == first.body || second.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("a day later (sweep %v): %d %s", sweep, second.StatusCode, second.body)
		}
		if r := d.post(t, body(`,"seed":7`), idem, "k"); r.body != second.body {
			t.Errorf("the second one again (sweep %v): %d %s", sweep, r.StatusCode, r.body)
		}
		if n := len(d.charges(t)); n != 2 {
			t.Errorf("%d charges, want 2", n)
		}
	}
}
