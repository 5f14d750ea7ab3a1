package e2e

import (
	"crypto/tls"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-ai/parley/e2e/proc"
	"github.com/parley-ai/parley/e2e/provider"
)

// remote is Parley in front of a provider of our own.
type remote struct {
	*proc.Server
	provider *provider.Provider
	// Keys of accounts that may do everything, lack a plan, lack credit, and run one call at a time.
	key, free, poor, narrow string

	mu sync.Mutex
	// answers are the statuses of the chat calls that a client saw, by request id.
	answers map[string]int
}

// Prices of every model, in nano-IU a token.
const remoteIn, remoteCached, remoteOut = 50_000, 10_000, 100_000

// remoteConfig has a model for each script of the provider, named alike; keys are further ones of the
// upstreams.
func remoteConfig(p *provider.Provider, keys string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `plans:
  - {id: free}
  - {id: pro}
  - {id: narrow, concurrency: 1}
upstreams:
  - {id: patient, kind: openai, base_url: %q, api_key: sk-provider, retries: 2, timeouts: {connect: 1m}%s}
  - {id: plain, kind: openai, base_url: %q, retries: 0, timeouts: {connect: 1m}%s}
  - {id: hasty, kind: openai, base_url: %q, retries: 0, timeouts: {connect: 1m, first_token: 300ms}%s}
models:
`, p.URL, keys, p.URL, keys, p.URL, keys)
	model := func(id, upstream, script, plans string) {
		fmt.Fprintf(&b, "  - {id: %q, description: A script., context_window: 8192, max_output: 2048, pricing: {input: \"0.05\", cached_input: \"0.01\", output: \"0.1\"}, plans: %s, targets: [{upstream: %s, model: %q}]}\n",
			id, plans, upstream, script)
	}
	all := "[free, pro, narrow]"
	for _, script := range provider.Scripts() {
		upstream := "plain"
		switch script {
		case "flaky-inside":
			upstream = "patient"
		case "stall":
			upstream = "hasty"
		}
		model(script, upstream, script, all)
	}
	model("org/text", "plain", "text", all)
	model("pro-text", "plain", "text", "[pro]")
	return b.String()
}

func startRemote(t *testing.T) *remote {
	t.Helper()
	return startRemoteOver(t, nil, "")
}

// startRemoteOver is startRemote with a provider over TLS and further keys of its upstreams.
func startRemoteOver(t *testing.T, config *tls.Config, keys string, env ...string) *remote {
	t.Helper()
	p := provider.Start(config)
	t.Cleanup(p.Close)
	file := filepath.Join(t.TempDir(), "parley.yaml")
	if err := os.WriteFile(file, []byte(remoteConfig(p, keys)), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(dataDir(t))
	o.Config, o.Env = file, env
	s, err := proc.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("the server wrote:\n%s", s.Stderr())
		}
	})
	r := &remote{Server: s, provider: p, answers: map[string]int{}}
	r.key, _ = account(t, s, "rich", "pro", "100")
	r.free, _ = account(t, s, "free", "free", "1")
	r.poor, _ = account(t, s, "poor", "pro", "")
	r.narrow, _ = account(t, s, "narrow", "narrow", "10")
	return r
}

// saw notes the answer to a chat call as the client got it.
func (r *remote) saw(id string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[id] = status
}

// price is the charge for the counts of the receipt, exactly.
func (c *receipt) price() *big.Rat {
	nano := (c.PromptTokens-c.CachedTokens)*remoteIn + c.CachedTokens*remoteCached + c.CompletionTokens*remoteOut
	return big.NewRat(nano, 1_000_000_000)
}

