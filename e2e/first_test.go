package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-ai/parley/e2e/proc"
)

// receipt is one entry of `parley receipts --json`.
type receipt struct {
	RequestID        string `json:"request_id"`
	CompletionID     string `json:"completion_id"`
	Model            string `json:"model"`
	PromptTokens     int64  `json:"prompt_tokens"`
	CachedTokens     int64  `json:"cached_tokens"`
	CompletionTokens int64  `json:"completion_tokens"`
	Charge           string `json:"charge"`
	Hold             string `json:"hold"`
	Status           int    `json:"status"`
	State            string `json:"state"`
	Ending           string `json:"ending"`
	UsageSource      string `json:"usage_source"`
	Target           string `json:"target"`
}

// Prices of the built-in configuration, in nano-IU a token: 0.05 IU per 1K is 50,000.
var prices = map[string]struct{ in, out int64 }{
	"svc-pulse": {50_000, 100_000},
	"svc-titan": {200_000, 400_000},
}

// price is what tokens of a model must cost.
func price(model string, in, out int64) int64 {
	p := prices[model]
	return in*p.in + out*p.out
}

// nano parses a decimal string of IU exactly.
func nano(t *testing.T, s string) int64 {
	t.Helper()
	whole, frac, _ := strings.Cut(s, ".")
	if len(frac) > 9 {
		t.Fatalf("amount %q has more than 9 decimals", s)
	}
	frac += strings.Repeat("0", 9-len(frac))
	negative := strings.HasPrefix(whole, "-")
	var n int64
	for _, c := range strings.TrimPrefix(whole, "-") + frac {
		if c < '0' || c > '9' {
			t.Fatalf("amount %q is not a decimal", s)
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		return -n
	}
	return n
}

// TestFirstStart does what the README tells a stranger to do: start, copy the curl, read the receipt.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("curl")
	need(t, err == nil, "curl is not installed, so the printed example cannot be tried")
	s := start(t)

	if !strings.HasPrefix(s.Key, "sk-parley-") {
		t.Fatalf("first-start.json has key %q, want sk-parley-…", s.Key)
	}
	info, err := os.Stat(filepath.Join(s.Options.Data, "first-start.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("first-start.json: %v, mode %v, want 0600", err, info.Mode().Perm())
	}
	if dir, err := os.Stat(s.Options.Data); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("data directory: %v, mode %v, want 0700", err, dir.Mode().Perm())
	}
	if strings.Contains(s.Stderr(), s.Key) {
		t.Error("the key is in the log")
	}

	// Two pipes: what was printed before the Ready line may be read after it.
	eventually(t, func() error {
		if !strings.Contains(s.Stdout(), "}]}'") {
			return fmt.Errorf("no curl in %q", s.Stdout())
		}
		return nil
	})
	curl := printedCurl(t, s.Stdout())
	if !strings.Contains(curl, s.URL) || !strings.Contains(curl, s.Key) {
		t.Fatalf("the printed curl lacks the address or the key:\n%s", curl)
	}
	out, err := exec.Command("bash", "-c", curl).Output()
	if err != nil {
		t.Fatalf("the printed curl fails: %v\n%s", err, curl)
	}
	var c completion
	if err := json.Unmarshal(out, &c); err != nil || len(c.Choices) != 1 || c.Choices[0].Message.Content == nil || *c.Choices[0].Message.Content == "" {
		t.Fatalf("the printed curl gives %q, %v", out, err)
	}
	wantReceipt(t, s, c, "settled")

	streamed := strings.Replace(curl, `{"model"`, `{"stream":true,"stream_options":{"include_usage":true},"model"`, 1)
	out, err = exec.Command("bash", "-c", strings.Replace(streamed, "curl ", "curl -sN ", 1)).Output()
	if err != nil {
		t.Fatalf("the printed curl with stream fails: %v", err)
	}
	if text := string(out); !strings.HasPrefix(text, "data: {") || !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("the stream is %q", text)
	}
	if st := readStream(string(out)); st.text == "" || st.usage == nil {
		t.Errorf("the stream has text %q and usage %v", st.text, st.usage)
	}

	if r := s.Run("ledger", "verify", "--json"); r.Code != 0 || !strings.Contains(r.Stdout, `"ok":true`) {
		t.Errorf("ledger verify: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code after SIGTERM = %d, want 0\n%s", code, s.Stderr())
	}
	// A second start shows no secret and knows the same account.
	again, err := proc.Start(s.Options)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Kill()
	if strings.Contains(again.Stdout()+again.Stderr(), s.Key) {
		t.Error("the second start prints the key again")
	}
	if all := again.Stdout() + again.Stderr(); !strings.Contains(all, "balanced") {
		t.Errorf("the second start does not say that the books are balanced:\n%s", all)
	}
	if a := post(t, again, s.Key, `{"model":"svc-pulse","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}`); a.Status != 200 {
		t.Errorf("the key does not work after a restart: %d %s", a.Status, a.Body)
	}
}

var curlCommand = regexp.MustCompile(`(?m)^ *curl (?:.*\\\n)*.*$`)

func printedCurl(t *testing.T, out string) string {
	t.Helper()
	curl := curlCommand.FindString(out)
	if curl == "" {
		t.Fatalf("no curl in what serve printed:\n%s", out)
	}
	return strings.TrimSpace(curl)
}

// wantReceipt finds the receipt of c in the default account and checks its charge: tokens times price.
func wantReceipt(t *testing.T, s *proc.Server, c completion, state string) receipt {
	t.Helper()
	for _, r := range runJSON[[]receipt](t, s, "receipts", "--account", "default") {
		if r.CompletionID != c.ID {
			continue
		}
		if r.State != state {
			t.Errorf("receipt of %s: state %s, want %s", c.ID, r.State, state)
		}
		if r.PromptTokens != c.Usage.Prompt || r.CompletionTokens != c.Usage.Completion {
			t.Errorf("receipt of %s: %d in, %d out; the answer said %d, %d",
				c.ID, r.PromptTokens, r.CompletionTokens, c.Usage.Prompt, c.Usage.Completion)
		}
		if got, want := nano(t, r.Charge), price(c.Model, c.Usage.Prompt, c.Usage.Completion); got != want {
			t.Errorf("receipt of %s: charge %d nano-IU, want %d", c.ID, got, want)
		}
		return r
	}
	t.Fatalf("no receipt for %s", c.ID)
	return receipt{}
}
