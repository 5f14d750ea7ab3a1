package account_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/store"
)

// open returns the directory of dir as a process that starts has it, with the plans
// "pro" and "max".
func open(t testing.TB, dir string) (*account.Directory, *store.DB) {
	t.Helper()
	db, err := store.Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return load(t, db), db
}

func load(t testing.TB, db *store.DB) *account.Directory {
	t.Helper()
	d := account.NewDirectory(db)
	d.SetPlans([]account.Plan{{ID: "pro", RPM: 60}, {ID: "max", RPM: 600}})
	if err := d.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	return d
}

func create(t testing.TB, d *account.Directory, name string) *account.Account {
	t.Helper()
	a, err := d.Create(context.Background(), name, "pro")
	if err != nil {
		t.Fatalf("Create(%q): %v", name, err)
	}
	return a
}

func TestCreate_Names(t *testing.T) {
	t.Parallel()
	d, _ := open(t, t.TempDir())
	for _, c := range []struct {
		name string
		want error
	}{
		{"Acme", nil},
		{"acme", nil}, // another name
		{"x", nil},
		{"Zoë & Söhne GmbH", nil},
		{"株式会社パーレイ", nil},
		{"شركة", nil},
		{"🐙", nil},
		{"two  spaces", nil},
		{`'; DROP TABLE account; --`, nil},
		{strings.Repeat("x", 100), nil},
		{strings.Repeat("界", 100), nil},
		{strings.Repeat("x", 101), account.ErrName},
		{strings.Repeat("界", 101), account.ErrName},
		{"", account.ErrName},
		{" ", account.ErrName},
		{" Acme", account.ErrName},
		{"Acme ", account.ErrName},
		{"Ac\tme", account.ErrName},
		{"Acme\n", account.ErrName},
		{"Ac\x00me", account.ErrName},
		{"Ac\x7fme", account.ErrName},
		{"Ac\u0085me", account.ErrName},
		{"Ac\u00a0me", account.ErrName}, // no-break space
		{"Ac\u200bme", account.ErrName}, // zero width space
		{"Ac\u202eme", account.ErrName}, // right-to-left override
		{"\ufeffAcme", account.ErrName},
		{"Ac\xffme", account.ErrName},
		{"Acme\xc3", account.ErrName},
		{"\xed\xa0\x80", account.ErrName}, // a surrogate
	} {
		a, err := d.Create(context.Background(), c.name, "pro")
		if !errors.Is(err, c.want) || (a == nil) != (c.want != nil) {
			t.Errorf("Create(%q) = %+v, %v, want %v", c.name, a, err, c.want)
			continue
		}
		if got, ok := d.ByName(c.name); ok != (c.want == nil) || got != a {
			t.Errorf("ByName(%q) = %+v, %v", c.name, got, ok)
		}
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, db := open(t, dir)
	a := create(t, d, "Acme")
	if a.Name != "Acme" || a.Plan != "pro" || a.Status != account.Active || a.CreatedAt.IsZero() || !strings.HasPrefix(a.ID, "acct_") {
		t.Errorf("Create = %+v", a)
	}
	if _, err := d.Create(context.Background(), "Acme", "max"); !errors.Is(err, account.ErrExists) {
		t.Errorf("Create of a name in use gives %v, want ErrExists", err)
	}
	for _, plan := range []string{"", "none", "PRO"} {
		if _, err := d.Create(context.Background(), "Other", plan); !errors.Is(err, account.ErrPlan) {
			t.Errorf("Create on plan %q gives %v, want ErrPlan", plan, err)
		}
	}
	if got, ok := d.ByID(a.ID); !ok || got != a {
		t.Errorf("ByID = %+v, %v", got, ok)
	}
	for _, id := range []string{"", "acct_none", "Acme"} {
		if got, ok := d.ByID(id); ok {
			t.Errorf("ByID(%q) = %+v", id, got)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(context.Background(), "Other", "pro"); err == nil {
		t.Error("Create over a closed database succeeds")
	}
	if _, ok := d.ByName("Other"); ok {
		t.Error("an account that could not be stored is in the directory")
	}
	d, _ = open(t, dir)
	if diff := cmp.Diff([]*account.Account{a}, d.All()); diff != "" {
		t.Errorf("All after a restart differs (-want +got):\n%s", diff)
	}
}

// Of many who ask for one name at once, one gets it and the rest are told why, also
// when they ask two directories over one database.
func TestCreate_Concurrent(t *testing.T) {
	t.Parallel()
	d, db := open(t, t.TempDir())
	both := []*account.Directory{d, load(t, db)}
	for round := range 10 {
		name := fmt.Sprint("Acme ", round)
		var created atomic.Int32
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				_, err := both[i%2].Create(context.Background(), name, "pro")
				switch {
				case err == nil:
					created.Add(1)
				case !errors.Is(err, account.ErrExists):
					t.Errorf("Create(%q) gives %v, want ErrExists", name, err)
				}
			})
		}
		wg.Wait()
		if created.Load() != 1 {
			t.Errorf("%q was created %d times, want once", name, created.Load())
		}
	}
	if as := load(t, db).All(); len(as) != 10 {
		t.Errorf("the database has %d accounts, want 10", len(as))
	}
}

