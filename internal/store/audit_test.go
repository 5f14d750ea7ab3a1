package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/ledger"
)

// whole is the law by the name that an operator reads.
const whole = "the audit log is whole"

// changes are one of each, by ann.
func changes(t testing.TB) kept {
	t.Helper()
	k := keep(t)
	ctx := audit.WithActor(context.Background(), "ann")
	for _, err := range []error{
		k.UpdateAccount(ctx, account.Account{ID: k.account, Plan: "free", Status: account.Suspended}),
		k.CreateKey(ctx, key(k.account)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return k
}

func TestAudit(t *testing.T) {
	t.Parallel()
	k := changes(t)
	ctx := audit.WithActor(context.Background(), "ben")
	made := query[string](t, k.DB, `SELECT id FROM api_key`)
	if err := k.RevokeKey(ctx, made, at); err != nil {
		t.Fatal(err)
	}
	commit(t, k.DB, ledger.Op{Debit: &ledger.Debit{ID: ident.New(ident.Debit), AccountID: k.account, Amount: 5, Reason: "wrong", Actor: "ben", CreatedAt: at}})
	all, err := k.AuditLog(ctx, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range all[:4] {
		got = append(got, strings.Join([]string{e.Actor, string(e.Action), e.Target, e.Before}, " "))
	}
	want := []string{
		"ben credit.adjust " + k.account + " ",
		"ben key.revoke " + made + " ",
		"ann key.create " + made + " ",
		"ann account.update " + k.account + ` {"plan":"pro","status":"active"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the last entries (-want +got):\n%s", diff)
	}
	if one, err := k.AuditLog(ctx, made, 1000); err != nil || len(one) != 2 {
		t.Errorf("AuditLog of the key = %+v, %v, want 2 entries", one, err)
	}
	if first := all[len(all)-1]; first.Seq != 1 || first.Action != audit.PriceVersion || first.Actor != audit.System {
		t.Errorf("the first entry is %+v", first)
	}
	for _, e := range all {
		secret := string(query[[]byte](t, k.DB, `SELECT hash FROM api_key`))
		if strings.Contains(e.Before+e.After, secret) {
			t.Errorf("entry %d shows the hash of a key", e.Seq)
		}
	}
	clean(t, k.DB)
}

// A change that is not written leaves no entry, and the log is nobody's to edit.
func TestAudit_WithItsChangeOnly(t *testing.T) {
	t.Parallel()
	k := changes(t)
	before := query[int64](t, k.DB, `SELECT seq FROM audit_head`)
	ctx := context.Background()
	if err := k.UpdateAccount(ctx, account.Account{ID: "acct_none"}); err == nil {
		t.Error("an account that is not there was changed")
	}
	if err := k.CreateAccount(ctx, account.Account{ID: "acct_x", Name: "Acme", Plan: "p", Status: account.Active, CreatedAt: at}); err == nil {
		t.Error("an account was made twice")
	}
	nobody := receipt("acct_none", "price_none", false)
	if _, err := k.Commit(ctx, []ledger.Op{grant(k.account, 5, ""), {Close: &nobody}}); err == nil {
		t.Error("a charge of nobody was written")
	}
	commit(t, k.DB, grant(k.account, 5, "once"), grant(k.account, 5, "once"))
	if after := query[int64](t, k.DB, `SELECT seq FROM audit_head`); after != before+1 {
		t.Errorf("one change made %d entries", after-before)
	}
	for _, statement := range []string{`UPDATE audit_log SET actor = 'me'`, `DELETE FROM audit_log`} {
		if _, err := k.Writer().ExecContext(ctx, statement); err == nil || !strings.Contains(err.Error(), "only added to") {
			t.Errorf("%s gives %v", statement, err)
		}
	}
	clean(t, k.DB)
}

// Changes at once, through both ways to the database, make one chain.
func TestAudit_Storm(t *testing.T) {
	t.Parallel()
	k := changes(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if err := k.CreateKey(context.Background(), key(k.account)); err != nil {
					t.Error(err)
				}
				if _, err := k.Commit(context.Background(), []ledger.Op{grant(k.account, 1, "")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	clean(t, k.DB)
}

func TestAudit_Tampered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ tamper, says string }{
		"an actor changed":  {`UPDATE audit_log SET actor = 'ann' WHERE seq = 3`, "entry 3 was changed"},
		"an amount changed": {`UPDATE audit_log SET after = replace(after, '9', '8') WHERE seq = 4`, "entry 4 was changed"},
		"an entry deleted":  {`DELETE FROM audit_log WHERE seq = 3`, "entry 4 follows entry 2"},
		"the end cut off":   {`DELETE FROM audit_log WHERE seq > 5`, "it ends at entry 5, its head says"},
		"all of it deleted": {`DELETE FROM audit_log`, "it ends at entry 0"},
		"two exchanged":     {`UPDATE audit_log SET seq = CASE seq WHEN 3 THEN -4 WHEN 4 THEN -3 ELSE seq END; UPDATE audit_log SET seq = -seq WHERE seq < 0`, "entry 3 does not follow"},
		"one put in": {`INSERT INTO audit_log SELECT seq + 1, at, actor, action, target, before, after, hash, hash, origin
			FROM audit_log WHERE seq = (SELECT max(seq) FROM audit_log)`, "was changed"},
		"the head deleted": {`DELETE FROM audit_head`, "its head says -1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := changes(t)
			exec(t, k.DB, `DROP TRIGGER audit_log_is_never_changed; DROP TRIGGER audit_log_is_never_cut`)
			exec(t, k.DB, c.tamper)
			for _, i := range verify(t, k.DB).Invariants {
				if broken := i.Name == whole; i.OK == broken {
					t.Errorf("%s: OK = %v (%s)", i.Name, i.OK, i.Detail)
				} else if broken && !strings.Contains(i.Detail, c.says) {
					t.Errorf("%q does not say %q", i.Detail, c.says)
				}
			}
		})
	}
}

// A page has what its filter lists, goes on behind its cursor, and knows who is a member.
func TestAuditPage(t *testing.T) {
	t.Parallel()
	k := changes(t)
	for what, c := range map[string]struct {
		filter audit.Filter
		want   int
	}{
		"kind":            {audit.Filter{Kind: "key", Limit: 9}, 1},
		"part of a kind":  {audit.Filter{Kind: "ke", Limit: 9}, 0},
		"pattern":         {audit.Filter{Kind: "%", Limit: 9}, 0},
		"actor":           {audit.Filter{Actor: "ann", Limit: 9}, 2},
		"actor and kind":  {audit.Filter{Actor: "ann", Kind: "account", Limit: 9}, 1},
		"target":          {audit.Filter{Actor: "ann", Targets: []string{k.account}, Limit: 9}, 1},
		"limit":           {audit.Filter{Limit: 1}, 1},
		"before the last": {audit.Filter{Actor: "ann", Before: lastSeq(t, k), Limit: 9}, 1},
		"before all":      {audit.Filter{Before: 1, Limit: 9}, 0},
	} {
		got, err := k.AuditPage(t.Context(), c.filter)
		if err != nil || len(got) != c.want {
			t.Errorf("%s: %d entries, %v, want %d", what, len(got), err, c.want)
		}
	}
	if got, err := k.Emails(t.Context(), []string{"ann"}); err != nil || len(got) != 0 {
		t.Errorf("a name has the emails %v, %v", got, err)
	}
}

func lastSeq(t testing.TB, k kept) int64 {
	t.Helper()
	es, err := k.AuditPage(t.Context(), audit.Filter{Limit: 1})
	if err != nil || len(es) != 1 {
		t.Fatalf("%d entries, %v", len(es), err)
	}
	return es[0].Seq
}
