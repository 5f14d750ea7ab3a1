package app

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// leastFree is how much must be free on the disk of the books. Below it no call is
// admitted, so that what is running can still be charged.
const leastFree uint64 = 256 << 20

// freeBytes is what an ordinary user may still write to the disk of dir.
func freeBytes(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// watchDisk closes admission while the disk is nearly full and opens it again.
func (a *App) watchDisk(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	closed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		free, err := a.options.free(a.config.Data)
		if err != nil {
			continue // What cannot be measured says nothing; a failed write will.
		}
		if full := free < leastFree; full != closed {
			closed = full
			if full {
				a.rooms.ledger.SetAdmission(errors.New("the disk of the books is nearly full"))
				a.log.Error("disk nearly full, no call is admitted", "free_bytes", free, "needed_bytes", leastFree)
			} else {
				a.rooms.ledger.SetAdmission(nil)
				a.log.Info("disk has room again, calls are admitted", "free_bytes", free)
			}
		}
	}
}
