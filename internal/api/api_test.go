package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/api"
	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/chat"
	"github.com/parley-ai/parley/internal/httpserver"
	"github.com/parley-ai/parley/internal/idempotency"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/payment"
	"github.com/parley-ai/parley/internal/ratelimit"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/routing"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/telemetry"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// door is the public handler on a real socket, over real rooms and a scripted
// provider.
type door struct {
	*httpserver.Server
	URL      string
	dir      string
	client   *http.Client
	db       *store.DB
	ledger   *ledger.Ledger
	refusals *refusal.Recorder
	keys     *apikey.Keyring
	repeats  *idempotency.Room
	accounts *account.Directory
	log      *lines
	account  *account.Account
	key      string // of account: funded, on the plan pro
	draining atomic.Bool
	later    atomic.Int64            // by how much the keys' clock is ahead
	end      context.CancelCauseFunc // of everything that runs
}

// models: svc-titan is for pro only, org/m has a slash in its id, old is no more.
func models() []catalog.Model {
	at := time.Unix(1_750_000_000, 0)
	base := catalog.Model{ContextWindow: 8192, MaxOutput: 4096, Price: money.Price{Input: 10, CachedInput: 10, Output: 20}, Created: at, Description: "Quick.", Plans: []string{"free", "pro"}, Targets: []catalog.Target{{Upstream: "fake", Model: "x"}}}
	var ms []catalog.Model
	for _, id := range []string{"svc-pulse", "svc-titan", "org/m", "old"} {
		m := base
		m.ID = id
		switch id {
		case "svc-titan":
			m.Plans = []string{"pro"}
		case "old":
			m.Deprecated = at
		}
		ms = append(ms, m)
	}
	return ms
}

const (
	credit       = money.IU
	stripeSecret = "whsec_0123456789abcdef"
)

