package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parley-ai/parley/engine/kernel"
)

func TestPhilox_Known(t *testing.T) {
	t.Parallel()
	// The known answers that the authors' Random123 library is tested with.
	const f = 0xffffffff
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{f, f, f, f}, [2]uint32{f, f}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}

// best is the fastest level.
func best(t testing.TB) *kernel.Table {
	t.Helper()
	k, err := kernel.Find("")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// twin sorts everything and adds up with the library's exponential. safe
// is false where another rounding could give another pick.
func twin(o Options, logits []float32, position int) (pick int32, safe bool) {
	type item struct {
		w  float64
		id int32
	}
	var items []item
	top := float64(slices.Max(logits))
	sum := 0.0
	for i, l := range logits {
		x := (float64(l) - top) / o.Temperature
		items = append(items, item{math.Exp(x), int32(i)})
		sum += math.Exp(x)
	}
	u := uniform(o.Seed, place{position: uint64(position), choice: uint32(o.Choice)})
	const slack = 1e-6 // weights are float32
	safe = true
	if o.TopP < 1 {
		slices.SortStableFunc(items, func(a, b item) int {
			if a.w > b.w {
				return -1
			} else if a.w < b.w {
				return 1
			}
			return int(a.id - b.id)
		})
		mass := 0.0
		for n, it := range items {
			mass += it.w
			if math.Abs(mass-o.TopP*sum) < slack*sum {
				safe = false
			}
			if mass >= o.TopP*sum {
				items, sum = items[:n+1], mass
				break
			}
		}
		slices.SortFunc(items, func(a, b item) int { return int(a.id - b.id) })
	}
	acc := 0.0
	for _, it := range items {
		if acc += it.w; math.Abs(acc-u*sum) < slack*sum {
			safe = false
		}
		if acc > u*sum {
			return it.id, safe
		}
	}
	return items[len(items)-1].id, false
}

func TestPick_Twin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	compared := 0
	for range 4000 {
		n := 1 + r.IntN(300)
		spread := math.Pow(10, r.Float64()*3-1)
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(r.NormFloat64() * spread)
			if r.IntN(3) == 0 { // ties
				logits[i] = float32(math.Round(float64(logits[i])))
			}
		}
		o := Options{Temperature: 0.05 + 2*r.Float64(), TopP: []float64{1, 0.999999, 0.95, 0.5, 0.01, r.Float64() + 1e-9}[r.IntN(6)], Seed: r.Uint64()}
		s := New(best(t), o)
		for position := range 5 {
			want, safe := twin(o, logits, position)
			if got := s.Pick(logits, position, 0); safe && got != want {
				t.Fatalf("%+v at %d of %v: Pick = %d, want %d", o, position, logits, got, want)
			}
			if safe {
				compared++
			}
		}
	}
	if compared < 17000 {
		t.Errorf("only %d picks compared", compared)
	}
}

func TestPick_Distribution(t *testing.T) {
	t.Parallel()
	logits := []float32{1, 3, 2, -1, 2, -30}
	for _, o := range []Options{{Temperature: 1, TopP: 1}, {Temperature: 0.5, TopP: 1}, {Temperature: 1, TopP: 0.9}, {Temperature: 2, TopP: 0.6}} {
		want := make([]float64, len(logits))
		sum := 0.0
		for i, l := range logits {
			want[i] = math.Exp(float64(l) / o.Temperature)
			sum += want[i]
		}
		order := []int{1, 2, 4, 0, 3, 5} // by likelihood, the lower id first
		mass, kept := 0.0, 0.0
		for _, id := range order {
			if mass >= o.TopP*sum {
				want[id] = 0
			}
			mass += math.Exp(float64(logits[id]) / o.Temperature)
			kept += want[id]
		}
		for seed := range uint64(3) {
			o.Seed = seed
			s := New(best(t), o)
			const n = 100000
			counts := make([]int, len(logits))
			for i := range n {
				counts[s.Pick(logits, i, 0)]++
			}
			for id, c := range counts {
				p := want[id] / kept
				if dev := math.Abs(float64(c) - p*n); dev > 5*math.Sqrt(p*(1-p)*n)+1e-6 {
					t.Errorf("%+v: token %d picked %d times, want %.0f", o, id, c, p*n)
				}
			}
		}
	}
}

