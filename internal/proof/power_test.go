package proof_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/store/storetest"
)

// The power fails at a random call of SQLite's, again and again on what survived: what
// was not synced is there in part, in any order, torn; the file of the streams' progress
// has pages of any age. No answer that was received whole is without its charge.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	const each = 10 // losses, one after another
	dir, who := furnish(t)
	f := &figures{}
	seed := uint64(time.Now().UnixNano())
	for chain := range size(200) / each {
		chance := rand.New(rand.NewPCG(seed, uint64(chain)))
		f.powerLosses(t, copyOf(t, dir), who, each, chance)
	}
	f.tell(t, "T3", fmt.Sprintf("%d losses of power", f.rounds))
	f.report(t, "losses of power", fmt.Sprintf("; tokens of cut streams lost %d; seed %d", f.lostTokens, seed))
	if f.finished < f.rounds || f.recovered+f.voided == 0 {
		t.Error("the test proves little: too few calls ended or were recovered")
	}
}

func (f *figures) powerLosses(t *testing.T, dir string, who *account.Principal, times int, chance *rand.Rand) {
	t.Helper()
	ws := &witnesses{who: who}
	for range times {
		f.rounds++
		dir = powerLoss(t, dir, ws, chance)
		l, err := open(dir)
		if err != nil {
			f.found("round %d: what survived cannot be opened: %v", f.rounds, err)
			return
		}
		f.recovered, f.voided = f.recovered+l.recovery.Settled, f.voided+l.recovery.Voided
		f.verify(t, l)
		must(t, l.close())
		f.check(t, dir, ws, true)
	}
}

// powerLoss runs calls on dir until the power fails and returns where what survived is.
func powerLoss(t *testing.T, dir string, ws *witnesses, chance *rand.Rand) string {
	t.Helper()
	d, err := storetest.Mount(dir)
	must(t, err)
	defer d.Unmount()
	at := 30 + chance.IntN(size(3000))
	if chance.IntN(4) == 0 {
		at = 1 + chance.IntN(40) // while it opens
	}
	p := &pages{file: filepath.Join(dir, "progress"), chance: rand.New(rand.NewPCG(chance.Uint64(), 0))}
	ws.begin()
	var once sync.Once
	d.Before(func(c storetest.Call) storetest.Fault {
		if c.N < at {
			if c.N%37 == 0 {
				p.write()
			}
			return storetest.None
		}
		once.Do(func() { ws.end(p.write) })
		return storetest.PowerLoss
	})
	l, err := open(dir)
	if err == nil {
		ws.load(l, at, chance.Uint64()) // more than there is time for
		_ = l.close()                   // the disk is gone
	}
	to := t.TempDir()
	must(t, d.Survive(to, chance))
	if p.disk != nil {
		must(t, os.WriteFile(filepath.Join(to, "progress"), p.disk, 0o600))
	}
	return to
}

// pages is the file of the progress of streams as the disk has it: the kernel writes
// pages of the mapping whenever it likes.
type pages struct {
	file   string
	chance *rand.Rand
	mu     sync.Mutex
	disk   []byte
}

const pageSize = 4096

// write lets the kernel write some of the pages.
func (p *pages) write() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := os.ReadFile(p.file)
	if err != nil {
		return // not yet there
	}
	p.disk = append(p.disk, make([]byte, max(0, len(now)-len(p.disk)))...)
	for at := 0; at < len(now); at += pageSize {
		if p.chance.IntN(2) == 0 {
			copy(p.disk[at:], now[at:min(at+pageSize, len(now))])
		}
	}
}
