package ratelimit_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/ratelimit"
)

var epoch = time.Unix(1_800_000_000, 0)

func denied(t *testing.T, err error) *ratelimit.DeniedError {
	t.Helper()
	d, ok := errors.AsType[*ratelimit.DeniedError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	return d
}

// simulator lets in by looking at every entry of the last minute: slow and obvious.
type simulator struct {
	at     []time.Time
	tokens []int64
}

func (s *simulator) used(from, to time.Time) (requests, tokens int64) {
	for i, at := range s.at {
		if at.After(from) && !at.After(to) {
			requests++
			tokens += s.tokens[i]
		}
	}
	return
}

// Two minutes and more of callers who come at three times the limit, each a little early
// or late:
// no sliding minute is above the limit, and none in the saturated part 1 % below.
func TestEverySlidingMinute(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		const limit = 6000
		kind := []ratelimit.Limits{{Requests: limit}, {Tokens: limit}}[seed%2]
		l := ratelimit.New(epoch)
		var sim simulator
		end := epoch.Add(200 * time.Second)
		const step = time.Minute / (3 * limit)
		for tick := epoch; tick.Before(end); tick = tick.Add(step) {
			now := tick.Add(time.Duration(r.Int64N(int64(step))))
			_, _, err := l.Take(now, ratelimit.Claim{Account: "a", Key: "k", AccountLimits: kind, Tokens: 1})
			if denied(t, err) == nil {
				sim.at, sim.tokens = append(sim.at, now), append(sim.tokens, 1)
			}
		}
		// The fullest and emptiest windows begin or end at an entry.
		low, head := 0, 0
		for i, at := range sim.at {
			for !sim.at[low].After(at.Add(-time.Minute)) {
				low++
			}
			if n := i - low + 1; n > limit {
				t.Fatalf("seed %d: %d in the minute before %v, limit %d", seed, n, at.Sub(epoch), limit)
			}
			if from := at; !from.Add(time.Minute).After(end) && from.After(epoch.Add(time.Second)) {
				for head < len(sim.at) && !sim.at[head].After(from.Add(time.Minute)) {
					head++
				}
				if n := head - i - 1; n < limit*99/100 {
					t.Fatalf("seed %d: %d in the minute after %v, limit %d", seed, n, from.Sub(epoch), limit)
				}
			}
		}
	}
}

// A random life of calls against the simulator: whatever is let in keeps every limit,
// whatever is refused would have broken one but for the group that counts too long, and
// RetryAfter is the moment at which it fits.
func TestAgainstSimulator(t *testing.T) {
	t.Parallel()
	const lives, calls = 200, 600
	defer func() {
		if !t.Failed() {
			t.Attr("proof", fmt.Sprintf("T14; %d lives of %d calls beside a simulator; wrong 0", lives, calls))
		}
	}()
	for seed := range uint64(lives) {
		r := rand.New(rand.NewPCG(seed, 2))
		l := ratelimit.New(epoch)
		claim := ratelimit.Claim{Account: "a", Key: "k", AccountLimits: ratelimit.Limits{Requests: 20, Tokens: 500}, KeyLimits: ratelimit.Limits{Requests: 15, Tokens: 450}}
		var sim simulator
		now := epoch
		for range calls {
			now = now.Add(time.Duration(r.ExpFloat64() * float64(2*time.Second)))
			claim.Tokens = 1 + r.Int64N(60)
			ticket, status, err := l.Take(now, claim)
			if d := denied(t, err); d != nil {
				requests, tokens := sim.used(now.Add(-time.Minute-500*time.Millisecond), now)
				if requests+1 <= 15 && tokens+claim.Tokens <= 450 {
					t.Fatalf("seed %d: refused at %d requests and %d+%d tokens: %v", seed, requests, tokens, claim.Tokens, d)
				}
				if d.RetryAfter <= 0 || d.RetryAfter > time.Minute {
					t.Fatalf("seed %d: RetryAfter is %v", seed, d.RetryAfter)
				}
				if _, _, err := l.Take(now.Add(d.RetryAfter-time.Microsecond), claim); denied(t, err) == nil {
					t.Fatalf("seed %d: let in a microsecond before RetryAfter", seed)
				}
				// The one limit that was named has room then.
				ticket, _, err := l.Take(now.Add(d.RetryAfter), claim)
				if again := denied(t, err); again != nil && again.Kind == d.Kind && again.Limit == d.Limit {
					t.Fatalf("seed %d: still %v after %v", seed, again, d.RetryAfter)
				}
				if ticket != nil {
					ticket.Cancel()
				}
				now = now.Add(d.RetryAfter)
				continue
			}
			if r.IntN(10) == 0 {
				before := status
				ticket.Cancel()
				if after := l.Peek(now, claim); after.Requests.Remaining != before.Requests.Remaining+1 || after.Tokens.Remaining != before.Tokens.Remaining+claim.Tokens {
					t.Fatalf("seed %d: Cancel left %+v of %+v", seed, after, before)
				}
				continue
			}
			used := r.Int64N(claim.Tokens + 1)
			ticket.Done(now, used)
			sim.at, sim.tokens = append(sim.at, now), append(sim.tokens, used)
			if requests, tokens := sim.used(now.Add(-time.Minute), now); requests > 15 || tokens > 450 {
				t.Fatalf("seed %d: let in %d requests, %d tokens", seed, requests, tokens)
			}
		}
	}
}

