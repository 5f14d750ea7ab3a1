// Package config reads the one YAML file that says what Parley serves: where it
// listens, its plans, its models and their prices, and where the models run.
//
// Load reports every problem of a file at once, each with its line. A key whose
// feature this version does not have is a problem, never silently ignored.
package config

import (
	_ "embed"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// BuiltIn is the name that Source and problems carry when no file was given.
const BuiltIn = "built-in configuration"

//go:embed builtin.yaml
var builtin []byte

// Config is the whole file. Paths in it are absolute or count from the working
// directory: Load has resolved those of the file against the file's directory.
type Config struct {
	// Source is the file's path as given, or BuiltIn.
	Source string
	// Listen is the TCP address of the public interface; port 0 takes a free one.
	// Default 127.0.0.1:8080.
	Listen string
	// Data is the directory that keeps the books. Default ./data beside the file.
	Data string
	// TLS serves HTTPS when both files are named.
	TLS TLS
	// PublicURL is where people reach the console: scheme and host, without a path. Links and
	// passkeys are of it. Default nil, for http://localhost and the port of Listen.
	PublicURL *url.URL
	// TrustedProxies are the networks whose X-Forwarded-For is believed. Default none.
	TrustedProxies []netip.Prefix
	// Drain says how the server stops.
	Drain Drain
	// Metrics says where this process is measured.
	Metrics Metrics
	// Engine sizes the embedded engine.
	Engine Engine
	// Plans are the tiers an account can be on, at least one.
	Plans []Plan
	// Upstreams are the places where models run, at least one.
	Upstreams []Upstream
	// Webhooks are told of changes.
	Webhooks []Webhook
	// Payment says how credit can be bought.
	Payment Payment
	// LowCredit is the balance below which an account's credit is low. Default 1 IU.
	LowCredit money.Amount
	// Models are what customers can ask for, at least one.
	Models []Model
}

// TLS names a PEM certificate chain and its private key. Both or neither are set.
type TLS struct {
	Cert string
	Key  string
}

// Drain is the order of a shutdown: /readyz turns 503, Delay passes with new
// calls still served, then running calls have up to Limit.
type Drain struct {
	// Delay gives load balancers time to look away. Default 0s.
	Delay time.Duration
	// Limit is the longest that running calls may go on. Default 10m.
	Limit time.Duration
}

// Metrics is a listener of its own, because who may call need not see how much is called.
type Metrics struct {
	// Listen is the TCP address that serves /metrics; empty serves it nowhere.
	Listen string
}

// Engine sizes the embedded engine. Zero values leave the choice to the engine.
type Engine struct {
	// Threads that compute; 0 means the number of cores less one, at least 1.
	Threads int
	// MaxSequences is how many calls are computed together. Default 16.
	MaxSequences int
	// KVBytes is the memory for the keys and values of running calls. Default 512 MiB.
	KVBytes int64
}

// Plan is a tier of accounts. Its limits bind an account, all its keys together. Zero
// means no limit.
type Plan struct {
	ID          string
	RPM         int64
	TPM         int64
	Concurrency int64
	// Limits are those of single models, in addition, in the order of the file.
	Limits []ModelLimit
	// MaxOutput is the most tokens of one answer, beside what its model allows.
	MaxOutput int
	// Period is how long a paid period of a subscription lasts: month, year or a number
	// of days as 30d. Empty is month.
	Period string
	// Included is what each period brings.
	Included Included
	// Grace is how long the plan goes on applying when a period was not renewed. Default
	// none.
	Grace time.Duration
}

// Included is what a paid period includes. It is used before credit that was bought, and
// what is left of it ends with the period.
type Included struct {
	Tokens int64 // of any model of the plan
	Credit money.Amount
}

// ModelLimit binds the calls of an account for one model. Zero means no limit.
type ModelLimit struct {
	Model string
	RPM   int64
	TPM   int64
}

// Model is what customers name in a request.
type Model struct {
	ID          string
	Description string
	// ContextWindow is the most tokens of prompt and answer together.
	ContextWindow int
	// MaxOutput is the most tokens of one answer; default ContextWindow.
	MaxOutput int
	// Price is exact: IU per 1K tokens with at most 6 decimals.
	Price money.Price
	// Created is shown to clients; default 1 January 2026, UTC.
	Created time.Time
	// Deprecated is when the model stops to exist for clients; zero is never.
	Deprecated time.Time
	// Plans are the plans that include the model, at least one.
	Plans []string
	// Targets are where it runs, at least one; they are tried in order.
	Targets []Target
}

// Target is a model at an upstream. An upstream of kind local has one model: there
// Model is the name that receipts show.
type Target struct {
	Upstream string
	Model    string
}

// Problem is one thing that is wrong with a file.
type Problem struct {
	// Line counts from 1.
	Line int
	// Text names the key and says what is wrong and what would be right.
	Text string
}

// Error is every problem of one file, in the order of its lines.
type Error struct {
	File     string
	Problems []Problem
}

// Error is one line a problem, "file:line: text", and a last line that counts them.
func (e *Error) Error() string {
	var b strings.Builder
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "%s:%d: %s\n", e.File, p.Line, p.Text)
	}
	if len(e.Problems) == 1 {
		b.WriteString("1 problem.")
	} else {
		fmt.Fprintf(&b, "%d problems.", len(e.Problems))
	}
	return b.String()
}

// Default is the built-in configuration: svc-pulse and svc-titan on the embedded
// engine, plans free and pro.
func Default() *Config {
	c, err := parse(BuiltIn, "", builtin, os.LookupEnv)
	if err != nil {
		panic("config: built-in file: " + err.Error()) // A test parses it; it cannot fail in a release.
	}
	return c
}

// Load reads and checks the file at path. A file with problems gives an *Error that
// lists them all; a file that cannot be read gives the reason.
func Load(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	return parse(path, filepath.Dir(path), text, os.LookupEnv)
}
