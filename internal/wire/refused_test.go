package wire

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Each rule says why, when it ends and what to do, with the numbers of the refusal.
func TestRefused_Reason(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 14, 5, 58, 0, time.UTC)
	for _, c := range []struct {
		name string
		in   Refused
		want Reason
	}{
		{"requests, while it lasts", Refused{
			Rule: RuleRequests, Owner: "key ci", Limit: 120, Used: 120, Asked: 1, Clears: 4 * time.Second, At: at, Now: at.Add(time.Second),
		}, Reason{
			"Refused: requests per minute of key ci", "120 of 120 requests of the last minute were in use, and this call asked for 1.",
			"It clears in 3.0 s, at 14:06:02.000 UTC.",
			[]string{"Wait as long as the header retry-after-ms says, then send the call again.", "Spread calls over the minute: 120 a minute is one every 500 ms.", "Raise the limit of key ci, or the account's plan."},
		}},
		{"tokens, afterwards", Refused{
			Rule: RuleTokens, Owner: "key ci", Limit: 30_000, Used: 29_937, Asked: 385, Clears: 644 * time.Millisecond, At: at, Now: at.Add(time.Hour),
		}, Reason{
			"Refused: tokens per minute of key ci", "29,937 of 30,000 tokens of the last minute were in use, and this call asked for 385.",
			"It cleared 644 ms later, at 14:05:58.644 UTC.",
			[]string{"Wait as long as the header retry-after-ms says, then send the call again.", "Raise the limit of key ci, or the account's plan."},
		}},
		{"too large, and no max_tokens helps", Refused{
			Rule: RuleTooLarge, Owner: "the account", Limit: 1000, Asked: 1500, PromptTokens: 1200,
		}, Reason{
			"Refused: one call larger than the whole limit of the account", "This call asked for 1,500 tokens, and the account has 1,000 a minute.",
			"Waiting does not help: the call alone is above the limit.",
			[]string{"Shorten the prompt of 1,200 tokens by at least 201.", "Raise the limit of the account, or the account's plan."},
		}},
		{"no credit, with a call that would fit", Refused{Rule: RuleCredit, Need: "1.5", Left: "0.000000001", Fits: 12}, Reason{
			"Refused: no credit left", "This call needs up to 1.5 IU, and 0.000000001 IU were left.", "When credit is added.",
			[]string{"Lower max_tokens: 12 fits what is left.", "Add at least 1.499999999 IU for a call of this size.", "Add credit to the account."},
		}},
		{"no credit at all", Refused{Rule: RuleCredit}, Reason{
			"Refused: no credit left", "The balance was used up.", "When credit is added.", []string{"Add credit to the account."},
		}},
		{"a budget of a month", Refused{Rule: RuleBudget, Owner: "key ci", Need: "2", Left: "1", Held: "0.5", Until: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}, Reason{
			"Refused: the budget of key ci", "This call needs up to 2 IU, and 1 IU of the budget were left (0.5 IU were held by running calls).",
			"The budget begins anew on 1 December 2026 00:00 UTC.",
			[]string{"Raise the budget of key ci, or use another key."},
		}},
		{"a model that is not there", Refused{Rule: RuleModel, Model: "svc-tian", Nearest: "svc-titan"}, Reason{
			"No model called “svc-tian”", "Names of models are case-sensitive, and this one is not on offer.", "",
			[]string{"Did you mean svc-titan?", "GET /v1/models lists what is on offer."},
		}},
		{"by code, with what the client read", Refused{Code: "missing_api_key", Status: 401, Message: "No key."}, Reason{
			"Refused: missing_api_key", "No key.", "", []string{"Send it in the header Authorization as Bearer and the key."},
		}},
		{"a failure", Refused{Code: "upstream_timeout", Status: 502, Message: "The upstream provider timed out."}, Reason{
			"Failed: upstream_timeout, not charged", "The provider that runs the model took too long.", "", []string{"Try again."},
		}},
		{"a code that nobody knows", Refused{Code: "x", Status: 400, Message: "m"}, Reason{Heading: "Refused: x", Why: "m"}},
	} {
		got := c.in.Reason()
		if got.Heading != c.want.Heading || got.Why != c.want.Why || got.Clears != c.want.Clears || !slices.Equal(got.Do, c.want.Do) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// Whatever is not known, no blank is left open, and something is always said.
func TestRefused_Blanks(t *testing.T) {
	t.Parallel()
	for _, r := range refusals {
		for _, all := range []bool{false, true} {
			in := Refused{Rule: r.rule, Code: "rate_limit_exceeded", Status: 429}
			if all {
				in = Refused{
					Rule: r.rule, Owner: "o", Model: "m", Limit: 2, Used: 1, Asked: 3, Need: "3", Left: "1", Held: "1", Fits: 1, PromptTokens: 1,
					Clears: time.Second, At: time.Unix(1, 0), Now: time.Unix(1, 0), Until: time.Unix(1, 0), Param: "p", Message: "w", Nearest: "n", Plans: "q",
				}
			}
			got := in.Reason()
			text := strings.Join(append(got.Do, got.Heading, got.Why, got.Clears), "\n")
			if strings.ContainsAny(text, "{}") {
				t.Errorf("%s: %s", r.rule, text)
			}
			if all && (got.Heading == "" || got.Why == "" || len(got.Do) == 0) {
				t.Errorf("%s says too little: %+v", r.rule, got)
			}
		}
	}
	for _, e := range Explanations() {
		if got := (Refused{Code: e.Code, Status: e.Status}).Reason(); got.Heading == "" || got.Why == "" {
			t.Errorf("%s says too little: %+v", e.Code, got)
		}
	}
}

func TestEnded_Sentences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   Ended
		want []string
	}{
		{Ended{State: "settled", Ending: "stop", UsageSource: "provider"}, []string{"Finished normally: every prompt token and every delivered token.", "The provider counted the tokens."}},
		{Ended{State: "settled", Ending: "client_gone", UsageSource: "estimated", Tokens: 1041, WrittenOff: "0.000412"}, []string{
			"The client left after 1,041 tokens: prompt and delivered tokens.",
			"Estimated: the provider sent no usage, so Parley counted with a tokenizer like the model's.",
			"Written off: the call used more than its hold and the rest of the credit paid for; 0.000412 IU were not charged.",
		}},
		{Ended{State: "voided", Ending: "upstream_error", UsageSource: "none"}, []string{"Nothing of use was delivered: nothing was charged."}},
		{Ended{State: "recovered", Ending: "crash", UsageSource: "progress", Tokens: 3}, []string{
			"The server was ended after 3 tokens: settled from the progress counter.", "The tokens are those that had been delivered when the server ended.",
		}},
	} {
		if got := c.in.Sentences(); !slices.Equal(got, c.want) {
			t.Errorf("%+v:\n got %q\nwant %q", c.in, got, c.want)
		}
	}
}
