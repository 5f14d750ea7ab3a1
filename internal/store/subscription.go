package store

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/subscription"
	"github.com/parley-ai/parley/internal/webhook"
)

const subscriptionColumns = `id, account_id, revision, status, plan, next_plan, every, grace, anchor, base, period, starts_at, ends_at, until, manual, paid, ending, tokens, credit, created_at, ended_at`

// scanSubscription reads a row of subscriptionColumns.
func scanSubscription(row []any) (s subscription.Subscription, err error) {
	text := func(i int) string { v, _ := row[i].(string); return v }
	number := func(i int) int64 { v, _ := row[i].(int64); return v }
	truth := func(i int) bool {
		v, ok := row[i].(bool)
		return ok && v || number(i) == 1
	}
	at := func(i int) time.Time {
		if v, ok := row[i].(int64); ok {
			return time.UnixMicro(v).UTC()
		}
		return time.Time{}
	}
	s = subscription.Subscription{
		ID: text(0), AccountID: text(1), Revision: number(2), Plan: text(4), NextPlan: text(5), Grace: time.Duration(number(7)) * time.Microsecond,
		Anchor: at(8), Base: number(9), Period: number(10), Start: at(11), End: at(12), Until: at(13), Manual: truth(14), Paid: number(15),
		Ending: truth(16), Tokens: number(17), Credit: money.Amount(number(18)), CreatedAt: at(19), EndedAt: at(20),
	}
	status := subscription.Status(text(3))
	s.PastDue, s.Canceled = status == subscription.PastDue, status == subscription.Canceled
	if s.Interval, err = subscription.ParseInterval(text(6)); err != nil {
		return s, fmt.Errorf("subscription %s: %w", s.ID, err)
	}
	return s, nil
}

// status is what is written of a subscription.
func status(s *subscription.Subscription) subscription.Status {
	switch {
	case !s.EndedAt.IsZero() && s.Canceled:
		return subscription.Canceled
	case !s.EndedAt.IsZero():
		return subscription.Expired
	case s.PastDue:
		return subscription.PastDue
	}
	return subscription.Active
}

// Subscription returns the last subscription of an account; the zero value where there
// never was one.
func (d *DB) Subscription(ctx context.Context, accountID string) (subscription.Subscription, error) {
	return lastSubscription(ctx, sqlTx{d.read}, accountID)
}

func lastSubscription(ctx context.Context, q querier, accountID string) (s subscription.Subscription, err error) {
	list, err := q.list(ctx, `SELECT `+subscriptionColumns+` FROM subscription WHERE account_id = ? ORDER BY ended_at IS NOT NULL, created_at DESC, id DESC LIMIT 1`, accountID)
	if err != nil || len(list) == 0 {
		return s, err
	}
	return scanSubscription(list[0])
}

// lastSubscriptions are those of all accounts, by their ids.
func lastSubscriptions(ctx context.Context, q querier) (map[string]subscription.Subscription, error) {
	list, err := q.list(ctx, `SELECT `+subscriptionColumns+` FROM subscription ORDER BY ended_at IS NULL, created_at, id`)
	if err != nil {
		return nil, err
	}
	last := make(map[string]subscription.Subscription, len(list))
	for _, row := range list {
		s, err := scanSubscription(row)
		if err != nil {
			return nil, err
		}
		last[s.AccountID] = s
	}
	return last, nil
}

// turn writes a change of a subscription, or nothing when it does not follow what is there.
func (b *batch) turn(ctx context.Context, t *ledger.Turned) (res ledger.Result, err error) {
	next := &t.Next
	if _, found, err := b.find(ctx, b.account, next.AccountID); err != nil || !found {
		return ledger.Result{Refused: ledger.ErrAccount}, err
	}
	was, err := lastSubscription(ctx, b, next.AccountID)
	if err != nil {
		return res, err
	}
	if !follows(t, &was) {
		return ledger.Result{Refused: subscription.ErrChanged}, nil
	}
	if t.Replaced != nil {
		if err := b.putSubscription(ctx, t.Replaced, t.At); err != nil {
			return res, err
		}
	}
	if err := b.putSubscription(ctx, next, t.At); err != nil {
		return res, err
	}
	if t.Begins {
		_, err = b.run(ctx, `INSERT INTO subscription_period (subscription_id, number, plan_version, starts_at) VALUES (?, ?, ?, ?)`,
			next.ID, next.Period, t.Version, micros(next.Start))
		if err != nil {
			return res, err
		}
	}
	for i := range t.Grants {
		if err := b.addGrant(ctx, &t.Grants[i]); err != nil {
			return res, err
		}
	}
	_, err = b.run(ctx, `UPDATE subscription_period SET tokens = tokens + ?, credit = credit + ? WHERE subscription_id = ? AND number = ?`,
		t.Tokens, int64(t.Credit), next.ID, next.Period)
	if err != nil {
		return res, err
	}
	if err := tellTurn(ctx, b, t); err != nil {
		return res, err
	}
	var before any
	if was.ID != "" {
		before = subscriptionState(&was)
	}
	after := subscriptionState(next)
	after.IncludedTokens, after.IncludedCredit = t.Tokens, t.Credit.String()
	err = record(ctx, b, audit.Entry{At: t.At, Actor: t.Actor, Origin: t.Origin, Action: audit.Subscription(string(t.Action)), Target: next.AccountID}, before, after)
	return ledger.Result{Applied: true, At: t.At}, err
}

