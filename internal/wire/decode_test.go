package wire

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func decode(t *testing.T, body string) *ChatRequest {
	t.Helper()
	req, err := DecodeChat([]byte(body))
	if err != nil {
		t.Fatalf("DecodeChat(%.300s) = %v", body, err)
	}
	return req
}

// TestDecodeChat_Accepts has the bodies that must pass, as real clients send
// them; the numbers are those of the conformance cases.
func TestDecodeChat_Accepts(t *testing.T) {
	t.Parallel()
	call := `"tool_calls":[{"id":"call_x","type":"function","function":{"name":"f","arguments":"not JSON"}}]`
	deep := strings.Repeat("[", 98) + strings.Repeat("]", 98)
	tests := []struct{ name, body string }{
		{"01 min", body("")},
		{"04 null optionals", body(`"stream":null,"stream_options":null,"temperature":null,"top_p":null,"max_tokens":null,"max_completion_tokens":null,"stop":null,"n":null,"seed":null,"frequency_penalty":null,"presence_penalty":null,"logit_bias":null,"logprobs":null,"top_logprobs":null,"tools":null,"tool_choice":null,"parallel_tool_calls":null,"response_format":null,"functions":null,"function_call":null,"modalities":null,"audio":null,"web_search_options":null,"reasoning_effort":null,"user":null,"metadata":null`)},
		{"05 unknown fields", `{"model":"m","provider":{"a":[1]},"Temperature":"x","messages":[{"role":"user","x":{},"content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}],"extra_body":{}}`},
		{"05 unknown twice", body(`"x":1,"x":2`)},
		{"06 stream false", body(`"stream":false`)},
		{"08 developer", talk(`{"role":"developer","content":"Be brief"}`, user)},
		{"09 assistant last", talk(user, `{"role":"assistant","content":"Once"}`)},
		{"10 two assistants", talk(user, `{"role":"assistant","content":"I look"}`, `{"role":"assistant",`+call+`}`, toolX)},
		{"11 names", talk(`{"role":"user","content":"x","name":"Ann"}`, `{"role":"assistant",`+call+`}`, `{"role":"tool","tool_call_id":"call_x","name":"f","content":[{"type":"text","text":"1"}]}`)},
		{"12 temperature 0", body(`"temperature":0`)},
		{"12 temperature 2", body(`"temperature":2.0`)},
		{"15 top_p 0", body(`"top_p":0`)},
		{"21 stop 64", body(`"stop":` + many(64, `"a"`))},
		{"21 stop empty array", body(`"stop":[]`)},
		{"24 seed minimum", body(`"seed":-9223372036854775808`)},
		{"31 BOM", "\ufeff" + body("")},
		{"35 depth 100", body(`"x":[` + deep + `]`)},
		{"79 null", talk(user, `{"role":"assistant","content":null,`+call+`}`, toolX)},
		{"79 empty", talk(user, `{"role":"assistant","content":"",`+call+`}`, toolX)},
		{"79 absent", talk(user, `{"role":"assistant",`+call+`}`, toolX, user)},
		{"79 other order", talk(user, calls, toolY, toolX, user)},
		{"79 system between", talk(user, calls, toolY, `{"role":"system","content":"x"}`, toolX)},
		{"79 ids again", talk(user, calls, toolY, toolX, calls, toolX, toolY)},
		{"79 without type", talk(user, strings.ReplaceAll(calls, `"type":"function",`, ``), toolX, toolY)},
		{"81 auto without tools", body(`"tool_choice":"auto"`)},
		{"81 none without tools", body(`"tool_choice":"none"`)},
		{"83 tools empty", body(`"tools":[]`)},
		{"83 tool_calls empty", talk(`{"role":"assistant","content":"x","tool_calls":[]}`)},
		{"86 json without the word", body(`"response_format":{"type":"json_object"}`)},
		{"87 strict", body(`"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"description":null,"schema":{"$schema":"x","type":"object","$defs":{"d":{"type":"object","properties":{},"additionalProperties":false}},"properties":{"a":{"anyOf":[{"$ref":"#/$defs/d"},{"type":"null"}]}},"required":["a"],"additionalProperties":false}}}`)},
		{"tool odd schema", body(tool(`"name":"f","description":null,"strict":null,"parameters":{"type":5,"unknown":true}`))},
		{"refusal echoed", talk(`{"role":"assistant","content":null,"refusal":"No."}`)},
		{"refusal part", talk(`{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`)},
		{"user object", body(`"user":{"id":1}`)},
		{"modalities text", body(`"modalities":["text"]`)},
		{"lone surrogate", talk(`{"role":"user","content":"a\ud800b"}`)},
		{"NUL", talk(`{"role":"user","content":"\u0000"}`)},
		{"white space", " \r\n\t" + body("") + "\n \t\r"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			decode(t, tt.body)
		})
	}
}

