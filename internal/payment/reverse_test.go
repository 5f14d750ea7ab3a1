package payment_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/payment"
	"github.com/parley-ai/parley/internal/store"
)

// event is an event as Stripe writes it, less the fields that nobody reads.
func event(id, kind, object string) string {
	return fmt.Sprintf(`{"id": %q, "object": "event", "created": 1680064028, "data": {"object": %s}, "livemode": false, "type": %q}`, id, object, kind)
}

// paid is a payment of 1000 cents of credit.
func paid(account, credit, intent string) string {
	return completed("checkout.session.completed", account, credit, intent, "paid")
}

// refund is a charge of 1000 cents, cents of which went back by then.
func refund(id, intent string, cents int) string {
	return event(id, "charge.refunded", fmt.Sprintf(`{"id": "ch_1", "object": "charge", "amount": 1000, "amount_captured": 1000,
		"amount_refunded": %d, "currency": "eur", "metadata": {"for": "acct_1"}, "payment_intent": %q, "refunded": %v}`, cents, intent, cents == 1000))
}

// disputed is a dispute of some of such a charge.
func disputed(id, kind, intent, status string, cents int) string {
	return event(id, kind, fmt.Sprintf(`{"id": "dp_1", "object": "dispute", "amount": %d, "charge": "ch_1", "currency": "eur", "metadata": {},
		"payment_intent": %q, "reason": "fraudulent", "status": %q}`, cents, intent, status))
}

// tell signs bodies and hands them over.
func tell(t *testing.T, r *payment.Room, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if err := r.Notify(t.Context(), sign(body, now, secret), []byte(body), now); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// want compares the balance, and that the books are balanced.
func want(t *testing.T, books *ledger.Ledger, db *store.DB, account string, available money.Amount) {
	t.Helper()
	if got := books.Balance(account).Available(); got != available {
		t.Errorf("%s available, want %s", got, available)
	}
	if rep, err := db.Verify(context.Background()); err != nil || !rep.OK() {
		t.Errorf("Verify = %+v, %v", rep, err)
	}
}

// reversals are the entries of the audit log about payments, oldest first.
func reversals(t *testing.T, db *store.DB, account string) (all []audit.Entry) {
	t.Helper()
	log, err := db.AuditLog(t.Context(), account, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log {
		if strings.HasPrefix(string(e.Action), "payment.") {
			all = append(all, e)
		}
	}
	slices.Reverse(all)
	return all
}

// What is refunded step by step is taken step by step, and each message counts once.
func TestNotify_Refunds(t *testing.T) {
	t.Parallel()
	r, books, db, who := open(t, "")
	tell(t, r, paid(who, "100", "pi_1"), refund("evt_1", "pi_1", 250))
	want(t, books, db, who, 75*money.IU)
	var wg sync.WaitGroup
	for range 20 { // at once, and again
		wg.Go(func() { tell(t, r, refund("evt_1", "pi_1", 250), refund("evt_2", "pi_1", 500)) })
	}
	wg.Wait()
	want(t, books, db, who, 50*money.IU)
	tell(t, r, refund("evt_3", "pi_1", 500)) // another message of the same sum
	want(t, books, db, who, 50*money.IU)
	tell(t, r, refund("evt_4", "pi_1", 1000), paid(who, "100", "pi_1"))
	want(t, books, db, who, 0)
	log := reversals(t, db, who)
	if len(log) != 4 || log[0].Actor != "stripe" || log[0].Action != audit.PaymentRefund ||
		!strings.Contains(log[0].After, `"taken":"25"`) || !strings.Contains(log[0].After, `"payment":"stripe:pi_1"`) || !strings.Contains(log[2].After, `"taken":"0"`) {
		t.Errorf("audit log %+v, want one entry for each message", log)
	}
}

// The sum that went back counts, in whichever order its steps are told.
func TestNotify_RefundsOutOfOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		r, books, db, who := open(t, "")
		tell(t, r, paid(who, "100", "pi_1"))
		messages := []string{
			refund("evt_1", "pi_1", 1), refund("evt_2", "pi_1", 333), refund("evt_3", "pi_1", 700),
			disputed("evt_4", "charge.dispute.created", "pi_1", "needs_response", 300), disputed("evt_5", "charge.dispute.closed", "pi_1", "lost", 200),
		}
		messages = append(messages, messages...)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
		tell(t, r, messages...)
		want(t, books, db, who, 10*money.IU)
	}
}

