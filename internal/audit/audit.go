// Package audit is the record of what operators change: who did what to what, and how
// it was before. Its entries are a chain of hashes, so that none can be changed, left
// out or put in between without a trace. Secrets and prompts are never in it.
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// System is the actor of what Parley does by itself.
const System = "system"

// Action is what was done.
type Action string

// The actions that are recorded.
const (
	AccountCreate  Action = "account.create"
	AccountUpdate  Action = "account.update" // plan, status or threshold
	CreditGrant    Action = "credit.grant"
	CreditAdjust   Action = "credit.adjust"
	CreditRefund   Action = "credit.refund"
	PaymentRefund  Action = "payment.refund"  // some of a payment went back: its credit was taken
	PaymentDispute Action = "payment.dispute" // it has begun, or ended
	PaymentReturn  Action = "payment.return"  // a refund has failed: what it had taken was given again
	KeyCreate      Action = "key.create"
	KeyUpdate      Action = "key.update"
	KeyRotate      Action = "key.rotate" // the target has a successor
	KeyRevoke      Action = "key.revoke"
	TokenCreate    Action = "token.create" // of an operator
	TokenRevoke    Action = "token.revoke"
	CodeCreate     Action = "code.create"
	CodeRevoke     Action = "code.revoke"
	CodeRedeem     Action = "code.redeem"    // the code has become credit of an account
	PlanVersion    Action = "plan.version"   // the configuration has another plan
	PriceVersion   Action = "price.version"  // the configuration has another price
	WebhookUpdate  Action = "webhook.update" // the configuration has other endpoints
	WebhookRetry   Action = "webhook.retry"
	WebhookLose    Action = "webhook.lose" // events were forgotten that an endpoint had not taken
	BooksBackup    Action = "books.backup"
	BooksRestore   Action = "books.restore" // the first entry after a backup's own
	LinkCreate     Action = "link.create"   // an invitation, or an operator's way in
	LinkRevoke     Action = "link.revoke"
	MemberCreate   Action = "member.create"
	MemberUpdate   Action = "member.update" // what it signs in with, or what it may do
	MemberJoin     Action = "member.join"   // an account
	MemberRole     Action = "member.role"   // in an account
	MemberRemove   Action = "member.remove" // from an account
	MemberSignIn   Action = "member.sign_in"
	SessionEnd     Action = "session.end"
)

// Subscription is the action of a change of a subscription, such as "renew".
func Subscription(what string) Action { return Action("subscription." + what) }

// Entry is one change. Before and After are JSON, or empty where there was or is nothing.
type Entry struct {
	Seq           int64 // from 1, without gaps
	At            time.Time
	Actor         string
	Action        Action
	Target        string // the id of what was changed
	Origin        string // the address that it came from; empty where it came from the machine itself
	Before, After string
	Prev, Hash    string // SHA-256, in hexadecimal digits; Prev of the first is empty
}

// Whole is the name of the law that no entry was changed or left out.
const Whole = "the audit log is whole"

// Filter says which entries are listed. What is zero does not filter.
type Filter struct {
	Targets  []string // any of them; nil is of everything
	Actor    string
	Action   Action
	Kind     string    // of actions, such as "credit": what stands before the dot
	From, To time.Time // To is not in it
	Before   int64     // the Seq of the last one of the page before
	Limit    int       // must be given
}

// Sum is the hash that e must have: of everything else in it. Times count to the
// microsecond.
func (e *Entry) Sum() string {
	h := sha256.New()
	fields := []string{strconv.FormatInt(e.Seq, 10), strconv.FormatInt(e.At.UnixMicro(), 10), e.Actor, string(e.Action), e.Target, e.Before, e.After, e.Prev}
	if e.Origin != "" {
		fields = append(fields, e.Origin) // entries of before there were any have no such field
	}
	for _, field := range fields {
		fmt.Fprintf(h, "%d:%s,", len(field), field) // no two entries are the same text
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Follow makes e the entry after one of that number and hash; 0 and "" before the first.
func (e *Entry) Follow(seq int64, hash string) {
	e.Seq, e.Prev = seq+1, hash
	e.Hash = e.Sum()
}

// Check says what is wrong with e as the entry after one of that number and hash; nil
// when nothing is.
func (e *Entry) Check(seq int64, hash string) error {
	switch {
	case e.Seq != seq+1:
		return fmt.Errorf("entry %d follows entry %d", e.Seq, seq)
	case e.Prev != hash:
		return fmt.Errorf("entry %d does not follow from the one before it", e.Seq)
	case e.Hash != e.Sum():
		return fmt.Errorf("entry %d was changed", e.Seq)
	}
	return nil
}

// State is v as an entry shows it. v is a struct or map that JSON can say.
func State(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("audit: " + err.Error()) // our own shapes; a test writes each
	}
	return string(text)
}

type (
	actorKey  struct{}
	originKey struct{}
)

// WithOrigin returns a context whose changes come from address.
func WithOrigin(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, originKey{}, address)
}

// Origin is the address that the changes of ctx come from; empty when none was named.
func Origin(ctx context.Context) string {
	address, _ := ctx.Value(originKey{}).(string)
	return address
}

// WithActor returns a context whose changes are made by actor.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// Actor is who makes the changes of ctx; [System] when nobody was named.
func Actor(ctx context.Context) string {
	if a, ok := ctx.Value(actorKey{}).(string); ok && a != "" {
		return a
	}
	return System
}
