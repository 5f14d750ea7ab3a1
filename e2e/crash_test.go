package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// kills is how often the server dies under load.
const kills = 12

// TestCrash kills the server again and again while clients stream and ask, and then proves from
// outside that nothing delivered was free, nothing was charged twice and nothing is still held.
func TestCrash(t *testing.T) {
	s := start(t)
	key := s.Key
	run(t, s, "credit", "add", "default", "1000", "--note", "crash test")
	w := &witnesses{key: key, client: newClient(), stop: make(chan struct{})}
	w.at.Store(&s.URL)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() { w.ask(t, i) })
	}
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	died := 0
	for ; died < kills || (died < 4*kills && w.cuts() < 5); died++ {
		// From before the first token of a busy server to well into its stride.
		<-time.After(time.Duration(50+random.IntN(1500)) * time.Millisecond)
		s.Kill()
		w.at.Store(nil)
		next, err := proc.Start(s.Options)
		if err != nil {
			t.Fatal(err)
		}
		s = next
		w.at.Store(&s.URL)
	}
	// A busy machine answers little between two kills; the last run makes up for it.
	eventually(t, time.Minute, func() error {
		if complete, _ := w.tally(); complete < kills {
			return fmt.Errorf("%d answers are complete", complete)
		}
		return nil
	})
	close(w.stop)
	wg.Wait()
	defer s.Kill()

	db := openBooks(t, s.Options.Data)
	eventually(t, 5*time.Second, func() error {
		n, err := count(db, `SELECT count(*) FROM hold`)
		if err == nil && n != 0 {
			err = fmt.Errorf("%d calls are still held", n)
		}
		return err
	})
	if r := s.Run("ledger", "verify", "--json"); r.Code != 0 || !strings.Contains(r.Stdout, `"ok":true`) {
		t.Errorf("ledger verify: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.Stderr())
	}
	complete, cut := w.tally()
	recovered, _ := count(db, `SELECT count(*) FROM charge WHERE state = 'recovered'`)
	t.Logf("%d kills: %d answers complete, %d cut after text had arrived, %d recovered at a start", died, complete, cut, recovered)
	if cut == 0 {
		t.Errorf("the test proves little: no stream was cut after text had arrived")
	}
	checkBooks(t, s.Options.Data, w.log)
	if r := proc.Run(s.Options, "ledger", "verify"); r.Code != 0 {
		t.Errorf("ledger verify without a server: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// cuts is how many streams were cut after text had arrived.
func (w *witnesses) cuts() int {
	_, cut := w.tally()
	return cut
}

// witnesses are the clients of the crash test and what they wrote down.
type witnesses struct {
	key    string
	client *http.Client
	at     atomic.Pointer[string] // the server's address; nil while it is down
	stop   chan struct{}

	mu  sync.Mutex
	log []entry
}

// ask calls until stop; every second client streams.
func (w *witnesses) ask(t *testing.T, i int) {
	t.Helper()
	for n := 0; ; n++ {
		select {
		case <-w.stop:
			return
		default:
		}
		at := w.at.Load()
		if at == nil {
			<-time.After(5 * time.Millisecond)
			continue
		}
		s := &proc.Server{URL: *at}
		rest := fmt.Sprintf(`"model":"svc-pulse","max_tokens":%d,"temperature":0,"messages":[{"role":"user","content":"Client %d, call %d: tell me more."}]}`, 4+(i+n)%20, i, n)
		var e entry
		var ok bool
		if i%2 == 0 {
			e, ok = w.stream(t, s, `{"stream":true,"stream_options":{"include_usage":true},`+rest)
		} else {
			e, ok = w.whole(t, s, `{`+rest)
		}
		if ok {
			w.mu.Lock()
			w.log = append(w.log, e)
			w.mu.Unlock()
		} else {
			<-time.After(5 * time.Millisecond)
		}
	}
}

func (w *witnesses) whole(t *testing.T, s *proc.Server, body string) (entry, bool) {
	t.Helper()
	a, err := tryPost(t, w.client, s, w.key, body)
	if a.Header == nil {
		return entry{}, false
	}
	e := entry{requestID: a.Header.Get("X-Request-Id")}
	if a.Status != http.StatusOK {
		if a.Status != http.StatusServiceUnavailable && a.Status != http.StatusTooManyRequests {
			t.Errorf("status %d: %s", a.Status, a.Body)
		}
		return entry{}, false
	}
	var c completion
	if err == nil {
		err = json.Unmarshal(a.Body, &c)
	}
	if err != nil {
		// The head came and the body did not: nobody can name the completion.
		return entry{}, false
	}
	e.completionID, e.usage, e.complete = c.ID, c.Usage, true
	return e, true
}

func (w *witnesses) stream(t *testing.T, s *proc.Server, body string) (entry, bool) {
	t.Helper()
	resp, err := openStream(t, w.client, s, w.key, body)
	if err != nil {
		return entry{}, false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("status %d", resp.StatusCode)
		}
		return entry{}, false
	}
	e := entry{requestID: resp.Header.Get("X-Request-Id")}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		// A line without its end was cut and was not received.
		if data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: "); ok && err == nil {
			st := readStream("data: " + data)
			if st.done {
				e.complete = true
			}
			if len(st.chunks) == 1 {
				e.completionID = st.chunks[0].ID
			}
			if st.text != "" {
				e.pieces++
			}
			if st.usage != nil {
				e.usage = st.usage
			}
		}
		if err != nil {
			return e, e.completionID != ""
		}
	}
}

// tally counts the answers received whole, and those cut after text had arrived.
func (w *witnesses) tally() (complete, cut int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.log {
		switch {
		case e.complete:
			complete++
		case e.pieces > 0:
			cut++
		}
	}
	return complete, cut
}