func TestDecodeChat_Defaults(t *testing.T) {
	t.Parallel()
	want := &ChatRequest{
		Model: "svc-pulse", Messages: []Message{{Role: RoleUser, Content: "Hi"}},
		Temperature: 1, TopP: 1, N: 1, ParallelToolCalls: true,
		ToolChoice: ToolChoice{Mode: ToolNone}, ResponseFormat: ResponseFormat{Kind: FormatText},
	}
	if diff := cmp.Diff(want, decode(t, body(""))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeChat_Everything(t *testing.T) {
	t.Parallel()
	schema := `{"z": 1.00, "a":[ "\u00e9" ]}`
	text := `{"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":5},
		"temperature":0.5,"top_p":1e-1,"max_completion_tokens":1e2,"stop":["a","\u00e9"],"n":2.0,"seed":-7,
		"frequency_penalty":-2,"presence_penalty":2,"logit_bias":{"50256":-100},"logprobs":true,"top_logprobs":20,
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters": ` + schema + ` }}],
		"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,
		"response_format":{"type":"json_schema","json_schema":{"name":"s","description":"e","schema":` + schema + `}},
		"reasoning_effort":"low","user":"u","model":"m",
		"messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}]},
		{"content":"<\n>","role":"user","name":"Ann","tool_call_id":"x","tool_calls":[]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{ }"}}]},
		{"role":"tool","tool_call_id":"c","content":"1"}]}`
	want := &ChatRequest{
		Model: "m", Stream: true, IncludeUsage: true,
		Temperature: 0.5, TopP: 0.1, HasTemperature: true, HasTopP: true,
		MaxTokens: 100, MaxTokensParam: "max_completion_tokens",
		Stop: []string{"a", "é"}, Seed: new(int64(-7)), N: 2, FrequencyPenalty: -2, PresencePenalty: 2,
		LogitBias: map[int]float64{50256: -100}, Logprobs: true, TopLogprobs: 20,
		Tools:      []Tool{{Name: "f", Description: "d", Parameters: json.RawMessage(schema)}},
		ToolChoice: ToolChoice{Mode: ToolNamed, Name: "f"},
		ResponseFormat: ResponseFormat{
			Kind: FormatJSONSchema, Name: "s", Description: "e", Schema: json.RawMessage(schema),
		},
		ReasoningEffort: "low",
		Messages: []Message{
			{Role: RoleSystem, Content: "ab", Parts: []string{"a", "", "b"}},
			{Role: RoleUser, Content: "<\n>", Name: "Ann"},
			{Role: RoleAssistant, NullContent: true, ToolCalls: []ToolCall{{ID: "c", Name: "f", Arguments: "{ }"}}},
			{Role: RoleTool, Content: "1", ToolCallID: "c"},
		},
	}
	raw := []byte(text)
	got, err := DecodeChat(raw)
	if err != nil {
		t.Fatal(err)
	}
	clear(raw) // the request keeps nothing of the body
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Words for the effort that only some client knows are dropped: no provider takes them.
func TestDecodeChat_ReasoningEffort(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{`"minimal"`: "minimal", `"xhigh"`: "xhigh", `"ultra"`: "", `"LOW"`: "", `""`: "", `5`: "", `{"a":1}`: ""} {
		if got := decode(t, body(`"reasoning_effort":`+given)).ReasoningEffort; got != want {
			t.Errorf("%s is %q, want %q", given, got, want)
		}
	}
}

func TestDecodeChat_LastNestedNameWins(t *testing.T) {
	t.Parallel()
	got := decode(t, talk(`{"role":"system","content":"a","role":"user","content":"b","content":[{"type":"text","text":"c","text":"d"}]}`))
	want := []Message{{Role: RoleUser, Content: "d"}}
	if diff := cmp.Diff(want, got.Messages); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeChat_Surrogates(t *testing.T) {
	t.Parallel()
	got := decode(t, talk(`{"role":"user","content":"\ud83d\ude00 \ud800x\u0000"}`)).Messages[0].Content
	if want := "\U0001f600 \ufffdx\x00"; got != want {
		t.Errorf("content = %q, want %q", got, want)
	}
}

func TestMentionsJSON(t *testing.T) {
	t.Parallel()
	if !decode(t, talk(user, `{"role":"user","content":"as Json"}`)).MentionsJSON() || decode(t, talk(user)).MentionsJSON() {
		t.Error("MentionsJSON does not see the word")
	}
}

func TestReadNumber(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want number
	}{
		{"0", number{integral: true}},
		{"-0", number{integral: true}},
		{"0e999999999999999999999", number{integral: true}},
		{"0.000", number{integral: true}},
		{"10.0", number{integral: true, value: 10}},
		{"1e2", number{integral: true, value: 100}},
		{"120e-1", number{integral: true, value: 12}},
		{"-1.5E+1", number{integral: true, value: -15}},
		{"12e-1", number{}},
		{"1e-999999999999999999999", number{}},
		{"1e999999999999999999999", number{integral: true, over: 1}},
		{"-1e400", number{integral: true, over: -1}},
		{"9223372036854775807", number{integral: true, value: math.MaxInt64}},
		{"9223372036854775808", number{integral: true, over: 1}},
		{"-9223372036854775808.0", number{integral: true, value: math.MinInt64}},
		{"-9223372036854775809", number{integral: true, over: -1}},
		{"0.00000000000000000001e20", number{integral: true, value: 1}},
	}
	for _, tt := range tests {
		if got := readNumber([]byte(tt.text)); got != tt.want {
			t.Errorf("readNumber(%s) = %+v, want %+v", tt.text, got, tt.want)
		}
	}
}

// TestMessagesStaySmall sends long and hostile text to every place whose text
// a message repeats.
func TestMessagesStaySmall(t *testing.T) {
	t.Parallel()
	hostile := strings.Repeat(`\u202e\u0000rate limit invalid_request_error é`, 2000)
	bodies := []string{
		talk(`{"role":"` + hostile + `"}`),
		talk(`{"role":"user","content":[{"type":"` + hostile + `"}]}`),
		body(`"max_tokens":1` + strings.Repeat("0", 5000)),
		body(`"temperature":1` + strings.Repeat("0", 5000)),
		body(`"logit_bias":{"` + hostile + `":1}`),
		body(`"tool_choice":"` + hostile + `"`),
		body(`"response_format":{"type":"` + hostile + `"}`),
		body(tool(`"name":"f"`) + `,"tool_choice":{"type":"function","function":{"name":"` + hostile + `"}}`),
		talk(user, strings.ReplaceAll(calls, "call_", hostile)),
		talk(user, calls, strings.ReplaceAll(toolX, "call_x", hostile)),
		talk(user, `{"role":"assistant","tool_calls":`+many(2, `{"id":"`+hostile+`","function":{"name":"f","arguments":""}}`)+`}`),
		body(tool(`"strict":true,"name":"f","parameters":{"type":"` + hostile + `"}`)),
		body(tool(`"strict":true,"name":"f","parameters":{"type":"object","additionalProperties":false,"properties":{"` + hostile + `":{}}}`)),
		body(tool(`"strict":true,"name":"f","parameters":{"type":"object","additionalProperties":false,"required":["` + hostile + `"],"properties":{"` + hostile + `":{"type":"object"}}}`)),
		body(tool(`"name":"rate_limit"`)[:len(tool(`"name":"rate_limit"`))-1] + `,{"type":"function","function":{"name":"rate_limit"}}]`),
	}
	for _, b := range bodies {
		_, err := DecodeChat([]byte(b))
		if err == nil {
			t.Errorf("DecodeChat(%.80s) = nil error", b)
			continue
		}
		if len(err.Message) > 600 || !utf8.ValidString(err.Message) || misread.MatchString(err.Message) {
			t.Errorf("DecodeChat(%.80s): message %q", b, err.Message)
		}
	}
}
