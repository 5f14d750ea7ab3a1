package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What the scripts say. Clients know these words too.
const (
	words    = "Hello, dear friend: 1 < 2 & é 🙂."
	thoughts = "The user greets me."
	refusal  = "I cannot do that."
	object   = `{"city":"Rome","temp":21}`
)

// Scripts are the models that the provider has.
func Scripts() []string {
	return []string{
		"text", "choices", "slow", "reasoning", "tools", "tools-whole", "tools-text", "tools-cut", "tools-length", "json", "no-json", "refusal", "no-usage", "length", "filter",
		"endless", "hold", "cut", "fault", "stall", "flaky", "flaky-inside", "unstopped", "status-429", "status-500", "too-long",
	}
}

// answer plays the script of one call.
type answer struct {
	provider *Provider
	request  *request
	call     *Call
	w        http.ResponseWriter
	flush    *http.ResponseController
	done     <-chan struct{}

	begun, told, whole bool
	cached, completion int64
}

func (a *answer) play() {
	switch a.request.Model {
	case "text", "org/text":
		a.cached = 40
		a.say(words, 5)
		a.finish("stop", true)
	case "choices":
		a.choices()
	case "slow":
		a.pause(1200 * time.Millisecond)
		a.say(words, 5)
		a.finish("stop", true)
	case "reasoning":
		a.delta(map[string]any{"role": "assistant", "content": nil})
		for _, piece := range strings.SplitAfter(thoughts, " ") {
			a.delta(map[string]any{"reasoning_content": piece})
		}
		a.say(words, 9)
		a.finish("stop", true)
	case "tools", "tools-whole":
		a.tools()
	case "tools-text":
		a.say("I look. ", 2)
		a.tools()
	case "tools-length":
		a.toolCall(0, "get_weather", `{"city":"Ro`)
		a.completion += 6
		a.finish("length", true)
	case "json":
		a.json()
	case "refusal":
		a.delta(map[string]any{"role": "assistant", "content": "", "refusal": nil})
		for _, piece := range strings.SplitAfter(refusal, " ") {
			a.delta(map[string]any{"refusal": piece})
		}
		a.completion += 4
		a.finish("stop", true)
	case "no-json":
		a.say("Rome is warm, 21 degrees.", 7)
		a.finish("stop", true)
	case "no-usage":
		a.say(words, 5)
		a.finish("stop", false)
	case "length":
		if a.request.ResponseFormat.Type != "" {
			a.say("Sure:\n```json\n{\"city\": \"Rome\", \"te", 9)
		} else {
			a.say("Hello, dear", 3)
		}
		a.finish("length", true)
	case "filter":
		a.say("Hello", 1)
		a.finish("content_filter", true)
	case "endless":
		for a.delta(map[string]any{"content": "on and "}) {
			a.pause(10 * time.Millisecond)
		}
	case "hold":
		a.say("Hold ", 1)
		a.provider.wait(a.done, func() bool { return a.provider.released[a.call.Text] })
		a.say("on.", 3)
		a.finish("stop", true)
	default:
		a.misbehave()
	}
}

// misbehave plays the scripts of what goes wrong.
func (a *answer) misbehave() {
	switch a.request.Model {
	case "cut":
		a.say("Hello, dear", 3)
		panic(http.ErrAbortHandler)
	case "tools-cut":
		a.toolCall(0, "get_weather", `{"city":"Ro`)
		panic(http.ErrAbortHandler)
	case "fault":
		a.say("Hello, dear", 3)
		a.event(`{"error":{"message":"secret words: rate limit of host-7","type":"server_error","code":500}}`)
		a.end()
	case "unstopped":
		a.say(words, 5)
		a.provider.wait(a.done, func() bool { return false })
	case "stall":
		a.provider.wait(a.done, func() bool { return false })
	case "flaky", "flaky-inside":
		if a.provider.attempts(a.request.Model, a.call.Text) == 1 {
			a.status(http.StatusServiceUnavailable, "secret words: busy")
			return
		}
		a.say(words, 5)
		a.finish("stop", true)
	case "status-429":
		a.status(http.StatusTooManyRequests, "secret words: rate limit reached")
	case "status-500":
		a.status(http.StatusInternalServerError, "secret words: invalid_request_error")
	case "too-long":
		a.status(http.StatusBadRequest, "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.")
	default:
		a.status(http.StatusNotFound, "no script "+a.request.Model)
	}
}

// choices are as many as were asked for, in turns and the last one first: each says its number
// after every word. With log-probabilities a word and its number are a token.
func (a *answer) choices() {
	n := max(a.request.N, 1)
	pieces := strings.SplitAfter(words, " ")
	for _, piece := range pieces {
		for i := n - 1; i >= 0; i-- {
			token := piece + strconv.Itoa(i)
			choice := map[string]any{"index": i, "delta": map[string]any{"content": token}, "finish_reason": nil}
			if a.request.Logprobs {
				top := make([]any, a.request.Top)
				for j := range top {
					top[j] = map[string]any{"token": token, "logprob": -0.25 * float64(j+1), "bytes": []byte(nil)}
				}
				choice["logprobs"] = map[string]any{"content": []any{map[string]any{"token": token, "logprob": -0.25, "bytes": nil, "top_logprobs": top}}}
			}
			a.chunk(map[string]any{"choices": []any{choice}})
		}
	}
	for i := range n - 1 {
		a.chunk(map[string]any{"choices": []any{map[string]any{"index": i, "delta": map[string]any{}, "finish_reason": "stop"}}})
	}
	a.completion += int64(n * len(pieces))
	a.chunk(map[string]any{"choices": []any{map[string]any{"index": n - 1, "delta": map[string]any{}, "finish_reason": "length"}}})
	a.usage()
	a.end()
}

