package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-ai/parley/e2e/proc"
	"github.com/parley-ai/parley/e2e/stub"
)

// thorough is how many kills `make prove` asks for; 0 where it is not the one who runs the tests.
// The other proofs of this package are longer, too, when it is set.
func thorough(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PARLEY_PROVE")
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("PARLEY_PROVE is %q, want a number of kills", text)
	}
	return n
}

// startStub starts a stub for one test.
func startStub(t *testing.T) *stub.Server {
	t.Helper()
	s := stub.Start()
	t.Cleanup(s.Close)
	return s
}

// remotePlans writes a configuration beside the data directory, with more plans; svc-pulse is on them.
func remotePlans(t *testing.T, data string, p *stub.Server, plans string) string {
	t.Helper()
	path := behindConfig(t, filepath.Dir(data), p, false, "")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var ids strings.Builder
	for _, m := range planID.FindAllStringSubmatch(plans, -1) {
		ids.WriteString(", " + m[1])
	}
	changed := strings.Replace(string(text), "\nupstreams:", plans+"\nupstreams:", 1)
	changed = strings.ReplaceAll(changed, "narrow, bulk]", "narrow, bulk"+ids.String()+"]")
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var planID = regexp.MustCompile(`\{id: ([a-z]+),`)

// behindConfig writes a configuration whose models all run at the provider, but svc-pulse where local is
// set; extra are lines of its top level. Prices are those of the built-in one.
func behindConfig(t *testing.T, dir string, p *stub.Server, local bool, extra string) string {
	t.Helper()
	pulse, upstream := "upstream: stub, model: stub-model", ""
	if local {
		pulse, upstream = "upstream: local, model: smollm2-135m-instruct", "\n  - {id: local, kind: local}"
	}
	text := fmt.Sprintf(`engine: {threads: 0, max_sequences: 16, kv_bytes: 512MiB}
plans:
  - {id: free, rpm: 60, tpm: 60000, concurrency: 8}
  - {id: pro, rpm: 600, tpm: 600000, concurrency: 64}
  - {id: member, rpm: 1000000, tpm: 1000000000, concurrency: 4096, period: 1d, max_output: 1000, included: {tokens: 20000, credit: "0.5"}}
  - {id: narrow, rpm: 120, tpm: 20000, concurrency: 8}
  - {id: bulk, rpm: 1000000, tpm: 1000000000, concurrency: 4096}
upstreams:
  - {id: stub, kind: openai, base_url: %q, retries: 0, timeouts: {connect: 1m, idle: 2m}}%s
models:
  - id: svc-pulse
    context_window: 8192
    max_output: 2048
    pricing: {input: "0.05", output: "0.1"}
    created: 2026-01-01
    plans: [free, pro, member, narrow, bulk]
    targets: [{%s}]
  - id: svc-titan
    context_window: 8192
    max_output: 4096
    pricing: {input: "0.2", output: "0.4"}
    created: 2026-01-01
    plans: [pro, member, narrow, bulk]
    targets: [{upstream: stub, model: stub-model}]
%s
`, p.URL, upstream, pulse, extra)
	path := filepath.Join(dir, fmt.Sprintf("parley-%v.yaml", local))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// behind starts a server before the provider; it needs no weights.
func behind(t *testing.T, p *stub.Server, extra string) *proc.Server {
	t.Helper()
	o := options(dataDir(t))
	o.Config = behindConfig(t, filepath.Dir(o.Data), p, false, extra)
	s, err := proc.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			text := s.Stderr()
			t.Logf("the server wrote:\n%s", text[max(0, len(text)-4000):])
		}
	})
	return s
}

// tell makes a request that tells the provider what to do; fields come before the messages.
func tell(model, fields, order string) string {
	return fmt.Sprintf(`{"model":%q%s,"messages":[{"role":"user","content":%q}]}`, model, fields, order)
}

const withUsage = `,"stream":true,"stream_options":{"include_usage":true}`
