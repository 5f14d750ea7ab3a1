package account

import (
	"container/heap"
	"slices"
	"time"
)

// calendar is when each subscription has to be looked at: a heap, the soonest first, so that a look
// at the clock costs nothing where nothing is due, however many accounts there are. Entries are
// not taken out when a subscription changes: one that is not its [subscription.Subscription.Next]
// any more counts for nothing. What has changed is looked at once, and then has an entry.
type calendar []appointment

type appointment struct {
	at int64 // microseconds since 1970 UTC
	id string
}

// Len, Less, Swap, Push and Pop are of [heap.Interface].
func (c *calendar) Len() int           { return len(*c) }
func (c *calendar) Less(i, j int) bool { return (*c)[i].at < (*c)[j].at }
func (c *calendar) Swap(i, j int)      { (*c)[i], (*c)[j] = (*c)[j], (*c)[i] }
func (c *calendar) Push(x any)         { *c = append(*c, x.(appointment)) }
func (c *calendar) Pop() any {
	last := len(*c) - 1
	x := (*c)[last]
	*c = (*c)[:last]
	return x
}

// soonest is the first appointment that still counts. The caller has locked d.
func (d *Directory) soonest() (appointment, bool) {
	for len(d.calendar) > 0 {
		first := d.calendar[0]
		if a, ok := d.ByID(first.id); ok && a.Subscription.Next().UnixMicro() == first.at {
			return first, true
		}
		heap.Pop(&d.calendar)
	}
	return appointment{}, false
}

// takeDue takes the accounts that have to be looked at out of the calendar: those whose time has
// come by now and those that have changed. With plans that are new since the last time it is all of
// them, because what follows for a subscription may depend on what its plan has become.
func (d *Directory) takeDue(now time.Time) (ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	plans := d.plans.Load()
	ids, d.fresh = d.fresh, nil
	for first, ok := d.soonest(); ok && (first.at <= now.UnixMicro() || d.looked != plans); first, ok = d.soonest() {
		heap.Pop(&d.calendar)
		ids = append(ids, first.id)
	}
	d.looked = plans
	slices.Sort(ids)
	return slices.Compact(ids)
}

// giveBack puts accounts that takeDue has taken into the calendar again: those that were looked at
// for their time, unless they have changed and are looked at again, as the others are.
func (d *Directory) giveBack(looked, others []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	again := make(map[string]bool, len(d.fresh))
	for _, id := range d.fresh {
		again[id] = true
	}
	for _, id := range looked {
		a, ok := d.ByID(id)
		if ok && !again[id] && !a.Subscription.Next().IsZero() {
			heap.Push(&d.calendar, appointment{a.Subscription.Next().UnixMicro(), id})
		}
	}
	d.fresh = append(d.fresh, others...)
}

// nextDue is when the next account has to be looked at; zero for never.
func (d *Directory) nextDue() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if first, ok := d.soonest(); ok {
		return time.UnixMicro(first.at).UTC()
	}
	return time.Time{}
}
