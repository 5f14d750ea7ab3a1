package subscription_test

import (
	"errors"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
)

var offer = map[string]subscription.Terms{
	"pro":    {Plan: "pro", Version: "pro1", Tokens: 1000, Credit: 5, Grace: 72 * time.Hour},
	"max":    {Plan: "max", Version: "max1", Tokens: 3001, Credit: 9, Grace: 24 * time.Hour},
	"yearly": {Plan: "yearly", Version: "year1", Interval: subscription.Interval{Months: 12}, Tokens: 20000},
}

func terms(plan string) (subscription.Terms, bool) {
	t, ok := offer[plan]
	return t, ok
}

// life is a subscription and everything that was granted by it.
type life struct {
	t *testing.T
	subscription.Subscription
	tokens  int64
	credit  money.Amount
	sources []string
	actions []subscription.Action
}

func begin(t *testing.T, plan string, o subscription.Options, at time.Time) *life {
	t.Helper()
	l := &life{t: t}
	turn, err := subscription.Begin("acct_x", subscription.Subscription{}, offer[plan], o, at)
	l.turn(turn, err)
	return l
}

// turn does what a store would.
func (l *life) turn(turn subscription.Turn, err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
	if turn.Next.Revision != l.Revision+1 {
		l.t.Fatalf("revision %d follows %d", turn.Next.Revision, l.Revision)
	}
	l.Subscription = turn.Next
	l.actions = append(l.actions, turn.Action)
	l.tokens += turn.Tokens
	l.credit += turn.Credit
	if turn.Tokens > 0 || turn.Credit > 0 {
		if slices.Contains(l.sources, turn.Source()) {
			l.t.Fatalf("two grants of source %s", turn.Source())
		}
		l.sources = append(l.sources, turn.Source())
	}
}

// pass lets everything happen that is due by now.
func (l *life) pass(now time.Time) {
	l.t.Helper()
	for range 10 {
		turn, ok := l.Due(terms, now)
		if !ok {
			return
		}
		l.turn(turn, nil)
	}
	l.t.Fatalf("there is always more due: %v", l.actions)
}

func (l *life) want(what string, now time.Time, status subscription.Status, period int64, tokens int64) {
	l.t.Helper()
	if got := l.Status(now); got != status || l.Period != period || l.tokens != tokens {
		l.t.Errorf("%s: %s in period %d with %d tokens granted, want %s in %d with %d", what, got, l.Period, l.tokens, status, period, tokens)
	}
}

func TestRenewsItself(t *testing.T) {
	t.Parallel()
	start := date(2027, 1, 31, 10)
	l := begin(t, "pro", subscription.Options{}, start)
	l.want("at the start", start, subscription.Active, 1, 1000)
	l.pass(date(2027, 2, 28, 10).Add(-time.Microsecond))
	l.want("a moment before", start, subscription.Active, 1, 1000)
	l.pass(date(2027, 2, 28, 10))
	l.want("at the end", date(2027, 2, 28, 10), subscription.Active, 2, 2000)
	if !l.End.Equal(date(2027, 3, 31, 10)) || !l.Ends().IsZero() {
		t.Errorf("period 2 ends %v, the subscription %v", l.End, l.Ends())
	}
	// Nobody looked for three months: what nobody could use is not granted.
	l.pass(date(2027, 6, 1, 0))
	l.want("after a long stop", date(2027, 6, 1, 0), subscription.Active, 5, 3000)
	if !l.Start.Equal(date(2027, 5, 31, 10)) || !l.End.Equal(date(2027, 6, 30, 10)) {
		t.Errorf("period 5 lasts from %v to %v", l.Start, l.End)
	}
}

