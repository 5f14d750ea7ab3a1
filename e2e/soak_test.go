package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// soakConfig limits nobody but the machine. There are fewer pages than all calls want at once, so
// that calls wait and what is kept of prompts gives way.
const soakConfig = `metrics: {listen: "127.0.0.1:0"}
engine: {threads: 0, max_sequences: 16, kv_bytes: 192MiB}
plans:
  - {id: soak}
upstreams:
  - {id: local, kind: local}
models:
  - id: svc-pulse
    context_window: 8192
    max_output: 2048
    pricing: {input: "0.05", output: "0.1"}
    plans: [soak]
    targets: [{upstream: local, model: smollm2-135m-instruct}]
`

// soak is 16 clients of four accounts who ask for everything at once, and often leave.
type soak struct {
	*proc.Server
	client  *http.Client
	metrics string // where they are
	kinds   []soakKind

	mu      sync.Mutex
	log     []entry
	counts  map[string]int // of answers, by kind, and of what else came
	tokens  int64
	samples []sample
}

type sample struct {
	at  time.Duration
	mib float64 // resident
}

// soakKind is a way to ask. check says what is wrong with a choice.
type soakKind struct {
	name  string
	body  func(r *rand.Rand) string // the members of the request
	check func(c spoken) error
}

// spoken is a choice put together.
type spoken struct {
	content, finish string
	calls           []spokenCall
}

type spokenCall struct{ id, name, arguments string }

const soakClients = 16

// TestSoak: for as long as SOAK says (`make soak`; five seconds else) every answer is complete and
// of its form, and when all is over no page is held, memory has not grown and the books balance.
func TestSoak(t *testing.T) { //nolint:paralleltest // it measures memory
	needWeights(t)
	length := 5 * time.Second
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SOAK is %q, want a duration such as 10m", text)
		}
	}
	s := startSoak(t)
	var keys []string
	for i := range 4 {
		key, _ := account(t, s.Server, fmt.Sprintf("soak-%d", i), "soak", "100000")
		keys = append(keys, key)
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	begin := time.Now()
	var clients sync.WaitGroup
	for i := range soakClients {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 17))
			// Each kind is asked for to the end at least twice, however short the time is.
			for !s.ask(t, keys[i%len(keys)], r, s.kinds[i%len(s.kinds)], false) {
				<-time.After(50 * time.Millisecond) // busy
			}
			for ctx.Err() == nil {
				s.ask(t, keys[i%len(keys)], r, s.kinds[r.IntN(len(s.kinds))], r.IntN(6) == 0)
			}
		})
	}
	for tick := time.NewTicker(max(length/120, time.Second)); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			tick.Stop()
		case <-tick.C:
			s.samples = append(s.samples, sample{time.Since(begin), s.resident(t)})
		}
	}
	clients.Wait()
	s.rests(t)
	s.report(t, length, time.Since(begin))
	if v := runJSON[struct{ OK bool }](t, s.Server, "ledger", "verify"); !v.OK {
		t.Error("the ledger is not balanced")
	}
	checkBooks(t, s.Options.Data, s.log)
}