// A refund that is told before its payment comes again; one of another business does not.
func TestNotify_RefundBeforePayment(t *testing.T) {
	t.Parallel()
	r, books, db, who := open(t, "")
	early := refund("evt_1", "pi_1", 1000)
	if err := r.Notify(t.Context(), sign(early, now, secret), []byte(early), now); !errors.Is(err, ledger.ErrPayment) {
		t.Errorf("before the payment: %v", err)
	}
	tell(t, r, strings.Replace(early, `{"for": "acct_1"}`, `{}`, 1), refund("evt_2", "", 1000),
		disputed("evt_3", "charge.dispute.closed", "pi_1", "lost", 1000), paid(who, "100", "pi_1"), early)
	want(t, books, db, who, 0)
}

// Nobody falls below zero: what was spent, and what a running call holds, is written off, in
// the audit log, on the statement, and for good.
func TestNotify_RefundAboveWhatIsLeft(t *testing.T) {
	t.Parallel()
	r, books, db, who := open(t, "")
	tell(t, r, paid(who, "100", "pi_1"))
	if err := books.Adjust(t.Context(), who, -60*money.IU, "spent"); err != nil {
		t.Fatal(err)
	}
	offer := []catalog.Model{{ID: "m", Price: money.Price{Input: money.IU, CachedInput: money.IU, Output: money.IU}}}
	if err := db.SaveCatalog(t.Context(), offer, []account.Plan{{ID: "pro"}}); err != nil {
		t.Fatal(err)
	}
	h, err := books.Reserve(ledger.Call{
		RequestID: "req_1", CompletionID: "chatcmpl_1", AccountID: who, PriceID: offer[0].PriceID, Price: offer[0].Price,
		PromptTokens: 10, Output: 5, LeastOutput: 5, CreatedAt: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	tell(t, r, refund("evt_1", "pi_1", 1000))
	want(t, books, db, who, 0)
	if got := books.Balance(who); got.Posted != 85*money.IU || got.Held != 15*money.IU {
		t.Errorf("Balance = %+v, want 60 spent and 25 taken", got)
	}
	if err := h.Void(ledger.Outcome{}); err != nil {
		t.Fatal(err)
	}
	tell(t, r, paid(who, "10", "pi_2"), refund("evt_2", "pi_1", 1000), disputed("evt_3", "charge.dispute.closed", "pi_1", "lost", 1000))
	want(t, books, db, who, 25*money.IU)
	if err := books.Adjust(t.Context(), who, -25*money.IU, "spent"); err != nil {
		t.Fatal(err)
	}
	tell(t, r, refund("evt_4", "pi_2", 1000)) // nothing is there
	want(t, books, db, who, 0)
	log := reversals(t, db, who)
	if len(log) != 4 || !strings.Contains(log[0].After, `"taken":"25","written_off":"75"`) || !strings.Contains(log[3].After, `"taken":"0","written_off":"10"`) {
		t.Errorf("audit log %+v", log)
	}
	s, err := db.Statement(t.Context(), who, now.AddDate(-9, 0, 0), now.AddDate(9, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range s.Lines {
		if strings.Contains(l.Text, "written off") {
			lines = append(lines, fmt.Sprint(l.Amount, " ", l.Text))
		}
	}
	if !slices.Equal(lines, []string{
		"-25 refund of payment pi_1; 75 IU that the account did not have are written off",
		"0 refund of payment pi_2; 10 IU that the account did not have are written off",
	}) {
		t.Errorf("the statement says %q", lines)
	}
}

// A dispute is noted, and only one that is lost takes credit: of the part that was disputed.
func TestNotify_Disputes(t *testing.T) {
	t.Parallel()
	for status, left := range map[string]money.Amount{"won": 100 * money.IU, "warning_closed": 100 * money.IU, "lost": 60 * money.IU} {
		r, books, db, who := open(t, "")
		tell(t, r, paid(who, "100", "pi_1"), disputed("evt_1", "charge.dispute.created", "pi_1", "needs_response", 400))
		want(t, books, db, who, 100*money.IU)
		closed := disputed("evt_2", "charge.dispute.closed", "pi_1", status, 400)
		tell(t, r, closed, closed)
		want(t, books, db, who, left)
		log := reversals(t, db, who)
		if len(log) != 2 || log[0].Action != audit.PaymentDispute || !strings.Contains(log[0].After, "dispute dp_1 (fraudulent) of payment pi_1: needs_response") ||
			!strings.Contains(log[1].After, "pi_1: "+status) {
			t.Errorf("%s: audit log %+v", status, log)
		}
	}
	// What the bank wants may be more than was paid: no more is taken than was bought.
	r, books, db, who := open(t, "")
	tell(t, r, paid(who, "100", "pi_1"), disputed("evt_1", "charge.dispute.closed", "pi_1", "lost", 1100))
	want(t, books, db, who, 0)
}

// Numbers of two currencies are not compared: nothing is taken, and the audit log says that
// somebody has to decide.
func TestNotify_DisputesInAnotherCurrency(t *testing.T) {
	t.Parallel()
	payments := map[string][2]string{ // of the message of the payment: what is put for what
		"of another":         {`"eur"`, `"jpy"`},
		"of none":            {`"eur"`, `null`},
		"of an unknown sum":  {`"amount_total": 1000`, `"amount_total": null`},
		"written in capital": {`"eur"`, `"EUR"`}, // the same
	}
	for name, put := range payments {
		r, books, db, who := open(t, "")
		lost := disputed("evt_2", "charge.dispute.closed", "pi_1", "lost", 400)
		tell(t, r, strings.Replace(paid(who, "100", "pi_1"), put[0], put[1], 1),
			disputed("evt_1", "charge.dispute.created", "pi_1", "needs_response", 400), lost, lost)
		log := reversals(t, db, who)
		if len(log) != 2 || strings.Contains(log[0].After, "by_hand") {
			t.Fatalf("%s: audit log %+v", name, log)
		}
		if name == "written in capital" {
			want(t, books, db, who, 60*money.IU)
			continue
		}
		want(t, books, db, who, 100*money.IU)
		if after := log[1].After; !strings.Contains(after, `"taken":"0","written_off":"0","by_hand":true`) || !strings.Contains(after, "400 of the smallest unit of eur cannot be compared with the ") {
			t.Errorf("%s: the audit log says %s", name, after)
		}
		// What can be compared is taken as ever: of a refund, its own charge says how much it is of.
		tell(t, r, refund("evt_3", "pi_1", 250))
		want(t, books, db, who, 75*money.IU)
	}
}

func TestNotify_RefundRefuses(t *testing.T) {
	t.Parallel()
	r, books, db, who := open(t, "")
	tell(t, r, paid(who, "100", "pi_1"))
	good := refund("evt_1", "pi_1", 1000)
	for name, body := range map[string]string{
		"more than was paid":   strings.Replace(good, `"amount_refunded": 1000`, `"amount_refunded": 1001`, 1),
		"less than nothing":    strings.Replace(good, `"amount_refunded": 1000`, `"amount_refunded": -1`, 1),
		"of nothing":           strings.Replace(good, `"amount": 1000`, `"amount": 0`, 1),
		"more than there is":   strings.NewReplacer(`"amount": 1000`, `"amount": 1000000000000001`).Replace(good),
		"a refund of less":     single("evt_1", "refund.failed", "re_1", "failed", -1),
		"a refund of too much": single("evt_1", "refund.failed", "re_1", "failed", 1_000_000_000_000_001),
		"a refund without id":  single("evt_1", "refund.failed", "", "failed", 1),
		"a refund of no event": single("", "refund.failed", "re_1", "failed", 1),
		"no refund":            event("evt_1", "refund.failed", `[]`),
		"a dispute of less":    disputed("evt_1", "charge.dispute.closed", "pi_1", "lost", -1),
		"no event id":          strings.Replace(good, `"evt_1"`, `""`, 1),
		"no charge":            event("evt_1", "charge.refunded", `[]`),
		"no dispute":           event("evt_1", "charge.dispute.closed", `7`),
		"a dispute without id": strings.Replace(disputed("evt_1", "charge.dispute.closed", "pi_1", "lost", 1000), `"dp_1"`, `""`, 1),
	} {
		if err := r.Notify(t.Context(), sign(body, now, secret), []byte(body), now); !errors.Is(err, payment.ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Notify(t.Context(), sign(good, now, another), []byte(good), now); !errors.Is(err, payment.ErrSignature) {
		t.Errorf("another secret: %v", err)
	}
	want(t, books, db, who, 100*money.IU)
}
