package ledger

import "github.com/parley-ai/parley/internal/money"

// Unit is what an amount of a grant counts.
type Unit int

// The units.
const (
	Credit Unit = iota // nano-IU
	Tokens             // tokens that a plan includes: they are used before credit
)

// pool is what an account has of one unit. At every moment posted + held <= granted.
// It is guarded by its book.
type pool struct {
	granted   money.Amount
	announced money.Amount // grants on their way to the disk: not to be spent yet
	posted    money.Amount
	held      money.Amount
	expiring  money.Amount // of grants that have ended, to be taken when holds resolve
}

// available is what a call may hold.
func (p *pool) available() money.Amount { return max(0, p.granted-p.posted-p.held-p.expiring) }

// post turns what was held into what is spent.
func (p *pool) post(held, spent money.Amount) {
	p.held -= held
	p.posted += spent
}

// setAside takes at most most out of what calls may hold.
func (p *pool) setAside(most money.Amount) money.Amount {
	n := min(most, p.granted-p.posted-p.held)
	p.held += n
	return n
}

// expire ends what setAside began: taken of it is gone, and left shall follow. It reports
// whether some of that is free by now.
func (p *pool) expire(aside, taken, left money.Amount) (more bool) {
	p.held -= aside
	p.granted -= taken
	p.expiring = left
	return left > 0 && p.granted > p.posted+p.held
}

// announce makes sure that a grant on its way cannot overflow the pool.
func (p *pool) announce(a money.Amount) error {
	sum, err1 := p.granted.Add(p.announced)
	_, err2 := sum.Add(a)
	if err1 != nil || err2 != nil {
		return ErrAmount
	}
	p.announced += a
	return nil
}

func (p *pool) grant(a money.Amount, added bool) {
	p.announced -= a
	if added {
		p.granted += a
	}
}
