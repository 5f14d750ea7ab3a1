package admin

import (
	"encoding/json"
	"reflect"
	"time"
)

// Created names a new account.
type Created struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// NewAccount asks for an account. Credit, a decimal number of IU, may be empty.
type NewAccount struct {
	Name   string `json:"name"`
	Plan   string `json:"plan"`
	Credit string `json:"credit,omitzero"`
}

// Account is one account and its credit in IU: Balance before and Available after
// what running calls hold.
type Account struct {
	ID           string        `json:"id"`
	Name         string        `json:"name"`
	Plan         string        `json:"plan"`
	Status       string        `json:"status"`
	Balance      string        `json:"balance"`
	Held         string        `json:"held"`
	Available    string        `json:"available"`
	Subscription *Subscription `json:"subscription"`           // null: there never was one
	LowCredit    string        `json:"low_credit"`             // below which credit is low
	OwnThreshold bool          `json:"own_threshold,omitzero"` // LowCredit is the account's, not the configuration's
}

// Subscription is the last one of an account. While it is active or past_due its plan
// applies, not the account's own; then it is canceled or expired.
type Subscription struct {
	Plan   string    `json:"plan"`
	Status string    `json:"status"`
	Until  time.Time `json:"until"`
	Renews bool      `json:"renews,omitzero"` // by itself; Until is the end of the period then
}

// NewSubscription asks for a subscription; it replaces one to another plan. It ends at
// Until; without, it renews itself until it is canceled or, when it is Manual, is renewed
// by hand for each period.
type NewSubscription struct {
	Plan   string     `json:"plan"`
	Until  *time.Time `json:"until,omitzero"`
	Manual bool       `json:"manual,omitzero"`
}

// Change asks for another plan, status or threshold; nil leaves it. LowCredit, a decimal
// number of IU, is the balance below which credit is low: "0" is never, null is what the
// configuration says.
type Change struct {
	Plan      *string         `json:"plan,omitzero"`
	Status    *string         `json:"status,omitzero"`
	LowCredit Setting[string] `json:"low_credit,omitzero"`
}

// Summary is what people want to see of an account beside [Account].
type Summary struct {
	Granted     string `json:"granted"`
	Spent       string `json:"spent"`
	Running     int    `json:"running"` // calls
	KeysActive  int    `json:"keys_active"`
	KeysExpired int    `json:"keys_expired"`
	KeysRevoked int    `json:"keys_revoked"`
	// PerDay is what the last full days spent, at most 7 of them; empty before there is one.
	// LastsUntil is when the credit is used up at that pace; nil beyond 90 days.
	PerDay     string     `json:"per_day"`
	LastsUntil *time.Time `json:"lasts_until"`
	Plan       *Plan      `json:"plan"` // the one that applies; null: the configuration no longer has it
}

// NewCredit asks for credit. The same Ref adds once; an empty one adds every time.
type NewCredit struct {
	Amount string `json:"amount"`
	Note   string `json:"note"`
	Ref    string `json:"ref,omitzero"`
	// Kind is prepaid, included or promo; empty is prepaid.
	Kind string `json:"kind,omitzero"`
	// Priority is from 1 to 100, lower burns first; 0 is that of the kind.
	Priority  int        `json:"priority,omitzero"`
	ExpiresAt *time.Time `json:"expires_at,omitzero"` // nil: never
}

