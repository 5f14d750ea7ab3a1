package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// remote is a correct file with an upstream outside; the cases below change one thing.
const remote = `plans: [{id: pro}]
metrics: {listen: "127.0.0.1:9464"}
upstreams:
  - id: rack
    kind: openai
    base_url: https://rack.example/v1
    api_key: ${KEY}
    public_only: true
    retries: 0
    timeouts: {connect: 1s, first_token: 5s, idle: 7s, total: 9m}
    tokenizer: cl100k_base
    completion_tokens_name: max_completion_tokens
  - {id: near, kind: openai, base_url: "http://127.0.0.1:8000/v1"}
models:
  - {id: m, context_window: 512, pricing: {input: 1, output: 2}, plans: [pro], targets: [{upstream: rack, model: big}, {upstream: near, model: org/small}]}
`

func secrets(name string) (string, bool) {
	v, ok := map[string]string{"KEY": "sk-provider", "SPACED": "a b"}[name]
	return v, ok
}

func TestParse_OpenAI(t *testing.T) {
	t.Parallel()
	c, err := parse("f", "/etc/parley", []byte(remote), secrets)
	if err != nil {
		t.Fatal(err)
	}
	want := []Upstream{
		{
			ID: "rack", Kind: "openai", BaseURL: "https://rack.example/v1", APIKey: "sk-provider", PublicOnly: true,
			Timeouts:  Timeouts{Connect: time.Second, FirstToken: 5 * time.Second, Idle: 7 * time.Second, Total: 9 * time.Minute},
			Tokenizer: "cl100k_base", CompletionTokens: true,
		},
		{
			ID: "near", Kind: "openai", BaseURL: "http://127.0.0.1:8000/v1", Retries: 2,
			Timeouts:  Timeouts{Connect: 2 * time.Second, FirstToken: time.Minute, Idle: time.Minute, Total: 30 * time.Minute},
			Tokenizer: "o200k_base",
		},
	}
	if diff := cmp.Diff(want, c.Upstreams); diff != "" {
		t.Errorf("upstreams (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Target{{"rack", "big"}, {"near", "org/small"}}, c.Models[0].Targets); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	if c.Metrics.Listen != "127.0.0.1:9464" {
		t.Errorf("metrics listen on %q", c.Metrics.Listen)
	}
	if all := fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Upstreams[0].APIKey); strings.Contains(all, "sk-provider") {
		t.Errorf("a configuration prints its secret: %s", all)
	}
}

func TestParse_OpenAIProblems(t *testing.T) {
	t.Parallel()
	const url = "base_url: https://rack.example/v1"
	for _, c := range []struct {
		name, old, replacement string
		want                   []string
	}{
		{"no base_url", "    " + url + "\n", "", []string{"4: upstream rack: no base_url. Add base_url: http://127.0.0.1:8000/v1"}},
		{"no URL", url, `base_url: "http://%zz"`, []string{"6: upstream rack: base_url must be http or https with a host, such as http://127.0.0.1:8000/v1."}},
		{"no scheme", url, "base_url: rack.example:8000", []string{"6: upstream rack: base_url must be http or https with a host, such as http://127.0.0.1:8000/v1."}},
		{"no host", url, `base_url: "https://:8000/v1"`, []string{"6: upstream rack: base_url must be http or https with a host, such as http://127.0.0.1:8000/v1."}},
		{"password", url, "base_url: https://u:hunter2@rack.example/v1", []string{"6: upstream rack: base_url must not have a user, a query or a fragment. A key goes to api_key."}},
		{"query", url, "base_url: https://rack.example/v1?key=hunter2", []string{"6: upstream rack: base_url must not have a user, a query or a fragment. A key goes to api_key."}},
		{"not public", url, "base_url: http://rack.example/v1", []string{"6: upstream rack: base_url must be https where public_only is true."}},
		{"key not set", "${KEY}", "${NONE}", []string{"7: upstream rack: api_key: the environment variable NONE is not set."}},
		{"key with a space", "${KEY}", "${SPACED}", []string{"7: upstream rack: api_key must be printable and without spaces."}},
		{"no truth", "public_only: true", "public_only: yes", []string{`8: upstream rack: public_only must be true or false, not "yes".`}},
		{"retries", "retries: 0", "retries: 6", []string{"9: upstream rack: retries must be at most 5, not 6."}},
		{"negative retries", "retries: 0", "retries: -1", []string{"9: upstream rack: retries must be at least 0, not -1."}},
		{"no time", "connect: 1s", "connect: 0s", []string{"10: upstream rack: timeouts: connect must be more than 0."}},
		{"unknown timeout", "connect: 1s", "read: 1s", []string{`10: upstream rack: timeouts: unknown key "read". Timeouts use connect, first_token, idle, total.`}},
		{"tokenizer", "cl100k_base", "llama", []string{`11: upstream rack: tokenizer must be o200k_base, cl100k_base, p50k_base, r50k_base or the path of a GGUF file, not "llama".`}},
		{"name", "max_completion_tokens", "max", []string{`12: upstream rack: completion_tokens_name must be max_tokens or max_completion_tokens, not "max".`}},
		{"weights", "retries: 0", "weights: w.gguf", []string{`9: upstream rack: unknown key "weights". Upstreams of kind openai use id, kind, base_url, api_key, api_key_file, public_only, retries, timeouts, tokenizer, completion_tokens_name.`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(remote, c.old, c.replacement, 1)
			if text == remote {
				t.Fatalf("%q is not in the file", c.old)
			}
			_, err := parse("f", "", []byte(text), secrets)
			if err == nil {
				t.Fatal("the file is accepted")
			}
			lines := strings.Split(strings.ReplaceAll(err.Error(), "f:", ""), "\n")
			if diff := cmp.Diff(c.want, lines[:len(lines)-1]); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the problem repeats a password: %v", err)
			}
		})
	}
}

func TestParse_KeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"good": "sk-provider\n", "empty": "\n", "two": "a\nb\n", "long": strings.Repeat("x", mostKeyBytes+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const line = "f:7: upstream rack: api_key_file "
	for replacement, want := range map[string]string{
		"api_key_file: good":                 "",
		"api_key_file: none":                 line + "cannot be read: open " + filepath.Join(dir, "none") + ": no such file or directory.\n1 problem.",
		"api_key_file: empty":                line + "must hold one line: the key, printable and without spaces.\n1 problem.",
		"api_key_file: two":                  line + "must hold one line: the key, printable and without spaces.\n1 problem.",
		"api_key_file: long":                 line + "must hold one line: the key, printable and without spaces.\n1 problem.",
		"api_key: a\n    api_key_file: good": "f:8: upstream rack: api_key and api_key_file are both given. Leave one.\n1 problem.",
	} {
		c, err := parse("f", dir, []byte(strings.Replace(remote, "api_key: ${KEY}", replacement, 1)), secrets)
		switch {
		case want == "" && (err != nil || c.Upstreams[0].APIKey != "sk-provider"):
			t.Errorf("%q gives %v, %v", replacement, c, err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%q gives %v, want %s", replacement, err, want)
		}
	}
}

func TestParse_TokenizerFile(t *testing.T) {
	t.Parallel()
	c, err := parse("f", "/etc/parley", []byte(strings.Replace(remote, "cl100k_base", "weights/big.gguf", 1)), secrets)
	if err != nil || c.Upstreams[0].Tokenizer != "/etc/parley/weights/big.gguf" {
		t.Errorf("the tokenizer is %v, %v", c, err)
	}
}
