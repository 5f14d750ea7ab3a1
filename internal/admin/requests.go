package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/explain"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/refusal"
	"github.com/parley-ai/parley/internal/wire"
)

// Explained tells what became of one request: Receipt and what belongs to it are of one
// that was admitted, Refusal is of one that was not.
type Explained struct {
	RequestID string      `json:"request_id"`
	Kind      string      `json:"kind"` // charge, running or refusal
	AccountID string      `json:"account_id"`
	Account   string      `json:"account"`
	KeyID     string      `json:"key_id"`
	Key       string      `json:"key"`
	Charge    *ChargeMade `json:"charge"`
	Refusal   *Refusal    `json:"refusal"`
}

// ChargeMade explains a charge: the amounts of Parts are Charge and WrittenOff of Receipt and
// Free together, which PlanTokens have paid for or nobody owes. Times are milliseconds from
// the admission of the call.
type ChargeMade struct {
	Receipt    Receipt      `json:"receipt"`
	Sentences  []string     `json:"sentences"`
	PriceID    string       `json:"price_id"`
	Parts      []ChargePart `json:"parts"`
	Free       string       `json:"free"`
	Released   string       `json:"released"` // of the hold
	FirstToken float64      `json:"first_token_ms"`
	Total      float64      `json:"total_ms"`
	Stream     bool         `json:"stream"`
	Refunds    []Refunded   `json:"refunds"`
}

// ChargePart is Count tokens of a kind, at Price in IU per 1K.
type ChargePart struct {
	Kind   string `json:"kind"`
	Count  int    `json:"count"`
	Price  string `json:"price"`
	Amount string `json:"amount"`
}

// Refunded is credit that was given back of a charge.
type Refunded struct {
	At     time.Time `json:"at"`
	Amount string    `json:"amount"`
	Reason string    `json:"reason"`
}

// Refusal is a call that was refused before it was admitted. Limit, Used and Asked count
// requests, tokens or calls; Left, Held and Need are IU, or empty. Heading, Why, Clears and
// Do are sentences for people; lists of refusals do not have them.
type Refusal struct {
	RequestID    string    `json:"request_id"`
	At           time.Time `json:"at"`
	KeyID        string    `json:"key_id"`
	Model        string    `json:"model"`
	Status       int       `json:"status"`
	Code         string    `json:"code"`
	Rule         string    `json:"rule"`
	Scope        string    `json:"scope"` // account, key, model or empty
	Limit        int64     `json:"limit"`
	Used         int64     `json:"used"`
	Asked        int64     `json:"asked"`
	Left         string    `json:"left"`
	Held         string    `json:"held"`
	Need         string    `json:"need"`
	Fits         int       `json:"fits"` // the largest max_tokens that would have passed
	ClearsMS     int64     `json:"clears_ms"`
	PromptTokens int       `json:"prompt_tokens"`
	MaxTokens    int       `json:"max_tokens"`
	Param        string    `json:"param"`
	Message      string    `json:"message"`
	Heading      string    `json:"heading,omitzero"`
	Why          string    `json:"why,omitzero"`
	Clears       string    `json:"clears,omitzero"`
	Do           []string  `json:"do,omitzero"`
}

// explain tells what became of a request.
func (s *service) explain(r *http.Request) (any, error) {
	x, err := s.Explain.Request(r.Context(), r.PathValue("request"), time.Now())
	if err != nil {
		return nil, err
	}
	out := Explained{RequestID: x.RequestID, Kind: "refusal"}
	if x.Account != nil {
		out.AccountID, out.Account = x.Account.ID, x.Account.Name
	}
	if x.Key != nil {
		out.KeyID, out.Key = x.Key.ID, x.Key.Name
	}
	if x.Refusal != nil {
		v := refusalView(x.Refusal)
		v.Heading, v.Why, v.Clears, v.Do = x.Reason.Heading, x.Reason.Why, x.Reason.Clears, x.Reason.Do
		out.Refusal = &v
		return out, nil
	}
	out.Kind = "charge"
	if x.Receipt.State == ledger.Running {
		out.Kind = "running"
	}
	out.Charge = chargeView(&x)
	return out, nil
}

func chargeView(x *explain.Explained) *ChargeMade {
	c := x.Receipt
	v := ChargeMade{
		Receipt: receiptView(*c), Sentences: x.Sentences, PriceID: c.PriceID, Parts: make([]ChargePart, 0, len(x.Parts)),
		Free: x.Free().String(), Released: max(0, c.Hold-c.Charge).String(), FirstToken: milliseconds(c.FirstToken), Total: milliseconds(c.Total), Stream: c.Stream,
		Refunds: make([]Refunded, 0, len(x.Refunds)),
	}
	for _, p := range x.Parts {
		v.Parts = append(v.Parts, ChargePart{Kind: string(p.Kind), Count: p.Count, Price: p.Price.PerThousand(), Amount: p.Amount.String()})
	}
	for _, r := range x.Refunds {
		v.Refunds = append(v.Refunds, Refunded{At: r.At, Amount: r.Amount.String(), Reason: r.Reason})
	}
	return &v
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func refusalView(f *refusal.Record) Refusal {
	v := Refusal{
		RequestID: f.RequestID, At: f.At, KeyID: f.KeyID, Model: f.Model, Status: f.Status, Code: f.Code, Rule: string(f.Rule), Scope: string(f.Scope),
		Fits: f.Fits, ClearsMS: f.Clears.Milliseconds(), PromptTokens: f.PromptTokens, MaxTokens: f.MaxTokens, Param: f.Param, Message: f.Message,
	}
	switch f.Rule {
	case wire.RuleCredit, wire.RuleHeld, wire.RuleBudget:
		v.Need, v.Left, v.Held = f.Amounts()
	default:
		v.Limit, v.Used, v.Asked = f.Limit, f.Used, f.Asked
	}
	return v
}

// refusals lists the refused calls of an account, newest first.
func (s *service) refusals(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	limit := defaultReceipts
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostReceipts {
			return nil, invalid("invalid_limit", "limit is a whole number from 1 to %d, not %q.", mostReceipts, text)
		}
	}
	list, err := s.Store.Refusals(r.Context(), refusal.Filter{AccountID: a.ID, KeyID: q.Get("key"), Code: q.Get("code"), Before: q.Get("before"), Limit: limit})
	if err != nil {
		return nil, err
	}
	out := make([]Refusal, 0, len(list))
	for i := range list {
		out = append(out, refusalView(&list[i]))
	}
	return out, nil
}