// GrantBalance is one grant and what became of it: Amount is Burned by charges, Expired
// and Remaining. Kind is prepaid, included, promo, refund or adjust.
type GrantBalance struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Amount    string     `json:"amount"`
	Burned    string     `json:"burned"`
	Expired   string     `json:"expired"`
	Remaining string     `json:"remaining"`
	Priority  int        `json:"priority"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	Note      string     `json:"note"`
	Source    string     `json:"source"`
}

// Credit says what became of a [NewCredit]: when Added is false, At is when the same
// reference was added before.
type Credit struct {
	Account   string    `json:"account"`
	Added     bool      `json:"added"`
	Amount    string    `json:"amount"`
	At        time.Time `json:"at"`
	Available string    `json:"available"`
}

// NewAdjustment asks for a correction of credit; an Amount below 0, as "-5", is taken.
type NewAdjustment struct {
	Amount string `json:"amount"`
	Reason string `json:"reason"`
}

// Adjustment says what was corrected.
type Adjustment struct {
	Account   string `json:"account"`
	Amount    string `json:"amount"`
	Available string `json:"available"`
}

// NewRefund asks to give back Amount of a charge; an empty one is all that is left of it.
type NewRefund struct {
	Amount string `json:"amount,omitzero"`
	Reason string `json:"reason"`
}

// Refund says how much of a charge has been given back in all.
type Refund struct {
	RequestID string `json:"request_id"`
	Account   string `json:"account"`
	Charge    string `json:"charge"`
	Refunded  string `json:"refunded"`
	Available string `json:"available"`
}

// UsageReport is what an account used from From to before To, added up By key, model,
// day or hour.
type UsageReport struct {
	Account string    `json:"account"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	By      string    `json:"by"`
	Groups  []Usage   `json:"groups"`
	Total   Usage     `json:"total"`
}

// Usage is what the ended calls of one group used; voided calls count.
type Usage struct {
	Group            string `json:"group,omitzero"` // a key's id, a model, or a day or hour in UTC
	Calls            int64  `json:"calls"`
	PromptTokens     int64  `json:"prompt_tokens"`
	CachedTokens     int64  `json:"cached_tokens"`
	CompletionTokens int64  `json:"completion_tokens"`
	PlanTokens       int64  `json:"plan_tokens"` // of all of them, those that a plan included
	Charge           string `json:"charge"`
	WrittenOff       string `json:"written_off"`
}

// Statement is every change of a balance in a month: Opening and the amounts of all
// lines are Closing.
type Statement struct {
	Account string          `json:"account"`
	Month   string          `json:"month"`
	Opening string          `json:"opening"`
	Closing string          `json:"closing"`
	Lines   []StatementLine `json:"lines"`
}

// StatementLine is one entry of the books, or a day's usage by one key of one model.
// Kind is usage, debit, expiry or the kind of a grant.
type StatementLine struct {
	At               time.Time `json:"at"`
	Kind             string    `json:"kind"`
	Text             string    `json:"text"`
	KeyID            string    `json:"key_id,omitzero"`
	KeyName          string    `json:"key_name,omitzero"`
	Model            string    `json:"model,omitzero"`
	Calls            int64     `json:"calls,omitzero"`
	PromptTokens     int64     `json:"prompt_tokens,omitzero"`
	CachedTokens     int64     `json:"cached_tokens,omitzero"`
	CompletionTokens int64     `json:"completion_tokens,omitzero"`
	PlanTokens       int64     `json:"plan_tokens,omitzero"`
	Amount           string    `json:"amount"`
	Balance          string    `json:"balance"` // after the line
}

// AuditEntry is one change: Before and After are what was and is there, or null. Hash
// covers the entry and the hash of the one before it.
type AuditEntry struct {
	Seq    int64           `json:"seq"`
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor"`
	Action string          `json:"action"`
	Target string          `json:"target"`
	Origin string          `json:"origin"` // the address that it came from; empty: the server's machine
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	Hash   string          `json:"hash"`
}

// NewKey asks for a key. ExpiresAt nil is never; no Models means every model of the plan;
// limits that are nil are the plan's alone; no
// Scopes are chat and models. Allow are the networks that it may be used from; none is
// everywhere. Budget is an amount of IU, or one with /month, or empty for none.
type NewKey struct {
	Name      string     `json:"name"`
	ExpiresAt *time.Time `json:"expires_at,omitzero"`
	Models    []string   `json:"models,omitzero"`
	Scopes    []string   `json:"scopes,omitzero"`
	Allow     []string   `json:"allow,omitzero"`
	Budget    string     `json:"budget,omitzero"`
	RPM       *int64     `json:"rpm,omitzero"`
	TPM       *int64     `json:"tpm,omitzero"`
}

