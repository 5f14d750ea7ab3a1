package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/admin"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 14, 5, 41, 118_000_000, time.UTC)
	var b bytes.Buffer
	e := &env{out: &b}
	e.charge(admin.Explained{
		Kind: "charge", AccountID: "acct_01h8", Account: "Example Lab", KeyID: "key_01h9", Key: "web-app",
		Charge: &admin.ChargeMade{
			Receipt: admin.Receipt{
				RequestID: "req_5f0c", CompletionID: "chatcmpl-3Kd0", CreatedAt: at, Model: "svc-titan", Charge: "0.025896", Hold: "0.051312",
				Status: 200, State: "settled", Ending: "stop", Target: "rack-a/titan", Attempts: 2, WrittenOff: "0",
			},
			Free:      "0",
			Sentences: []string{"Finished normally: every prompt token and every delivered token."}, PriceID: "price_3", Released: "0.025416",
			Parts:      []admin.ChargePart{{Kind: "prompt", Count: 1204, Price: "0.012", Amount: "0.014448"}, {Kind: "completion", Count: 318, Price: "0.036", Amount: "0.011448"}},
			FirstToken: 380.4, Total: 4210, Refunds: []admin.Refunded{{At: at, Amount: "0.01", Reason: "too slow"}},
		},
	})
	want := `svc-titan, 0.025896 IU    200
  Finished normally: every prompt token and every delivered token.

  TOKENS      COUNT  IU PER 1K  AMOUNT IU
  prompt      1,204      0.012   0.014448
  completion    318      0.036   0.011448
  charge      1,522              0.025896

  hold          0.051312 IU set aside, 0.025896 charged, 0.025416 released
  given back    0.01 IU on 21 Nov 2026 at 14:05 UTC: too slow
  time          21 Nov 2026 14:05:41.118 UTC
  first token   380 ms
  in all        4210 ms
  account       Example Lab  acct_01h8
  key           web-app  key_01h9
  target        rack-a/titan, 2 attempts
  ending        stop
  price         price_3
  request       req_5f0c
  completion    chatcmpl-3Kd0
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("a charge (-want +got):\n%s", diff)
	}
	b.Reset()
	e.parts(&admin.ChargeMade{
		Receipt: admin.Receipt{Charge: "0.002", PlanTokens: 1200, WrittenOff: "0.001"}, Free: "0.012",
		Parts: []admin.ChargePart{{Kind: "prompt", Count: 1500, Price: "0.01", Amount: "0.015"}},
	})
	e.parts(&admin.ChargeMade{
		Receipt: admin.Receipt{Charge: "0", WrittenOff: "0"}, Free: "0.015",
		Parts: []admin.ChargePart{{Kind: "prompt", Count: 1500, Price: "0.01", Amount: "0.015"}},
	})
	want = `  TOKENS        COUNT  IU PER 1K  AMOUNT IU
  prompt        1,500       0.01      0.015
  paid by plan  1,200                −0.012
  written off                        −0.001
  charge        1,500                 0.002
  TOKENS       COUNT  IU PER 1K  AMOUNT IU
  prompt       1,500       0.01      0.015
  not charged                       −0.015
  charge       1,500                 0.000
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("charges that are less than the sum of their parts (-want +got):\n%s", diff)
	}
	b.Reset()
	e.refusal(admin.Explained{
		Kind: "refusal", Account: "Example Lab", AccountID: "acct_01h8", Key: "ci-nightly", KeyID: "key_01jt",
		Refusal: &admin.Refusal{
			RequestID: "req_b1d4", At: at, Model: "svc-pulse", Status: 429, Code: "rate_limit_exceeded", Message: "Rate limit reached.", PromptTokens: 181, MaxTokens: 204,
			Heading: "Refused: tokens per minute of key ci-nightly", Why: "29,937 of 30,000 tokens of the last minute were in use, and this call asked for 385.",
			Clears: "It cleared 644 ms later, at 14:05:41.762 UTC.", Do: []string{"Wait.", "Raise the limit."},
		},
	})
	want = `Refused: tokens per minute of key ci-nightly
  29,937 of 30,000 tokens of the last minute were in use, and this call asked for 385.
  clears        It cleared 644 ms later, at 14:05:41.762 UTC.
  what to do    1  Wait.
                2  Raise the limit.

  time          21 Nov 2026 14:05:41.118 UTC
  account       Example Lab  acct_01h8
  key           ci-nightly  key_01jt
  model         svc-pulse
  answer        429 rate_limit_exceeded
  message       Rate limit reached.
  prompt        181 tokens
  max_tokens    204
  request       req_b1d4
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("a refusal (-want +got):\n%s", diff)
	}
}