func TestPick_Edges(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		logits []float32
		want   int32
	}{
		{nil, 0},
		{[]float32{5}, 0},
		{[]float32{1, 3, 3, 2}, 1},
		{[]float32{nan, 1, nan, 2, nan}, 3},
		{[]float32{nan, nan}, 0},
		{[]float32{nan, -inf}, 1},
		{[]float32{-inf, -inf}, 0},
		{[]float32{-inf, -7, -inf}, 1},
		{[]float32{1, inf, 2, inf}, 1},
		{[]float32{-math.MaxFloat32, math.MaxFloat32}, 1},
	} {
		for _, o := range []Options{{}, {Temperature: 1}, {TopP: 1}, {Temperature: math.NaN(), TopP: 1}, {Temperature: -1, TopP: 1}, {Temperature: 1, TopP: math.NaN()}, {Temperature: 5e-324, TopP: 1}, {Temperature: 1e-9, TopP: 0.5}} {
			if got := New(best(t), o).Pick(c.logits, 3, 0); got != c.want {
				if o.Temperature > 0 && o.TopP > 0 && slices.Equal(c.logits, []float32{1, 3, 3, 2}) && got == 2 {
					continue // a tie is drawn
				}
				t.Errorf("%+v: Pick(%v) = %d, want %d", o, c.logits, got, c.want)
			}
		}
	}
	// Whatever is in the logits, the pick is one of them and not NaN.
	r := rand.New(rand.NewPCG(5, 6))
	odd := []float32{nan, -inf, inf, 0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, 1e-45, 1, -1, 20}
	for range 20000 {
		logits := make([]float32, 1+r.IntN(8))
		for i := range logits {
			logits[i] = odd[r.IntN(len(odd))]
		}
		o := Options{Temperature: []float64{1, math.Inf(1), 5e-324, 1e300, 0.7}[r.IntN(5)], TopP: []float64{1, 2, math.Inf(1), 0.5, 5e-324}[r.IntN(5)], Seed: r.Uint64()}
		got := New(best(t), o).Pick(logits, r.IntN(9)-1, 0)
		if got < 0 || int(got) >= len(logits) {
			t.Fatalf("%+v: Pick(%v) = %d", o, logits, got)
		}
		isNaN := func(x float32) bool { return x != x }
		if l := logits[got]; isNaN(l) && slices.ContainsFunc(logits, func(x float32) bool { return !isNaN(x) }) {
			t.Fatalf("%+v: Pick(%v) = %d", o, logits, got)
		} else if l == -inf && slices.ContainsFunc(logits, func(x float32) bool { return x > -inf }) {
			t.Fatalf("%+v: Pick(%v) = %d, which is impossible", o, logits, got)
		}
	}
}

// peaked makes logits like a model's: a few likely tokens above a crowd.
func peaked(r *rand.Rand, n int) []float32 {
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 3)
	}
	for i := range 40 {
		logits[r.IntN(n)] = float32(18 - 0.3*float64(i))
	}
	return logits
}

// A TopP next to 1 may be more than the weights add up to in another order.
func TestPick_AlmostAll(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	for range 300 {
		logits := make([]float32, 200)
		for i := range logits {
			logits[i] = float32(r.NormFloat64())
		}
		logits[0] = -1000 // what a pick that gives up would return
		s := New(best(t), Options{Temperature: 1, TopP: math.Nextafter(1, 0), Seed: r.Uint64()})
		for position := range 10 {
			if got := s.Pick(logits, position, 0); got == 0 {
				t.Fatal("Pick gives a token of no weight")
			}
		}
	}
}

// The same seed and position give the same token whatever was picked before.
func TestPick_Counted(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	logits := peaked(r, 5000)
	o := Options{Temperature: 1, TopP: 0.95, Seed: 42}
	a, b := New(best(t), o), New(best(t), o)
	want := make([]int32, 200)
	for i := range want {
		want[i] = a.Pick(logits, i, 0)
	}
	for _, i := range r.Perm(len(want)) {
		if got := b.Pick(logits, i, 0); got != want[i] {
			t.Fatalf("Pick at %d = %d, want %d", i, got, want[i])
		}
	}
}

// Every level gives the same picks.
func TestPick_Levels(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(13, 14))
	rows := [][]float32{peaked(r, 5000), peaked(r, 77), make([]float32, 1000)}
	for i := range rows[2] {
		rows[2][i] = float32(r.NormFloat64())
	}
	rows[1][3] = float32(math.NaN())
	for _, o := range []Options{{Temperature: 1, TopP: 1}, {Temperature: 0.7, TopP: 0.9}, {Temperature: 1.5, TopP: 0.5}} {
		var want []int32
		for _, level := range kernel.Levels() {
			k, err := kernel.Find(level)
			if err != nil {
				t.Fatal(err)
			}
			s := New(k, o)
			var got []int32
			for _, logits := range rows {
				for i := range 100 {
					got = append(got, s.Pick(logits, i, 0))
				}
			}
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v: %s picks other tokens", o, level)
			}
		}
	}
}

func TestPick_Allocations(t *testing.T) {
	// Not parallel: it counts the process's allocations.
	logits := peaked(rand.New(rand.NewPCG(7, 8)), 5000)
	s := New(best(t), Options{Temperature: 1, TopP: 0.95})
	s.Pick(logits, 0, 0)
	if n := testing.AllocsPerRun(20, func() { s.Pick(logits, 1, 0) }); n != 0 {
		t.Errorf("%v allocations a pick", n)
	}
}

func BenchmarkPick(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	flat, typical := make([]float32, 49152), peaked(r, 49152)
	for i := range flat {
		flat[i] = float32(r.NormFloat64())
	}
	for i := range typical { // as many near the top as in running text of SmolLM2-135M
		typical[i] = 0.75*typical[i] + 6
	}
	for name, logits := range map[string][]float32{"peaked": peaked(r, 49152), "typical": typical, "flat": flat} {
		for _, o := range []Options{{Temperature: 1, TopP: 1}, {Temperature: 0.8, TopP: 0.95}, {Temperature: 2, TopP: 0.9}} {
			b.Run(fmt.Sprintf("%s/t%v/p%v", name, o.Temperature, o.TopP), func(b *testing.B) {
				s := New(best(b), o)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					s.Pick(logits, i, 0)
				}
			})
		}
	}
}
