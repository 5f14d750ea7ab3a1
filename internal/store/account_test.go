package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ident"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := open(t, t.TempDir())
	want := account.Account{ID: ident.New(ident.Account), Name: "Zoë & Söhne", Plan: "pro", Status: account.Active, CreatedAt: at}
	if err := db.CreateAccount(ctx, want); err != nil {
		t.Fatal(err)
	}
	same := want
	same.ID = ident.New(ident.Account)
	if err := db.CreateAccount(ctx, same); !errors.Is(err, account.ErrExists) {
		t.Errorf("CreateAccount with a name in use gives %v, want ErrExists", err)
	}
	same = want
	same.Name = "another"
	if err := db.CreateAccount(ctx, same); err == nil || errors.Is(err, account.ErrExists) {
		t.Errorf("CreateAccount with an id in use gives %v, want an error that does not blame the name", err)
	}
	odd := account.Account{ID: ident.New(ident.Account), Name: "odd", Plan: "pro", Status: "frozen", CreatedAt: at}
	if err := db.CreateAccount(ctx, odd); err == nil {
		t.Error("CreateAccount with an unknown status succeeds")
	}
	want.Plan, want.Status = "max", account.Suspended
	changed := want
	changed.Name, changed.CreatedAt = "is not written", at.Add(time.Hour)
	if err := db.UpdateAccount(ctx, changed); err != nil {
		t.Fatal(err)
	}
	got, err := db.Accounts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]account.Account{want}, got); diff != "" {
		t.Errorf("Accounts differ (-want +got):\n%s", diff)
	}
	if err := db.UpdateAccount(ctx, odd); !errors.Is(err, account.ErrNotFound) {
		t.Errorf("UpdateAccount of nobody gives %v, want ErrNotFound", err)
	}
}
