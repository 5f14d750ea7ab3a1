package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rule is which of the checks refused a call.
type Rule string

// The rules whose refusals have numbers. Every other refusal is explained by its code.
const (
	RuleRequests     Rule = "requests_per_minute"
	RuleTokens       Rule = "tokens_per_minute"
	RuleTooLarge     Rule = "tokens_of_one_call" // more than a whole minute has
	RuleConcurrency  Rule = "calls_at_once"
	RuleCredit       Rule = "credit"
	RuleHeld         Rule = "credit_held" // it is there, and running calls hold it
	RuleBudget       Rule = "key_budget"
	RuleSubscription Rule = "subscription"
	RulePlan         Rule = "plan_models"
	RuleKeyModels    Rule = "key_models"
	RuleModel        Rule = "model"
	RuleParameter    Rule = "parameter"
	RuleContext      Rule = "context_window"
)

// Refused is what is known of a refusal when people are told about it. What is zero or
// empty is not known, and sentences that need it are left out.
type Refused struct {
	Status int
	Code   string
	Rule   Rule
	// Owner is whose limit it was, as "key nightly-report" or "the account".
	Owner string
	Model string
	// Limit, Used and Asked count requests, tokens or calls.
	Limit, Used, Asked int64
	// Need, Left and Held are decimal amounts in IU.
	Need, Left, Held string
	// Fits is the largest max_tokens that would have passed.
	Fits         int
	PromptTokens int
	Clears       time.Duration // from At on
	At, Now      time.Time
	Until        time.Time // when a budget begins anew
	Param        string
	Message      string // that the client was sent
	Nearest      string // the model on offer whose name is most like it
	Plans        string // that have the model, as "pro, max"
}

// Reason tells one person why a call was refused, when that ends and what to do.
type Reason struct {
	Heading string
	Why     string
	Clears  string // empty when no time clears it
	Do      []string
}

// refusals are the sentences, by rule or by code. A blank in braces is filled with what is
// known; a sentence with a blank that nothing fills is left out. Of several texts for one
// thing the first that can be said is taken.
var refusals = []struct {
	rule                 Rule
	heading, why, clears []string
	do                   []string
}{
	{
		RuleRequests,
		[]string{"Refused: requests per minute of {owner}"},
		[]string{"{used} of {limit} requests of the last minute were in use, and this call asked for 1."},
		[]string{"{cleared}"},
		[]string{
			"Wait as long as the header retry-after-ms says, then send the call again.",
			"Spread calls over the minute: {limit} a minute is one every {pace}.",
			"Raise the limit of {owner}, or the account's plan.",
		},
	},
	{
		RuleTokens,
		[]string{"Refused: tokens per minute of {owner}"},
		[]string{"{used} of {limit} tokens of the last minute were in use, and this call asked for {asked}."},
		[]string{"{cleared}"},
		[]string{
			"Lower max_tokens: with {fits} this call would have passed at once.",
			"Wait as long as the header retry-after-ms says, then send the call again.",
			"Raise the limit of {owner}, or the account's plan.",
		},
	},
	{
		RuleTooLarge,
		[]string{"Refused: one call larger than the whole limit of {owner}"},
		[]string{"This call asked for {asked} tokens, and {owner} has {limit} a minute."},
		[]string{"Waiting does not help: the call alone is above the limit."},
		[]string{
			"Lower max_tokens to {fits} or less.",
			"Shorten the prompt of {prompt} tokens by at least {over}.",
			"Raise the limit of {owner}, or the account's plan.",
		},
	},
	{
		RuleConcurrency,
		[]string{"Refused: {limit} calls at once of {owner}"},
		[]string{"{used} of {limit} calls were running."},
		[]string{"When one of the running calls ends."},
		[]string{"Queue calls in the client: at most {limit} at once.", "Raise the limit of {owner}, or the account's plan."},
	},
	{
		RuleCredit,
		[]string{"Refused: no credit left"},
		[]string{"This call needs up to {need} IU, and {left} IU were left.", "The balance was used up."},
		[]string{"When credit is added."},
		[]string{"Lower max_tokens: {fits} fits what is left.", "Add at least {short} IU for a call of this size.", "Add credit to the account."},
	},
	{
		RuleHeld,
		[]string{"Refused: credit is held by your own running calls"},
		[]string{"This call needs up to {need} IU. {left} IU were free, and running calls held {held} IU."},
		[]string{"When running calls end, at most {held} IU return."},
		[]string{"Wait for running calls to end.", "Lower max_tokens: {fits} fits what is free.", "Lower max_tokens of long calls: less is then held for each."},
	},
	{
		RuleBudget,
		[]string{"Refused: the budget of {owner}"},
		[]string{"This call needs up to {need} IU, and {left} IU of the budget were left ({held} IU were held by running calls)."},
		[]string{"The budget begins anew on {until}.", "Not by itself: the budget is for the whole life of the key."},
		[]string{"Lower max_tokens: {fits} fits what is left.", "Raise the budget of {owner}, or use another key."},
	},
	{
		RuleSubscription,
		[]string{"Refused: the subscription has ended"},
		[]string{"The account's subscription ended on {until}, and there is no credit.", "The account's subscription has ended, and there is no credit."},
		[]string{"On renewal, or when credit is added."},
		[]string{"Renew the subscription.", "Add credit to the account."},
	},
	{
		RulePlan,
		[]string{"Refused: {model} is not in the plan"},
		[]string{"The account's plan does not have the model {model}."},
		nil,
		[]string{"Use a plan that has it: {plans}.", "Choose a model of the plan: GET /v1/models lists them."},
	},
	{
		RuleKeyModels,
		[]string{"Refused: {model} is not allowed for {owner}"},
		[]string{"The models of {owner} are restricted, and {model} is not one of them."},
		nil,
		[]string{"Add the model to {owner}, or use another key.", "Choose another model: GET /v1/models lists those of the key."},
	},
	{
		RuleModel,
		[]string{"No model called “{model}”"},
		[]string{"Names of models are case-sensitive, and this one is not on offer."},
		nil,
		[]string{"Did you mean {nearest}?", "GET /v1/models lists what is on offer."},
	},
	{
		RuleParameter,
		[]string{"Refused: {param}"},
		[]string{"{message}"},
		nil,
		[]string{"Correct {param} and send the call again."},
	},
	{
		RuleContext,
		[]string{"Refused: the prompt is longer than the model's window"},
		[]string{"{message}"},
		nil,
		[]string{"Shorten the messages, or choose a model with a larger context window."},
	},
}

