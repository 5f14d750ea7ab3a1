package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// witnesses are the clients of the crash test and what they wrote down.
type witnesses struct {
	keys   []customer
	client *http.Client
	at     atomic.Pointer[place] // nil while the server is down
	stop   chan struct{}
	denied atomic.Int64

	mu   sync.Mutex
	log  []entry
	seen int // of log, by take
}

// place is a running server and whether it has the embedded model.
type place struct {
	server *proc.Server
	local  bool
}

type customer struct{ account, secret string }

const witnessesCount = 28

// newWitnesses makes three accounts and four keys, one of them with a budget. The plan of the last one is narrow: its limits
// are reached all the time.
func newWitnesses(t *testing.T, s *proc.Server) *witnesses {
	t.Helper()
	w := &witnesses{client: newClient(), stop: make(chan struct{})}
	for _, a := range []struct{ name, plan string }{{"wide", "bulk"}, {"other", "bulk"}, {"narrow", "narrow"}} {
		secret, _ := account(t, s, a.name, a.plan, "100000")
		w.keys = append(w.keys, customer{a.name, secret})
	}
	// Its plan pays for the first calls, and for parts of some, and credit for the others.
	run(t, s, "subscription", "set", "other", "--plan", "member")
	second := runJSON[struct{ Secret string }](t, s, "key", "create", "--account", "wide", "--name", "second", "--budget", "90000/month").Secret
	w.keys = append(w.keys, customer{"wide", second})
	w.up(s, false)
	return w
}

func (w *witnesses) up(s *proc.Server, local bool) { w.at.Store(&place{s, local}) }

// ask calls until stop: two of three clients stream, some slowly, so that each kill finds streams
// at every point of their lives.
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
			<-time.After(witnessesWait)
			continue
		}
		e := entry{target: "stub", account: w.keys[i%len(w.keys)].account, streamed: i%3 != 0, begun: time.Now()}
		model := "svc-titan"
		if i%2 == 0 {
			model = "svc-pulse"
			if at.local {
				e.target = "local"
			}
		}
		fields := fmt.Sprintf(`,"max_tokens":%d,"temperature":0`, 2+(i+n)%40)
		if e.streamed {
			fields += withUsage
		}
		// To the embedded model it is a question like any other.
		body := tell(model, fields, fmt.Sprintf("words=%d pace=%dms client %d call %d", 1+(i*7+n)%40, []int{0, 2, 7}[n%3], i, n))
		var ok bool
		if e.streamed {
			ok = w.stream(t, at.server, w.keys[i%len(w.keys)].secret, body, &e)
		} else {
			ok = w.whole(t, at.server, w.keys[i%len(w.keys)].secret, body, &e)
		}
		e.ended = time.Now()
		if ok {
			w.mu.Lock()
			w.log = append(w.log, e)
			w.mu.Unlock()
		} else {
			<-time.After(witnessesWait)
		}
	}
}

func (w *witnesses) whole(t *testing.T, s *proc.Server, key, body string, e *entry) bool {
	t.Helper()
	a, err := tryPost(t, w.client, s, key, body)
	if a.Header == nil || !w.admitted(t, a.Status) {
		return false
	}
	e.requestID = a.Header.Get("X-Request-Id")
	var c completion
	if err == nil {
		err = json.Unmarshal(a.Body, &c)
	}
	if err != nil {
		// The head came and the body did not: nobody can name the completion.
		return false
	}
	e.completionID, e.usage, e.complete = c.ID, c.Usage, true
	return true
}

func (w *witnesses) stream(t *testing.T, s *proc.Server, key, body string, e *entry) bool {
	t.Helper()
	resp, err := openStream(t, w.client, s, key, body)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if !w.admitted(t, resp.StatusCode) {
		return false
	}
	e.requestID = resp.Header.Get("X-Request-Id")
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		// A line without its end was cut and was not received.
		if data, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data: "); ok && err == nil {
			e.hear(data)
		}
		if err != nil {
			return e.completionID != ""
		}
	}
}

// hear notes one event of a stream.
func (e *entry) hear(data string) {
	st := &streamed{}
	st.add(data)
	e.complete = e.complete || st.done
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

// admitted says whether the call was let in; a refusal must be one of the two that load explains.
func (w *witnesses) admitted(t *testing.T, status int) bool {
	t.Helper()
	switch status {
	case http.StatusOK:
		return true
	case http.StatusTooManyRequests:
		w.denied.Add(1)
	case http.StatusServiceUnavailable:
	default:
		t.Errorf("status %d", status)
	}
	return false
}

// take returns what was written down since the last take.
func (w *witnesses) take() []entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Clip(w.log[w.seen:])
	w.seen = len(w.log)
	return list
}

// all returns everything that was written down.
func (w *witnesses) all() []entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clip(w.log)
}

// heard is how many whole answers and whole streams there are so far.
func (w *witnesses) heard() (whole, streams int) {
	for _, e := range w.all() {
		switch {
		case e.complete && e.streamed:
			streams++
		case e.complete:
			whole++
		}
	}
	return whole, streams
}

// end lets the last server answer some more, and the clients go home.
func (w *witnesses) end(t *testing.T, wg *sync.WaitGroup) {
	t.Helper()
	before := len(w.all())
	eventually(t, func() error {
		if n := len(w.all()) - before; n < witnessesCount {
			return fmt.Errorf("%d answers after the last start", n)
		}
		return nil
	})
	close(w.stop)
	wg.Wait()
}
