package store_test

import (
	"context"
	"testing"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/catalog"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/ratelimit"
)

func TestSaveCatalog(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	save := func(price money.Amount, tpm int64) (priceID, version string) {
		t.Helper()
		m := model()
		m.Price.Output = price
		models, plans := []catalog.Model{m}, []account.Plan{{ID: "pro", RPM: 60, TPM: tpm}}
		if err := db.SaveCatalog(ctx, models, plans); err != nil {
			t.Fatalf("SaveCatalog: %v", err)
		}
		return models[0].PriceID, plans[0].Version
	}
	price, version := save(20, 1000)
	if p, v := save(20, 1000); p != price || v != version {
		t.Errorf("the same again has rows %s and %s, want %s and %s", p, v, price, version)
	}
	if got := query[int](t, db, `SELECT count(*) FROM model_price`) + query[int](t, db, `SELECT count(*) FROM plan_version`); got != 2 {
		t.Errorf("%d rows for one price and one plan, want 2", got)
	}
	dearer, version2 := save(21, 1000)
	if dearer == price || version2 != version {
		t.Errorf("a changed price has rows %s and %s, want a new price and %s", dearer, version2, version)
	}
	_, faster := save(21, 1001)
	if faster == version {
		t.Error("a changed limit keeps its row")
	}
	if p, v := save(20, 1000); p != price || v != version {
		t.Errorf("changed back it has rows %s and %s, want the old %s and %s", p, v, price, version)
	}
	if got := query[int](t, db, `SELECT output FROM model_price WHERE id = $1`, price); got != 20 {
		t.Errorf("the first price says %d, want 20 for ever", got)
	}
}

// Two plans or prices that say different things never share a row.
func TestSaveCatalog_RowsAreDistinct(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	versions := map[string]account.Plan{}
	n := []int64{0, 1, 10, 0xd800, 0xd801, 1_114_111, 1_114_112, 2_000_000, 3_000_000, 1 << 62}
	for _, rpm := range n {
		for _, tpm := range n {
			plans := []account.Plan{{ID: "pro", RPM: rpm, TPM: tpm}, {ID: "p", RPM: rpm, TPM: tpm}, {ID: "pro", RPM: rpm, Concurrency: tpm + 1}, {ID: "pro", RPM: rpm, ModelLimits: map[string]ratelimit.Limits{"m": {Tokens: tpm + 1}}}}
			if err := db.SaveCatalog(ctx, nil, plans); err != nil {
				t.Fatal(err)
			}
			for _, p := range plans {
				if other, ok := versions[p.Version]; ok {
					t.Errorf("%+v and %+v share a row", p, other)
				}
				versions[p.Version] = p
			}
		}
	}
	prices := map[string]money.Price{}
	for _, p := range []money.Price{{}, {Input: 1}, {CachedInput: 1}, {Output: 1}, {Input: 2_000_000}, {Input: 3_000_000}, {Input: 12, Output: 3}, {Input: 1, Output: 23}} {
		m := model()
		m.Price = p
		id := savePrice(t, db, m)
		if other, ok := prices[id]; ok {
			t.Errorf("%+v and %+v share a row", p, other)
		}
		prices[id] = p
	}
}

// A plan's version says which models it opens, in whatever order they are configured.
func TestSaveCatalog_PlanModels(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	a, b, c := model(), model(), model()
	a.ID, b.ID, c.ID, c.Plans = "a", "b", "c", []string{"max"}
	version := func(models ...catalog.Model) string {
		t.Helper()
		plans := []account.Plan{{ID: "pro"}}
		if err := db.SaveCatalog(ctx, models, plans); err != nil {
			t.Fatal(err)
		}
		return plans[0].Version
	}
	ab := version(a, b, c)
	if got := query[string](t, db, `SELECT models FROM plan_version WHERE id = $1`, ab); got != `["a","b"]` {
		t.Errorf("the row says %s, want a and b", got)
	}
	if got := version(c, b, a); got != ab {
		t.Error("the order of the configuration makes another version")
	}
	if got := version(a, c); got == ab {
		t.Error("a plan that lost a model keeps its version")
	}
}

// A price that the database refuses leaves no plan and no other price behind.
func TestSaveCatalog_AllOrNothing(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	good, bad := model(), model()
	bad.ID, bad.Price.Input = "bad", -1
	if err := db.SaveCatalog(context.Background(), []catalog.Model{good, bad}, []account.Plan{{ID: "pro"}}); err == nil {
		t.Error("SaveCatalog of a negative price succeeds")
	}
	if got := query[int](t, db, `SELECT (SELECT count(*) FROM model_price) + (SELECT count(*) FROM plan_version)`); got != 0 {
		t.Errorf("%d rows are left, want 0", got)
	}
}