func startSoak(t *testing.T) *soak {
	t.Helper()
	o := options(dataDir(t))
	o.Config = filepath.Join(t.TempDir(), "soak.yaml")
	if err := os.WriteFile(o.Config, []byte(soakConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &soak{Server: startWith(t, o), client: newClient(), counts: map[string]int{}}
	m := regexp.MustCompile(`metrics +(http://\S+)`).FindStringSubmatch(s.Stderr())
	if m == nil {
		t.Fatalf("no address of the metrics in %s", s.Stderr())
	}
	s.metrics, s.kinds = m[1], soakKinds(t)
	return s
}

// soakKinds are the ways to ask.
func soakKinds(t *testing.T) []soakKind {
	t.Helper()
	says := func(c spoken) error {
		if len(c.calls) > 0 || c.finish == "tool_calls" {
			return fmt.Errorf("it calls %+v", c.calls)
		}
		return nil
	}
	object := func(c spoken) error {
		var v map[string]any
		return json.Unmarshal([]byte(c.content), &v)
	}
	place := validator(t, placeSchema)
	city := validator(t, `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":14}},"required":["city"],"additionalProperties":false}`)
	called := func(least int) func(spoken) error {
		return func(c spoken) error {
			if len(c.calls) < least || (len(c.calls) > 0) != (c.finish == "tool_calls") {
				return fmt.Errorf("%d calls and finish %s", len(c.calls), c.finish)
			}
			for _, call := range c.calls {
				if call.name == "get_time" && call.arguments == "{}" {
					continue
				}
				if err := city(call.arguments); err != nil || call.name != "get_weather" {
					return fmt.Errorf("call %+v: %w", call, err)
				}
			}
			return nil
		}
	}
	const tools = `,"tools":[{"type":"function","function":{"name":"get_time"}},{"type":"function","function":{"name":"get_weather","description":"The weather of the next days","parameters":` +
		`{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":14}},"required":["city"],"additionalProperties":false}}}]`
	user := func(text string) string { return fmt.Sprintf(`"messages":[{"role":"user","content":%q}]`, text) }
	fixed := func(text, more string) func(*rand.Rand) string {
		return func(r *rand.Rand) string {
			return fmt.Sprintf(`%s,"max_tokens":%d%s`, user(text), 60+r.IntN(100), more)
		}
	}
	format := `,"response_format":{"type":"json_schema","json_schema":{"name":"place","strict":true,"schema":` + placeSchema + `}}`
	return []soakKind{
		{"chat", fixed("Tell me about rivers.", ""), says},
		{"json", fixed("Tell me about a river in JSON.", `,"response_format":{"type":"json_object"}`), object},
		{"schema", fixed("Tell me about Rome in JSON.", format), func(c spoken) error { return place(c.content) }},
		{"schema n=2", fixed("Tell me about Rome in JSON.", format+`,"n":2`), func(c spoken) error { return place(c.content) }},
		{"tools", fixed("What is the weather in Rome?", tools+`,"tool_choice":"required"`), called(1)},
		{"tools auto", fixed("What is the weather in Rome?", tools), called(0)},
		{"n=2", fixed("Tell me a story.", `,"n":2,"logprobs":true`), says},
		{"long prompt", func(r *rand.Rand) string {
			// The same beginnings come again, each with another end.
			book := strings.Repeat(fmt.Sprintf("Chapter %d tells of rivers and of the towns beside them. ", r.IntN(12)), 20+r.IntN(150))
			return user(book+fmt.Sprintf("What is the sum of it, in %d words?", r.IntN(90))) + `,"max_tokens":40`
		}, says},
	}
}

// ask makes one call and leaves it, if it is to, at some time. It is false where the server was busy.
func (s *soak) ask(t *testing.T, key string, r *rand.Rand, kind soakKind, leaves bool) bool {
	t.Helper()
	streamed := r.IntN(2) == 0
	text := fmt.Sprintf(`{"model":"svc-pulse","temperature":%.1f,"seed":%d,%s`, 2*r.Float64(), r.IntN(1000), kind.body(r))
	if streamed {
		text += `,"stream":true,"stream_options":{"include_usage":true}`
	}
	// A call that has begun is ended, also when the time is over.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if leaves {
		defer time.AfterFunc(time.Duration(r.IntN(1500))*time.Millisecond, cancel).Stop()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(text+"}"))
	if err != nil {
		t.Error(err)
		return true
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(req)
	var body []byte
	e := entry{streamed: streamed}
	if err == nil {
		body, err = io.ReadAll(res.Body)
		res.Body.Close()
		e.requestID = res.Header.Get("X-Request-Id")
	}
	outcome := kind.name
	switch {
	case err != nil && leaves:
		outcome = "left"
		s.hear(body, &e) // what came of it is charged
	case err != nil:
		t.Errorf("%s: %v", kind.name, err)
		outcome = "broken"
	case res.StatusCode == http.StatusServiceUnavailable:
		outcome = "busy"
	case res.StatusCode != http.StatusOK:
		t.Errorf("%s: %d %s", kind.name, res.StatusCode, body)
	default:
		if err := s.right(kind, body, &e); err != nil {
			t.Errorf("%s: %v in the answer to %s: %s", kind.name, err, text, body)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[outcome]++
	if e.completionID != "" {
		s.log = append(s.log, e)
	}
	if e.usage != nil {
		s.tokens += e.usage.Completion
	}
	return outcome != "busy"
}

// right says what is wrong with a whole answer.
func (s *soak) right(kind soakKind, body []byte, e *entry) error {
	choices, err := s.hear(body, e)
	if err != nil {
		return err
	}
	if e.streamed && !bytes.HasSuffix(body, []byte("data: [DONE]\n\n")) || e.usage == nil || e.usage.Total != e.usage.Prompt+e.usage.Completion {
		return fmt.Errorf("it has no end, or usage %+v", e.usage)
	}
	if want := 1 + strings.Count(kind.name, "n=2"); len(choices) != want {
		return fmt.Errorf("%d choices", len(choices))
	}
	for _, c := range choices {
		if c.finish != "stop" && c.finish != "length" && c.finish != "tool_calls" {
			return fmt.Errorf("finish_reason %q", c.finish)
		}
		if err := kind.check(c); err != nil {
			return err
		}
	}
	e.complete = true
	return nil
}

// hear puts the choices of an answer together, or of as much of it as came.
func (s *soak) hear(body []byte, e *entry) ([]spoken, error) {
	var choices []spoken
	events := []string{string(body)}
	if e.streamed {
		events = nil
		for line := range strings.Lines(string(body)) {
			if event, ok := strings.CutPrefix(line, "data: {"); ok && strings.HasSuffix(event, "}\n") {
				events = append(events, "{"+event)
			}
		}
	}
	type piece struct {
		Content   *string
		ToolCalls []struct {
			Index    int
			ID       string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	for _, event := range events {
		var a struct {
			ID      string
			Choices []struct {
				Index          int
				Message, Delta piece
				Finish         string `json:"finish_reason"`
			}
			Usage *usage
		}
		if err := json.Unmarshal([]byte(event), &a); err != nil {
			return nil, err
		}
		if e.completionID = a.ID; a.Usage != nil {
			e.usage = a.Usage
		}
		for _, c := range a.Choices {
			for c.Index >= len(choices) {
				choices = append(choices, spoken{})
			}
			to := &choices[c.Index]
			to.finish += c.Finish
			for _, p := range []piece{c.Message, c.Delta} {
				if p.Content != nil {
					to.content += *p.Content
				}
				for _, call := range p.ToolCalls {
					if call.ID != "" {
						to.calls = append(to.calls, spokenCall{id: call.ID, name: call.Function.Name})
					}
					if len(to.calls) == 0 {
						return nil, fmt.Errorf("arguments before a call: %s", event)
					}
					to.calls[len(to.calls)-1].arguments += call.Function.Arguments
				}
			}
			if e.streamed && c.Delta.Content != nil && *c.Delta.Content != "" {
				e.pieces++
			}
		}
	}
	return choices, nil
}

// resident is what the server holds in memory, in MiB.
func (s *soak) resident(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.Pid()))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		t.Fatalf("%q, %v", text, err)
	}
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20)
}

// rests waits until nothing runs, and no page and no credit is held.
func (s *soak) rests(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		a := call(t, &proc.Server{URL: strings.TrimSuffix(s.metrics, "/metrics")}, http.MethodGet, "/metrics")
		for _, name := range []string{"pages_used", "running", "waiting"} {
			if !bytes.Contains(a.Body, []byte("parley_engine_"+name+`{upstream="local"} 0`+"\n")) {
				return fmt.Errorf("%s is not 0 in\n%s", name, a.Body)
			}
		}
		for i := range 4 {
			if held := runJSON[struct{ Held string }](t, s.Server, "account", "show", fmt.Sprintf("soak-%d", i)).Held; held != "0" {
				return fmt.Errorf("account %d holds %s", i, held)
			}
		}
		return nil
	})
}