func open(t testing.TB, p upstream.Provider) *door {
	t.Helper()
	ctx := context.Background()
	dir := t.TempDir()
	d := &door{log: &lines{}, dir: dir}
	db, err := store.Open(ctx, dir)
	must(t, err)
	progress, err := store.OpenProgress(dir)
	must(t, err)
	ms, plans := models(), []account.Plan{{ID: "free"}, {ID: "pro"}}
	must(t, db.SaveCatalog(ctx, ms, plans))
	cat, err := catalog.New(ms)
	must(t, err)
	d.db = db
	d.accounts = account.NewDirectory(db)
	d.accounts.SetPlans(plans)
	d.keys = apikey.NewKeyring(db, d.accounts)
	d.ledger, _, err = ledger.Open(ctx, db, progress)
	must(t, err)
	d.repeats, err = idempotency.Open(ctx, db)
	must(t, err)
	base, end := context.WithCancelCause(ctx)
	d.end = end
	limiter := ratelimit.New(time.Now())
	line := &chat.Service{Catalog: cat, Ledger: d.ledger, Limiter: limiter, Router: routing.New(map[string]upstream.Provider{"fake": p}), Describe: api.Describe}
	config := api.Config{
		Chat: line, Keys: d, Catalog: cat, Limiter: limiter, Draining: d.draining.Load, Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Log: telemetry.NewLines(d.log, true),
		Ready: func() error {
			if d.draining.Load() {
				return errors.New("the server is stopping")
			}
			return d.ledger.Available()
		},
	}
	config.Base, config.Idempotency = base, d.repeats
	config.Payments, err = payment.New(payment.Options{SecretKey: "sk_test", WebhookSecret: stripeSecret}, d.ledger, db)
	must(t, err)
	d.refusals = refusal.NewRecorder(db, func(err error) { t.Error(err) })
	config.Refused = d.refusals.Add
	d.Server = &httpserver.Server{
		Handler: api.New(config), Reject: api.Reject(config),
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	must(t, err)
	d.URL = "http://" + l.Addr().String()
	d.client = &http.Client{Transport: &http.Transport{}}
	go func() { _ = d.Serve(l) }()
	d.account, d.key = d.customer(t, "a", "pro", credit)
	t.Cleanup(func() {
		d.Close()
		end(nil)
		must(t, d.ledger.Close())
		must(t, progress.Close())
		must(t, db.Close())
	})
	return d
}

// Close stops the server when the calls that clients have left are over.
func (d *door) Close() {
	d.client.CloseIdleConnections()
	_ = d.Shutdown(context.Background()) // waits for as long as it takes
}

// Authenticate asks the keyring, at a later time where the test wants one.
func (d *door) Authenticate(values []string, now time.Time) (*account.Principal, error) {
	return d.keys.Authenticate(values, now.Add(time.Duration(d.later.Load())))
}

// customer makes an account with a key.
func (d *door) customer(t testing.TB, name, plan string, credit money.Amount) (*account.Account, string) {
	t.Helper()
	a, err := d.accounts.Create(context.Background(), name, plan)
	must(t, err)
	if credit > 0 {
		_, err := d.ledger.Grant(context.Background(), ledger.Grant{AccountID: a.ID, Amount: credit})
		must(t, err)
	}
	_, secret, err := d.keys.Create(context.Background(), apikey.NewKey{AccountID: a.ID, Name: "k"})
	must(t, err)
	return a, string(secret)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// provider answers every call by the steps. Its prompts have 10 tokens.
func provider(steps ...upstreamtest.Step) *upstreamtest.Provider {
	p := upstreamtest.New(steps)
	p.Prompt, p.Fingerprint = 10, fingerprint
	return p
}

const fingerprint = "fp_0123456789"

// reached closes ch, which tells the test how far the call is.
func reached(ch chan<- struct{}) upstreamtest.Step {
	return upstreamtest.Do(func(context.Context) error { close(ch); return nil })
}

// hello is the provider of most tests.
func hello() *upstreamtest.Provider {
	return provider(upstreamtest.Text("Hel", "lo"), upstreamtest.Finish(wire.FinishStop))
}

// lines is a log.
type lines struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	muted bool
}

// mute lets the log forget what comes: of some hundred thousand calls it is hundreds of megabytes.
func (l *lines) mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.muted = true
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.muted {
		return len(b), nil
	}
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// reply is an answer that was read to its end.
type reply struct {
	*http.Response
	body string
	err  error // of reading it
}

// code is the error code of a refusal, "" of anything else.
func (r *reply) code() string {
	var v struct{ Error struct{ Code string } }
	if json.Unmarshal([]byte(r.body), &v) != nil {
		return ""
	}
	return v.Error.Code
}

func (r *reply) param() string {
	var v struct{ Error struct{ Param string } }
	_ = json.Unmarshal([]byte(r.body), &v)
	return v.Error.Param
}

// body is a request with extra members after the least that is needed.
func body(extra string) string {
	return `{"model":"svc-pulse","messages":[{"role":"user","content":"Hi"}]` + extra + `}`
}

// post sends a body with the door's key; header fields come in pairs and "" takes one away.
func (d *door) post(t testing.TB, body string, header ...string) *reply {
	t.Helper()
	return d.do(t, "POST", "/v1/chat/completions", strings.NewReader(body), append([]string{"Authorization", "Bearer " + d.key, "Content-Type", "application/json"}, header...)...)
}

func (d *door) do(t testing.TB, method, path string, body io.Reader, header ...string) *reply {
	t.Helper()
	req, err := http.NewRequest(method, d.URL+path, body)
	must(t, err)
	for h := range slices.Chunk(header, 2) {
		if h[1] == "" {
			req.Header.Del(h[0])
			continue
		}
		req.Header.Set(h[0], h[1])
	}
	res, err := d.client.Do(req)
	must(t, err)
	return read(t, res)
}

var seen sync.Map // request ids of all tests

var requestID = regexp.MustCompile(`^req_[0-9a-f]{32}$`)

// read reads an answer and checks what is true of all of them.
func read(t testing.TB, res *http.Response) *reply {
	t.Helper()
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	r := &reply{Response: res, body: string(b), err: err}
	check(t, r)
	return r
}

func check(t testing.TB, r *reply) {
	t.Helper()
	id := r.Header.Get("X-Request-Id")
	if _, again := seen.LoadOrStore(id, true); again || !requestID.MatchString(id) {
		t.Errorf("%d has x-request-id %q, want one of its own", r.StatusCode, id)
	}
	if r.Header.Get("Access-Control-Allow-Origin") != "*" || r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d has headers %v", r.StatusCode, r.Header)
	}
	if r.body == "" {
		return
	}
	switch kind := r.Header.Get("Content-Type"); {
	case kind == "text/event-stream; charset=utf-8" && r.StatusCode == 200:
		for line := range strings.Lines(r.body) {
			line = strings.TrimSuffix(line, "\n")
			event, ok := strings.CutPrefix(line, "data: ")
			if line == "" || event == "[DONE]" {
				continue
			}
			schema := "ChatCompletionChunk"
			if strings.HasPrefix(event, `{"error":{`) {
				schema = "Error"
			}
			if !ok || len(line) >= 64<<10 {
				t.Errorf("line of %d bytes: %.100q", len(line), line)
			}
			validate(t, schema, event)
		}
	case kind != "application/json":
		t.Errorf("%d has content type %q", r.StatusCode, kind)
	case r.StatusCode != 200:
		validate(t, "Error", r.body)
		if r.StatusCode != 429 && rateLimit.MatchString(r.body) || (r.StatusCode >= 500 || r.StatusCode <= 403 && r.StatusCode > 400) && strings.Contains(r.body, "invalid_request_error") {
			t.Errorf("%d: clients misread %s", r.StatusCode, r.body)
		}
	default:
		for object, schema := range map[string]string{"chat.completion": "ChatCompletion", "model": "Model", "list": "ModelList"} {
			var v struct{ Object string }
			if json.Unmarshal([]byte(r.body), &v) == nil && v.Object == object {
				validate(t, schema, r.body)
			}
		}
	}
}

var rateLimit = regexp.MustCompile(`(?i)rate[\s_-]*limit`)

// schemas is the published document.
var schemas = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	text, err := os.ReadFile("openapi.yaml")
	if err != nil {
		return nil, err
	}
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("openapi.yaml", doc); err != nil {
		return nil, err
	}
	all := map[string]*jsonschema.Schema{}
	for _, name := range []string{"ChatCompletion", "ChatCompletionChunk", "Model", "ModelList", "Error"} {
		if all[name], err = c.Compile("openapi.yaml#/components/schemas/" + name); err != nil {
			return nil, err
		}
	}
	return all, nil
})

func validate(t testing.TB, schema, text string) {
	t.Helper()
	all, err := schemas()
	must(t, err)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Errorf("%.200s: %v", text, err)
		return
	}
	if err := all[schema].Validate(v); err != nil {
		t.Errorf("%.200s: %v", text, err)
	}
}

// raw sends bytes over a connection of its own and reads one answer as it comes.
func (d *door) raw(t testing.TB, request string) *reply {
	t.Helper()
	c := d.dial(t)
	_, err := io.WriteString(c, request)
	must(t, err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	return read(t, res)
}

func (d *door) dial(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(3*time.Minute))) // of a test that hangs
	return c
}

// head is the start of a request by hand.
func (d *door) head(extra ...string) string {
	return "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + strings.Join(append(extra, "", ""), "\r\n")
}
