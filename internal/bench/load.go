package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"
)

// warmup goes before every measurement and is not in its figures.
const warmup = 300 * time.Millisecond

// result is one closed-loop run.
type result struct {
	calls    int // all that were made, warm-up included
	measured int
	took     time.Duration
	p50, p99 time.Duration
	cpu      time.Duration // of what was watched, for the measured calls
}

// rate is measured calls a second.
func (r result) rate() float64 { return float64(r.measured) / r.took.Seconds() }

// perCall is CPU time for each measured call.
func (r result) perCall() time.Duration {
	if r.measured == 0 {
		return 0
	}
	return r.cpu / time.Duration(r.measured)
}

// load says how calls are made.
type load struct {
	callers int
	window  time.Duration
	every   time.Duration // between the starts of one caller's calls; 0 is at once
	cpu     func() time.Duration
}

// do has callers call one after the other, each call after the answer of the one
// before, and measures those that end inside the window.
func (l load) do(ctx context.Context, call func(caller int) error) (result, error) {
	var stop, recording atomic.Bool
	var calls atomic.Int64
	var group sync.WaitGroup
	times := make([][]time.Duration, l.callers)
	errs := make([]error, l.callers)
	for i := range l.callers {
		group.Go(func() {
			next := time.Now().Add(l.every * time.Duration(i) / time.Duration(l.callers))
			for !stop.Load() && ctx.Err() == nil {
				if l.every > 0 {
					rest(ctx, time.Until(next))
					next = next.Add(l.every)
				}
				start := time.Now()
				if errs[i] = call(i); errs[i] != nil {
					return
				}
				calls.Add(1)
				if recording.Load() {
					times[i] = append(times[i], time.Since(start))
				}
			}
		})
	}
	rest(ctx, warmup)
	cpu, start := l.cpu(), time.Now()
	recording.Store(true)
	rest(ctx, l.window)
	recording.Store(false)
	r := result{took: time.Since(start), cpu: l.cpu() - cpu}
	stop.Store(true)
	group.Wait()
	all := slices.Concat(times...)
	slices.Sort(all)
	r.calls, r.measured = int(calls.Load()), len(all)
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	if len(all) == 0 {
		return r, errors.Join(errors.New("no call ended in time"), ctx.Err())
	}
	r.p50, r.p99 = all[len(all)/2], all[len(all)*99/100]
	return r, nil
}

// ownCPU is the CPU time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// median is the middle one of the values; it sorts them.
func median[T int | int64 | float64 | time.Duration](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

// table prints rows under their heads, in columns.
type table struct {
	title string
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintf(w, "\n%s\n\n", t.title)
	for n, row := range t.rows {
		for i, cell := range row {
			fmt.Fprintf(w, "| %s%s ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		fmt.Fprintln(w, "|")
		if n == 0 {
			for _, width := range widths {
				fmt.Fprintf(w, "|%s", strings.Repeat("-", width+2))
			}
			fmt.Fprintln(w, "|")
		}
	}
}

// The forms of figures.
func millis(d time.Duration) string { return fmt.Sprintf("%.3f", float64(d)/float64(time.Millisecond)) }

func micros(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Microsecond)) }
func number(f float64) string       { return fmt.Sprintf("%.0f", f) }
func ratio[T int | int64 | float64 | time.Duration](a, of T) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(of))
}
