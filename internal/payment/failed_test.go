package payment_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// single is one refund, as the events of refunds have it.
func single(eventID, kind, id, status string, cents int) string {
	reason := `null`
	if status == "failed" {
		reason = `"expired_or_canceled_card"`
	}
	return event(eventID, kind, fmt.Sprintf(`{"id": %q, "object": "refund", "amount": %d, "balance_transaction": "txn_1", "charge": "ch_1", "currency": "eur",
		"failure_balance_transaction": null, "failure_reason": %s, "metadata": {}, "payment_intent": "pi_1", "reason": null, "status": %q}`, id, cents, reason, status))
}

// A refund that fails is told by several events, each several times: what it took is given back once.
func TestNotify_RefundFails(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"failed", "canceled"} {
		r, books, db, who := open(t, "")
		tell(t, r, paid(who, "100", "pi_1"), single("evt_1", "refund.created", "re_1", "pending", 250), refund("evt_2", "pi_1", 250),
			single("evt_3", "refund.updated", "re_1", "succeeded", 250))
		want(t, books, db, who, 75*money.IU)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				tell(t, r, single("evt_4", "refund.updated", "re_1", end, 250), single("evt_5", "refund.failed", "re_1", end, 250),
					single("evt_6", "charge.refund.updated", "re_1", end, 250), refund("evt_2", "pi_1", 250))
			})
		}
		wg.Wait()
		want(t, books, db, who, 100*money.IU)
		log := reversals(t, db, who)
		if len(log) != 3 || log[0].Action != audit.PaymentRefund || !strings.Contains(log[0].After, `"taken":"25"`) || !strings.Contains(log[1].After, `"taken":"0"`) ||
			log[2].Action != audit.PaymentReturn || log[2].Actor != "stripe" || !strings.Contains(log[2].After, `"returned":"25"`) ||
			!strings.Contains(log[2].After, `"refund re_1 of payment pi_1: `+end) {
			t.Errorf("%s: audit log %+v, want one entry of the taking, one of the charge and one of the return", end, log)
		}
		grants, err := db.Grants(t.Context(), who)
		if err != nil || len(grants) != 2 || grants[1].Amount != 25*money.IU || grants[1].Kind != ledger.Prepaid || !strings.HasPrefix(grants[1].Source, "stripe:evt_") {
			t.Errorf("%s: grants %+v, %v", end, grants, err)
		}
		s, err := db.Statement(t.Context(), who, now.AddDate(-9, 0, 0), now.AddDate(9, 0, 0))
		if err != nil || s.Closing != 100*money.IU {
			t.Errorf("%s: statement closes with %s, %v", end, s.Closing, err)
		}
	}
}

// What there was not to take is not given back, also where a dispute took its place.
func TestNotify_RefundFailsAfterWriteOff(t *testing.T) {
	t.Parallel()
	r, books, db, who := open(t, "")
	tell(t, r, paid(who, "100", "pi_1"))
	if err := books.Adjust(t.Context(), who, -70*money.IU, "spent"); err != nil {
		t.Fatal(err)
	}
	tell(t, r, refund("evt_1", "pi_1", 1000), disputed("evt_2", "charge.dispute.closed", "pi_1", "lost", 200))
	want(t, books, db, who, 0)
	tell(t, r, single("evt_3", "refund.failed", "re_1", "failed", 1000)) // the dispute's 20 stay taken
	want(t, books, db, who, 10*money.IU)
	log := reversals(t, db, who)
	if last := log[len(log)-1].After; !strings.Contains(last, `"returned":"10","written_back":"70"`) {
		t.Errorf("audit log %s", last)
	}
}

// Whatever order events come in, and whether the charge's sum goes down when a refund fails or
// not, what arrived is what was taken.
func TestNotify_RefundsFailInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		r, books, db, who := open(t, "")
		tell(t, r, paid(who, "100", "pi_1"))
		messages := []string{
			single("evt_1", "refund.created", "re_1", "pending", 333), refund("evt_2", "pi_1", 333), single("evt_3", "refund.failed", "re_1", "failed", 333),
			single("evt_4", "refund.created", "re_2", "succeeded", 200), single("evt_5", "refund.created", "re_3", "requires_action", 100),
			single("evt_6", "refund.updated", "re_3", "canceled", 100), disputed("evt_7", "charge.dispute.closed", "pi_1", "lost", 50),
		}
		down := 0
		if seed%2 == 0 {
			down = 333
		}
		messages = append(messages, refund("evt_8", "pi_1", 533-down), refund("evt_9", "pi_1", 633-down))
		messages = append(messages, messages...)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
		tell(t, r, messages...)
		want(t, books, db, who, 75*money.IU)
	}
}

// A refund that cannot be compared with what was paid is taken by its charge, and waits for
// somebody when it fails.
func TestNotify_RefundFailsInAnotherCurrency(t *testing.T) {
	t.Parallel()
	r, books, db, who := open(t, "")
	tell(t, r, strings.Replace(paid(who, "100", "pi_1"), `"eur"`, `"jpy"`, 1),
		single("evt_1", "refund.created", "re_1", "pending", 500), refund("evt_2", "pi_1", 500), single("evt_3", "refund.failed", "re_1", "failed", 500))
	want(t, books, db, who, 50*money.IU)
	if log := reversals(t, db, who); len(log) != 2 || !strings.Contains(log[1].After, `"by_hand":true`) ||
		!strings.Contains(log[1].After, "500 of the smallest unit of eur cannot be compared with the 1000 of the smallest unit of jpy that were paid, nothing was given back") {
		t.Errorf("audit log %+v", log)
	}
}

// Refunds of other businesses at the same Stripe account are not ours.
func TestNotify_RefundOfNoPayment(t *testing.T) {
	t.Parallel()
	r, books, db, who := open(t, "")
	tell(t, r, single("evt_1", "refund.failed", "re_1", "failed", 500),
		strings.Replace(single("evt_2", "refund.failed", "re_1", "failed", 500), `"pi_1"`, `null`, 1))
	want(t, books, db, who, 0)
	if log := reversals(t, db, who); len(log) != 0 {
		t.Errorf("audit log %+v", log)
	}
}
