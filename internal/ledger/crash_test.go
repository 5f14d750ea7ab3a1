package ledger_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store/storetest"
	"github.com/parley-ai/parley/internal/subscription"
)

// crashDir, in the environment, makes the test binary the process that is killed.
const crashDir = "PARLEY_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		victim(dir)
	}
	os.Exit(m.Run())
}

// victim runs calls until it is killed and tells of each, on standard output, what a
// caller would have seen by then: "charge ID AMOUNT" for an answer that was released
// whole, "part ID TOKENS" for tokens of a stream; and "period ID NUMBER" when one has begun.
func victim(dir string) {
	b := open(new(testing.T), dir, nil)
	totals, err := b.db.Totals(context.Background())
	if err != nil || len(totals) == 0 {
		panic(fmt.Sprint("no account: ", err))
	}
	account := totals[0].AccountID
	go renew(b, account)
	for w := range 32 {
		go func() {
			for {
				if err := serve(b, account, w%2 == 0); err != nil {
					panic(err)
				}
			}
		}()
	}
	select {}
}

// monthly is what each period of the victims includes: less than they use of it.
var monthly = subscription.Terms{Plan: "p", Tokens: 2000}

// renew lets one paid period after the other begin and takes back what the last one has
// left, on a calendar of its own.
func renew(b *books, account string) {
	s, err := b.db.Subscription(context.Background(), account)
	for ; err == nil; <-time.After(2 * time.Millisecond) {
		t, ok := s.Due(func(string) (subscription.Terms, bool) { return monthly, true }, s.End)
		if !ok {
			panic("a period has ended and nothing follows")
		}
		if err = b.Turn(context.Background(), t); err == nil {
			s = t.Next
			if _, err = b.ExpireDue(context.Background(), s.Start); err == nil {
				fmt.Printf("period %s %d\n", account, s.Period)
			}
		}
	}
	panic(err)
}

// victims is the budget of most calls of a victim.
var victims = ledger.Budget{ID: "budget_kill", Period: 202611, Amount: 1_000_000 * money.IU}

func serve(b *books, account string, stream bool) error {
	c := b.call(account, stream, 20)
	if rand.IntN(3) > 0 {
		c.Budget = victims
	}
	if rand.IntN(2) == 0 {
		c.Slice, c.LeastOutput = 4, 1
	}
	h, err := b.Reserve(c)
	if err != nil {
		return err
	}
	n := 1 + rand.IntN(20)
	if stream {
		if err := h.Persist(); err != nil {
			return err
		}
		if err := h.Durable(); err != nil {
			return err
		}
		for i := range n {
			if err := h.Cover(i + 1); err != nil {
				return err
			}
			h.Delivered(i + 1)
			fmt.Printf("part %s %d\n", c.RequestID, i+1) // one write(2): what is read was sent
		}
	}
	r, err := h.Settle(done(n))
	if err != nil {
		return err
	}
	fmt.Printf("charge %s %d\n", c.RequestID, int64(r.Charge))
	return nil
}

// A process is killed at random moments; what its callers have seen must be in the
// books, once and exactly. The checker reads the database by plain SQL.
func TestKill(t *testing.T) {
	t.Parallel()
	points := 10
	if testing.Short() {
		points = 3
	}
	dir := t.TempDir()
	setup := open(t, dir, nil)
	setup.include(t, setup.account(t, 1_000_000*money.IU), monthly.Tokens)
	setup.stop()
	var charges, parts, recovered int
	for range points {
		charged, delivered := kill(t, dir, time.Duration(30+rand.IntN(120))*time.Millisecond)
		b := open(t, dir, nil)
		recovered += b.recovery.Settled
		b.verify(t)
		totals, err := b.db.Totals(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		spent := b.Spending(totals[0].AccountID, victims)
		b.stop()
		if got := spentOf(t, dir); spent.Held != 0 || spent.Spent != got {
			t.Errorf("the budget has spent %+v, its charges are %d", spent, got)
		}
		check(t, dir, charged, delivered)
		charges, parts = charges+len(charged), parts+len(delivered)
	}
	periods, included := plan(t, dir)
	t.Logf("%d kills, %d answers and %d streams seen, %d streams recovered, %d periods, %d included tokens used", points, charges, parts, recovered, periods, included)
	if included == 0 || periods < int64(points) {
		t.Errorf("%d periods and %d included tokens prove little", periods, included)
	}
	if charges == 0 || recovered == 0 {
		t.Errorf("%d answers and %d recoveries: the kills came too early to prove anything", charges, recovered)
	}
}

// kill runs a victim until an answer, a part of a stream and a new period were seen, and about d
// longer, and returns what was seen.
func kill(t *testing.T, dir string, d time.Duration) (charged, delivered map[string]int64) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	charged, delivered = map[string]int64{}, map[string]int64{}
	var timer sync.Once
	period := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var what, id string
		var n int64
		if k, _ := fmt.Sscanf(lines.Text(), "%s %s %d", &what, &id, &n); k != 3 {
			continue // cut off by the kill
		}
		switch what {
		case "charge":
			charged[id] = n
		case "part":
			delivered[id] = n
		case "period":
			period = true
		}
		if period && len(charged) > 0 && len(delivered) > 0 {
			timer.Do(func() { time.AfterFunc(d, func() { cmd.Process.Kill() }) })
		}
	}
	_ = cmd.Wait() // it was killed
	return charged, delivered
}

