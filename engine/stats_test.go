package engine

import (
	"math"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	t.Parallel()
	var h Histogram
	bounds := Buckets()
	for i, b := range bounds {
		if i > 0 && b <= bounds[i-1] {
			t.Errorf("bounds %v do not rise", bounds)
		}
		h.observe(b)
		h.observe(b + 1)
	}
	for i, n := range h.Counts {
		if want := int64(2); n != want && (i > 0 || n != 1) {
			t.Errorf("bucket %d has %d", i, n)
		}
	}
	if h.Count != 32 {
		t.Errorf("%d in all", h.Count)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	var r rate
	if got := r.add(0, 0); got != 0 {
		t.Errorf("nothing in no time is %v a second", got)
	}
	got := 0.0
	for range 2000 {
		got = r.add(1, 10*time.Millisecond)
	}
	if math.Abs(got-100) > 1e-6 {
		t.Errorf("one in 10 ms is %v a second", got)
	}
	for range 4000 { // 40 seconds later
		got = r.add(2, 10*time.Millisecond)
	}
	if got < 196 || got > 200 {
		t.Errorf("after 40 seconds of two in 10 ms it is %v a second", got)
	}
}
