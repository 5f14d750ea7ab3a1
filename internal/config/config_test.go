package config

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-ai/parley/internal/money"
)

// whole is a correct file; the cases below change one thing in it.
const whole = `listen: 127.0.0.1:9090
data: books
tls: {cert: tls/cert.pem, key: /etc/parley/key.pem}
drain: {delay: 5s, limit: 2m}
engine: {threads: 3, max_sequences: 8, kv_bytes: 2GiB}
plans:
  - {id: free, rpm: 20, tpm: 60000, concurrency: 4}
  - {id: pro, limits: {svc-pulse: {rpm: 5, tpm: 6000}}}
upstreams:
  - {id: local, kind: local, weights: w/small.gguf}
models:
  - id: svc-pulse
    description: Small.
    context_window: 8192
    max_output: 2048
    pricing: {input: "0.05", cached_input: 0.025, output: 0.1}
    created: 2026-03-01
    deprecated: 2027-03-01T12:00:00Z
    plans: [free, pro]
    targets: [{upstream: local, model: small}]
trusted_proxies: [10.0.0.0/8, "::1", "::ffff:192.0.2.0/120"]
`

func lookup(name string) (string, bool) {
	v, ok := map[string]string{"ADDR": "127.0.0.1:7070", "BRACES": "{a: b}", "EMPTY": ""}[name]
	return v, ok
}

func TestParse_Whole(t *testing.T) {
	t.Parallel()
	got, err := parse("parley.yaml", "/srv/parley", []byte(whole), lookup)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Source: "parley.yaml", Listen: "127.0.0.1:9090", Data: "/srv/parley/books",
		TLS:            TLS{Cert: "/srv/parley/tls/cert.pem", Key: "/etc/parley/key.pem"},
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("192.0.2.0/24")},
		LowCredit:      money.IU,
		Drain:          Drain{Delay: 5 * time.Second, Limit: 2 * time.Minute},
		Engine:         Engine{Threads: 3, MaxSequences: 8, KVBytes: 2 << 30},
		Plans:          []Plan{{ID: "free", RPM: 20, TPM: 60000, Concurrency: 4}, {ID: "pro", Limits: []ModelLimit{{Model: "svc-pulse", RPM: 5, TPM: 6000}}}},
		Upstreams: []Upstream{
			{ID: "local", Kind: "local", Weights: "/srv/parley/w/small.gguf"},
		},
		Models: []Model{{
			ID: "svc-pulse", Description: "Small.", ContextWindow: 8192, MaxOutput: 2048,
			Price:      money.Price{Input: 50_000, CachedInput: 25_000, Output: 100_000},
			Created:    time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
			Deprecated: time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC),
			Plans:      []string{"free", "pro"}, Targets: []Target{{"local", "small"}},
		}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("parse of the whole file (-want +got):\n%s", diff)
	}
}