// Reason explains the refusal.
func (r Refused) Reason() Reason {
	fill := r.blanks()
	for _, t := range refusals {
		if t.rule == r.Rule && r.Rule != "" {
			out := Reason{Heading: first(fill, t.heading), Why: first(fill, t.why), Clears: first(fill, t.clears)}
			for _, s := range t.do {
				if s, ok := fill(s); ok {
					out.Do = append(out.Do, s)
				}
			}
			return out
		}
	}
	return r.byCode()
}

// byCode explains what has no rule of its own with the sentence of its code: what it says
// behind the semicolon is what to do.
func (r Refused) byCode() Reason {
	out := Reason{Heading: "Refused: " + r.Code, Why: r.Message}
	if r.Status >= 500 {
		out.Heading = "Failed: " + r.Code + ", not charged"
	}
	sentence, ok := Explain(r.Code)
	if !ok {
		return out
	}
	why, do, ok := strings.Cut(strings.TrimSuffix(sentence, "."), "; ")
	if r.Message == "" || r.Status >= 500 {
		out.Why = why + "."
	}
	if ok {
		out.Do = []string{strings.ToUpper(do[:1]) + do[1:] + "."}
	}
	return out
}

// first is the first text that can be said, or none.
func first(fill func(string) (string, bool), texts []string) string {
	for _, t := range texts {
		if s, ok := fill(t); ok {
			return s
		}
	}
	return ""
}

// blanks returns what fills the blanks of a text.
func (r Refused) blanks() func(text string) (string, bool) {
	values := []string{
		"{owner}", r.Owner, "{model}", r.Model, "{limit}", positive(r.Limit), "{used}", grouped(r.Used), "{asked}", positive(r.Asked),
		"{need}", r.Need, "{left}", r.Left, "{held}", r.Held, "{fits}", positive(int64(r.Fits)), "{prompt}", positive(int64(r.PromptTokens)),
		"{over}", r.over(), "{short}", r.short(), "{pace}", r.pace(), "{cleared}", r.cleared(), "{until}", date(r.Until),
		"{param}", r.Param, "{message}", r.Message, "{nearest}", r.Nearest, "{plans}", r.Plans,
	}
	replacer := strings.NewReplacer(values...)
	return func(text string) (string, bool) {
		for blank := range slices.Chunk(values, 2) {
			if blank[1] == "" && strings.Contains(text, blank[0]) {
				return "", false
			}
		}
		return replacer.Replace(text), true
	}
}