// KeyChange asks for changes of a key: what is absent stays as it is, and null takes
// away what the key has of it. The values are those of [NewKey].
type KeyChange struct {
	Name      *string            `json:"name,omitzero"`
	ExpiresAt Setting[time.Time] `json:"expires_at,omitzero"`
	Models    Setting[[]string]  `json:"models,omitzero"`
	Scopes    []string           `json:"scopes,omitzero"`
	Allow     Setting[[]string]  `json:"allow,omitzero"`
	Budget    Setting[string]    `json:"budget,omitzero"`
	RPM       Setting[int64]     `json:"rpm,omitzero"`
	TPM       Setting[int64]     `json:"tpm,omitzero"`
}

// Setting is a value to be set or, when Value is nil, to be taken away. The zero value
// is neither.
type Setting[T any] struct {
	Given bool
	Value *T
}

// Set is a setting to v.
func Set[T any](v T) Setting[T] { return Setting[T]{Given: true, Value: &v} }

// Unset is a setting that takes away.
func Unset[T any]() Setting[T] { return Setting[T]{Given: true} }

// IsZero reports whether nothing is to be set.
func (s Setting[T]) IsZero() bool { return !s.Given }

// settles is the type of the value.
func (Setting[T]) settles() reflect.Type { return reflect.TypeFor[T]() }

// MarshalJSON writes the value, or null.
func (s Setting[T]) MarshalJSON() ([]byte, error) { return json.Marshal(s.Value) }

// UnmarshalJSON reads a value, or null.
func (s *Setting[T]) UnmarshalJSON(text []byte) error {
	s.Given = true
	return json.Unmarshal(text, &s.Value)
}

// Minted is a new key with its secret, which nothing can show again.
type Minted struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
	Prefix string `json:"prefix"`
}

// Rotation asks for a new secret. Overlap is how long the old one goes on working, as
// 24h, which it is when it is empty; 0s is not at all.
type Rotation struct {
	Overlap string `json:"overlap,omitzero"`
}

// Rotated is the new key with its secret, which nothing can show again, the key whose
// place it takes and until when that one works: null is not any more.
type Rotated struct {
	ID       string     `json:"id"`
	Secret   string     `json:"secret"`
	Prefix   string     `json:"prefix"`
	Replaces string     `json:"replaces"`
	Until    *time.Time `json:"until"`
}

// Key is what is known of a key. Nil times are never; nil limits are the plan's
// alone; empty Models is every model of the plan, empty Allow every network. A Budget of null is
// none. ReplacedBy is the id of the key that has taken its place, or null.
type Key struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Prefix     string     `json:"prefix"`
	Status     string     `json:"status"` // active, expired or revoked
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
	RPM        *int64     `json:"rpm"`
	TPM        *int64     `json:"tpm"`
	Models     []string   `json:"models"`
	Scopes     []string   `json:"scopes"`
	Allow      []string   `json:"allow"`
	Budget     *Budget    `json:"budget"`
	ReplacedBy *string    `json:"replaced_by"`
}

// Budget is what a key may spend, in IU, with what it has spent and what its running
// calls hold: of the current month when Period is month, of all time when it is total.
// A key that has taken another's place goes on with what that one has spent.
type Budget struct {
	Amount string `json:"amount"`
	Period string `json:"period"`
	Spent  string `json:"spent"`
	Held   string `json:"held"`
}

// KeyUse is a key, whose it is, and how many calls run with it now, Streams of them as
// streams.
type KeyUse struct {
	Key     Key    `json:"key"`
	Account string `json:"account"`
	Running int    `json:"running"`
	Streams int    `json:"streams"`
}

// Revoked says since when a key is refused, and by how many of the running servers
// that is confirmed.
type Revoked struct {
	ID        string    `json:"id"`
	Status    string    `json:"status"`
	RevokedAt time.Time `json:"revoked_at"`
	Confirmed int       `json:"confirmed"`
	Servers   int       `json:"servers"`
}

