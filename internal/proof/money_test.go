package proof_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/money"
)

// Every product and sum of money agrees with arbitrary precision or says that it
// overflows: a grid of all small numbers and the ends of the range, then numbers of all
// lengths. 100,000,000 cases under make prove, 10,000,000 elsewhere.
func TestMoneyMath(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	var wrong, cases atomic.Int64
	workers := runtime.GOMAXPROCS(0)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			m := &mathCheck{chance: rand.New(rand.NewPCG(seed, uint64(w)))}
			if w == 0 {
				m.grid(t)
			}
			for m.cases < size(100_000_000)/workers && !t.Failed() {
				m.random(t)
			}
			cases.Add(int64(m.cases))
			wrong.Add(int64(m.wrong))
		})
	}
	wg.Wait()
	t.Attr("proof", fmt.Sprintf("T12; %d cases; wrong %d", cases.Load(), wrong.Load()))
	t.Logf("%d cases against math/big, %d differences; seed %d", cases.Load(), wrong.Load(), seed)
}

// mathCheck compares; its numbers are used again and again.
type mathCheck struct {
	chance       *rand.Rand
	cases, wrong int
	x, y, sum, p big.Int
}

// grid tries all combinations of the numbers at which something could change.
func (m *mathCheck) grid(t *testing.T) {
	t.Helper()
	edges := []int64{0, 1, 2, 3, 9, 10, 999, 1 << 31, 1<<62 - 1, 1 << 62, 1<<63 - 1}
	for _, in := range edges {
		for _, out := range edges {
			for _, prompt := range edges {
				for _, completion := range edges {
					m.cost(t, money.Price{Input: money.Amount(in), CachedInput: money.Amount(out), Output: money.Amount(out)},
						money.Tokens{Prompt: int(prompt), Cached: int(min(prompt, completion)), Completion: int(completion)})
				}
			}
			m.add(t, in, out)
			m.add(t, -in, -out-1)
		}
	}
}

// number has any length up to bits.
func (m *mathCheck) number(bits int) int64 {
	return m.chance.Int64N(1 << m.chance.IntN(bits+1))
}

func (m *mathCheck) random(t *testing.T) {
	t.Helper()
	switch m.chance.IntN(10) {
	case 0:
		m.text(t, m.number(59))
	case 1, 2:
		a, b := m.number(62)<<1, m.number(62)<<1
		m.add(t, a-m.number(62), b-m.number(62))
	default:
		bits := 62
		if m.chance.IntN(2) == 0 {
			bits = 40 // prices and counts as they are
		}
		prompt := m.number(bits)
		m.cost(t, money.Price{Input: money.Amount(m.number(62)), CachedInput: money.Amount(m.number(bits)), Output: money.Amount(m.number(bits))},
			money.Tokens{Prompt: int(prompt), Cached: int(m.chance.Int64N(prompt + 1)), Completion: int(m.number(bits))})
	}
}

func (m *mathCheck) cost(t *testing.T, p money.Price, u money.Tokens) {
	t.Helper()
	m.cases++
	m.sum.SetInt64(0)
	for _, term := range [3][2]int64{{int64(p.Input), int64(u.Prompt - u.Cached)}, {int64(p.CachedInput), int64(u.Cached)}, {int64(p.Output), int64(u.Completion)}} {
		m.sum.Add(&m.sum, m.p.Mul(m.x.SetInt64(term[0]), m.y.SetInt64(term[1])))
	}
	got, err := p.Cost(u)
	if m.sum.IsInt64() != (err == nil) || err == nil && m.sum.Int64() != int64(got) {
		m.wrong++
		t.Errorf("Cost(%+v) of %+v = %d, %v; exactly it is %s", u, p, got, err, m.sum.String())
	}
}

func (m *mathCheck) add(t *testing.T, a, b int64) {
	t.Helper()
	m.cases++
	m.sum.Add(m.x.SetInt64(a), m.y.SetInt64(b))
	got, err := money.Amount(a).Add(money.Amount(b))
	if m.sum.IsInt64() != (err == nil) || err == nil && m.sum.Int64() != int64(got) {
		m.wrong++
		t.Errorf("%d + %d = %d, %v; exactly it is %s", a, b, got, err, m.sum.String())
	}
}

// text prints and reads, as an amount and as a price.
func (m *mathCheck) text(t *testing.T, n int64) {
	t.Helper()
	m.cases += 2
	a := money.Amount(n)
	shown := a.String()
	whole, frac, _ := strings.Cut(shown, ".")
	m.x.SetString(whole+frac+strings.Repeat("0", 9-len(frac)), 10)
	if got, err := money.ParseAmount(shown); !m.x.IsInt64() || m.x.Int64() != n || got != a && a <= money.MaxAmount || (err == nil) != (a <= money.MaxAmount) {
		m.wrong++
		t.Errorf("%d prints as %q, which reads as %d, %v", n, shown, got, err)
	}
	price := a % (money.MaxPerToken + 1)
	if got, err := money.ParsePerThousand(price.PerThousand()); got != price || err != nil {
		m.wrong++
		t.Errorf("the price %d prints as %q, which reads as %d, %v", price, price.PerThousand(), got, err)
	}
}
