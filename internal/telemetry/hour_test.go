package telemetry_test

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/parley-ai/parley/internal/telemetry"
)

var noon = time.Date(2026, 11, 21, 12, 0, 30, 0, time.UTC)

// TestHour: what ended in the minutes that are asked for is in the sum, by minute, model and
// upstream, and nothing older.
func TestHour(t *testing.T) {
	t.Parallel()
	var h telemetry.Hour
	for i := range 90 { // the first 30 are forgotten
		at := noon.Add(time.Duration(i) * time.Minute)
		h.Call(at, telemetry.Ended{Model: "svc-pulse", Upstream: "local", End: telemetry.Answered, Prompt: 10, Completion: 3, Charged: 7, FirstToken: 100 * time.Millisecond})
		h.Call(at, telemetry.Ended{End: telemetry.Refused})
		h.Attempt(at, "rack", telemetry.Failed, 0)
	}
	last := noon.Add(89 * time.Minute)
	for _, n := range []int64{1, 10, 60} {
		got := h.Since(last, int(n))
		if c := got.All.Calls(); c != 2*n || got.All.Completion != 3*n || got.All.Prompt != 10*n || got.All.Charged != 7*n {
			t.Errorf("%d minutes: %+v", n, got.All)
		}
		pulse, rack, local := got.Models["svc-pulse"], got.Upstreams["rack"], got.Upstreams["local"]
		if len(got.Models) != 1 || pulse.Ends != [4]int64{n, 0, 0, 0} || rack.Ends[telemetry.Failed] != n || local.Completion != 3*n || local.Calls() != 0 {
			t.Errorf("%d minutes: models %v, upstreams %v", n, got.Models, got.Upstreams)
		}
		for i, m := range rack.Minutes {
			if m != (telemetry.Tally{Calls: 1, Failed: 1}) || got.All.Minutes[i] != (telemetry.Tally{Calls: 2}) {
				t.Errorf("minute %d of %d: %v", i, n, m)
			}
		}
	}
	if got := h.Since(last.Add(time.Hour), 60); got.All.Calls() != 0 || len(got.Models) != 0 {
		t.Errorf("an hour later there is %+v", got)
	}
}

// TestHour_FirstToken: the median and the slow ones are at most 9 % off.
func TestHour_FirstToken(t *testing.T) {
	t.Parallel()
	if d := (&telemetry.Flow{}).FirstToken(0.5); d != 0 {
		t.Errorf("of nothing: %v", d)
	}
	rapid.Check(t, func(t *rapid.T) {
		var h telemetry.Hour
		d := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(10*time.Minute)).Draw(t, "first token"))
		slow := 10 * d
		for range 90 {
			h.Call(noon, telemetry.Ended{FirstToken: d})
		}
		for range 10 {
			h.Call(noon, telemetry.Ended{FirstToken: slow})
		}
		all := h.Since(noon, 1).All
		near := func(got, want time.Duration) bool {
			return float64(got) > 0.91*float64(want) && float64(got) < 1.1*float64(want)
		}
		if got := all.FirstToken(0.5); !near(got, d) {
			t.Fatalf("the median of %v is %v", d, got)
		}
		if got := all.FirstToken(0.95); slow < 10*time.Minute && !near(got, slow) {
			t.Fatalf("95 %% within %v, want %v", got, slow)
		}
	})
}

// TestHour_Concurrent: nothing is lost when many count.
func TestHour_Concurrent(t *testing.T) {
	t.Parallel()
	var h telemetry.Hour
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				h.Call(noon, telemetry.Ended{Model: "m", Upstream: "u"})
				h.Attempt(noon, "u", telemetry.Answered, time.Second)
				h.Since(noon, 2)
			}
		})
	}
	wg.Wait()
	got := h.Since(noon, 60)
	if u := got.Upstreams["u"]; got.All.Calls() != 8000 || u.Calls() != 8000 {
		t.Errorf("%d calls, %d attempts", got.All.Calls(), u.Calls())
	}
}

func BenchmarkHour_Call(b *testing.B) {
	var h telemetry.Hour
	c := telemetry.Ended{Model: "svc-pulse", Upstream: "local", Prompt: 10, Completion: 3, FirstToken: 100 * time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		h.Call(noon, c)
	}
}
