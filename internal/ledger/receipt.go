package ledger

import (
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// State is where a call stands in the books.
type State string

// The states of a receipt. The last three are final.
const (
	Running   State = "running"
	Settled   State = "settled"
	Recovered State = "recovered" // charged by the start after a crash
	Voided    State = "voided"    // not charged
)

// Ending says how a call ended.
type Ending string

// The endings of a call.
const (
	EndStop          Ending = "stop"
	EndLength        Ending = "length"
	EndToolCalls     Ending = "tool_calls"
	EndFilter        Ending = "content_filter"
	EndClientGone    Ending = "client_gone"
	EndUpstreamCut   Ending = "upstream_cut"
	EndUpstreamError Ending = "upstream_error"
	EndKeyRevoked    Ending = "key_revoked"
	EndShutdown      Ending = "shutdown"
	EndCrash         Ending = "crash"
)

// Class is how a call ended, in one word for who looks for those that did not end well.
type Class string

// The classes of calls that have ended.
const (
	Answered Class = "answered"
	Left     Class = "left"    // by its caller
	Refused  Class = "refused" // by the provider, for a fault of the caller's, or because its key was revoked
	Failed   Class = "failed"  // a fault of the provider's or of ours
)

// UsageSource says where the token counts of a receipt come from.
type UsageSource string

// The sources of token counts.
const (
	UsageProvider  UsageSource = "provider"
	UsageCounted   UsageSource = "counted"
	UsageEstimated UsageSource = "estimated"
	UsageProgress  UsageSource = "progress" // the stream's progress slot, after a crash
	UsageNone      UsageSource = "none"
)

// Receipt explains one admitted call: what was reserved for it, what it used and
// what it cost. Its request id is its identity in the books.
type Receipt struct {
	RequestID    string
	CompletionID string
	AccountID    string
	KeyID        string
	Model        string
	PriceID      string
	Price        money.Price
	PlanVersion  string
	Stream       bool
	CreatedAt    time.Time
	Budget       Budget // that the charge counts for; not told of receipts that are read

	PromptTokens     int
	CachedTokens     int // of the prompt tokens
	CompletionTokens int
	OutputLimit      int // the tokens of answer that the hold covers

	// PlanTokens are those of the call that its plan included: they cost nothing. While it
	// runs, and of a hold that a crash has left, those that are set aside for it.
	PlanTokens int

	Hold       money.Amount
	Charge     money.Amount
	WrittenOff money.Amount // used beyond what the account could pay: the operator's loss

	Status      int // of the HTTP answer
	ErrorCode   string
	State       State
	Ending      Ending
	UsageSource UsageSource
	Target      string // "upstream/model"
	Attempts    int
	FirstToken  time.Duration // from admission; 0 when none came
	Total       time.Duration // from admission to the end

	// Idempotency is the key of a call that has one. It is written with the hold of a
	// stream and with the charge; a call that is voided leaves its key free.
	Idempotency *Idempotency
}

// Idempotency is a key that stands for one charged call of an account.
type Idempotency struct {
	Key, Body [32]byte
	// Answer is kept with the charge; nil keeps none. It is set before the call ends.
	Answer []byte
	// FreeBefore is the time before which another call's use of the key has expired.
	FreeBefore time.Time
}

// Class says how the call ended; one that runs is [Answered].
func (r *Receipt) Class() Class {
	switch r.Ending {
	case EndClientGone:
		return Left
	case EndKeyRevoked:
		return Refused
	}
	if r.State == Voided && r.Status >= 400 && r.Status < 499 {
		return Refused
	}
	switch r.Ending {
	case EndUpstreamCut, EndUpstreamError, EndShutdown, EndCrash:
		return Failed
	}
	return Answered
}

// Tokens is what the receipt charges for.
func (r *Receipt) Tokens() money.Tokens {
	return money.Tokens{Prompt: r.PromptTokens, Cached: r.CachedTokens, Completion: r.CompletionTokens}
}

// Report is the proof of the books.
type Report struct {
	Accounts   int64
	Entries    int64
	Invariants []Invariant
	Took       time.Duration
}

// Invariant is one law of the books. Detail names account, difference and first entry
// where it is broken.
type Invariant struct {
	Name   string
	OK     bool
	Detail string
}

// OK reports whether every invariant holds.
func (r *Report) OK() bool { return r.Broken() == Invariant{} }

// Broken is the first invariant that does not hold, the zero value when all do.
func (r *Report) Broken() Invariant {
	for _, i := range r.Invariants {
		if !i.OK {
			return i
		}
	}
	return Invariant{}
}
