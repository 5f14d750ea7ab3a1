package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/parley-ai/parley/engine/enginetest"
	"github.com/parley-ai/parley/internal/admin"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"parley": main})
}

// TestScripts runs the command line as its users do; each file in testdata is one
// behaviour, headed by its reason.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":   code,
			"await":  await,
			"lock":   lock,
			"model":  model,
			"revoke": onLast("revoke"),
			"rotate": onLast("rotate"),
			"set":    onLast("set"),
			"mode":   mode,
			"month":  month,
			"last":   last,
		},
	})
}

// code runs a command that must end with an exit code.
func code(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || strconv.Itoa(exit.ExitCode()) != args[0] {
		ts.Fatalf("%v gives %v, want exit code %s", args[1:], err, args[0])
	}
}

// lock holds a data directory as another process would: a lock belongs to the open
// file, so that of the test itself is as good.
func lock(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(filepath.Join(ts.MkAbs(args[0]), "parley.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	ts.Check(err)
	ts.Defer(func() { _ = f.Close() })
	ts.Check(syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	_, err = f.WriteString(args[1])
	ts.Check(err)
}

// await waits until a file exists.
func await(ts *testscript.TestScript, _ bool, args []string) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(3 * time.Minute)
	for {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			ts.Fatalf("%s never came", args[0])
		}
	}
}

// model writes a model of random weights.
func model(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(enginetest.WriteModel(ts.MkAbs(args[0]), 1))
}

// onLast runs a command of keys on the last key that key ls --json has listed.
func onLast(command string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		var keys []admin.Key
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &keys))
		err := ts.Exec("parley", append([]string{"key", command, keys[len(keys)-1].ID}, args...)...)
		if (err != nil) != neg {
			ts.Fatalf("key %s gives %v", command, err)
		}
	}
}

// last sets a variable to the id of the last thing that was listed as JSON.
func last(ts *testscript.TestScript, _ bool, args []string) {
	var list []struct{ ID string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &list))
	ts.Setenv(args[0], list[len(list)-1].ID)
}

// month sets MONTH to the current one, and waits for the next where that would end during a script.
func month(ts *testscript.TestScript, _ bool, _ []string) {
	now := time.Now().UTC()
	if next := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC); next.Sub(now) < time.Minute {
		<-time.After(next.Sub(now))
		now = next
	}
	ts.Setenv("MONTH", now.Format("2006-01"))
}

// mode checks the permissions of a file.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	fi, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := strconv.FormatUint(uint64(fi.Mode().Perm()), 8); (got == args[0]) == neg {
		ts.Fatalf("%s has mode %s", args[1], got)
	}
}

func TestCredits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want []string }{
		{[]string{"0"}, []string{"0.00"}},
		{[]string{"1234567.5", "2"}, []string{"1,234,567.50", "2.00"}},
		{[]string{"99.99945", "0.00055"}, []string{"99.99945", "0.00055"}},
		{[]string{"285.623170482"}, []string{"285.623170"}},
		{[]string{"0.000000001"}, []string{"<0.000001"}},
		{[]string{"-1234.5"}, []string{"-1,234.50"}},
	} {
		if got := credits(c.in...); !cmp.Equal(got, c.want) {
			t.Errorf("credits(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	columns := []column{{head: "NAME", cut: true}, {head: "N", right: true}, {head: "STATE"}}
	rows := [][]string{{"short", "1,204", green + "ready" + plain}, {"a name that is rather long", "7", "x"}}
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, "NAME                            N  STATE\n" +
			"short                       1,204  " + green + "ready" + plain + "\n" +
			"a name that is rather long      7  x\n"},
		{30, "NAME                  N  STATE\n" +
			"short             1,204  " + green + "ready" + plain + "\n" +
			"a name t…er long      7  x\n"},
	} {
		var b bytes.Buffer
		e := &env{out: &b, width: c.width}
		e.table(columns, rows)
		if diff := cmp.Diff(c.want, b.String()); diff != "" {
			t.Errorf("at width %d (-want +got):\n%s", c.width, diff)
		}
	}
}

