package admin

import (
	"context"
	"strconv"
	"time"
)

// SubscriptionDetail is everything about the last subscription of an account.
type SubscriptionDetail struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Plan    string `json:"plan"`
	Status  string `json:"status"` // active, past_due, canceled or expired
	// Renews is auto, manual when each period has to be renewed by hand, or no.
	Renews string `json:"renews"`
	// Until is when it ends or, when it renews, until when it is sure.
	Until       time.Time  `json:"until"`
	GraceUntil  *time.Time `json:"grace_until"` // of a subscription that is past due
	NextPlan    string     `json:"next_plan"`   // from the next period on; empty: Plan
	PeriodEvery string     `json:"period_every"`
	Period      Period     `json:"period"`
	// What is left of the included amounts; calls that run hold TokensHeld of TokensLeft.
	TokensLeft int64  `json:"tokens_left"`
	TokensHeld int64  `json:"tokens_held"`
	CreditLeft string `json:"credit_left"`
}

// Period is the current period of a subscription, or its last one, and what it has
// included so far.
type Period struct {
	Number         int64     `json:"number"`
	Start          time.Time `json:"start"`
	End            time.Time `json:"end"`
	IncludedTokens int64     `json:"included_tokens"`
	IncludedCredit string    `json:"included_credit"`
}

// Cancellation ends a subscription with its period, or Now.
type Cancellation struct {
	Now bool `json:"now"`
}

// PlanChange asks for another plan: When is now, period_end, or empty: now for a plan that
// stands later in the configuration, else with the next period.
type PlanChange struct {
	Plan string `json:"plan"`
	When string `json:"when,omitzero"`
}

// NewCodes asks for Count redemption codes of Amount each. Kind is promo, which it is when
// it is empty, or prepaid. After ExpiresAt they can no longer be redeemed; nil is never.
type NewCodes struct {
	Amount    string     `json:"amount"`
	Count     int        `json:"count"`
	Kind      string     `json:"kind,omitzero"`
	Note      string     `json:"note"`
	ExpiresAt *time.Time `json:"expires_at,omitzero"`
}

// Code is a redemption code without what it says. Status is open, redeemed, revoked or
// expired; Account is who has redeemed it, or empty.
type Code struct {
	ID         string     `json:"id"`
	Last4      string     `json:"last4"`
	Status     string     `json:"status"`
	Kind       string     `json:"kind"`
	Amount     string     `json:"amount"`
	Note       string     `json:"note"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	RedeemedAt *time.Time `json:"redeemed_at"`
	Account    string     `json:"account"`
}

// MintedCode is a new code with what it says, which nothing can show again.
type MintedCode struct {
	Code
	Text string `json:"code"`
}

// NewRedemption redeems a code. Case, hyphens and blanks do not matter.
type NewRedemption struct {
	Code string `json:"code"`
}

// Redeemed is a code that has become credit, and what the account has then.
type Redeemed struct {
	Code      Code   `json:"code"`
	Available string `json:"available"`
}

// Subscription shows the last subscription of an account.
func (c *Client) Subscription(ctx context.Context, name string) (SubscriptionDetail, error) {
	return call[SubscriptionDetail](ctx, c, "GET", accountPath(name, "/subscription"), nil)
}

// RenewSubscription says that the next period is paid for.
func (c *Client) RenewSubscription(ctx context.Context, name string) (SubscriptionDetail, error) {
	return call[SubscriptionDetail](ctx, c, "POST", accountPath(name, "/subscription/renewals"), nil)
}

// CancelSubscription ends a subscription with its period, or now.
func (c *Client) CancelSubscription(ctx context.Context, name string, in Cancellation) (SubscriptionDetail, error) {
	return call[SubscriptionDetail](ctx, c, "POST", accountPath(name, "/subscription/cancellation"), in)
}

// ChangeSubscription moves a subscription to another plan.
func (c *Client) ChangeSubscription(ctx context.Context, name string, in PlanChange) (SubscriptionDetail, error) {
	return call[SubscriptionDetail](ctx, c, "POST", accountPath(name, "/subscription/plan"), in)
}

// CreateCodes makes redemption codes and returns what they say, once.
func (c *Client) CreateCodes(ctx context.Context, in NewCodes) ([]MintedCode, error) {
	return call[[]MintedCode](ctx, c, "POST", "/codes", in)
}

// Codes lists at most limit redemption codes, the newest first.
func (c *Client) Codes(ctx context.Context, limit int) ([]Code, error) {
	return call[[]Code](ctx, c, "GET", "/codes?limit="+strconv.Itoa(limit), nil)
}

// RevokeCode makes sure that a code is never redeemed.
func (c *Client) RevokeCode(ctx context.Context, id string) (Code, error) {
	return call[Code](ctx, c, "POST", "/codes/"+segment(id)+"/revoke", nil)
}

// Redeem gives an account the credit of a code.
func (c *Client) Redeem(ctx context.Context, name string, in NewRedemption) (Redeemed, error) {
	return call[Redeemed](ctx, c, "POST", accountPath(name, "/redemptions"), in)
}