// tools calls every tool, and answers with what the tools said once they have spoken. The first
// tool takes a city; what the others take is not sent at all, as some servers do.
func (a *answer) tools() {
	last := len(a.request.Messages) - 1
	if a.request.Messages[last].Role == "tool" {
		var results []string
		for i := last; i >= 0 && a.request.Messages[i].Role == "tool"; i-- {
			results = append(results, a.request.text(i))
		}
		slices.Reverse(results)
		a.say("The tools say "+strings.Join(results, " and ")+".", 8)
		a.finish("stop", true)
		return
	}
	if len(a.request.Tools) == 0 || string(a.request.ToolChoice) == `"none"` {
		a.say(words, 5)
		a.finish("stop", true)
		return
	}
	called := 0
	for _, t := range a.request.Tools {
		name := t.Function.Name
		if strings.HasPrefix(string(a.request.ToolChoice), "{") && !strings.Contains(string(a.request.ToolChoice), strconv.Quote(name)) {
			continue
		}
		arguments := object
		if called > 0 {
			arguments = ""
		}
		a.toolCall(called, name, arguments)
		called++
	}
	a.completion += 12
	a.finish("tool_calls", true)
}

// toolCall is one tool call: in one piece, or its name first and then its arguments bit by bit.
func (a *answer) toolCall(index int, name, arguments string) {
	function := map[string]any{"name": name}
	call := map[string]any{"index": index, "id": fmt.Sprintf("call_%d_%d", a.call.Prompt, index), "type": "function", "function": function}
	if a.request.Model == "tools-whole" {
		function["arguments"] = arguments
		a.delta(map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{call}})
		return
	}
	function["arguments"] = ""
	a.delta(map[string]any{"tool_calls": []any{call}})
	for _, piece := range strings.SplitAfter(arguments, ":") {
		if piece != "" {
			a.delta(map[string]any{"tool_calls": []any{map[string]any{"index": index, "function": map[string]any{"arguments": piece}}}})
		}
	}
}

// json is the object that was asked for; without response_format it is words.
func (a *answer) json() {
	switch format := a.request.ResponseFormat; {
	case format.Type == "json_schema" && (format.Schema.Name == "" || !strings.Contains(string(format.Schema.Schema), "city")):
		a.status(http.StatusBadRequest, "the schema has not come through")
		return
	case format.Type == "json_schema", format.Type == "json_object":
		a.say(object, 9)
	default:
		a.say(words, 5)
	}
	a.finish("stop", true)
}

// say sends text in small pieces and counts tokens.
func (a *answer) say(text string, tokens int64) {
	for _, piece := range strings.SplitAfter(text, " ") {
		a.delta(map[string]any{"content": piece})
	}
	a.completion += tokens
}

func (a *answer) delta(delta map[string]any) bool {
	return a.chunk(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": nil}}})
}

// finish ends the answer in the way of the convention.
func (a *answer) finish(reason string, usage bool) {
	a.chunk(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": reason}}})
	if usage {
		a.usage()
	}
	a.end()
}

func (a *answer) usage() {
	a.chunk(map[string]any{"choices": []any{}, "usage": map[string]any{
		"prompt_tokens": a.call.Prompt, "completion_tokens": a.completion, "total_tokens": a.call.Prompt + a.completion,
		"prompt_tokens_details": map[string]any{"cached_tokens": a.cached},
	}})
	a.told = true
}

func (a *answer) end() {
	a.whole = a.event("[DONE]")
}

func (a *answer) chunk(members map[string]any) bool {
	members["id"], members["object"], members["created"], members["model"] = "provider-"+strconv.FormatInt(a.call.Prompt, 10), "chat.completion.chunk", 1, a.request.Model
	text, err := json.Marshal(members)
	if err != nil {
		panic(err) // Everything here can be encoded.
	}
	return a.event(string(text))
}

// event reports whether the other side still takes it.
func (a *answer) event(data string) bool {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "text/event-stream")
	}
	select {
	case <-a.done:
		return false
	default:
	}
	_, err := fmt.Fprintf(a.w, "data: %s\n\n", data)
	return err == nil && a.flush.Flush() == nil
}

func (a *answer) status(status int, message string) {
	a.w.Header().Set("Content-Type", "application/json")
	a.w.WriteHeader(status)
	fmt.Fprintf(a.w, `{"error":{"message":%q,"type":"some_error","param":null,"code":"some_code"}}`, message)
	a.whole = true
}

// pause lets time pass as a provider that computes does.
func (a *answer) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.done:
	case <-a.provider.end:
	}
}
