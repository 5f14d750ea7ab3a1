package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/upstream/upstreamtest"
	"github.com/parley-ai/parley/internal/wire"
)

// sound are bodies that are answered, of every kind.
var sound = []string{
	body(""), body(`,"stream":true`), body(`,"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":9`),
	body(`,"max_tokens":3,"temperature":0.5,"top_p":0.9,"stop":["x","yy"],"seed":7,"user":"u"`),
	body(`,"response_format":{"type":"json_object"},"presence_penalty":0.1,"frequency_penalty":-2,"logit_bias":{"5":-100},"n":1`),
	body(`,"response_format":{"type":"json_schema","json_schema":{"name":"s","strict":true,"schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}`),
	body(`,"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"x":{"type":"string"}}}}}],"tool_choice":"auto"`),
	`{"model":"svc-titan","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"},{"role":"user","content":"é😀"}]}`,
}

// odd are values that programs send by mistake.
var odd = []string{
	`null`, `true`, `0`, `-1`, `1`, `1.5`, `1e400`, `-0`, `99999999999999999999`, `9223372036854775807`, `""`, `"x"`, `"\u0000"`, `"\ud800"`, `[]`, `{}`,
	`[null]`, `[[]]`, `{"":{}}`, `"svc-pulse"`, `{"type":"text"}`, `{"type":"function"}`, `["a","b","c","d","e"]`, `"` + strings.Repeat("x", 3000) + `"`,
	strings.Repeat("[", 70) + strings.Repeat("]", 70), `0.1e-9`, `"auto"`, `"json_object"`, `-3`, `4097`, `{"a":1,"a":2}`, `NaN`,
}

// Whatever is done to a body, it is answered as the published document says, and never as
// a fault of ours. 100,000 bodies under make prove, 5,000 elsewhere.
func TestMutatedBodies(t *testing.T) {
	t.Parallel()
	n, seed := 5_000, uint64(time.Now().UnixNano())
	if os.Getenv("PARLEY_PROVE") != "" {
		n = 100_000
	}
	p := provider(upstreamtest.Text("{", "}"), upstreamtest.Finish(wire.FinishStop))
	p.Can = wire.Capabilities{JSONObject: true, JSONSchema: true, Tools: true, FrequencyPenalty: true, PresencePenalty: true, LogitBias: true}
	d := open(t, p)
	for _, b := range sound {
		if r := d.post(t, b); r.StatusCode != 200 && r.code() != "unsupported_value" && r.code() != "unsupported_parameter" {
			t.Errorf("%s: %d %s", b, r.StatusCode, r.body)
		}
	}
	const workers = 8
	var mu sync.Mutex
	statuses := map[int]int{}
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		wg.Go(func() {
			chance := rand.New(rand.NewPCG(seed, w))
			for range n / workers {
				text := mutate(chance, sound[chance.IntN(len(sound))])
				r := d.post(t, text)
				if problem := misfit(t, r); problem != "" {
					t.Errorf("seed %d: %q: %d %.300s: %s", seed, text, r.StatusCode, r.body, problem)
					return
				}
				mu.Lock()
				statuses[r.StatusCode]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d mutated bodies, statuses %v, every answer as published; seed %d", n, statuses, seed)
	if statuses[200] < n/50 || statuses[400] < n/4 {
		t.Errorf("statuses %v: the bodies are too much alike", statuses)
	}
	if rep, err := d.db.Verify(t.Context()); err != nil || !rep.OK() {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}

// misfit says what is wrong with an answer.
func misfit(t testing.TB, r *reply) string {
	t.Helper()
	all, err := schemas()
	must(t, err)
	fits := func(schema, text string) string {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return err.Error()
		}
		if err := all[schema].Validate(v); err != nil {
			return err.Error()
		}
		return ""
	}
	switch {
	case r.err != nil:
		return r.err.Error()
	case r.StatusCode >= 500:
		return "a fault of ours"
	case r.StatusCode >= 400:
		return fits("Error", r.body)
	case !strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream"):
		return fits("ChatCompletion", r.body)
	}
	events := strings.Split(strings.TrimSuffix(r.body, "\n\n"), "\n\n")
	for i, e := range events {
		data, ok := strings.CutPrefix(e, "data: ")
		if last := i == len(events)-1; !ok || last != (data == "[DONE]") {
			return fmt.Sprintf("event %d is %q", i, e)
		} else if last {
			break
		}
		if wrong := fits("ChatCompletionChunk", data); wrong != "" {
			return wrong
		}
	}
	return ""
}

// mutate changes a body in one to three places, by its values or by its bytes.
func mutate(chance *rand.Rand, text string) string {
	for range 1 + chance.IntN(3) {
		if chance.IntN(3) == 0 {
			text = mutateBytes(chance, text)
			continue
		}
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			continue
		}
		var out bytes.Buffer
		write(&out, chance, v, 4+chance.IntN(60))
		text = out.String()
	}
	return text
}

func mutateBytes(chance *rand.Rand, text string) string {
	if text == "" {
		return "\x00"
	}
	a := chance.IntN(len(text))
	b := min(len(text), a+1+chance.IntN(8))
	switch chance.IntN(4) {
	case 0:
		return text[:a] + text[b:]
	case 1:
		return text[:b] + text[a:]
	case 2:
		return text[:a] + string([]byte{byte(chance.IntN(256))}) + text[b:]
	}
	const marks = `{}[]",:\ -+.eEtfn0` + "\t\n\xef\xbb\xbf"
	return text[:a] + string(marks[chance.IntN(len(marks))]) + text[a:]
}

// write prints v as JSON and spoils about one value, or member, in odds.
func write(out *bytes.Buffer, chance *rand.Rand, v any, odds int) {
	if chance.IntN(odds) == 0 {
		out.WriteString(odd[chance.IntN(len(odd))])
		return
	}
	switch v := v.(type) {
	case map[string]any:
		out.WriteByte('{')
		first := true
		for _, name := range slices.Sorted(maps.Keys(v)) {
			times := 1
			switch chance.IntN(odds * 4) {
			case 0:
				times = 0
			case 1:
				times = 2
			case 2:
				name = strings.ToUpper(name)
			}
			for range times {
				if !first {
					out.WriteByte(',')
				}
				first = false
				fmt.Fprintf(out, "%q:", name)
				write(out, chance, v[name], odds)
			}
		}
		out.WriteByte('}')
	case []any:
		out.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			write(out, chance, e, odds)
		}
		out.WriteByte(']')
	default:
		text, _ := json.Marshal(v) // of a value that was read
		out.Write(text)
	}
}