// Receipt explains one admitted call. State is running, settled, recovered or voided.
type Receipt struct {
	RequestID        string    `json:"request_id"`
	CompletionID     string    `json:"completion_id"`
	CreatedAt        time.Time `json:"created_at"`
	KeyID            string    `json:"key_id"`
	Model            string    `json:"model"`
	PromptTokens     int       `json:"prompt_tokens"`
	CachedTokens     int       `json:"cached_tokens"`
	CompletionTokens int       `json:"completion_tokens"`
	PlanTokens       int       `json:"plan_tokens"` // of all of them, those that the plan included
	Charge           string    `json:"charge"`
	Hold             string    `json:"hold"`
	WrittenOff       string    `json:"written_off"`
	Status           int       `json:"status"`
	ErrorCode        string    `json:"error_code"`
	State            string    `json:"state"`
	Ending           string    `json:"ending"`
	UsageSource      string    `json:"usage_source"`
	Target           string    `json:"target"`
	Attempts         int       `json:"attempts"`
}

// Verification is the proof of the books.
type Verification struct {
	OK         bool        `json:"ok"`
	Accounts   int64       `json:"accounts"`
	Entries    int64       `json:"entries"`
	Invariants []Invariant `json:"invariants"`
	Seconds    float64     `json:"seconds"`
}

// Invariant is one law of the books; Detail says where it is broken.
type Invariant struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Model is one model on offer.
type Model struct {
	ID            string    `json:"id"`
	Description   string    `json:"description"`
	ContextWindow int       `json:"context_window"`
	MaxOutput     int       `json:"max_output"`
	Pricing       Pricing   `json:"pricing"`
	Created       time.Time `json:"created"`
	Plans         []string  `json:"plans"`
	Targets       []string  `json:"targets"` // "upstream/model"
	State         string    `json:"state"`   // ready, or offline when no server runs
	Engines       []Engine  `json:"engines"` // of the targets that are computed in the server
}

// Engine is what an embedded engine does at this moment.
type Engine struct {
	Upstream        string  `json:"upstream"`
	Running         int     `json:"running"` // choices that are computed together
	Places          int     `json:"places"`  // how many those may be
	Waiting         int     `json:"waiting"` // calls
	TokensPerSecond float64 `json:"tokens_per_second"`
}

// Pricing is IU per 1K tokens, in decimal strings.
type Pricing struct {
	Input       string `json:"input"`
	CachedInput string `json:"cached_input"`
	Output      string `json:"output"`
}

// Plan is a tier. A limit of null is not set.
type Plan struct {
	ID          string   `json:"id"`
	RPM         *int64   `json:"rpm"`
	TPM         *int64   `json:"tpm"`
	Concurrency *int64   `json:"concurrency"`
	Models      []string `json:"models"`
	// Limits are those of single models, by their ids.
	Limits map[string]ModelLimits `json:"limits"`
	// MaxOutput bounds an answer beside its model; null is not set.
	MaxOutput *int64 `json:"max_output"`
	// Period is how long a paid one lasts: month, year, or days as 30d.
	Period   string   `json:"period"`
	Included Included `json:"included"`
	// GraceSeconds is how long the plan applies when a period was not renewed.
	GraceSeconds int64 `json:"grace_seconds"`
	Accounts     int   `json:"accounts"`
}

// Included is what each paid period of a plan brings.
type Included struct {
	Tokens int64  `json:"tokens"`
	Credit string `json:"credit"`
}

// ModelLimits bind the calls of an account for one model; null is not set.
type ModelLimits struct {
	RPM *int64 `json:"rpm"`
	TPM *int64 `json:"tpm"`
}

// Status describes the process that answers.
type Status struct {
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	Serving   bool      `json:"serving"` // false: the directory is open, no customer is served
	Draining  bool      `json:"draining"`
	URL       string    `json:"url"` // of the public interface; empty when not serving
	StartedAt time.Time `json:"started_at"`
	Schema    int       `json:"schema"`
	Console   string    `json:"console"` // where people sign in
}

// OperatorLink lets somebody become an operator of the console, once.
type OperatorLink struct {
	URL       string    `json:"url"`
	Account   string    `json:"account"` // that it makes an owner of; empty is none
	ExpiresAt time.Time `json:"expires_at"`
}

// NewBackup asks for a copy of the books in the file Path, which is absolute.
type NewBackup struct {
	Path string `json:"path"`
}

// Backup is a copy of the books that was read back and proved.
type Backup struct {
	Path     string `json:"path"`
	Bytes    int64  `json:"bytes"`
	Accounts int64  `json:"accounts"`
	Entries  int64  `json:"entries"`
}