// checkReceipts is the end of every client's test: the books say what the client saw and what the
// provider counted.
func (r *remote) checkReceipts(t *testing.T) {
	t.Helper()
	var all []receipt
	eventually(t, func() error {
		all = nil
		for _, name := range []string{"rich", "free", "poor", "narrow"} {
			all = append(all, runJSON[[]receipt](t, r.Server, "receipts", "--account", name, "--limit", "1000")...)
		}
		if i := slices.IndexFunc(all, func(c receipt) bool { return c.State == "running" }); i >= 0 {
			return fmt.Errorf("a call still runs: %+v", all[i])
		}
		return nil
	})
	calls := map[int64]provider.Call{}
	for _, c := range r.provider.Calls() {
		calls[c.Prompt] = c
	}
	t.Run("every answer has one receipt", func(t *testing.T) {
		byID, voided := map[string]int{}, map[string]bool{}
		for _, c := range all {
			byID[c.RequestID]++
			voided[c.RequestID] = c.State == "voided"
		}
		answered := 0
		for id, status := range r.answers {
			switch {
			case status == 200 && byID[id] != 1:
				t.Errorf("%s was answered and has %d receipts", id, byID[id])
			case status != 200 && byID[id] != 0 && !voided[id]:
				t.Errorf("%s was refused with %d and is charged", id, status)
			case status == 200:
				answered++
			}
		}
		if answered == 0 {
			t.Error("the client saw no answer")
		}
		t.Logf("%d answers of %d, %d receipts, %d calls to the provider", answered, len(r.answers), len(all), len(calls))
	})
	t.Run("every charge is usage times price", func(t *testing.T) { checkCharges(t, all, r.answers, calls) })
	t.Run("the books balance", func(t *testing.T) {
		if v := runJSON[struct{ OK bool }](t, r.Server, "ledger", "verify"); !v.OK {
			t.Error("they do not")
		}
	})
}

// checkCharges compares receipts with what the provider said, each with the call that had its
// number of prompt tokens.
func checkCharges(t *testing.T, all []receipt, answers map[string]int, calls map[int64]provider.Call) {
	t.Helper()
	estimated := []string{"no-usage", "endless", "hold", "cut", "tools-cut", "fault", "unstopped", "no-json"}
	receipts := map[int64]int{}
	for _, c := range all {
		charge, ok := new(big.Rat).SetString(c.Charge)
		want := c.price()
		switch {
		case c.State == "voided":
			want = new(big.Rat)
			if answers[c.RequestID] == 200 {
				t.Errorf("%+v: answered and not charged", c)
			}
		case c.State != "settled":
			t.Errorf("%+v: neither settled nor voided", c)
		case c.UsageSource == "provider":
			receipts[c.PromptTokens]++
			said := calls[c.PromptTokens]
			if !said.Told || said.Cached != c.CachedTokens || said.Completion != c.CompletionTokens {
				t.Errorf("%+v: the provider said %+v", c, said)
			}
		case c.UsageSource != "estimated" || !slices.Contains(estimated, c.Model):
			t.Errorf("%+v: usage %s is not what the provider's script gives", c, c.UsageSource)
		case c.PromptTokens == 0:
			t.Errorf("%+v: no prompt is charged", c)
		}
		if !ok || charge.Cmp(want) != 0 {
			t.Errorf("%+v: charged %s, want %s", c, c.Charge, want.FloatString(9))
		}
	}
	for n, call := range calls {
		if call.Told && call.Whole && call.Script != "no-json" && receipts[n] != 1 {
			t.Errorf("%+v: %d receipts have its usage", call, receipts[n])
		}
	}
}

// script runs a client's program against what stands before the provider.
func (r *remote) script(t *testing.T, atLeast int, program []string) {
	t.Helper()
	clientScript{
		env: []string{
			"OPENAI_BASE_URL=" + r.URL + "/v1", "OPENAI_API_KEY=" + r.key,
			"FREE_KEY=" + r.free, "POOR_KEY=" + r.poor, "NARROW_KEY=" + r.narrow, "CONTROL_URL=" + r.provider.Control,
		},
		atLeast: atLeast, saw: r.saw,
	}.run(t, program)
}

// TestNode runs the clients of Node; their programs are in e2e/node.
func TestNode(t *testing.T) {
	t.Parallel()
	for _, client := range []struct {
		name    string
		atLeast int
	}{{"openai", 81}, {"ai", 63}, {"langchain", 34}} {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			program := node(t, client.name+".mjs")
			r := startRemote(t)
			r.script(t, client.atLeast, program)
			r.checkReceipts(t)
		})
	}
}

// TestOpenAIPython_Upstream runs the official Python client against an upstream.
func TestOpenAIPython_Upstream(t *testing.T) { //nolint:tparallel // its subtests are lines of one script
	t.Parallel()
	program := python(t, "upstream_test.py")
	r := startRemote(t)
	r.script(t, 27, program)
	r.checkReceipts(t)
}