// What is refused changes nothing: not the counters, not when they clear.
func TestRefusedLeavesNoTrace(t *testing.T) {
	t.Parallel()
	l := ratelimit.New(epoch)
	c := ratelimit.Claim{Account: "a", Key: "k", AccountLimits: ratelimit.Limits{Requests: 2, Tokens: 100, Concurrency: 5}, Tokens: 10}
	for range 2 {
		if _, _, err := l.Take(epoch, c); err != nil {
			t.Fatal(err)
		}
	}
	want := l.Peek(epoch.Add(time.Second), c)
	for i := range 1000 {
		_, status, err := l.Take(epoch.Add(time.Second), c)
		if d := denied(t, err); d == nil || d.Kind != ratelimit.Requests || d.RetryAfter != 59*time.Second {
			t.Fatalf("Take %d gives %v", i, err)
		}
		if status != want {
			t.Fatalf("Take %d: status %+v, want %+v", i, status, want)
		}
	}
	if _, _, err := l.Take(epoch.Add(time.Minute), c); err != nil {
		t.Errorf("a minute after the first: %v", err)
	}
}

func TestKeyBindsInAddition(t *testing.T) {
	t.Parallel()
	l := ratelimit.New(epoch)
	c := ratelimit.Claim{Account: "a", AccountLimits: ratelimit.Limits{Requests: 3}, KeyLimits: ratelimit.Limits{Requests: 2}}
	for i, step := range []struct {
		key  string
		want bool
	}{{"k1", true}, {"k1", true}, {"k1", false}, {"k2", true}, {"k2", false}, {"k3", false}} {
		c.Key = step.key
		_, _, err := l.Take(epoch, c)
		if (err == nil) != step.want {
			t.Errorf("step %d: Take by %s gives %v", i, step.key, err)
		}
	}
	c.Account = "b"
	if _, _, err := l.Take(epoch, c); err != nil {
		t.Errorf("another account: %v", err)
	}
}

func TestNever(t *testing.T) {
	t.Parallel()
	l := ratelimit.New(epoch)
	_, _, err := l.Take(epoch, ratelimit.Claim{Account: "a", Key: "k", AccountLimits: ratelimit.Limits{Tokens: 100}, Tokens: 101})
	if d := denied(t, err); d == nil || !d.Never {
		t.Errorf("Take of 101 tokens under a limit of 100 gives %v", err)
	}
}