func TestByHand(t *testing.T) {
	t.Parallel()
	start, end := date(2027, 1, 15, 0), date(2027, 2, 15, 0)
	l := begin(t, "pro", subscription.Options{Manual: true}, start)
	renew := func(now time.Time) error {
		turn, err := l.Renewed(now)
		if err == nil {
			l.turn(turn, nil)
			l.pass(now)
		}
		return err
	}
	if err := renew(start); err != nil {
		t.Fatal(err)
	}
	l.want("renewed ahead", start, subscription.Active, 1, 1000)
	if err := renew(start); !errors.Is(err, subscription.ErrPaid) {
		t.Errorf("twice ahead: %v", err)
	}
	l.pass(end)
	l.want("the paid period", end, subscription.Active, 2, 2000)
	over := date(2027, 3, 15, 0)
	l.want("unpaid, before anybody noted it", over, subscription.PastDue, 2, 2000)
	l.pass(over)
	l.want("unpaid", over, subscription.PastDue, 2, 2000)
	if !l.Applies(over.Add(72*time.Hour-1)) || l.Applies(over.Add(72*time.Hour)) {
		t.Error("the plan applies as long as grace runs, and no longer")
	}
	if err := renew(over.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	l.want("renewed in grace", over.Add(time.Hour), subscription.Active, 3, 3000)
	if !l.Start.Equal(over) {
		t.Errorf("period 3 begins at %v, want where the last one ended", l.Start)
	}
	lost := date(2027, 4, 15, 0).Add(72 * time.Hour)
	l.pass(lost)
	l.want("grace is over", lost, subscription.Expired, 3, 3000)
	if err := renew(lost); !errors.Is(err, subscription.ErrNone) {
		t.Errorf("renewed after its end: %v", err)
	}
}

func TestUntil(t *testing.T) {
	t.Parallel()
	start, until := date(2027, 1, 15, 0), date(2027, 3, 1, 0)
	l := begin(t, "pro", subscription.Options{Until: until}, start)
	l.pass(date(2027, 2, 15, 0))
	l.want("its second period", date(2027, 2, 15, 0), subscription.Active, 2, 2000)
	if !l.End.Equal(until) {
		t.Errorf("the last period ends %v, want %v", l.End, until)
	}
	l.want("over, before anybody noted it", until, subscription.Expired, 2, 2000)
	l.pass(until)
	l.want("over", until, subscription.Expired, 2, 2000)
	for _, o := range []subscription.Options{{Until: start}, {Until: until, Manual: true}} {
		if _, err := subscription.Begin("a", subscription.Subscription{}, offer["pro"], o, start); err == nil {
			t.Errorf("Begin with %+v is accepted", o)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	start := date(2027, 1, 15, 0)
	l := begin(t, "pro", subscription.Options{}, start)
	l.turn(l.Canceling(false, start))
	l.want("canceled, still running", start, subscription.Active, 1, 1000)
	if got := l.Ends(); !got.Equal(l.End) {
		t.Errorf("it ends %v, want %v", got, l.End)
	}
	l.turn(l.Renewed(start)) // after all
	if !l.Ends().IsZero() || l.tokens != 1000 {
		t.Errorf("resumed it ends %v, with %d tokens", l.Ends(), l.tokens)
	}
	l.turn(l.Canceling(false, start))
	l.pass(l.End)
	l.want("at the end of the period", l.End, subscription.Canceled, 1, 1000)

	l = begin(t, "pro", subscription.Options{}, start)
	l.turn(l.Canceling(true, start.Add(time.Hour)))
	l.want("at once", start.Add(time.Hour), subscription.Canceled, 1, 1000)
	if got := l.IncludedUntil(); !got.Equal(start.Add(time.Hour)) {
		t.Errorf("what it includes ends %v", got)
	}
	if _, err := l.Canceling(true, start.Add(2*time.Hour)); !errors.Is(err, subscription.ErrNone) {
		t.Errorf("canceled twice: %v", err)
	}
}

func TestChange(t *testing.T) {
	t.Parallel()
	start, half := date(2027, 4, 1, 0), date(2027, 4, 16, 0)
	l := begin(t, "pro", subscription.Options{}, start)
	l.turn(l.Changing(offer["max"], half))
	// Half of 3001-1000, rounded down; the credit is 9-5.
	l.want("bigger, at once", half, subscription.Active, 1, 1000+1000)
	if l.Plan != "max" || l.credit != 5+2 || l.Grace != 24*time.Hour || !l.End.Equal(date(2027, 5, 1, 0)) {
		t.Errorf("plan %s, credit %d, grace %v, end %v", l.Plan, l.credit, l.Grace, l.End)
	}
	// To and fro brings nothing more.
	l.turn(l.Changing(offer["pro"], half))
	l.turn(l.Changing(offer["max"], half))
	l.want("to and fro", half, subscription.Active, 1, 2000)
	if _, err := l.Changing(offer["yearly"], half); !errors.Is(err, subscription.ErrDiffers) {
		t.Errorf("to periods of another length at once: %v", err)
	}
	l.turn(l.ChangingLater("pro", half))
	if l.Plan != "max" || l.NextPlan != "pro" {
		t.Errorf("plan %s, then %s", l.Plan, l.NextPlan)
	}
	l.turn(l.ChangingLater("max", half))
	if l.NextPlan != "" {
		t.Errorf("taken back: then %s", l.NextPlan)
	}
	l.turn(l.ChangingLater("yearly", half))
	l.pass(date(2027, 5, 1, 0))
	l.want("with the next period", date(2027, 5, 1, 0), subscription.Active, 2, 22000)
	if l.Plan != "yearly" || !l.End.Equal(date(2028, 5, 1, 0)) {
		t.Errorf("plan %s until %v", l.Plan, l.End)
	}
	l.turn(l.ChangingLater("pro", half))
	l.pass(date(2028, 5, 1, 0))
	if l.Plan != "pro" || l.Period != 3 || !l.End.Equal(date(2028, 6, 1, 0)) {
		t.Errorf("plan %s, period %d until %v", l.Plan, l.Period, l.End)
	}
}

// A plan that has left the configuration is not renewed; when it is back in time, it is.
func TestPlanIsGone(t *testing.T) {
	t.Parallel()
	l := begin(t, "pro", subscription.Options{}, date(2027, 1, 15, 0))
	gone := func(string) (subscription.Terms, bool) { return subscription.Terms{}, false }
	turn, ok := l.Due(gone, l.End)
	if !ok || turn.Action != subscription.Lapse {
		t.Fatalf("Due = %+v, %v", turn, ok)
	}
	l.turn(turn, nil)
	l.want("without its plan", l.End, subscription.PastDue, 1, 1000)
	end := l.End
	l.pass(end.Add(71 * time.Hour))
	l.want("it is back", end.Add(71*time.Hour), subscription.Active, 2, 2000)
	turn, ok = l.Due(gone, l.End.Add(80*time.Hour))
	if !ok || turn.Next.Status(l.End.Add(80*time.Hour)) != subscription.Expired {
		t.Errorf("Due = %+v, %v", turn, ok)
	}
}

func TestReplaced(t *testing.T) {
	t.Parallel()
	l := begin(t, "pro", subscription.Options{}, date(2027, 1, 15, 0))
	now := date(2027, 1, 20, 0)
	turn, err := subscription.Begin("acct_x", l.Subscription, offer["max"], subscription.Options{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if r := turn.Replaced; r == nil || r.Revision != 2 || r.Status(now) != subscription.Canceled || !r.IncludedUntil().Equal(now) {
		t.Errorf("Replaced = %+v", turn.Replaced)
	}
}

// The share of an upgrade is that of exact fractions, rounded down.
func TestChange_Share(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		start := time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(rt, "start")).UTC()
		low := subscription.Terms{Plan: "low", Tokens: rapid.Int64Range(0, 1e15).Draw(rt, "low")}
		high := subscription.Terms{Plan: "high", Tokens: rapid.Int64Range(0, 1e15).Draw(rt, "high")}
		first, err := subscription.Begin("a", subscription.Subscription{}, low, subscription.Options{}, start)
		if err != nil {
			rt.Fatal(err)
		}
		s := first.Next
		now := start.Add(time.Duration(rapid.Int64Range(0, int64(s.End.Sub(s.Start))-1).Draw(rt, "now"))).Truncate(time.Microsecond)
		turn, err := s.Changing(high, now)
		if err != nil {
			rt.Fatal(err)
		}
		want := new(big.Int).Mul(big.NewInt(max(0, high.Tokens-low.Tokens)), big.NewInt(int64(s.End.Sub(now))))
		want.Div(want, big.NewInt(int64(s.End.Sub(s.Start))))
		if !want.IsInt64() || turn.Tokens != want.Int64() {
			rt.Fatalf("%d tokens, want %v", turn.Tokens, want)
		}
	})
}
