package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// asked is one call of the limit tests as its client saw it. It was decided on at some moment
// between sent and heard; stamp is when the server began it, by the id it gave.
type asked struct {
	sent, heard, stamp time.Time
	status             int   // 0 where the server died
	cost               int64 // of a call that was let in, or may have been
}

// TestLimits_Minute calls for two minutes (75 s in CI) at three times a limit. A minute never holds
// more than the limit, and when a call is refused the minute before holds at least 99 % of it.
func TestLimits_Minute(t *testing.T) {
	t.Parallel()
	long := 75 * time.Second
	if thorough(t) > 0 {
		long = 2*time.Minute + 5*time.Second
	}
	p := startStub(t)
	// They mostly wait: all at once, and they count as one test.
	var wg sync.WaitGroup
	defer wg.Wait()
	const plans = `
  - {id: requests, rpm: 600, tpm: 100000000, concurrency: 4096}
  - {id: tokens, rpm: 1000000, tpm: 60000, concurrency: 4096}`
	for _, c := range []struct {
		name, plan string
		limit      int64
		order      string
		perSecond  float64 // three times the limit
		killed     bool
	}{
		{"requests", "requests", 600, "words=1 usage=none", 30, false},
		{"tokens", "tokens", 60_000, "words=82 usage=none", 30, false},
		{"requests over a kill -9", "requests", 600, "words=1 usage=none", 30, true},
		{"tokens over a kill -9", "tokens", 60_000, "words=82 usage=none", 30, true},
	} {
		wg.Go(func() {
			t.Run(c.name, func(t *testing.T) {
				s := behindPlans(t, p, plans)
				secret, _ := account(t, s, "saturated", c.plan, "100000")
				words := strings.TrimPrefix(strings.Fields(c.order)[0], "words=")
				body := tell("svc-pulse", `,"max_tokens":`+words, c.order)
				var kill func() *proc.Server
				if c.killed {
					kill = func() *proc.Server { return again(t, s) }
				}
				verdict(t, c.limit, storm(t, s, secret, body, c.limit, c.perSecond, long, kill))
			})
		})
	}
}

// again kills a server and starts it on the same books.
func again(t *testing.T, s *proc.Server) *proc.Server {
	t.Helper()
	s.Kill()
	next, err := proc.Start(s.Options)
	if err != nil {
		t.Error(err)
		return s
	}
	t.Cleanup(next.Kill)
	return next
}

