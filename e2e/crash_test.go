package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

const (
	killsInCI = 50
	// everyLocal'th run has the embedded model beside the provider: its weights take time to load.
	everyLocal = 10
	// everyCheck'th start all books are compared with all that clients saw.
	everyCheck = 25
)

// deaths are the figures of the crash test.
type deaths struct {
	kills, local              int
	lost, double, wrong       int
	unresolved                int // calls still held after a start
	unbalanced, checks        int
	recovered, voided         int64
	compared                  int // recovered streams whose client saw text
	ahead                     int64
	starts, localStarts       []time.Duration
	whole, complete, cut      int
	denied, narrow, narrowest int
}

// TestCrash kills the server again and again while clients of several accounts stream and ask, and
// proves at each start from outside that nothing delivered was free, nothing was charged twice or
// wrongly and nothing is still held.
func TestCrash(t *testing.T) {
	t.Parallel()
	needWeights(t)
	kills := max(killsInCI, thorough(t))
	p := startStub(t)
	o := options(dataDir(t))
	dir := filepath.Dir(o.Data)
	configs := map[bool]string{false: behindConfig(t, dir, p, false, ""), true: behindConfig(t, dir, p, true, "")}
	o.Config = configs[false]
	s, err := proc.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Kill() })
	w := newWitnesses(t, s)
	wg := w.call(t)
	db := openBooks(t, o.Data)
	d := &deaths{}
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for d.kills = 1; d.kills <= kills; d.kills++ {
		local := o.Config == configs[true]
		life := time.Duration(100+random.IntN(300)) * time.Millisecond
		if local {
			// Long enough for first tokens of a model that computes.
			life += time.Duration(random.IntN(1200)) * time.Millisecond
			d.local++
		}
		<-time.After(life)
		// On a slow machine it lives until there is something to lose.
		eventually(t, func() error {
			if whole, streams := w.heard(); whole <= d.kills || streams <= d.kills {
				return fmt.Errorf("%d whole answers and %d streams in %d lives", whole, streams, d.kills)
			}
			return nil
		})
		w.at.Store(nil)
		s.Kill()
		died := time.Now()
		o.Config = configs[d.kills%everyLocal == 0]
		if s, err = proc.Start(o); err != nil {
			t.Fatal(err)
		}
		d.started(o.Config == configs[true], time.Since(died))
		w.up(s, o.Config == configs[true])
		d.inspect(t, db, died, w)
	}
	d.kills--
	w.end(t, wg)
	if r := s.Run("ledger", "verify", "--json"); r.Code != 0 || !strings.Contains(r.Stdout, `"ok":true`) {
		t.Errorf("ledger verify: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.Stderr())
	}
	checkBooks(t, o.Data, w.all())
	d.tally(t, db, w)
	if r := proc.Run(o, "ledger", "verify"); r.Code != 0 {
		t.Errorf("ledger verify without a server: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	d.judge(t)
}

func (d *deaths) started(local bool, took time.Duration) {
	if local {
		d.localStarts = append(d.localStarts, took)
	} else {
		d.starts = append(d.starts, took)
	}
}

// inspect is what is proved at each start, while clients call on.
func (d *deaths) inspect(t *testing.T, db *sql.DB, died time.Time, w *witnesses) {
	t.Helper()
	ctx := t.Context()
	n, err := count(db, `SELECT count(*) FROM hold WHERE created_at <= ?`, died.UnixMicro())
	if err != nil || n != 0 {
		d.unresolved += int(n)
		t.Errorf("kill %d: %d calls are held after the start: %v", d.kills, n, err)
	}
	for _, e := range w.take() {
		c, err := chargesOf(ctx, db, e.requestID)
		if err != nil {
			t.Fatal(err)
		}
		d.note(t, e, checkEntry(e, c))
		if len(c) == 1 && c[0].state == "recovered" && e.target == "stub" {
			d.compared++
			d.ahead = max(d.ahead, c[0].out-e.pieces)
			if c[0].out > e.pieces+1 {
				d.wrong++
				t.Errorf("%s: recovered for %d tokens, %d were delivered", e.requestID, c[0].out, e.pieces)
			}
		}
	}
	n, err = count(db, unbalanced)
	if err != nil || n != 0 {
		d.unbalanced++
		t.Errorf("kill %d: %d accounts are not the sum of their charges: %v", d.kills, n, err)
	}
	if d.kills%everyCheck == 0 {
		d.checks++
		problems, err := audit(ctx, db, w.all())
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			d.wrong++
			t.Errorf("kill %d: %s", d.kills, problem)
		}
	}
}

// note counts what was found of one call.
func (d *deaths) note(t *testing.T, e entry, err error) {
	t.Helper()
	switch {
	case err == nil:
		return
	case errors.Is(err, errLost):
		d.lost++
	case errors.Is(err, errDouble):
		d.double++
	default:
		d.wrong++
	}
	t.Errorf("kill %d: %s (%s): %v", d.kills, e.requestID, e.completionID, err)
}

// chargesOf are the charges with the id of a request, at most one by the table's own law.
func chargesOf(ctx context.Context, db *sql.DB, requestID string) ([]charged, error) {
	list, err := readCharges(ctx, db, `WHERE c.id = ?`, requestID)
	return list, err
}

// tally fills in what the end of the test can tell.
func (d *deaths) tally(t *testing.T, db *sql.DB, w *witnesses) {
	t.Helper()
	for state, into := range map[string]*int64{"recovered": &d.recovered, "voided": &d.voided} {
		n, err := count(db, `SELECT count(*) FROM charge WHERE state = ?`, state)
		if err != nil {
			t.Fatal(err)
		}
		*into = n
	}
	var narrow []entry
	for _, e := range w.all() {
		switch {
		case e.complete && e.streamed:
			d.complete++
		case e.complete:
			d.whole++
		case e.pieces > 0:
			d.cut++
		}
		if e.complete && e.account == "narrow" {
			narrow = append(narrow, e)
		}
	}
	d.denied, d.narrow = int(w.denied.Load()), len(narrow)
	d.narrowest = busiest(narrow)
}

// busiest is the most calls that surely fell into one minute: begun and ended within it.
func busiest(list []entry) int {
	most := 0
	for _, first := range list {
		n := 0
		for _, e := range list {
			if !e.begun.Before(first.begun) && e.ended.Sub(first.begun) <= time.Minute {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// judge prints the figures and fails where they prove too little.
func (d *deaths) judge(t *testing.T) {
	t.Helper()
	var b strings.Builder
	row := func(what string, value any) { fmt.Fprintf(&b, "| %s | %v |\n", what, value) }
	b.WriteString("\n| kill -9 under load | |\n|---|---|\n")
	row("kills, of these with the embedded model", fmt.Sprintf("%d, %d", d.kills, d.local))
	row("whole answers received", d.whole)
	row("streams received whole", d.complete)
	row("streams cut after text", d.cut)
	row("recovered at a start, voided", fmt.Sprintf("%d, %d", d.recovered, d.voided))
	row("lost, double, wrong", fmt.Sprintf("%d, %d, %d", d.lost, d.double, d.wrong))
	row("unresolved after a start", d.unresolved)
	row("starts whose accounts were not the sum of their charges", d.unbalanced)
	row("integrity_check and full comparison, times", d.checks+1)
	row("recovered streams compared with their client", d.compared)
	row("most events charged beyond those delivered", d.ahead)
	row("calls over a limit, refused", d.denied)
	row("most answers in a minute where 120 are allowed", d.narrowest)
	row("kill to ready, median and longest", span(d.starts))
	row("the same with the embedded model", span(d.localStarts))
	t.Log(b.String())
	t.Attr("proof", fmt.Sprintf("T1; %d kills, %d whole answers, %d streams cut; lost %d; duplicate %d; wrong %d; negative %d",
		d.kills, d.whole+d.complete, d.cut, d.lost, d.double, d.wrong+d.unresolved, d.unbalanced))
	if d.compared < d.kills/5 || d.whole < d.kills || d.complete < d.kills || d.recovered == 0 || d.denied == 0 {
		t.Error("the test proves little: too few calls were cut, completed or refused")
	}
	if d.narrowest > 120 {
		t.Errorf("%d answers in a minute on a plan that allows 120", d.narrowest)
	}
}

func span(list []time.Duration) string {
	if len(list) == 0 {
		return "none"
	}
	slices.Sort(list)
	return fmt.Sprintf("%v, %v", list[len(list)/2].Round(time.Millisecond), list[len(list)-1].Round(time.Millisecond))
}

// witnessesWait is how long clients of a server that is down wait before they look again.
const witnessesWait = 5 * time.Millisecond

// call starts the clients.
func (w *witnesses) call(t *testing.T) *sync.WaitGroup {
	t.Helper()
	var wg sync.WaitGroup
	for i := range witnessesCount {
		wg.Go(func() { w.ask(t, i) })
	}
	return &wg
}