// Use beyond the claim counts when it is known.
func TestOveruse(t *testing.T) {
	t.Parallel()
	l := ratelimit.New(epoch)
	c := ratelimit.Claim{Account: "a", Key: "k", AccountLimits: ratelimit.Limits{Tokens: 100}, Tokens: 10}
	ticket, _, err := l.Take(epoch, c)
	if err != nil {
		t.Fatal(err)
	}
	ticket.Done(epoch.Add(30*time.Second), 25)
	for _, step := range []struct {
		after time.Duration
		left  int64
	}{{30 * time.Second, 75}, {61 * time.Second, 85}, {91 * time.Second, 100}} {
		if got := l.Peek(epoch.Add(step.after), c).Tokens.Remaining; got != step.left {
			t.Errorf("after %v %d tokens remain, want %d", step.after, got, step.left)
		}
	}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	l := ratelimit.New(epoch)
	c := ratelimit.Claim{Account: "a", Key: "k", AccountLimits: ratelimit.Limits{Concurrency: 8}}
	var most, running atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 200 {
				ticket, _, err := l.Take(epoch, c)
				if err != nil {
					continue
				}
				n := running.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				running.Add(-1)
				ticket.Done(epoch, 0)
			}
		})
	}
	wg.Wait()
	if m := most.Load(); m > 8 || m == 0 {
		t.Errorf("%d ran at once, the limit is 8", m)
	}
	for i := range 8 {
		if _, _, err := l.Take(epoch, c); err != nil {
			t.Fatalf("Take %d after all have ended: %v", i, err)
		}
	}
	_, _, err := l.Take(epoch, c)
	if d := denied(t, err); d == nil || d.Kind != ratelimit.Concurrency || d.RetryAfter != time.Second {
		t.Errorf("the ninth gives %v", err)
	}
}