func TestChange(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	d, db := open(t, dir)
	before := create(t, d, "Acme")
	was := *before
	for _, c := range []struct {
		name         string
		id           string
		plan, status *string
		want         error
		then         account.Account // of Plan and Status
	}{
		{"nothing", was.ID, nil, nil, nil, account.Account{Plan: "pro", Status: "active"}},
		{"plan", was.ID, new("max"), nil, nil, account.Account{Plan: "max", Status: "active"}},
		{"status", was.ID, nil, new("suspended"), nil, account.Account{Plan: "max", Status: "suspended"}},
		{"both", was.ID, new("pro"), new("active"), nil, account.Account{Plan: "pro", Status: "active"}},
		{"no such plan", was.ID, new("none"), new("suspended"), account.ErrPlan, account.Account{Plan: "pro", Status: "active"}},
		{"no such status", was.ID, new("max"), new("frozen"), account.ErrStatus, account.Account{Plan: "pro", Status: "active"}},
		{"an empty status", was.ID, nil, new(""), account.ErrStatus, account.Account{Plan: "pro", Status: "active"}},
		{"no such account", "acct_none", new("max"), nil, account.ErrNotFound, account.Account{Plan: "pro", Status: "active"}},
	} {
		a, err := d.Change(ctx, c.id, account.Change{Plan: c.plan, Status: c.status})
		if !errors.Is(err, c.want) || (a == nil) != (c.want != nil) {
			t.Errorf("%s: Change = %+v, %v, want %v", c.name, a, err, c.want)
		}
		want := was
		want.Plan, want.Status = c.then.Plan, c.then.Status
		for when, d := range map[string]*account.Directory{"now": d, "after a restart": load(t, db)} {
			if got, ok := d.ByID(was.ID); !ok || !cmp.Equal(*got, want) {
				t.Errorf("%s: %s the account is %+v, want %+v", c.name, when, got, want)
			}
		}
	}
	if *before != was {
		t.Errorf("Change changed the value that others hold: %+v, want %+v", *before, was)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Change(ctx, was.ID, account.Change{Status: new("suspended")}); err == nil {
		t.Error("Change over a closed database succeeds")
	}
	if got, _ := d.ByID(was.ID); got.Status != account.Active {
		t.Errorf("a change that could not be stored is in force: %+v", got)
	}
}

// Changes of plan and status at once lose neither.
func TestChange_Concurrent(t *testing.T) {
	t.Parallel()
	d, db := open(t, t.TempDir())
	a := create(t, d, "Acme")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			plan, status := new("max"), (*string)(nil)
			if i%2 == 0 {
				plan, status = nil, new("suspended")
			}
			if _, err := d.Change(context.Background(), a.ID, account.Change{Plan: plan, Status: status}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, d := range []*account.Directory{d, load(t, db)} {
		if got, _ := d.ByID(a.ID); got.Plan != "max" || got.Status != account.Suspended {
			t.Errorf("the account is %+v, want max and suspended", got)
		}
	}
}

func TestAll(t *testing.T) {
	t.Parallel()
	d, db := open(t, t.TempDir())
	if all := d.All(); len(all) != 0 {
		t.Errorf("All of nobody = %v", all)
	}
	for _, name := range []string{"b", "Ä", "a", "B", "a b", "10", "9"} {
		create(t, d, name)
	}
	for _, d := range []*account.Directory{d, load(t, db)} {
		var got []string
		for _, a := range d.All() {
			got = append(got, a.Name)
		}
		if diff := cmp.Diff([]string{"10", "9", "B", "a", "a b", "b", "Ä"}, got); diff != "" {
			t.Errorf("All differs (-want +got):\n%s", diff)
		}
	}
}

func TestPlans(t *testing.T) {
	t.Parallel()
	d, db := open(t, t.TempDir())
	a := create(t, d, "Acme")
	if diff := cmp.Diff([]account.Plan{{ID: "max", RPM: 600}, {ID: "pro", RPM: 60}}, d.Plans()); diff != "" {
		t.Errorf("Plans differ (-want +got):\n%s", diff)
	}
	if p, ok := d.Plan("pro"); !ok || p.RPM != 60 {
		t.Errorf("Plan(pro) = %+v, %v", p, ok)
	}
	// The plan leaves the configuration: the account stays on it and can leave it.
	d.SetPlans([]account.Plan{{ID: "max"}})
	if p, ok := d.Plan("pro"); ok {
		t.Errorf("Plan of a plan that is gone = %+v", p)
	}
	if _, err := d.Create(context.Background(), "Other", "pro"); !errors.Is(err, account.ErrPlan) {
		t.Errorf("Create on a plan that is gone gives %v, want ErrPlan", err)
	}
	if _, err := d.Change(context.Background(), a.ID, account.Change{Status: new("suspended")}); err != nil {
		t.Errorf("Change of the status of an account whose plan is gone: %v", err)
	}
	if got, ok := load(t, db).ByID(a.ID); !ok || got.Plan != "pro" || got.Status != account.Suspended {
		t.Errorf("the account is %+v, want it suspended on pro", got)
	}
	if _, err := d.Change(context.Background(), a.ID, account.Change{Plan: new("max")}); err != nil {
		t.Errorf("Change to a plan that is there: %v", err)
	}
	d.SetPlans(nil)
	if ps := d.Plans(); len(ps) != 0 {
		t.Errorf("Plans of none = %v", ps)
	}
}

func TestPrincipal_May(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		models []string
		model  string
		want   bool
	}{
		{nil, "m", true},
		{nil, "", true},
		{[]string{}, "m", false},
		{[]string{"a", "m"}, "m", true},
		{[]string{"a"}, "m", false},
		{[]string{"M"}, "m", false},
		{[]string{"m*"}, "m", false},
	} {
		p := account.Principal{Models: c.models}
		if got := p.May(c.model); got != c.want {
			t.Errorf("May(%q) of a key for %q = %v, want %v", c.model, c.models, got, c.want)
		}
	}
}