// spentOf adds up the charges of the victims' budget by plain SQL.
func spentOf(t *testing.T, dir string) (sum money.Amount) {
	t.Helper()
	db := storetest.PlainReader(t, filepath.Join(dir, "parley.db"))
	defer db.Close()
	err := db.QueryRow(`SELECT coalesce(sum(amount), 0) FROM charge_row WHERE budget = (SELECT number FROM budget WHERE id = ? AND period = ?)`, victims.ID, victims.Period).Scan(&sum)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// plan counts by plain SQL the periods, each of which must have its one grant, and the
// included tokens used.
func plan(t *testing.T, dir string) (periods, included int64) {
	t.Helper()
	db := storetest.PlainReader(t, filepath.Join(dir, "parley.db"))
	defer db.Close()
	var last, grants, granted, used int64
	err := db.QueryRow(`SELECT (SELECT count(*) FROM subscription_period), (SELECT max(number) FROM subscription_period), (SELECT count(DISTINCT period) FROM token_grant WHERE amount = ?1),
		(SELECT sum(amount) FROM token_grant) - (SELECT coalesce(sum(amount), 0) FROM token_expiry) - (SELECT tokens_granted FROM account),
		(SELECT sum(plan_tokens) FROM charge), (SELECT tokens_posted FROM account)`, monthly.Tokens).Scan(&periods, &last, &grants, &granted, &included, &used)
	if err != nil || last != periods || grants != periods || granted != 0 || included != used {
		t.Errorf("%d periods, the last is %d, with %d grants; granted differs by %d; %d of the charges, %d of the account: %v", periods, last, grants, granted, included, used, err)
	}
	return periods, included
}

func check(t *testing.T, dir string, charged, delivered map[string]int64) {
	t.Helper()
	db := storetest.PlainReader(t, filepath.Join(dir, "parley.db"))
	defer db.Close()
	var holds, twice int
	if err := db.QueryRow(`SELECT (SELECT count(*) FROM hold), (SELECT count(*) - count(DISTINCT id) FROM charge)`).Scan(&holds, &twice); err != nil {
		t.Fatal(err)
	}
	if holds != 0 || twice != 0 {
		t.Errorf("%d holds left, %d charges twice", holds, twice)
	}
	for id, want := range charged {
		var got int64
		if err := db.QueryRow(`SELECT amount FROM charge WHERE id = ?`, id).Scan(&got); err != nil || got != want {
			t.Errorf("%s was released with a charge of %d; the books have %d, %v", id, want, got, err)
		}
	}
	for id, n := range delivered {
		var tokens, amount, plan int64
		var state string
		if err := db.QueryRow(`SELECT completion_tokens, amount, state, plan_tokens FROM charge WHERE id = ?`, id).Scan(&tokens, &amount, &state, &plan); err != nil {
			t.Errorf("%s showed %d tokens: %v", id, n, err)
			continue
		}
		// Noted before it is shown: at most the one part that was on its way.
		if state == string(ledger.Recovered) && tokens != n && tokens != n+1 || tokens < n || amount != 100+20*tokens-10*min(plan, 10)-20*max(0, plan-10) {
			t.Errorf("%s showed %d tokens; it is %s with %d tokens for %d", id, n, state, tokens, amount)
		}
	}
}