func TestUpstreams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		targets []string
		engine  admin.Engine
		want    string
	}{
		{[]string{"rack-a/org/m", "rack-b/m"}, admin.Engine{Upstream: "rack"}, "rack-a, rack-b"},
		{[]string{"local/small"}, admin.Engine{Upstream: "local", Places: 16}, "local (0 of 16)"},
		{[]string{"local/small", "rack-a/m"}, admin.Engine{Upstream: "local", Running: 3, Places: 16, TokensPerSecond: 1140.6}, "local (3 of 16, 1,141 tok/s), rack-a"},
		{[]string{"local/small"}, admin.Engine{Upstream: "local", Running: 16, Places: 16, Waiting: 2, TokensPerSecond: 9}, "local (16 of 16, 2 waiting, 9 tok/s)"},
	} {
		if got := strings.Join(upstreams(admin.Model{Targets: c.targets, Engines: []admin.Engine{c.engine}}), ", "); got != c.want {
			t.Errorf("upstreams of %v with %+v: %q, want %q", c.targets, c.engine, got, c.want)
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 7, 2, 0, time.UTC)
	at := func(d time.Duration) *time.Time { return new(now.Add(-d)) }
	for _, c := range [][2]string{
		{ago(nil, now), "never"},
		{ago(at(59*time.Second), now), "just now"},
		{ago(at(2*time.Minute), now), "2 min ago"},
		{ago(at(26*time.Hour), now), "26 h ago"},
		{ago(at(72*time.Hour), now), "3 days ago"},
		{clock(now.Add(-time.Hour), now), "13:07:02"},
		{clock(now.Add(-24*time.Hour), now), "2026-11-20 14:07:02"},
		{date(now), "21 Nov 2026 at 14:07 UTC"},
		{middle("req_5f0c1234567890ab9a31", 13), "req_5f…ab9a31"},
		{sentence("unknown flag --x"), "Unknown flag --x."},
		{sentence("parley.yaml:3: x"), "parley.yaml:3: x."},
		{sentence("two\nlines"), "Two\nlines"},
	} {
		if c[0] != c[1] {
			t.Errorf("got %q, want %q", c[0], c[1])
		}
	}
}

func TestStatement(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	e := &env{out: &b}
	limit := func(n int64) *int64 { return &n }
	until := time.Date(2026, 12, 20, 13, 0, 0, 0, time.UTC)
	e.account(
		admin.Account{ID: "acct_01h8", Name: "Example Lab", Plan: "pro", Status: "active", Held: "0.15", Available: "285.47"},
		admin.Summary{
			Granted: "500", Spent: "214.38", Running: 3, KeysActive: 4, KeysRevoked: 1, PerDay: "9.901", LastsUntil: &until,
			Plan: &admin.Plan{ID: "pro", RPM: limit(600), TPM: limit(600_000), Concurrency: limit(64)},
		},
	)
	want := `Example Lab    acct_01h8    active
  granted         500.00 IU
  spent         − 214.38
  held          −   0.15    3 running calls
                ---------
  available       285.47 IU    until about 20 Dec 2026, at 9.90 IU a day
  plan          pro
  limits        600 requests, 600,000 tokens per minute, 64 at once
  keys          4 active, 1 revoked
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlanLine(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	sub := func(plan, status string) *admin.Subscription {
		return &admin.Subscription{Plan: plan, Status: status, Until: until}
	}
	for _, c := range []struct {
		sub   *admin.Subscription
		known bool
		want  string
	}{
		{nil, true, "free"},
		{nil, false, "free, which the configuration does not have"},
		{sub("pro", "active"), true, "pro, subscribed until 1 Dec 2026, then free"},
		{sub("pro", "active"), false, "pro, which the configuration does not have, subscribed until 1 Dec 2026, then free"},
		{sub("free", "active"), true, "free, subscribed until 1 Dec 2026"},
		{sub("pro", "expired"), true, "free; the subscription to pro ended on 1 Dec 2026"},
		{sub("pro", "canceled"), true, "free; the subscription to pro ended on 1 Dec 2026"},
		{sub("pro", "past_due"), true, "pro, not renewed since 1 Dec 2026"},
		{&admin.Subscription{Plan: "pro", Status: "active", Until: until, Renews: true}, true, "pro, renews 1 Dec 2026"},
	} {
		if got := planLine(admin.Account{Plan: "free", Subscription: c.sub}, c.known); got != c.want {
			t.Errorf("planLine gives %q, want %q", got, c.want)
		}
	}
}

func TestCutCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		use  admin.KeyUse
		want string
	}{
		{admin.KeyUse{}, ""},
		{admin.KeyUse{Running: 1, Streams: 1}, " 1 running stream is cut."},
		{admin.KeyUse{Running: 2, Streams: 2}, " 2 running streams are cut."},
		{admin.KeyUse{Running: 1}, " 1 running call is cut."},
		{admin.KeyUse{Running: 3, Streams: 1}, " 3 running calls are cut."},
	} {
		if got := cutCalls(c.use); got != c.want {
			t.Errorf("cutCalls(%+v) = %q, want %q", c.use, got, c.want)
		}
	}
}
