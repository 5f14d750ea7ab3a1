package openai

import (
	"regexp"
	"slices"

	"github.com/parley-ai/parley/internal/wire"
)

// paths are the fields that are sent only when, and as, the caller sets them, with what a
// provider may name inside of them. What it says of others is about how we ask.
var paths = regexp.MustCompile(`^(?:(messages)\b.*|((?:frequency_penalty|logit_bias|logprobs|n|parallel_tool_calls|presence_penalty|reasoning_effort|response_format|seed|stop|temperature|tool_choice|tools|top_logprobs|top_p)(?:[.\[][\w.\[\]-]{0,48})?))$`)

// asked is the caller's field that a provider does not take as it is, or "". Of messages
// it has no number: ours may be among them. A provider that gives no param, as vLLM does
// not, often has the field in its message, or what it calls it there; that counts for
// fields that the request has. With neither there is nothing that says whose fault it is.
func (f fault) asked(req *wire.ChatRequest) string {
	if f.Param != "" {
		if m := paths.FindStringSubmatch(f.Param); m != nil {
			return m[1] + m[2]
		}
		return ""
	}
	param, first := "", len(f.Message)
	for _, w := range wordings {
		if !w.set(req) {
			continue
		}
		if at := w.words.FindStringIndex(f.Message); at != nil && at[0] < first {
			param, first = w.param, at[0]
		}
	}
	return param
}

// wording is how providers speak of a field that a caller set.
type wording struct {
	param string
	set   func(r *wire.ChatRequest) bool
	words *regexp.Regexp
}

func newWording(param, words string, set func(r *wire.ChatRequest) bool) wording {
	return wording{param, set, regexp.MustCompile(`(?i)` + words)}
}

// wordings are how vLLM, SGLang, llama-server, Ollama and TGI put it, as far as we know. Where two
// begin at the same word the first counts. Words that a fault of the operator's has, too,
// such as a chat template that is missing, are none of them.
var wordings = []wording{
	newWording("response_format", `response.?format|json.?(schema|object|mode)|(guided|constrained).?(json|decoding|grammar|generation)|structured.?outputs?|\bgrammar\b`, func(r *wire.ChatRequest) bool { return r.ResponseFormat.Kind != wire.FormatText }),
	newWording("tool_choice", `tool.?choice`, func(r *wire.ChatRequest) bool {
		return len(r.Tools) > 0 && (r.ToolChoice.Mode == wire.ToolRequired || r.ToolChoice.Mode == wire.ToolNamed)
	}),
	newWording("parallel_tool_calls", `parallel.?tool|(multiple|parallel) (tool|function) calls`, func(r *wire.ChatRequest) bool { return len(r.Tools) > 0 && !r.ParallelToolCalls }),
	newWording("tools", `\btools?\b|\btool[_-]|\bfunctions?\b|function.call|\bgrammar\b|json.?schema`, func(r *wire.ChatRequest) bool { return len(r.Tools) > 0 }),
	newWording("logit_bias", `logit.?bias`, func(r *wire.ChatRequest) bool { return len(r.LogitBias) > 0 }),
	newWording("top_logprobs", `\btop.?logprobs?`, func(r *wire.ChatRequest) bool { return r.TopLogprobs > 0 }),
	newWording("logprobs", `log.?prob(abilitie)?s?\b`, func(r *wire.ChatRequest) bool { return r.Logprobs }),
	newWording("frequency_penalty", `frequency.?penalty`, func(r *wire.ChatRequest) bool { return r.FrequencyPenalty != 0 }),
	newWording("presence_penalty", `presence.?penalty`, func(r *wire.ChatRequest) bool { return r.PresencePenalty != 0 }),
	newWording("temperature", `\btemperature\b`, func(r *wire.ChatRequest) bool { return r.HasTemperature }),
	newWording("top_p", `\btop.?p\b`, func(r *wire.ChatRequest) bool { return r.HasTopP }),
	newWording("n", `(^|[^\w.])n\W{0,2} (must|should|has to|cannot|is)\b|['"]n['"]|\bbest_of\b|(multiple|several) (choices|completions)`, func(r *wire.ChatRequest) bool { return r.N > 1 }),
	newWording("seed", `\bseed\b`, func(r *wire.ChatRequest) bool { return r.Seed != nil }),
	newWording("stop", `\bstop.?(sequence|string|word)s?\b|['"]stop['"]|\bstop (must|cannot|should)`, func(r *wire.ChatRequest) bool { return len(r.Stop) > 0 }),
	newWording("reasoning_effort", `reasoning.?effort`, func(r *wire.ChatRequest) bool { return r.ReasoningEffort != "" }),
	newWording("messages", `\broles? must alternate|\balternate user`, func(*wire.ChatRequest) bool { return true }),
	newWording("messages", `\b(system|developer)\W? (role|message|prompt)s?\b`, func(r *wire.ChatRequest) bool { return has(r, wire.RoleSystem, wire.RoleDeveloper) }),
	newWording("messages", `\bassistant\W? (role|message|response|prefill)s?\b|\bprefill\b`, func(r *wire.ChatRequest) bool { return has(r, wire.RoleAssistant) }),
}

// has says whether a message is of one of the roles.
func has(r *wire.ChatRequest, roles ...wire.Role) bool {
	return slices.ContainsFunc(r.Messages, func(m wire.Message) bool { return slices.Contains(roles, m.Role) })
}
