package kv_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parley-ai/parley/engine/kv"
)

func tokens(n, from int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(from + i)
	}
	return ids
}

// publish publishes all full pages of ids.
func publish(c *kv.Cache, t kv.Table, owner string, ids []int32) {
	for i, k := range kv.Keys(owner, ids) {
		c.Publish(t, i, k)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	a := kv.Keys("a", tokens(47, 0))
	if len(a) != 2 {
		t.Fatalf("47 tokens have %d keys, want 2", len(a))
	}
	if a[1] != kv.Root("a").Next(tokens(16, 0)).Next(tokens(16, 16)) {
		t.Error("Keys is not the chain of Next")
	}
	other := tokens(32, 0)
	other[3]++
	changed, same := kv.Keys("a", other), kv.Keys("a", tokens(32, 0))
	if !slices.Equal(a, same) {
		t.Error("the same tokens have other keys")
	}
	for i := range 2 {
		if changed[i] == a[i] || kv.Keys("b", tokens(32, 0))[i] == a[i] {
			t.Errorf("page %d of other tokens, or of another owner, has the same key", i)
		}
	}
}

func TestCache_FindsAgain(t *testing.T) {
	t.Parallel()
	c := open(t, 8)
	ids := tokens(40, 0)
	need := kv.Need{Prefix: kv.Keys("a", ids), Shared: len(ids), Length: 50, Tables: 1}
	first, cached := c.Admit(need)
	if len(first) != 1 || cached != 0 {
		t.Fatalf("an empty cache: %v, %d cached", first, cached)
	}
	publish(c, first[0], "a", ids)
	beside, cached := c.Admit(need)
	if len(beside) != 1 || cached != 32 || !slices.Equal(beside[0][:2], first[0][:2]) || slices.Contains(first[0], beside[0][2]) {
		t.Fatalf("beside its twin %v gets %v, %d cached", first, beside, cached)
	}
	c.Release(first[0])
	c.Release(beside[0])
	if c.Held() != 0 || c.Cached() != 2 || c.Free() != 6 {
		t.Errorf("%d held, %d cached, %d free, want 0, 2, 6", c.Held(), c.Cached(), c.Free())
	}
	need.Prefix = kv.Keys("b", ids)
	stranger, cached := c.Admit(need)
	if len(stranger) != 1 || cached != 0 {
		t.Fatalf("another owner gets %v, %d cached", stranger, cached)
	}
	c.Release(stranger[0])
}

// What was used longest ago gives way first, and of a chain its end.
func TestCache_Evicts(t *testing.T) {
	t.Parallel()
	c := open(t, 6)
	old, new := tokens(32, 0), tokens(32, 100)
	for _, ids := range [][]int32{old, new} {
		table, _ := c.Reserve(32)
		publish(c, table, "", ids)
		c.Release(table)
	}
	cached := func(ids []int32) int {
		tables, n := c.Admit(kv.Need{Prefix: kv.Keys("", ids), Shared: 32, Length: 33, Tables: 1})
		if len(tables) == 0 {
			t.Fatal("no room")
		}
		c.Release(tables[0])
		return n
	}
	table, ok := c.Reserve(3 * 16) // one more than is free
	if !ok {
		t.Fatal("what nobody holds was not given")
	}
	c.Release(table)
	if o, n := cached(old), cached(new); o != 16 || n != 32 {
		t.Errorf("%d of the older and %d of the newer are left, want 16 and 32", o, n)
	}
	// What is about to be used again is not what gives way.
	need := kv.Need{Prefix: kv.Keys("", new), Shared: 32, Length: 7 * 16, Tables: 1}
	if tables, _ := c.Admit(need); len(tables) > 0 {
		t.Error("seven pages of six")
	}
	need.Length, need.Spare = 6*16, 1
	if tables, _ := c.Admit(need); len(tables) > 0 {
		t.Error("six pages, where one of six must be left")
	}
	need.Spare = 0
	all, n := c.Admit(need)
	if len(all) != 1 || n != 32 {
		t.Fatalf("all pages, two of them found: %v, %d cached", all, n)
	}
	c.Release(all[0])
}

func TestCache_Copy(t *testing.T) {
	t.Parallel()
	c := open(t, 4)
	tables, _ := c.Admit(kv.Need{Shared: 20, Length: 30, Tables: 5}) // one page in common, one each
	if len(tables) != 3 || tables[0][0] != tables[1][0] || tables[0][1] == tables[1][1] {
		t.Fatalf("in four pages five tables of 20 common positions: %v", tables)
	}
	shape := c.Shape()
	at := func(page int32) []byte { return c.Layer(1)[int(page)*shape.Stride():][:shape.PageBytes()] }
	for i := range at(tables[0][1]) {
		at(tables[0][1])[i] = byte(i)
	}
	c.Copy(tables[1], tables[0], 1)
	if !slices.Equal(at(tables[1][1]), at(tables[0][1])) {
		t.Error("the copy differs")
	}
	c.Release(tables[0])
	c.Release(tables[2])
	if c.Held() != 2 {
		t.Errorf("%d pages held for the second table, want 2", c.Held())
	}
	c.Release(tables[1])
}

// Through any coming and going no page is lost, none is in two hands that did not ask
// to share it, and what is found is what was published.
func TestCache_Property(t *testing.T) {
	t.Parallel()
	type sequence struct {
		owner  string
		ids    []int32
		tables []kv.Table
		common int
	}
	r := rand.New(rand.NewPCG(7, 8))
	const total = 40
	c := open(t, total)
	content := map[int32]string{} // page -> the tokens up to its end and whose they are, as far as computed
	var live []*sequence
	hits, refused := 0, 0
	admit := func() {
		s := &sequence{owner: []string{"a", "b"}[r.IntN(2)], ids: make([]int32, 1+r.IntN(90))}
		for i := range s.ids { // few different pages
			s.ids[i] = int32(i / 16 % (1 + r.IntN(3)/2))
		}
		n := kv.Need{
			Prefix: kv.Keys(s.owner, s.ids[:len(s.ids)-1]), Shared: len(s.ids),
			Length: len(s.ids) + 1 + r.IntN(40), Tables: 1 + r.IntN(3),
		}
		free, cached := c.Free(), c.Cached()
		tables, found := c.Admit(n)
		if len(tables) == 0 {
			if refused++; c.Free() != free || c.Cached() != cached {
				t.Fatal("a refusal took something")
			}
			return
		}
		hits += found
		s.tables, s.common = tables, len(s.ids)/16
		for i := range s.common {
			if want := fmt.Sprint(s.owner, s.ids[:16*(i+1)]); i < found/16 && content[tables[0][i]] != want {
				t.Fatalf("page %d holds %q, want %q", tables[0][i], content[tables[0][i]], want)
			}
		}
		live = append(live, s)
	}
	for range 20000 {
		switch {
		case len(live) == 0 || r.IntN(2) == 0:
			admit()
		default:
			i := r.IntN(len(live))
			s := live[i]
			// It ends somewhere on its way: some of its pages were computed.
			for j, k := range kv.Keys(s.owner, s.ids)[:r.IntN(s.common+1)] {
				content[s.tables[0][j]] = fmt.Sprint(s.owner, s.ids[:16*(j+1)])
				c.Publish(s.tables[0], j, k)
			}
			for _, table := range s.tables {
				c.Release(table)
			}
			live = slices.Delete(live, i, i+1)
		}
		if c.Held()+c.Cached()+c.Free() != total || c.Held() < 0 {
			t.Fatalf("%d held, %d cached, %d free", c.Held(), c.Cached(), c.Free())
		}
		own := map[int32]bool{} // pages behind what is common
		for _, s := range live {
			for _, table := range s.tables {
				if n := len(table); n > 1 && table[n-1] == table[n-2] {
					table = table[:n-1]
				}
				for _, p := range table[s.common:] {
					if own[p] {
						t.Fatalf("page %d is in two hands", p)
					}
					own[p] = true
				}
			}
		}
		for _, s := range live {
			for _, p := range s.tables[0][:s.common] {
				if own[p] {
					t.Fatalf("page %d is shared and somebody's own", p)
				}
			}
		}
	}
	for _, s := range live {
		for _, table := range s.tables {
			c.Release(table)
		}
	}
	if c.Held() != 0 || hits == 0 || refused == 0 {
		t.Errorf("at the end %d pages held; %d hits, %d refusals", c.Held(), hits, refused)
	}
}