// tellTurn writes the event of a turn.
func tellTurn(ctx context.Context, q querier, t *ledger.Turned) error {
	kind := webhook.SubscriptionChanged
	switch {
	case !t.Next.EndedAt.IsZero():
		kind = webhook.SubscriptionEnded
	case t.Next.PastDue:
		kind = webhook.SubscriptionPastDue
	case t.Begins && t.Next.Revision > 1:
		kind = webhook.SubscriptionRenewed
	}
	s := &t.Next
	data := map[string]any{
		"id": s.ID, "plan": s.Plan, "status": status(s), "period": s.Period, "period_start": moment(s.Start), "period_end": moment(s.End),
		"included_tokens": t.Tokens, "included_credit": t.Credit.String(),
	}
	if !s.Until.IsZero() {
		data["until"] = moment(s.Until)
	}
	if s.NextPlan != "" {
		data["next_plan"] = s.NextPlan
	}
	if s.Ending {
		data["cancel_at_period_end"] = true
	}
	return emit(ctx, q, kind, s.AccountID, data)
}

// follows reports whether t was made from what is there.
func follows(t *ledger.Turned, was *subscription.Subscription) bool {
	runs := was.ID != "" && was.EndedAt.IsZero()
	switch {
	case t.Replaced != nil:
		return runs && was.ID == t.Replaced.ID && was.Revision == t.Replaced.Revision-1 && t.Next.Revision == 1
	case t.Next.Revision == 1:
		return !runs
	}
	return runs && was.ID == t.Next.ID && was.Revision == t.Next.Revision-1
}

// putSubscription writes s and lets what its period includes end with it.
func (b *batch) putSubscription(ctx context.Context, s *subscription.Subscription, now time.Time) error {
	_, err := b.run(ctx, `INSERT INTO subscription (`+subscriptionColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, status = excluded.status, plan = excluded.plan, next_plan = excluded.next_plan,
			every = excluded.every, grace = excluded.grace, anchor = excluded.anchor, base = excluded.base, period = excluded.period,
			starts_at = excluded.starts_at, ends_at = excluded.ends_at, until = excluded.until, manual = excluded.manual, paid = excluded.paid,
			ending = excluded.ending, tokens = excluded.tokens, credit = excluded.credit, ended_at = excluded.ended_at`,
		s.ID, s.AccountID, s.Revision, string(status(s)), s.Plan, s.NextPlan, s.Interval.String(), s.Grace.Microseconds(), micros(s.Anchor), s.Base, s.Period,
		micros(s.Start), micros(s.End), micros(s.Until), s.Manual, s.Paid, s.Ending, s.Tokens, int64(s.Credit), micros(s.CreatedAt), micros(s.EndedAt))
	for _, c := range classes {
		if err != nil {
			return err
		}
		_, err = b.run(ctx, `UPDATE `+c.grants+` SET expires_at = ?1 WHERE subscription_id = ?2 AND period = ?3 AND expires_at > ?4 AND expires_at <> ?1`,
			micros(s.IncludedUntil()), s.ID, s.Period, micros(now))
	}
	return err
}

// subscriptionShape is what the audit log says of a subscription.
type subscriptionShape struct {
	ID             string `json:"id"`
	Plan           string `json:"plan"`
	Status         string `json:"status"`
	Period         int64  `json:"period"`
	PeriodEnd      string `json:"period_end"`
	Until          string `json:"until,omitzero"`
	NextPlan       string `json:"next_plan,omitzero"`
	Manual         bool   `json:"manual,omitzero"`
	Paid           int64  `json:"paid,omitzero"`
	Ending         bool   `json:"cancel_at_period_end,omitzero"`
	IncludedTokens int64  `json:"included_tokens,omitzero"`
	IncludedCredit string `json:"included_credit,omitzero"`
}

func subscriptionState(s *subscription.Subscription) subscriptionShape {
	shape := subscriptionShape{
		ID: s.ID, Plan: s.Plan, Status: string(status(s)), Period: s.Period, PeriodEnd: moment(s.End), Until: moment(s.Until),
		NextPlan: s.NextPlan, Manual: s.Manual, Ending: s.Ending,
	}
	if s.Manual {
		shape.Paid = s.Paid
	}
	return shape
}

// Periods returns the periods of a subscription that have begun, the first first.
func (d *DB) Periods(ctx context.Context, id string) ([]ledger.Period, error) {
	list, err := sqlTx{d.read}.list(ctx, `SELECT number, starts_at, tokens, credit FROM subscription_period WHERE subscription_id = ? ORDER BY number`, id)
	periods := make([]ledger.Period, len(list))
	for i, row := range list {
		periods[i] = ledger.Period{
			Number: row[0].(int64), Start: time.UnixMicro(row[1].(int64)).UTC(), Tokens: row[2].(int64), Credit: money.Amount(row[3].(int64)),
		}
	}
	return periods, err
}