// over is by how many tokens the prompt must shrink when no max_tokens is small enough.
func (r Refused) over() string {
	if r.Fits > 0 || r.Limit == 0 {
		return ""
	}
	return positive(int64(r.PromptTokens) + 1 - r.Limit)
}

// short is what is missing of Need. Both are decimals of IU with at most nine digits
// behind the point, as package money writes them.
func (r Refused) short() string {
	need, ok1 := nano(r.Need)
	left, ok2 := nano(r.Left)
	if !ok1 || !ok2 || need <= left {
		return ""
	}
	n := need - left
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%09d", n/1e9, n%1e9), "0"), ".")
}

func nano(text string) (int64, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	if whole == "" || len(fraction) > 9 {
		return 0, false
	}
	n, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", 9-len(fraction)), 10, 64)
	return n, err == nil
}

// pace is the time between calls that a limit on requests leaves.
func (r Refused) pace() string {
	if r.Limit <= 0 {
		return ""
	}
	return brief(time.Minute / time.Duration(r.Limit))
}

// cleared says when there is room again, in the tense of Now.
func (r Refused) cleared() string {
	if r.Clears <= 0 || r.At.IsZero() {
		return ""
	}
	then := r.At.Add(r.Clears)
	if r.Now.After(then) {
		return fmt.Sprintf("It cleared %s later, at %s.", brief(r.Clears), then.UTC().Format("15:04:05.000 UTC"))
	}
	return fmt.Sprintf("It clears in %s, at %s.", brief(then.Sub(r.Now)), then.UTC().Format("15:04:05.000 UTC"))
}

// brief is a duration with one unit.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(max(1, d.Milliseconds()), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	return strconv.FormatFloat(d.Minutes(), 'f', 1, 64) + " min"
}

func date(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2 January 2006 15:04 UTC")
}

// positive is n with commas, or nothing for 0 and below.
func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return grouped(n)
}

func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Ended is what is known of a call that was admitted and has ended. The words are those
// of receipts.
type Ended struct {
	State, Ending, UsageSource string
	Tokens                     int    // of answer that were charged
	WrittenOff                 string // IU, empty for none
}

// charges are the sentences of how a call was charged, by its state and ending; an empty
// state is any.
var charges = []struct{ state, ending, sentence string }{
	{"running", "", "It is still running: the charge so far is of the prompt and the delivered tokens."},
	{"voided", "client_gone", "The client left before anything was computed: nothing was charged."},
	{"voided", "key_revoked", "The key lost its right before anything was delivered: nothing was charged."},
	{"voided", "shutdown", "The server stopped before anything was delivered: nothing was charged."},
	{"voided", "crash", "The server stopped before anything was delivered: nothing was charged."},
	{"voided", "", "Nothing of use was delivered: nothing was charged."},
	{"", "client_gone", "The client left after {n} tokens: prompt and delivered tokens."},
	{"", "upstream_cut", "Cut by the upstream after {n} tokens: prompt and delivered tokens; the client got an error event."},
	{"", "upstream_error", "The upstream failed after {n} tokens: prompt and delivered tokens; the client got an error event."},
	{"", "key_revoked", "The key lost its right after {n} tokens: prompt and delivered tokens."},
	{"", "shutdown", "The server stopped after {n} tokens: prompt and delivered tokens."},
	{"", "crash", "The server was ended after {n} tokens: settled from the progress counter."},
	{"", "", "Finished normally: every prompt token and every delivered token."},
}

// counters are the sentences of who counted the tokens.
var counters = map[string]string{
	"provider":  "The provider counted the tokens.",
	"counted":   "Parley counted the tokens with the model's tokenizer.",
	"estimated": "Estimated: the provider sent no usage, so Parley counted with a tokenizer like the model's.",
	"progress":  "The tokens are those that had been delivered when the server ended.",
}

// Sentences says by which rule the call was charged, who counted and what was written off.
func (e Ended) Sentences() []string {
	var out []string
	for _, c := range charges {
		if (c.state == "" || c.state == e.State) && (c.ending == "" || c.ending == e.Ending) {
			out = append(out, strings.ReplaceAll(c.sentence, "{n}", grouped(int64(e.Tokens))))
			break
		}
	}
	if s, ok := counters[e.UsageSource]; ok {
		out = append(out, s)
	}
	if e.WrittenOff != "" {
		out = append(out, "Written off: the call used more than its hold and the rest of the credit paid for; "+e.WrittenOff+" IU were not charged.")
	}
	return out
}
