package config

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
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
		{"no such port", url, `base_url: "https://rack.example:99999/v1"`, []string{"6: upstream rack: base_url must be http or https with a host, such as http://127.0.0.1:8000/v1."}},
		{"password", url, "base_url: https://u:hunter2@rack.example/v1", []string{"6: upstream rack: base_url must not have a user, a query or a fragment. A key goes to api_key."}},
		{"query", url, "base_url: https://rack.example/v1?key=hunter2", []string{"6: upstream rack: base_url must not have a user, a query or a fragment. A key goes to api_key."}},
		{"not public", url, "base_url: http://rack.example/v1", []string{"6: upstream rack: base_url must be https where public_only is true."}},
		{"proxy beside public_only", "public_only: true", "public_only: true\n    proxy: http://proxy.example:3128", []string{"9: upstream rack: proxy and public_only exclude each other: the proxy looks up the address, so it cannot be checked."}},
		{"proxy of plain http", ":8000/v1\"}", ":8000/v1\", proxy: \"http://proxy.example\"}", []string{"13: upstream near: proxy needs a base_url of https."}},
		{"proxy over TLS", "public_only: true", "proxy: https://u:hunter2@proxy.example", []string{"8: upstream rack: proxy must be http, a host and a port, such as http://proxy.example:3128."}},
		{"proxy without a scheme", "public_only: true", "proxy: proxy.example:3128", []string{"8: upstream rack: proxy must be http, a host and a port, such as http://proxy.example:3128."}},
		{"proxy with a path", "public_only: true", "proxy: http://u:hunter2@proxy.example:3128/a", []string{"8: upstream rack: proxy must be http, a host and a port, such as http://proxy.example:3128."}},
		{"no proxy", "public_only: true", `proxy: ""`, []string{"8: upstream rack: proxy must be http, a host and a port, such as http://proxy.example:3128."}},
		{"no ca_file", "public_only: true", `ca_file: ""`, []string{"8: upstream rack: ca_file has no value."}},
		{"key not set", "${KEY}", "${NONE}", []string{"7: upstream rack: api_key: the environment variable NONE is not set."}},
		{"key with a space", "${KEY}", "${SPACED}", []string{"7: upstream rack: api_key must be printable and without spaces."}},
		{"no truth", "public_only: true", "public_only: yes", []string{`8: upstream rack: public_only must be true or false, not "yes".`}},
		{"retries", "retries: 0", "retries: 6", []string{"9: upstream rack: retries must be at most 5, not 6."}},
		{"negative retries", "retries: 0", "retries: -1", []string{"9: upstream rack: retries must be at least 0, not -1."}},
		{"no time", "connect: 1s", "connect: 0s", []string{"10: upstream rack: timeouts: connect must be more than 0."}},
		{"unknown timeout", "connect: 1s", "read: 1s", []string{`10: upstream rack: timeouts: unknown key "read". Timeouts use connect, first_token, idle, total.`}},
		{"tokenizer", "cl100k_base", "llama", []string{`11: upstream rack: tokenizer must be o200k_base, cl100k_base, p50k_base, r50k_base or the path of a GGUF file, not "llama".`}},
		{"name", "max_completion_tokens", "max", []string{`12: upstream rack: completion_tokens_name must be max_tokens or max_completion_tokens, not "max".`}},
		{"weights", "retries: 0", "weights: w.gguf", []string{`9: upstream rack: unknown key "weights". Upstreams of kind openai use id, kind, base_url, api_key, api_key_file, ca_file, proxy, public_only, retries, timeouts, tokenizer, completion_tokens_name.`}},
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

// pemOf is a certificate of nobody, in PEM, whose serial number is n.
func pemOf(t *testing.T, n int64) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(n)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestParse_CAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := pemOf(t, 1), pemOf(t, 2)
	want := x509.NewCertPool()
	want.AppendCertsFromPEM([]byte(one + two))
	for name, text := range map[string]string{
		"good": "Ours\n" + one + "\nand theirs:\n" + two, "empty": "", "der": "\x30\x82", "key": one + strings.ReplaceAll(two, "CERTIFICATE", "PRIVATE KEY"),
		"damaged": one + strings.Replace(two, "M", "*", 1), "cut": one + two[:len(two)-10], "wrong": one + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("0")})),
		"long": one + strings.Repeat("x", mostCABytes),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, says := range map[string]string{
		"good": "", "none": "cannot be read: open " + filepath.Join(dir, "none") + ": no such file or directory.",
		"empty": "has none.", "der": "has none.", "key": "has a PRIVATE KEY.", "damaged": "has a block that is damaged.", "cut": "has a block that is damaged.",
		"wrong": "has one, number 2, that cannot be read: x509: malformed certificate.", "long": "is larger than 4 MiB.",
	} {
		c, err := parse("f", dir, []byte(strings.Replace(remote, "public_only: true", "ca_file: "+name, 1)), secrets)
		switch {
		case says == "":
			if err != nil || !c.Upstreams[0].RootCAs.Equal(want) || c.Upstreams[1].RootCAs != nil {
				t.Errorf("%s gives %v", name, err)
			}
			continue
		case name != "none":
			says = "must hold certificates in PEM: " + filepath.Join(dir, name) + " " + says
		}
		if says = "f:8: upstream rack: ca_file " + says + "\n1 problem."; err == nil || err.Error() != says {
			t.Errorf("%s gives %v, want %s", name, err, says)
		}
	}
	_, err := parse("f", dir, []byte(strings.Replace(remote, `:8000/v1"}`, `:8000/v1", ca_file: good}`, 1)), secrets)
	if want := "f:13: upstream near: ca_file needs a base_url of https.\n1 problem."; err == nil || err.Error() != want {
		t.Errorf("ca_file of plain http gives %v, want %s", err, want)
	}
}

func TestParse_Proxy(t *testing.T) {
	t.Parallel()
	for _, proxy := range []string{"http://proxy.example:3128", "http://parley:hunter2@[fd12::1]:8080/"} {
		c, err := parse("f", "", []byte(strings.Replace(remote, "public_only: true", "proxy: "+proxy, 1)), secrets)
		if err != nil || string(c.Upstreams[0].Proxy) != proxy {
			t.Errorf("%s gives %v", proxy, err)
		}
		if all := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(all, "hunter2") {
			t.Errorf("a configuration prints a password: %s", all)
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
