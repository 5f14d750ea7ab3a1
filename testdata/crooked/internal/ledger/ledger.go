package ledger

import (
	"database/sql"
	"net/http"

	"github.com/parley-ai/parley/internal/money"
)

const Zero = 0

var (
	_ sql.DB
	_ http.Client
	_ http.Header
	_ money.Amount
)

func Long() {
	_ = 1
	_ = 2
	_ = 3
	_ = 4
	_ = 5
	_ = 6
	_ = 7
	_ = 8
	_ = 9
	_ = 10
	_ = 11
	_ = 12
	_ = 13
	_ = 14
	_ = 15
	_ = 16
	_ = 17
	_ = 18
	_ = 19
	_ = 20
}

const (
	a = 1
	b = 1
	c = 1
	d = 1
	e = 1
	f = 1
	g = 1
	h = 1
	i = 1
	j = 1
	k = 1
	l = 1
	m = 1
	n = 1
)