// storm calls at a steady rate, whatever comes back. With kill the server dies once, half-way
// through the first minute.
func storm(t *testing.T, s *proc.Server, secret, body string, limit int64, rate float64, long time.Duration, kill func() *proc.Server) []asked {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all []asked
	last, dies := int64(0), kill != nil
	// A burst would leave connections behind that were never used. The server closes them when no
	// headers come for 10 s, and a call that begins on one at that moment is lost.
	client := &http.Client{Timeout: 10 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	begun := time.Now()
	for made := 0.; time.Since(begun) < long; made++ {
		if made >= time.Since(begun).Seconds()*rate { // what a busy machine held up is caught up with
			<-tick.C
		}
		if kill != nil && time.Since(begun) > 30*time.Second {
			s, kill = kill(), nil // with calls under way
		}
		at := *s
		wg.Go(func() {
			c := asked{sent: time.Now()}
			a, err := tryPost(t, client, &at, secret, body)
			c.heard, c.status = time.Now(), a.Status
			if err != nil && dies {
				// It may have been let in, and may be in the books.
				mu.Lock()
				defer mu.Unlock()
				c.status, c.cost = 0, last
				all = append(all, c)
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			c.stamp = stamp(t, a.Header.Get("X-Request-Id"))
			var done completion
			switch {
			case a.Status == http.StatusOK && json.Unmarshal(a.Body, &done) == nil && done.Usage != nil:
				if c.cost = 1; limit > 10_000 {
					c.cost = done.Usage.Total
				}
			case a.Status != http.StatusTooManyRequests:
				t.Errorf("status %d: %s", a.Status, a.Body)
			}
			mu.Lock()
			defer mu.Unlock()
			all, last = append(all, c), max(last, c.cost)
		})
	}
	wg.Wait()
	return all
}

// stamp reads the time in an id: the first 48 bits are milliseconds, the next 12 below its version
// a fraction of one.
func stamp(t *testing.T, id string) time.Time {
	t.Helper()
	if !requestID.MatchString(id) {
		t.Errorf("x-request-id = %q", id)
		return time.Time{}
	}
	ms, err := strconv.ParseInt(id[4:16], 16, 64)
	fraction, err2 := strconv.ParseInt(id[17:20], 16, 64)
	if err != nil || err2 != nil {
		t.Errorf("x-request-id = %q: %v, %v", id, err, err2)
	}
	return time.UnixMilli(ms).Add(time.Duration(fraction) * time.Millisecond / 4096)
}

// minutes is what a history says about a limit. Sure is by what the client saw alone and leaves no
// room for doubt; stamped is by the times in the ids, which are those of the request's arrival.
type minutes struct {
	most        int64 // surely within one minute
	least       int64 // at most so much within the minute before some refusal
	stampedMost int64
	stampedLow  int64
	admitted    int
	refused     int
}

// weigh looks at every minute that begins with an admitted call, and at every minute that ends with
// a refused one: in those the limit was said to be used up.
func weigh(all []asked) minutes {
	m := minutes{least: math.MaxInt64, stampedLow: math.MaxInt64}
	for _, c := range all {
		switch c.status {
		case http.StatusOK:
			m.admitted++
			sure, stamped := int64(0), int64(0)
			for _, o := range all {
				if o.status == http.StatusOK && !o.sent.Before(c.sent) && o.heard.Sub(c.sent) < time.Minute {
					sure += o.cost
				}
				if d := o.stamp.Sub(c.stamp); d >= 0 && d < time.Minute {
					stamped += o.cost
				}
			}
			m.most, m.stampedMost = max(m.most, sure), max(m.stampedMost, stamped)
		case http.StatusTooManyRequests:
			m.refused++
			perhaps, stamped := int64(0), int64(0)
			for _, o := range all {
				if c.sent.Sub(o.heard) <= time.Minute && !o.sent.After(c.heard) {
					perhaps += o.cost
				}
				if d := c.stamp.Sub(o.stamp); d >= 0 && d < time.Minute {
					stamped += o.cost
				}
			}
			m.least, m.stampedLow = min(m.least, perhaps), min(m.stampedLow, stamped)
		}
	}
	return m
}

// verdict fails when a minute had more than the limit, or a call was refused below 99 % of it.
func verdict(t *testing.T, limit int64, all []asked) {
	t.Helper()
	m := weigh(all)
	of := func(n int64) string { return fmt.Sprintf("%.4f", float64(n)/float64(limit)) }
	t.Logf("%d admitted, %d refused; of the limit, sure: most %s, least at a refusal %s; by the ids: most %s, least at a refusal %s",
		m.admitted, m.refused, of(m.most), of(m.least), of(m.stampedMost), of(m.stampedLow))
	// A limit is let in at the start of each minute, so that in the shortest run, of a minute and a
	// quarter, about half of the calls are refused.
	if m.refused < m.admitted/2 {
		t.Errorf("%d refused and %d admitted: the limit was not reached for long", m.refused, m.admitted)
	}
	if !t.Failed() {
		t.Attr("proof", fmt.Sprintf("T14; every minute of %s, %d calls: at most %s, refused from %s of the limit; wrong 0",
			path.Base(t.Name()), m.admitted+m.refused, of(m.most), of(m.least)))
	}
	if m.most > limit {
		t.Errorf("%d in a minute, the limit is %d", m.most, limit)
	}
	if m.least < limit*99/100 {
		t.Errorf("a call was refused when %d were used, the limit is %d", m.least, limit)
	}
}

// TestWeigh_Catches proves the scales: one call too many, or a refusal too early, is seen.
func TestWeigh_Catches(t *testing.T) {
	t.Parallel()
	var all []asked
	at := time.Now()
	add := func(after time.Duration, status int, cost int64) {
		sent := at.Add(after)
		all = append(all, asked{sent, sent.Add(10 * time.Millisecond), sent.Add(5 * time.Millisecond), status, cost})
	}
	for i := range 100 {
		add(time.Duration(i)*time.Second/10, http.StatusOK, 1)
	}
	add(30*time.Second, http.StatusTooManyRequests, 0)
	if m := weigh(all); m.most != 100 || m.least != 100 || m.stampedMost != 100 || m.stampedLow != 100 {
		t.Errorf("a full minute: %+v", m)
	}
	add(59*time.Second+980*time.Millisecond, http.StatusOK, 1)
	if m := weigh(all); m.most != 101 || m.stampedMost != 101 {
		t.Errorf("one too many within the minute: %+v", m)
	}
	all = all[:len(all)-1]
	add(60*time.Second, http.StatusOK, 1)
	if m := weigh(all); m.most != 100 {
		t.Errorf("one that may be of the next minute: %+v", m)
	}
	add(65*time.Second, http.StatusTooManyRequests, 0)
	if m := weigh(all); m.least > 52 {
		t.Errorf("a refusal when half of the minute had left: %+v", m)
	}
}