// Who is taken back leaves those who came in the same moment, or before it and later to the
// lock, where they are.
func TestCancel_SameMoment(t *testing.T) {
	t.Parallel()
	l := ratelimit.New(epoch)
	c := ratelimit.Claim{Account: "a", Key: "k", AccountLimits: ratelimit.Limits{Requests: 1024, Tokens: 102_400}, Tokens: 10}
	take := func(after time.Duration) *ratelimit.Ticket {
		t.Helper()
		ticket, _, err := l.Take(epoch.Add(after), c)
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	take(0)
	refused := take(400 * time.Millisecond)
	take(399*time.Millisecond).Done(epoch.Add(400*time.Millisecond), 30) // 20 beyond its claim
	refused.Cancel()
	left := func(after time.Duration) (requests, tokens int64) {
		s := l.Peek(epoch.Add(time.Minute+after), c)
		return s.Requests.Remaining, s.Tokens.Remaining
	}
	if requests, tokens := left(399*time.Millisecond - 1); requests >= 1024 || tokens > 102_370 {
		t.Errorf("%d requests and %d tokens remain before the minute of the second has passed", requests, tokens)
	}
	if requests, tokens := left(400 * time.Millisecond); requests != 1024 || tokens != 102_400 {
		t.Errorf("%d requests and %d tokens remain when it has", requests, tokens)
	}
	// Alone in its moment, it leaves no trace.
	l = ratelimit.New(epoch)
	take(0)
	take(400 * time.Millisecond).Cancel()
	if requests, tokens := left(0); requests != 1024 || tokens != 102_400 {
		t.Errorf("%d requests and %d tokens remain a minute after the only call", requests, tokens)
	}
}

// A restart counts what the last minute used.
func TestRestore(t *testing.T) {
	t.Parallel()
	l := ratelimit.New(epoch)
	l.Restore([]ratelimit.Past{
		{Account: "a", Key: "k", At: epoch.Add(-70 * time.Second), Tokens: 1000},
		{Account: "a", Key: "k", At: epoch.Add(-59 * time.Second), Tokens: 30},
		{Account: "a", Key: "k", At: epoch.Add(-time.Second), Tokens: 40},
	})
	c := ratelimit.Claim{Account: "a", Key: "k", AccountLimits: ratelimit.Limits{Requests: 10, Tokens: 100}}
	for _, step := range []struct {
		after            time.Duration
		requests, tokens int64
	}{{0, 8, 30}, {time.Second, 9, 60}, {59 * time.Second, 10, 100}} {
		s := l.Peek(epoch.Add(step.after), c)
		if s.Requests.Remaining != step.requests || s.Tokens.Remaining != step.tokens {
			t.Errorf("after %v: %+v, want %d requests and %d tokens left", step.after, s, step.requests, step.tokens)
		}
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	l := ratelimit.New(epoch)
	c := ratelimit.Claim{Account: "a", Key: "k", AccountLimits: ratelimit.Limits{Requests: 1, Concurrency: 1}}
	ticket, _, err := l.Take(epoch, c)
	if err != nil {
		t.Fatal(err)
	}
	l.Sweep(epoch.Add(2 * time.Minute)) // still running
	if _, _, err := l.Take(epoch.Add(2*time.Minute), c); denied(t, err) == nil {
		t.Error("a running call was swept")
	}
	ticket.Done(epoch.Add(2*time.Minute), 0)
	l.Sweep(epoch.Add(4 * time.Minute))
	if _, _, err := l.Take(epoch.Add(4*time.Minute), c); err != nil {
		t.Errorf("after the sweep: %v", err)
	}
}

func BenchmarkTake(b *testing.B) {
	l := ratelimit.New(epoch)
	c := ratelimit.Claim{Account: "a", Key: "k", AccountLimits: ratelimit.Limits{Requests: 1 << 40, Tokens: 1 << 50, Concurrency: 100}, Tokens: 100}
	now := epoch
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(10 * time.Microsecond)
		t, _, err := l.Take(now, c)
		if err != nil {
			b.Fatal(err)
		}
		t.Done(now, 50)
	}
}

// A limit on a model binds the account's calls of it, whatever the key, and no others. A
// call that it refuses is counted nowhere, and a restart forgets nothing of it.
func TestModelLimits(t *testing.T) {
	t.Parallel()
	claim := func(key, model string) ratelimit.Claim {
		c := ratelimit.Claim{Account: "a", Key: key, AccountLimits: ratelimit.Limits{Requests: 100}, Model: model, Tokens: 10}
		if model == "big" {
			c.ModelLimits = ratelimit.Limits{Requests: 3, Tokens: 100}
		}
		return c
	}
	l := ratelimit.New(epoch)
	l.Restore([]ratelimit.Past{
		{Account: "a", Key: "k", Model: "big", At: epoch.Add(-30 * time.Second), Tokens: 10},
		{Account: "a", Key: "k", Model: "small", At: epoch.Add(-30 * time.Second), Tokens: 10},
		{Account: "b", Key: "l", Model: "big", At: epoch.Add(-30 * time.Second), Tokens: 10},
	})
	for _, key := range []string{"k", "j"} {
		if _, _, err := l.Take(epoch, claim(key, "big")); err != nil {
			t.Fatal(err)
		}
	}
	_, status, err := l.Take(epoch, claim("i", "big"))
	d := denied(t, err)
	if d == nil || d.Kind != ratelimit.Requests || d.Limit != 3 || d.Used != 3 || d.RetryAfter != 30*time.Second {
		t.Fatalf("the fourth call of the model gives %+v", d)
	}
	if want := (ratelimit.Window{Limit: 3, Reset: time.Minute}); status.Requests != want {
		t.Errorf("it is told %+v, want %+v", status.Requests, want)
	}
	if _, _, err := l.Take(epoch, claim("k", "small")); err != nil {
		t.Errorf("another model gives %v", err)
	}
	if s := l.Peek(epoch, claim("k", "small")); s.Requests.Remaining != 95 {
		t.Errorf("%d requests remain of the account, want 95: two before, two of big, one of small", s.Requests.Remaining)
	}
	// What is given back, is given back here too.
	later := epoch.Add(30 * time.Second)
	ticket, _, err := l.Take(later, claim("i", "big"))
	if err != nil {
		t.Fatal(err)
	}
	if s := l.Peek(later, claim("i", "big")); s.Tokens.Remaining != 70 {
		t.Errorf("%d tokens remain, want 70", s.Tokens.Remaining)
	}
	ticket.Done(later, 4)
	if s := l.Peek(later, claim("i", "big")); s.Tokens.Remaining != 76 {
		t.Errorf("%d tokens remain after the end, want 76", s.Tokens.Remaining)
	}
}
