package app

import "github.com/parley-ai/parley/internal/console"

// operatorRooms wires the operator's pages.
func (a *App) operatorRooms() console.Operator {
	r := a.rooms
	return console.Operator{Accounts: countedAccounts{r.accounts, r.metrics}, Ledger: r.ledger, Store: r.db, Prover: &a.proofs}
}
