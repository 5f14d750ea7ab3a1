package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// embedded runs a client's program against the embedded model.
func embedded(t *testing.T, name string, atLeast int, program []string) {
	t.Helper()
	s := server(t)
	key, _ := account(t, s, name, "pro", "100")
	answered := 0
	clientScript{
		env: []string{"OPENAI_BASE_URL=" + s.URL + "/v1", "OPENAI_API_KEY=" + key}, atLeast: atLeast,
		saw: func(_ string, status int) {
			if status == http.StatusOK {
				answered++
			}
		},
	}.run(t, program)
	charged := 0
	for _, r := range runJSON[[]receipt](t, s, "receipts", "--account", name, "--limit", "1000") {
		if r.State == "settled" {
			charged++
		}
	}
	if charged != answered || answered < atLeast {
		t.Errorf("%d answers and %d charges", answered, charged)
	}
}

// TestNode_Embedded runs openai-node, Vercel's AI SDK and LangChain.js.
func TestNode_Embedded(t *testing.T) {
	t.Parallel()
	embedded(t, "node-embedded", 27, node(t, "embedded.mjs"))
}

func TestOpenAIPython_Embedded(t *testing.T) {
	t.Parallel()
	embedded(t, "python-embedded", 11, python(t, "embedded_test.py"))
}

const placeSchema = `{"type":"object","properties":{"city":{"type":"string","maxLength":20},"population":{"type":"integer","minimum":1,"maximum":50000000},
 "rivers":{"type":"array","items":{"$ref":"#/$defs/river"},"maxItems":2}},"required":["city","population","rivers"],"additionalProperties":false,
 "$defs":{"river":{"anyOf":[{"type":"string","enum":["Tiber","Aniene"]},{"type":"null"}]}}}`

// validator is the library's word on a schema.
func validator(t *testing.T, text string) func(value string) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return func(value string) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
}

// TestOpenAIGo_Embedded: the official Go client has JSON, schemas and tools of the embedded model,
// whole and streamed alike.
func TestOpenAIGo_Embedded(t *testing.T) {
	t.Parallel()
	s := server(t)
	client := sdk(s, s.Key, option.WithMaxRetries(0))
	both := func(t *testing.T, p openai.ChatCompletionNewParams) *openai.ChatCompletion {
		t.Helper()
		p.Seed = openai.Int(1)
		c, err := whole(t, &client, p)
		if err != nil {
			t.Fatal(err)
		}
		streamed, err := accumulated(t, &client, p)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range c.Choices {
			b := streamed.Choices[i]
			same := func(x, y openai.ChatCompletionMessageToolCallUnion) bool {
				return x.Function.Name == y.Function.Name && x.Function.Arguments == y.Function.Arguments && x.Type == y.Type && y.ID != ""
			}
			if a.Message.Content != b.Message.Content || a.FinishReason != b.FinishReason || !slices.EqualFunc(a.Message.ToolCalls, b.Message.ToolCalls, same) {
				t.Errorf("choice %d: whole %s, streamed %+v", i, a.RawJSON(), b)
			}
		}
		if c.Usage.CompletionTokens != streamed.Usage.CompletionTokens {
			t.Errorf("usage %+v, streamed %+v", c.Usage, streamed.Usage)
		}
		return c
	}
	t.Run("json_object", func(t *testing.T) {
		t.Parallel()
		for _, limit := range []int64{2, 5, 60} {
			p := hello("svc-pulse", limit)
			p.ResponseFormat.OfJSONObject = &openai.ResponseFormatJSONObjectParam{}
			c := both(t, p)
			var v map[string]any
			if err := json.Unmarshal([]byte(c.Choices[0].Message.Content), &v); err != nil {
				t.Errorf("%s: %v", c.RawJSON(), err)
			}
		}
	})
	t.Run("json_schema", func(t *testing.T) {
		t.Parallel()
		p := hello("svc-pulse", 5)
		p.N, p.Temperature = openai.Int(3), openai.Float(1.3)
		p.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: "place", Strict: openai.Bool(true), Schema: json.RawMessage(placeSchema),
		}}
		_, err := whole(t, &client, p)
		if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != http.StatusBadRequest || e.Param != "max_tokens" {
			t.Errorf("too few tokens: %v", err)
		}
		valid := validator(t, placeSchema)
		p.MaxTokens = openai.Int(200)
		for _, choice := range both(t, p).Choices {
			if err := valid(choice.Message.Content); err != nil {
				t.Errorf("%s: %v", choice.RawJSON(), err)
			}
		}
	})
	t.Run("tools", func(t *testing.T) {
		t.Parallel()
		checkEmbeddedTools(t, both)
	})
}

// checkEmbeddedTools goes round a loop of tools: a call that is required, and words behind it.
func checkEmbeddedTools(t *testing.T, answer func(*testing.T, openai.ChatCompletionNewParams) *openai.ChatCompletion) {
	t.Helper()
	const argument = `{"type":"object","properties":{"city":{"type":"string","maxLength":20}},"required":["city"],"additionalProperties":false}`
	var parameters openai.FunctionParameters
	if err := json.Unmarshal([]byte(argument), &parameters); err != nil {
		t.Fatal(err)
	}
	p := hello("svc-pulse", 200)
	p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is the weather in Rome?")}
	p.Tools = []openai.ChatCompletionToolUnionParam{
		openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "get_weather", Parameters: parameters, Strict: openai.Bool(true)}),
		openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "get_time"}),
	}
	p.ToolChoice.OfAuto = openai.String("required")
	valid := map[string]func(string) error{"get_weather": validator(t, argument), "get_time": validator(t, `{"const":{}}`)}
	for turn := range 6 {
		choice := answer(t, p).Choices[0]
		if len(choice.Message.ToolCalls) == 0 {
			if turn == 0 || choice.Message.Content == "" {
				t.Errorf("turn %d: %s", turn, choice.RawJSON())
			}
			return
		}
		if choice.FinishReason != "tool_calls" {
			t.Errorf("turn %d: %s", turn, choice.RawJSON())
		}
		p.Messages = append(p.Messages, choice.Message.ToParam())
		for _, call := range choice.Message.ToolCalls {
			check := valid[call.Function.Name]
			if check == nil {
				t.Fatalf("turn %d: %s", turn, choice.RawJSON())
			}
			if err := check(call.Function.Arguments); err != nil {
				t.Errorf("turn %d: %s: %v", turn, call.RawJSON(), err)
			}
			p.Messages = append(p.Messages, openai.ToolMessage("sun, 21 degrees", call.ID))
		}
		p.ToolChoice.OfAuto = openai.String("auto")
	}
	t.Error("the loop does not end")
}
