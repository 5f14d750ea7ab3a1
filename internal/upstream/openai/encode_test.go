package openai

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files")

func encodeBody(t *testing.T, body string, o Options) []byte {
	t.Helper()
	req, refused := wire.DecodeChat([]byte(body))
	if refused != nil {
		t.Fatalf("DecodeChat(%s) = %v", body, refused)
	}
	p := &Provider{options: o}
	got, err := p.encode(nil, &upstream.Call{Owner: "acct_1", Model: "org/theirs", Request: req, MaxTokens: 77, Seed: 5}, 77)
	if err != nil {
		t.Fatalf("encode(%s) = %v", body, err)
	}
	return got
}

func TestEncode_Golden(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"least": `{"model":"m","messages":[{"role":"user","content":"<Hi> & \u2028 é"}]}`,
		"sampling": `{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":false,"temperature":0,"top_p":0.9,"max_tokens":5000,"seed":-9223372036854775808,
			"stop":["a","b","c","d","e","f"],"n":1,"frequency_penalty":-2,"presence_penalty":0.5,"logit_bias":{"50256":-100,"7":1.5},"reasoning_effort":"low","user":"u","metadata":{"a":"b"}}`,
		"choices": `{"model":"m","messages":[{"role":"user","content":"Hi"}],"n":3,"logprobs":true,"top_logprobs":5}`,
		"greedy":  `{"model":"m","messages":[{"role":"user","content":"Hi"}],"temperature":1.5,"top_p":0}`,
		"messages": `{"model":"m","messages":[{"role":"developer","content":"Be brief.","name":"boss"},{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":" two"}],"name":"ann"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":""}},{"id":"call_2","type":"function","function":{"name":"g","arguments":"{\"x\": 1.50}"}}]},
			{"role":"tool","tool_call_id":"call_2","content":"two"},{"role":"tool","tool_call_id":"call_1","content":""},
			{"role":"assistant","content":"","refusal":"No."},{"role":"assistant","content":"So,"}]}`,
		"tools": `{"model":"m","messages":[{"role":"user","content":"Hi"}],"parallel_tool_calls":false,"tool_choice":{"type":"function","function":{"name":"f"}},"tools":[
			{"type":"function","function":{"name":"f","description":"does","strict":true,"parameters":{"type":"object","properties":{"b":{"type":"number"},"a":{"type":"number","default":1.0}},"required":["b","a"],"additionalProperties":false}}},
			{"type":"function","function":{"name":"g","parameters":{"$schema":"x","z":1e400,"a":"<b>"}}},{"type":"function","function":{"name":"h"}}]}`,
		"tools_auto":         `{"model":"m","messages":[{"role":"user","content":"Hi"}],"tool_choice":"auto","parallel_tool_calls":true,"tools":[{"type":"function","function":{"name":"f"}}]}`,
		"tools_required":     `{"model":"m","messages":[{"role":"user","content":"Hi"}],"tool_choice":"required","tools":[{"type":"function","function":{"name":"f"}}]}`,
		"tools_none":         `{"model":"m","messages":[{"role":"user","content":"Hi"}],"tool_choice":"none","tools":[{"type":"function","function":{"name":"f"}}]}`,
		"json_object":        `{"model":"m","messages":[{"role":"user","content":"as Json"}],"response_format":{"type":"json_object"}}`,
		"json_object_untold": `{"model":"m","messages":[{"role":"user","content":"Hi"}],"response_format":{"type":"json_object"}}`,
		"json_object_system": `{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"response_format":{"type":"json_object"}}`,
		"json_schema":        `{"model":"m","messages":[{"role":"user","content":"Hi"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","strict":true,"schema":{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"string"}},"required":["b","a"],"additionalProperties":false}}}}`,
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			if err := json.Indent(&got, encodeBody(t, body, Options{}), "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			file := filepath.Join("testdata", "encode", name+".json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("encode (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncode_CompletionTokens(t *testing.T) {
	t.Parallel()
	got := string(encodeBody(t, `{"model":"m","messages":[{"role":"user","content":"Hi"}]}`, Options{CompletionTokens: true}))
	if !strings.Contains(got, `"max_completion_tokens":77`) || strings.Contains(got, `"max_tokens"`) {
		t.Errorf("encode = %s", got)
	}
}