// report prints the figures, and judges memory where it was meant to have time to fill.
func (s *soak) report(t *testing.T, length, took time.Duration) {
	t.Helper()
	answers := 0
	for _, kind := range s.kinds {
		if answers += s.counts[kind.name]; s.counts[kind.name] == 0 {
			t.Errorf("no answer of kind %s", kind.name)
		}
	}
	t.Logf("%d clients for %s: %d answers, all of their form, %.0f tokens/s; %d calls left, %d refused as busy", soakClients, took.Round(time.Second), answers,
		float64(s.tokens)/took.Seconds(), s.counts["left"], s.counts["busy"])
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		t.Logf("  %-12s %d", name, s.counts[name])
	}
	if length < time.Minute {
		return
	}
	// The first half fills the pages, the caches of the grammars and the windows of the limits.
	later := s.samples[len(s.samples)/2:]
	slope, mean := trend(later)
	var course strings.Builder
	for i := range 11 {
		fmt.Fprintf(&course, " %.0f", s.samples[i*(len(s.samples)-1)/10].mib)
	}
	t.Logf("resident memory in MiB, at every tenth of the time:%s", course.String())
	t.Logf("in the second half %.0f MiB on average, slope %+.2f MiB/min", mean, slope)
	if growth := slope * (later[len(later)-1].at - later[0].at).Minutes(); growth > mean/20 {
		t.Errorf("memory grew by %.1f MiB", growth)
	}
}

// trend is the line of least squares through samples, in MiB a minute, and their mean.
func trend(list []sample) (slope, mean float64) {
	var at float64
	for _, s := range list {
		at += s.at.Minutes() / float64(len(list))
		mean += s.mib / float64(len(list))
	}
	var xy, xx float64
	for _, s := range list {
		dx := s.at.Minutes() - at
		xy, xx = xy+dx*(s.mib-mean), xx+dx*dx
	}
	return xy / xx, mean
}
