package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// body is a minimal request with more members in front of messages.
func body(members string) string {
	if members != "" {
		members += ","
	}
	return `{"model":"svc-pulse",` + members + `"messages":[{"role":"user","content":"Hi"}]}`
}

// talk is a minimal request with the given messages.
func talk(messages ...string) string {
	return `{"model":"svc-pulse","messages":[` + strings.Join(messages, ",") + `]}`
}

func many(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// manyCalls is the inside of an array of n tool calls with ids of their own.
func manyCalls(n int) string {
	calls := make([]string, n)
	for i := range calls {
		calls[i] = fmt.Sprintf(`{"id":"call_%d","function":{"name":"f","arguments":"{}"}}`, i)
	}
	return strings.Join(calls, ",")
}

// tool is one function tool with the given members of function.
func tool(function string) string {
	return `"tools":[{"type":"function","function":{` + function + `}}]`
}

const (
	user  = `{"role":"user","content":"Hi"}`
	calls = `{"role":"assistant","content":null,"tool_calls":[{"id":"call_x","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"call_y","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	toolX = `{"role":"tool","tool_call_id":"call_x","content":"1"}`
	toolY = `{"role":"tool","tool_call_id":"call_y","content":""}`

	notJSON = "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The API expects a JSON payload, but what was sent was not valid JSON.)"
)

// TestDecodeChat_Catalogue has every row of the catalogue of 400s, by number.
func TestDecodeChat_Catalogue(t *testing.T) {
	t.Parallel()
	const null = "null"
	tests := []struct{ name, body, code, param, message string }{
		{"01 cut", `{`, "invalid_json", null, notJSON},
		{"01 empty", ``, "invalid_json", null, notJSON},
		{"01 BOM only", "\ufeff", "invalid_json", null, notJSON},
		{"01 two BOMs", "\ufeff\ufeff" + body(""), "invalid_json", null, notJSON},
		{"01 trailing text", `{} x`, "invalid_json", null, notJSON},
		{"01 trailing object", `{}{}`, "invalid_json", null, notJSON},
		{"01 trailing comma", `{"model":"m",}`, "invalid_json", null, notJSON},
		{"01 missing comma", `{"model":"m" "n":1}`, "invalid_json", null, notJSON},
		{"01 missing value", `{"model":}`, "invalid_json", null, notJSON},
		{"01 single quotes", `{'model':'m'}`, "invalid_json", null, notJSON},
		{"01 wrong bracket", `{"messages":[}`, "invalid_json", null, notJSON},
		{"01 NaN", body(`"temperature":NaN`), "invalid_json", null, notJSON},
		{"01 leading zero", body(`"n":01`), "invalid_json", null, notJSON},
		{"01 newline in string", "{\"model\":\"a\nb\"}", "invalid_json", null, notJSON},
		{"01 bad UTF-8", "{\"model\":\"\xff\"}", "invalid_json", null, notJSON},
		{"01 duplicate model", `{"model":"a","model":"b","messages":[]}`, "invalid_json", null, notJSON},
		{"01 duplicate by escape", body(`"mod\u0065l":"b"`), "invalid_json", null, notJSON},
		{"01 duplicate user", body(`"user":"a","user":"b"`), "invalid_json", null, notJSON},
		{"01 too deep", body(`"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000)), "invalid_json", null, notJSON},
		{"01 one too deep", body(`"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100)), "invalid_json", null, notJSON},
		{"01 before shapes", `{"temperature":"x","messages":5,`, "invalid_json", null, notJSON},
		{"02 array", `[]`, "invalid_type", null, "Invalid type for request body: expected an object, but got an array instead."},
		{"02 null", `null`, "invalid_type", null, "Invalid type for request body: expected an object, but got null instead."},
		{"02 string", `"x"`, "invalid_type", null, "Invalid type for request body: expected an object, but got a string instead."},
		{"02 number", ` 1.5 `, "invalid_type", null, "Invalid type for request body: expected an object, but got a decimal number instead."},
		{"02 but broken", `[1`, "invalid_json", null, notJSON},
		{"03 missing", `{}`, "missing_required_parameter", "model", "you must provide a model parameter"},
		{"03 null", `{"model":null}`, "missing_required_parameter", "model", "you must provide a model parameter"},
		{"03 empty", `{"model":"","messages":[` + user + `]}`, "missing_required_parameter", "model", "you must provide a model parameter"},
		{"03 other case", `{"Model":"m","messages":[` + user + `]}`, "missing_required_parameter", "model", "you must provide a model parameter"},
		{"03 before shapes", `{"temperature":"x","messages":5}`, "missing_required_parameter", "model", "you must provide a model parameter"},
		{"04 missing", `{"model":"m"}`, "missing_required_parameter", "messages", "Missing required parameter: 'messages'."},
		{"04 null", `{"model":"m","messages":null}`, "missing_required_parameter", "messages", "Missing required parameter: 'messages'."},
		{"04 before shapes", `{"temperature":"x","model":5}`, "missing_required_parameter", "messages", "Missing required parameter: 'messages'."},
		{"05 string", `{"model":"m","messages":"x"}`, "invalid_type", "messages", "Invalid type for 'messages': expected an array of objects, but got a string instead."},
		{"06", `{"model":"m","messages":[]}`, "empty_array", "messages", "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."},
		{"07 n", body(`"n":"1"`), "invalid_type", "n", "Invalid type for 'n': expected an integer, but got a string instead."},
		{"07 model", `{"n":"1","model":5,"messages":[` + user + `]}`, "invalid_type", "n", "Invalid type for 'n': expected an integer, but got a string instead."},
		{"07 model alone", `{"model":5,"messages":[` + user + `]}`, "invalid_type", "model", "Invalid type for 'model': expected a string, but got an integer instead."},
		{"07 temperature", body(`"temperature":"1"`), "invalid_type", "temperature", "Invalid type for 'temperature': expected a decimal number, but got a string instead."},
		{"07 max_tokens decimal", body(`"max_tokens":1.5`), "invalid_type", "max_tokens", "Invalid type for 'max_tokens': expected an integer, but got a decimal number instead."},
		{"07 max_tokens string", body(`"max_tokens":"5"`), "invalid_type", "max_tokens", "Invalid type for 'max_tokens': expected an integer, but got a string instead."},
		{"07 nearly integer", body(`"max_tokens":1.00000000000000000001`), "invalid_type", "max_tokens", "Invalid type for 'max_tokens': expected an integer, but got a decimal number instead."},
		{"07 seed", body(`"seed":1.5`), "invalid_type", "seed", "Invalid type for 'seed': expected an integer, but got a decimal number instead."},
		{"07 stream", body(`"stream":"true"`), "invalid_type", "stream", "Invalid type for 'stream': expected a boolean, but got a string instead."},
		{"07 stream_options", body(`"stream_options":[]`), "invalid_type", "stream_options", "Invalid type for 'stream_options': expected an object, but got an array instead."},
		{"07 include_usage", body(`"stream":true,"stream_options":{"include_usage":1}`), "invalid_type", "stream_options.include_usage", "Invalid type for 'stream_options.include_usage': expected a boolean, but got an integer instead."},
		{"07 stop", body(`"stop":5`), "invalid_type", "stop", "Invalid type for 'stop': expected one of a string or array of strings, but got an integer instead."},
		{"07 stop item", body(`"stop":["a",null]`), "invalid_type", "stop[1]", "Invalid type for 'stop[1]': expected a string, but got null instead."},
		{"07 message number", talk(`1`), "invalid_type", "messages[0]", "Invalid type for 'messages[0]': expected an object, but got an integer instead."},
		{"07 message null", talk(user, `null`), "invalid_type", "messages[1]", "Invalid type for 'messages[1]': expected an object, but got null instead."},
		{"07 role", talk(`{"role":1}`), "invalid_type", "messages[0].role", "Invalid type for 'messages[0].role': expected a string, but got an integer instead."},
		{"07 content", talk(`{"role":"user","content":5}`), "invalid_type", "messages[0].content", "Invalid type for 'messages[0].content': expected one of a string or array of objects, but got an integer instead."},
		{"07 part", talk(`{"role":"user","content":["x"]}`), "invalid_type", "messages[0].content[0]", "Invalid type for 'messages[0].content[0]': expected an object, but got a string instead."},
		{"07 arguments object", talk(user, `{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]}`), "invalid_type", "messages[1].tool_calls[0].function.arguments", "Invalid type for 'messages[1].tool_calls[0].function.arguments': expected a string, but got an object instead."},
		{"07 tools", body(`"tools":{}`), "invalid_type", "tools", "Invalid type for 'tools': expected an array of objects, but got an object instead."},
		{"07 parameters", body(tool(`"name":"f","parameters":"x"`)), "invalid_type", "tools[0].function.parameters", "Invalid type for 'tools[0].function.parameters': expected an object, but got a string instead."},
		{"07 response_format", body(`"response_format":"json_object"`), "invalid_type", "response_format", "Invalid type for 'response_format': expected an object, but got a string instead."},
		{"07 logit_bias value", body(`"logit_bias":{"5":null}`), "invalid_type", "logit_bias.5", "Invalid type for 'logit_bias.5': expected a decimal number, but got null instead."},
		{"07 tool_choice", body(`"tool_choice":true`), "invalid_type", "tool_choice", "Invalid type for 'tool_choice': expected one of a string or object, but got a boolean instead."},
		{"08 max_tokens 0", body(`"max_tokens":0`), "integer_below_min_value", "max_tokens", "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0 instead."},
		{"08 max_tokens -1", body(`"max_tokens":-1`), "integer_below_min_value", "max_tokens", "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got -1 instead."},
		{"08 n", body(`"n":0`), "integer_below_min_value", "n", "Invalid 'n': integer below minimum value. Expected a value >= 1, but got 0 instead."},
		{"08 top_logprobs", body(`"logprobs":true,"top_logprobs":-1`), "integer_below_min_value", "top_logprobs", "Invalid 'top_logprobs': integer below minimum value. Expected a value >= 0, but got -1 instead."},
		{"09 n", body(`"n":9`), "integer_above_max_value", "n", "Invalid 'n': integer above maximum value. Expected a value <= 8, but got 9 instead."},
		{"09 seed", body(`"seed":9223372036854775808`), "integer_above_max_value", "seed", "Invalid 'seed': integer above maximum value. Expected a value <= 9223372036854775807, but got 9223372036854775808 instead."},
		{"09 huge", body(`"max_tokens":99999999999999999999`), "integer_above_max_value", "max_tokens", "Invalid 'max_tokens': integer above maximum value. Expected a value <= 9223372036854775807, but got 99999999999999999999 instead."},
		{"09 1e400", body(`"max_tokens":1e400`), "integer_above_max_value", "max_tokens", "Invalid 'max_tokens': integer above maximum value. Expected a value <= 9223372036854775807, but got 1e400 instead."},
		{"10 above", body(`"temperature":2.1`), "decimal_above_max_value", "temperature", "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 2.1 instead."},
		{"10 below", body(`"temperature":-0.1`), "decimal_below_min_value", "temperature", "Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -0.1 instead."},
		{"10 1e400", body(`"temperature":1e400`), "decimal_above_max_value", "temperature", "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 1e400 instead."},
		{"10 top_p", body(`"top_p":1.01`), "decimal_above_max_value", "top_p", "Invalid 'top_p': decimal above maximum value. Expected a value <= 1, but got 1.01 instead."},
		{"10 penalty", body(`"presence_penalty":-3`), "decimal_below_min_value", "presence_penalty", "Invalid 'presence_penalty': decimal below minimum value. Expected a value >= -2, but got -3 instead."},
		{"10 logit_bias", body(`"logit_bias":{"5":101}`), "decimal_above_max_value", "logit_bias.5", "Invalid 'logit_bias.5': decimal above maximum value. Expected a value <= 100, but got 101 instead."},
		{"11 stop", body(`"stop":` + many(65, `"a"`)), "array_above_max_length", "stop", "Invalid 'stop': array too long. Expected an array with maximum length 64, but got an array with length 65 instead."},
		{"11 tools", body(`"tools":` + many(129, `{"type":"function","function":{"name":"f"}}`)), "array_above_max_length", "tools", "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129 instead."},
		{"11 messages", `{"model":"m","messages":` + many(2049, user) + `}`, "array_above_max_length", "messages", "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2049 instead."},
		{"11 tool_calls", talk(`{"role":"assistant","tool_calls":[` + manyCalls(129) + `]}`), "array_above_max_length", "messages[0].tool_calls", "Invalid 'messages[0].tool_calls': array too long. Expected an array with maximum length 128, but got an array with length 129 instead."},
		{"11 logit_bias", body(`"logit_bias":{` + strings.TrimSuffix(strings.Repeat(`"1":1,`, 1025), ",") + `}`), "object_above_max_properties", "logit_bias", "Invalid 'logit_bias': too many properties. Expected an object with at most 1024 properties, but got an object with 1025 properties instead."},
		{"12 stop", body(`"stop":"` + strings.Repeat("a", 257) + `"`), "string_above_max_length", "stop", "Invalid 'stop': string too long. Expected a string with maximum length 256, but got a string with length 257 instead."},
		{"12 model", `{"model":"` + strings.Repeat("a", 257) + `","messages":[` + user + `]}`, "string_above_max_length", "model", "Invalid 'model': string too long. Expected a string with maximum length 256, but got a string with length 257 instead."},
		{"12 function name", body(tool(`"name":"` + strings.Repeat("a", 70) + `"`)), "string_above_max_length", "tools[0].function.name", "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64, but got a string with length 70 instead."},
		{"13 stop", body(`"stop":[""]`), "empty_string", "stop[0]", "Invalid 'stop[0]': empty string. Expected a string with minimum length 1, but got an empty string instead."},
		{"13 tool_call_id", talk(`{"role":"tool","content":"x","tool_call_id":""}`), "empty_string", "messages[0].tool_call_id", "Invalid 'messages[0].tool_call_id': empty string. Expected a string with minimum length 1, but got an empty string instead."},
		{"14 role", talk(`{"role":"foo","content":"x"}`), "invalid_value", "messages[0].role", "Invalid value: 'foo'. Supported values are: 'system', 'developer', 'user', 'assistant', and 'tool'."},
		{"14 format", body(`"response_format":{"type":"xml"}`), "invalid_value", "response_format.type", "Invalid value: 'xml'. Supported values are: 'json_object', 'json_schema', and 'text'."},
		{"14 format without type", body(`"response_format":{}`), "invalid_value", "response_format.type", "Invalid value: ''. Supported values are: 'json_object', 'json_schema', and 'text'."},
		{"14 tool type", body(`"tools":[{"type":"x","function":{"name":"f"}}]`), "invalid_value", "tools[0].type", "Invalid value: 'x'. Supported values are: 'function'."},
		{"14 tool_choice", body(`"tool_choice":"any"`), "invalid_value", "tool_choice", "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'."},
		{"14 part", talk(`{"role":"system","content":[{"type":"image_url"}]}`), "invalid_value", "messages[0].content[0].type", "Invalid value: 'image_url'. Supported values are: 'text'."},
		{"14 assistant part", talk(`{"content":[{"type":"text","text":""},{"type":"x"}],"role":"assistant"}`), "invalid_value", "messages[0].content[1].type", "Invalid value: 'x'. Supported values are: 'text' and 'refusal'."},
		{"14 user refusal part", talk(`{"role":"user","content":[{"type":"refusal","refusal":"no"}]}`), "invalid_value", "messages[0].content[0].type", "Invalid value: 'refusal'. Supported values are: 'text', 'image_url', 'input_audio', and 'file'."},
		{"15", body(tool(`"name":"a b"`)), "invalid_value", "tools[0].function.name", "Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."},
		{"15 schema", body(`"response_format":{"type":"json_schema","json_schema":{"name":"ä"}}`), "invalid_value", "response_format.json_schema.name", "Invalid 'response_format.json_schema.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."},
		{"16 role", talk(`{}`), "missing_required_parameter", "messages[0].role", "Missing required parameter: 'messages[0].role'."},
		{"16 content", talk(`{"role":"user"}`), "missing_required_parameter", "messages[0].content", "Missing required parameter: 'messages[0].content'."},
		{"16 part type", talk(user, user, `{"role":"user","content":[{"text":"x"}]}`), "missing_required_parameter", "messages[2].content[0].type", "Missing required parameter: 'messages[2].content[0].type'."},
		{"16 part text", talk(`{"role":"user","content":[{"type":"text"}]}`), "missing_required_parameter", "messages[0].content[0].text", "Missing required parameter: 'messages[0].content[0].text'."},
		{"16 tool_call_id", talk(`{"role":"tool","content":"x"}`), "missing_required_parameter", "messages[0].tool_call_id", "Missing required parameter: 'messages[0].tool_call_id'."},
		{"16 tool type", body(`"tools":[{}]`), "missing_required_parameter", "tools[0].type", "Missing required parameter: 'tools[0].type'."},
		{"16 tool function", body(`"tools":[{"type":"function"}]`), "missing_required_parameter", "tools[0].function", "Missing required parameter: 'tools[0].function'."},
		{"16 tool name", body(tool(``)), "missing_required_parameter", "tools[0].function.name", "Missing required parameter: 'tools[0].function.name'."},
		{"13 part type", talk(`{"role":"user","content":[{"type":""}]}`), "empty_string", "messages[0].content[0].type", "Invalid 'messages[0].content[0].type': empty string. Expected a string with minimum length 1, but got an empty string instead."},
		{"13 function name", body(tool(`"name":""`)), "empty_string", "tools[0].function.name", "Invalid 'tools[0].function.name': empty string. Expected a string with minimum length 1, but got an empty string instead."},
		{"16 refusal", talk(`{"role":"assistant","content":[{"type":"refusal"}]}`), "missing_required_parameter", "messages[0].content[0].refusal", "Missing required parameter: 'messages[0].content[0].refusal'."},
		{"16 tool_choice function", body(`"tool_choice":{"type":"function"}`), "missing_required_parameter", "tool_choice.function", "Missing required parameter: 'tool_choice.function'."},
		{"16 call arguments", talk(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","other":1}}]}`), "missing_required_parameter", "messages[0].tool_calls[0].function.arguments", "Missing required parameter: 'messages[0].tool_calls[0].function.arguments'."},
		{"06 content", talk(`{"role":"user","content":[]}`), "empty_array", "messages[0].content", "Invalid 'messages[0].content': empty array. Expected an array with minimum length 1, but got an empty array instead."},
		{"07 modalities", body(`"modalities":"text"`), "invalid_type", "modalities", "Invalid type for 'modalities': expected an array of strings, but got a string instead."},
		{"07 tool", body(`"tools":[1]`), "invalid_type", "tools[0]", "Invalid type for 'tools[0]': expected an object, but got an integer instead."},
		{"07 function", body(`"tools":[{"type":"function","function":"f"}]`), "invalid_type", "tools[0].function", "Invalid type for 'tools[0].function': expected an object, but got a string instead."},
		{"07 tool_calls", talk(`{"role":"assistant","tool_calls":{}}`), "invalid_type", "messages[0].tool_calls", "Invalid type for 'messages[0].tool_calls': expected an array of objects, but got an object instead."},
		{"16 call id", talk(user, `{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":""}}]}`), "missing_required_parameter", "messages[1].tool_calls[0].id", "Missing required parameter: 'messages[1].tool_calls[0].id'."},
		{"17", talk(user, `{"role":"user","content":null}`), "invalid_type", "messages.[1].content", "Invalid value for 'content': expected a string, got null."},
		{"17 assistant", talk(`{"role":"assistant","content":null,"tool_calls":[]}`), "invalid_type", "messages.[0].content", "Invalid value for 'content': expected a string, got null."},
		{"18", body(`"max_tokens":1,"max_completion_tokens":1`), "invalid_parameter_combination", "max_tokens", "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."},
		{"21", body(`"stream_options":{"include_usage":true}`), "invalid_value", "stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled."},
		{"22", body(`"tool_choice":"required"`), "invalid_value", "tool_choice", "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."},
		{"23", body(tool(`"name":"f"`) + `,"tool_choice":{"type":"function","function":{"name":"foo"}}`), "invalid_value", "tool_choice", "Tool choice 'foo' not found in 'tools' parameter."},
		{"24 orphan", talk(user, user, user, toolX), "invalid_value", "messages.[3].role", "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."},
		{"24 answered twice", talk(user, calls, toolX, toolY, toolX), "invalid_value", "messages.[4].role", "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."},
		{"25", talk(user, user, calls, user), "invalid_value", "messages.[3].role", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: call_x, call_y"},
		{"25 at the end", talk(user, calls, toolX), "invalid_value", "messages", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: call_y"},
		{"26", talk(user, user, calls, strings.Replace(toolX, "call_x", "call_z", 1)), "invalid_value", "messages.[3].tool_call_id", "Invalid parameter: 'tool_call_id' of 'call_z' not found in 'tool_calls' of previous message."},
		{"28", body(`"top_logprobs":0`), "invalid_value", "top_logprobs", "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."},
		{"29 functions", body(`"functions":[]`), "unsupported_parameter", "functions", "Unsupported parameter: 'functions' is not supported with this model."},
		{"29 function_call", body(`"function_call":"auto"`), "unsupported_parameter", "function_call", "Unsupported parameter: 'function_call' is not supported with this model."},
		{"29 audio", body(`"audio":{}`), "unsupported_parameter", "audio", "Unsupported parameter: 'audio' is not supported with this model."},
		{"29 allowed_tools", body(tool(`"name":"f"`) + `,"tool_choice":{"type":"allowed_tools"}`), "unsupported_parameter", "tool_choice.allowed_tools", "Unsupported parameter: 'tool_choice.allowed_tools' is not supported with this model."},
		{"29 role function", talk(`{"role":"function","name":"f","content":"x"}`), "unsupported_value", "messages[0].role", "Unsupported value: 'messages[0].role' does not support 'function' with this model."},
		{"29 message function_call", talk(`{"role":"assistant","content":"","function_call":{}}`), "unsupported_parameter", "messages[0].function_call", "Unsupported parameter: 'messages[0].function_call' is not supported with this model."},
		{"29 modalities", body(`"modalities":["text","audio"]`), "unsupported_value", "modalities", "Unsupported value: 'modalities' does not support 'audio' with this model."},
		{"29 image", talk(user, `{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":"data:"}]}`), "unsupported_value", "messages.[1].content.[1].type", "Invalid content type. image_url is only supported by certain models."},
		{"29 audio part", talk(`{"content":[{"type":"input_audio","input_audio":{}}],"role":"user"}`), "unsupported_value", "messages.[0].content.[0].type", "Invalid content type. input_audio is only supported by certain models."},
		{"30 json_schema", body(`"response_format":{"type":"json_schema"}`), "missing_required_parameter", "response_format.json_schema", "Missing required parameter: 'response_format.json_schema'."},
		{"30 name", body(`"response_format":{"type":"json_schema","json_schema":{}}`), "missing_required_parameter", "response_format.json_schema.name", "Missing required parameter: 'response_format.json_schema.name'."},
		{"31 format", body(`"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","properties":{}}}}`), "invalid_json_schema", "response_format", "Invalid schema for response_format 'x': In context=(), 'additionalProperties' is required to be supplied and to be false."},
		{"31 function", body(tool(`"strict":true,"name":"f","parameters":{"type":"object","additionalProperties":false,"properties":{"a":{"type":"object"}},"required":["a"]}`)), "invalid_function_parameters", "tools[0].function.parameters", "Invalid schema for function 'f': In context=('properties', 'a'), 'additionalProperties' is required to be supplied and to be false."},
		{"31 required", body(tool(`"strict":true,"name":"f","parameters":{"type":"object","additionalProperties":false,"properties":{"b":{},"a":{}},"required":["a"]}`)), "invalid_function_parameters", "tools[0].function.parameters", "Invalid schema for function 'f': In context=(), 'required' is required to be supplied and to be an array including every key in properties. Missing 'b'."},
		{"31 root", body(`"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"array"}}}`), "invalid_json_schema", "response_format", `Invalid schema for response_format 'x': schema must be a JSON Schema of 'type: "object"', got 'type: "array"'.`},
		{"32", body(`"tools":` + many(2, `{"type":"function","function":{"name":"f"}}`)), "invalid_value", "tools[1].function.name", "Invalid 'tools': duplicate function name 'f'."},
		{"call ids twice", talk(user, strings.Replace(calls, "call_y", "call_x", 1)), "invalid_value", "messages[1].tool_calls[1].id", "Invalid 'messages[1].tool_calls[1].id': duplicate tool call id 'call_x' in 'tool_calls'."},
		{"logit_bias key", body(`"logit_bias":{"a":1}`), "invalid_value", "logit_bias", "Invalid key in 'logit_bias': 'a'. You should only be submitting non-negative integers."},
		{"order within document", body(`"n":"x","temperature":"x"`), "invalid_type", "n", "Invalid type for 'n': expected an integer, but got a string instead."},
		{"shapes before cross-field", body(`"stream_options":{},"top_p":2`), "decimal_above_max_value", "top_p", "Invalid 'top_p': decimal above maximum value. Expected a value <= 1, but got 2 instead."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req, err := DecodeChat([]byte(tt.body))
			if err == nil {
				t.Fatalf("DecodeChat(%.200s) = %+v, want an error", tt.body, req)
			}
			param := null
			if err.Param != nil {
				param = *err.Param
			}
			got := fmt.Sprint(err.Status, "\n", err.Type, "\n", err.Code, "\n", param, "\n", err.Message)
			want := fmt.Sprint(400, "\n", "invalid_request_error", "\n", tt.code, "\n", tt.param, "\n", tt.message)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("DecodeChat(%.200s) (-want +got):\n%s", tt.body, diff)
			}
			if _, ok := Explain(err.Code); !ok {
				t.Errorf("Explain(%q) has no sentence", err.Code)
			}
		})
	}
}

// TestTokenDependent has the rows that need the model: 19, 20 and the word json.
func TestTokenDependent(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err                  *Error
		code, param, message string
	}{
		{MaxTokensAbovePlan("max_tokens", 20480, 4096), "invalid_value", "max_tokens", "max_tokens is too large: 20480. Your plan supports at most 4096 completion tokens, whereas you provided 20480."},
		{MaxTokensTooLarge("max_tokens", 20480, 16384), "invalid_value", "max_tokens", "max_tokens is too large: 20480. This model supports at most 16384 completion tokens, whereas you provided 20480."},
		{ContextLengthExceeded(8192, 8227, false), "context_length_exceeded", "messages", "This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens. Please reduce the length of the messages. (context_length_exceeded)"},
		{ContextLengthExceeded(8192, 8193, true), "context_length_exceeded", "messages", "This model's maximum context length is 8192 tokens. However, your messages resulted in at least 8193 tokens. Please reduce the length of the messages. (context_length_exceeded)"},
		{JSONWordMissing(), "invalid_value", "messages", "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."},
	}
	for _, tt := range tests {
		if tt.err.Status != 400 || tt.err.Code != tt.code || *tt.err.Param != tt.param || tt.err.Message != tt.message {
			t.Errorf("got %+v (param %s), want %s %s %q", tt.err, *tt.err.Param, tt.code, tt.param, tt.message)
		}
	}
}

func TestSupports(t *testing.T) {
	t.Parallel()
	all := Capabilities{true, true, true, true, true, true, true, true}
	schema := `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}`
	tests := []struct{ name, members, code, param, message string }{
		{"plain", ``, "", "", ""},
		{"asks for nothing", `"n":1,"frequency_penalty":0,"presence_penalty":0.0,"logit_bias":{},"logprobs":false,"tools":[],"response_format":{"type":"text"}`, "", "", ""},
		{"json_object", `"response_format":{"type":"json_object"}`, "unsupported_value", "response_format", "Invalid parameter: 'response_format' of type 'json_object' is not supported with this model."},
		{"json_schema", schema, "unsupported_value", "response_format", "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."},
		{"tools", tool(`"name":"f"`), "unsupported_parameter", "tools", "Unsupported parameter: 'tools' is not supported with this model."},
		{"tools with none", tool(`"name":"f"`) + `,"tool_choice":"none"`, "unsupported_parameter", "tools", "Unsupported parameter: 'tools' is not supported with this model."},
		{"frequency_penalty", `"frequency_penalty":0.1`, "unsupported_parameter", "frequency_penalty", "Unsupported parameter: 'frequency_penalty' is not supported with this model."},
		{"presence_penalty", `"presence_penalty":-0.1`, "unsupported_parameter", "presence_penalty", "Unsupported parameter: 'presence_penalty' is not supported with this model."},
		{"logit_bias", `"logit_bias":{"1":1}`, "unsupported_parameter", "logit_bias", "Unsupported parameter: 'logit_bias' is not supported with this model."},
		{"logprobs", `"logprobs":true`, "unsupported_parameter", "logprobs", "Unsupported parameter: 'logprobs' is not supported with this model."},
		{"n", `"n":2`, "integer_above_max_value", "n", "Invalid 'n': integer above maximum value. Expected a value <= 1, but got 2 instead."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req, err := DecodeChat([]byte(body(tt.members)))
			if err != nil {
				t.Fatal(err)
			}
			if err := Supports(req, all); err != nil {
				t.Errorf("Supports with every capability = %v, want nil", err)
			}
			err = Supports(req, Capabilities{})
			if tt.code == "" {
				if err != nil {
					t.Errorf("Supports = %v, want nil", err)
				}
				return
			}
			if err == nil || err.Status != 400 || err.Code != tt.code || *err.Param != tt.param || err.Message != tt.message {
				t.Errorf("Supports = %v, want %s %s %q", err, tt.code, tt.param, tt.message)
			}
		})
	}
}