func TestParse_Defaults(t *testing.T) {
	t.Parallel()
	text := `
plans: [{id: pro}]
upstreams: [{id: local, kind: local}]
models: [{id: m, context_window: 512, pricing: {input: 1, output: 2}, plans: [pro], targets: [{upstream: local, model: m}]}]
`
	got, err := parse("f", "etc", []byte(text), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if got.Listen != "127.0.0.1:8080" || got.Data != filepath.Join("etc", "data") || got.Drain.Limit != 10*time.Minute {
		t.Errorf("defaults are listen %q, data %q, drain limit %s", got.Listen, got.Data, got.Drain.Limit)
	}
	m := got.Models[0]
	if m.MaxOutput != 512 || m.Price.CachedInput != m.Price.Input || m.Created.IsZero() {
		t.Errorf("defaults of a model are max_output %d, cached_input %d, created %s", m.MaxOutput, m.Price.CachedInput, m.Created)
	}
}

func TestDefault(t *testing.T) {
	t.Parallel()
	c := Default()
	if c.Source != BuiltIn || c.Data != "./data" || len(c.Models) != 2 || len(c.Plans) != 2 {
		t.Fatalf("Default() = %+v", c)
	}
	pulse, titan := c.Models[0], c.Models[1]
	if pulse.ID != "svc-pulse" || titan.ID != "svc-titan" {
		t.Fatalf("models are %s and %s", pulse.ID, titan.ID)
	}
	if titan.MaxOutput <= pulse.MaxOutput {
		t.Errorf("svc-titan answers up to %d tokens, svc-pulse up to %d", titan.MaxOutput, pulse.MaxOutput)
	}
	if !cmp.Equal(titan.Plans, []string{"pro"}) {
		t.Errorf("svc-titan is on %v, want pro alone", titan.Plans)
	}
}

func TestParse_Problems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, old, replacement string
		want                   []string
	}{
		{"unknown key near one", "listen:", "lisen:", []string{`1: unknown key "lisen". Did you mean "listen"?`}},
		{"unknown key far from all", "id: free, rpm", "id: free, ratelimit", []string{`7: plan free: unknown key "ratelimit". Plans use id, rpm, tpm, concurrency, limits, max_output, period, included, grace.`}},
		{"duplicate key", "data: books\n", "data: books\nlisten: :1\n", []string{`3: key "listen" appears twice, first on line 1.`}},
		{"duplicate id", "- {id: pro, limits: {svc-pulse: {rpm: 5, tpm: 6000}}}", "- {id: free}", []string{`8: plan free is defined twice, first on line 7.`, `19: model svc-pulse: no plan is called "pro". Defined: free.`}},
		{"variable not set", "127.0.0.1:9090", "${NOWHERE}", []string{`1: listen: the environment variable NOWHERE is not set.`}},
		{"variable empty", "data: books", "data: ${EMPTY}", []string{`2: data is empty, because ${EMPTY} is in the environment.`}},
		{"no data", "data: books", `data: ""`, []string{`2: data has no value.`}},
		{"certificate of empty variables", "cert: tls/cert.pem, key: /etc/parley/key.pem", "cert: '${EMPTY}', key: '${EMPTY}'", []string{
			`3: tls: cert is empty, because ${EMPTY} is in the environment.`, `3: tls: key is empty, because ${EMPTY} is in the environment.`,
		}},
		{"no limit of a model", "{svc-pulse: {rpm: 5, tpm: 6000}}", "{svc-pulse: {}}", []string{`8: plan pro: limits: svc-pulse: no limit. Add rpm: 60`}},
		{"variable not closed", "127.0.0.1:9090", "'${ADDR'", []string{`1: listen: "${ADDR" is not a variable. Write ${NAME}.`}},
		{"address", "127.0.0.1:9090", "localhost", []string{`1: listen must be HOST:PORT such as 127.0.0.1:8080, not "localhost".`}},
		{"port", "127.0.0.1:9090", "'h:99999'", []string{`1: listen must be HOST:PORT such as 127.0.0.1:8080, not "h:99999".`}},
		{"no value", "data: books", "data:", []string{`2: data has no value.`}},
		{"tls half", ", key: /etc/parley/key.pem", "", []string{`3: tls needs both cert and key.`}},
		{"duration", "limit: 2m", "limit: 2", []string{`4: drain: limit must be a duration such as 30s or 10m, not "2".`}},
		{"negative duration", "limit: 2m", "limit: -2m", []string{`4: drain: limit must not be negative, not "-2m".`}},
		{"size", "2GiB", "2 gigs", []string{`5: engine: kv_bytes must be a size such as 512MiB or 2GiB, not "2 gigs".`}},
		{"size past the end", "2GiB", "9999999999TiB", []string{`5: engine: kv_bytes must be a size such as 512MiB or 2GiB, not "9999999999TiB".`}},
		{"whole number", "rpm: 20", "rpm: 2.5", []string{`7: plan free: rpm must be a whole number, not "2.5".`}},
		{"limits of no model", "{svc-pulse: {rpm: 5", "{svc-plse: {rpm: 5", []string{`8: plan pro: limits: no model is called "svc-plse". Did you mean "svc-pulse"?`}},
		{"a limit of nothing", "{svc-pulse: {rpm: 5", "{svc-pulse: {rpm: 0", []string{`8: plan pro: limits: svc-pulse: rpm must be at least 1, not 0.`}},
		{"limits without models", "{svc-pulse: {rpm: 5, tpm: 6000}}", "5", []string{`8: plan pro: limits: expected models and their limits, found "5".`}},
		{"limits twice", "{svc-pulse: {rpm: 5, tpm: 6000}}", "{svc-pulse: {rpm: 5}, svc-pulse: {rpm: 6}}", []string{`8: plan pro: limits: model "svc-pulse" is named twice.`}},
		{"negative number", "rpm: 20", "rpm: -1", []string{`7: plan free: rpm must be at least 0, not -1.`}},
		{"too many sequences", "max_sequences: 8", "max_sequences: 9999999999", []string{`5: engine: max_sequences must be at most 1073741824, not 9999999999.`}},
		{"list expected", "plans: [free, pro]", "plans: free", []string{`19: model svc-pulse: plans must be a list, found "free".`}},
		{"mapping expected", "tls: {cert: tls/cert.pem, key: /etc/parley/key.pem}", "tls: yes", []string{`3: tls: expected keys and values, found "yes".`}},
		{"id shape", "id: svc-pulse", "id: a b", []string{`8: plan pro: limits: no model is called "svc-pulse". Defined: none.`, `12: model: id "a b" must be 1 to 64 letters, digits or . _ : / - and not begin with a sign.`}},
		{"no id", "- {id: pro, limits: {svc-pulse: {rpm: 5, tpm: 6000}}}", "- {rpm: 1}", []string{`8: a plan has no id.`, `19: model svc-pulse: no plan is called "pro". Defined: free.`}},
		{"price decimals", `"0.05"`, "0.0000001", []string{`16: model svc-pulse: pricing: input must be IU per 1K tokens, a number from 0 to 1,000,000 with at most 6 decimals, not "0.0000001".`}},
		{"price exponent", `"0.05"`, "5e-2", []string{`16: model svc-pulse: pricing: input must be IU per 1K tokens, a number from 0 to 1,000,000 with at most 6 decimals, not "5e-2".`}},
		{"no output price", ", output: 0.1", "", []string{`16: model svc-pulse: pricing: no output price. Add output: "0.05"`}},
		{"no price", `    pricing: {input: "0.05", cached_input: 0.025, output: 0.1}` + "\n", "", []string{`12: model svc-pulse has no price. Add pricing: {input: "0.05", output: "0.1"}`}},
		{"no target", "    targets: [{upstream: local, model: small}]\n", "", []string{`12: model svc-pulse has no target. Add targets: [{upstream: …, model: …}].`}},
		{"empty targets", "[{upstream: local, model: small}]", "[]", []string{`20: model svc-pulse has no target. Add targets: [{upstream: …, model: …}].`}},
		{"half a target", "{upstream: local, model: small}", "{upstream: local}", []string{`20: model svc-pulse: a target needs upstream and model.`}},
		{"target twice", "[{upstream: local, model: small}]", "[{upstream: local, model: small}, {upstream: local, model: b}, {upstream: local, model: small}]", []string{`20: model svc-pulse: target local/small is named twice.`}},
		{"target keys of later", "model: small}", "model: small, tier: 1, weight: 2}", []string{
			"20: model svc-pulse: target: tier is not supported by this version. Remove it.",
			"20: model svc-pulse: target: weight is not supported by this version. Remove it.",
		}},
		{"unknown upstream", "{upstream: local,", "{upstream: locale,", []string{`20: model svc-pulse: no upstream is called "locale". Did you mean "local"?`}},
		{"unknown plan", "[free, pro]", "[free, gold]", []string{`19: model svc-pulse: no plan is called "gold". Defined: free, pro.`}},
		{"plan twice", "[free, pro]", "[free, free]", []string{`19: model svc-pulse: plan "free" is named twice.`}},
		{"on no plan", "[free, pro]", "[]", []string{`19: model svc-pulse is on no plan. Add plans: […].`}},
		{"output over window", "max_output: 2048", "max_output: 9000", []string{`15: model svc-pulse: max_output 9000 is more than context_window 8192.`}},
		{"date", "2026-03-01", "March", []string{`17: model svc-pulse: created must be a date such as 2026-01-31, not "March".`}},
		{"kind of later", "kind: local, weights: w/small.gguf", "kind: anthropic, base_url: http://h/v1, retries: 2", []string{`10: upstream local: kind "anthropic" is not supported by this version. Use kind: local or kind: openai.`}},
		{"no kind", "kind: local, ", "", []string{`10: upstream local: no kind. Add kind: local or kind: openai.`}},
		{"no upstream", "{id: local, kind: local, weights: w/small.gguf}", "local", []string{
			`10: upstream without id: expected keys and values, found "local".`,
			`20: model svc-pulse: no upstream is called "local". Defined: none.`,
		}},
		{"key of another kind", "weights: w/small.gguf", "base_url: http://h/v1", []string{`10: upstream local: unknown key "base_url". Upstreams of kind local use id, kind, weights.`}},
		{"public URL with a path", "data: books\n", "data: books\npublic_url: https://h/console\n", []string{
			`3: public_url must be a scheme and a host such as https://ai.example.org, not "https://h/console".`,
		}},
		{"public URL without a scheme", "data: books\n", "data: books\npublic_url: ai.example.org\n", []string{
			`3: public_url must be a scheme and a host such as https://ai.example.org, not "ai.example.org".`,
		}},
		{"no networks", `[10.0.0.0/8, "::1", "::ffff:192.0.2.0/120"]`, "[10.0.0.1/8, lo, 192.0.2.1, '']", []string{
			`21: trusted_proxies must name networks such as 10.0.0.0/8 or addresses such as 192.0.2.1, not "10.0.0.1/8".`,
			`21: trusted_proxies must name networks such as 10.0.0.0/8 or addresses such as 192.0.2.1, not "lo".`,
			`21: trusted_proxies must name networks such as 10.0.0.0/8 or addresses such as 192.0.2.1, not "".`,
		}},
		{"one network", `[10.0.0.0/8, "::1", "::ffff:192.0.2.0/120"]`, "10.0.0.0/8", []string{`21: trusted_proxies must be a list, found "10.0.0.0/8".`}},
		{"metrics without address", "data: books\n", "data: books\nmetrics: {}\n", []string{"3: metrics has no listen. Add listen: 127.0.0.1:9464"}},
		{"metrics address", "data: books\n", "data: books\nmetrics: {listen: 9464}\n", []string{`3: metrics: listen must be HOST:PORT such as 127.0.0.1:8080, not "9464".`}},
		{"model keys of later", "    max_output: 2048\n", "    max_output: 2048\n    tokenizer: \"\"\n    resume: off\n", []string{
			"16: model svc-pulse: tokenizer is not supported by this version. Remove it.",
			"17: model svc-pulse: resume is not supported by this version. Remove it.",
		}},
		{"no models", whole[strings.Index(whole, "models:"):], "models: []\n", []string{`8: plan pro: limits: no model is called "svc-pulse". Defined: none.`, "11: models has no entry. Add - {id: …, context_window: …, pricing: …, plans: …, targets: …}"}},
		{"second document", whole, whole + "---\na: b\n", []string{"22: a second document begins here. A configuration is one document."}},
		{"not YAML", "data: books", "data: [books", []string{`1: not YAML: did not find expected ',' or ']'.`}},
		{"empty", whole, "# nothing\n", []string{"1: the file is empty. It needs plans, upstreams and models."}},
		{"a list", whole, "- a\n", []string{"1: expected keys and values, found a list."}},
		{"several at once", "rpm: 20", "rmp: x, tpm: many", []string{
			`7: plan free: unknown key "rmp". Did you mean "rpm"?`,
			`7: plan free: tpm must be a whole number, not "many".`,
			`7: plan free: key "tpm" appears twice, first on line 7.`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(whole, c.old, c.replacement, 1)
			if text == whole {
				t.Fatalf("%q is not in the file", c.old)
			}
			_, err := parse("parley.yaml", "", []byte(text), lookup)
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("parse gives %v, want problems", err)
			}
			got := strings.Split(err.Error(), "\n")
			var want []string
			for _, w := range c.want {
				want = append(want, "parley.yaml:"+w)
			}
			if diff := cmp.Diff(want, got[:len(got)-1]); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestError_Counts(t *testing.T) {
	t.Parallel()
	one := (&Error{File: "f", Problems: []Problem{{3, "x"}}}).Error()
	two := (&Error{File: "f", Problems: []Problem{{3, "x"}, {4, "y"}}}).Error()
	if one != "f:3: x\n1 problem." || two != "f:3: x\nf:4: y\n2 problems." {
		t.Errorf("Error() gives %q and %q", one, two)
	}
}

func TestParse_Variables(t *testing.T) {
	t.Parallel()
	text := strings.Replace(whole, "127.0.0.1:9090", "${ADDR}", 1)
	// A variable's value is text, whatever it looks like.
	text = strings.Replace(text, "Small.", "\"${BRACES}${EMPTY}\"", 1)
	c, err := parse("f", "", []byte(text), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:7070" || c.Models[0].Description != "{a: b}" {
		t.Errorf("listen is %q, description %q", c.Listen, c.Models[0].Description)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "parley.yaml")
	if err := os.WriteFile(path, builtin, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(filepath.Dir(path), "data"); c.Data != want {
		t.Errorf("data is %q, want %q beside the file", c.Data, want)
	}
	if _, err := Load(path + ".missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load of a missing file gives %v", err)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ word, want string }{
		{"Exmaple Lab", "Example Lab"},
		{"example lab", "Example Lab"},
		{"Example", ""},
		{"pr", "pro"},
		{"xyz", ""},
		{"", ""},
	} {
		if got := Nearest(c.word, []string{"Example Lab", "pro", "Other"}); got != c.want {
			t.Errorf("Nearest(%q) = %q, want %q", c.word, got, c.want)
		}
	}
}

// FuzzParse: no text makes the reader panic, and every problem has a line and a sentence.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add(builtin)
	f.Add([]byte("a: &a [*a]\nplans: *a"))
	f.Add([]byte("plans: &p\n  - *p\n"))
	f.Add([]byte("? [a]\n: b\n"))
	f.Add([]byte("<<: {listen: x}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parse("f", "", text, lookup)
		var problems *Error
		if err == nil {
			if len(c.Models) == 0 {
				t.Error("a file without models is accepted")
			}
			return
		}
		if !errors.As(err, &problems) {
			t.Fatalf("parse gives %T", err)
		}
		for _, p := range problems.Problems {
			if p.Line < 1 || p.Text == "" {
				t.Errorf("problem %+v", p)
			}
		}
	})
}
