package telemetry

import (
	"math"
	"sync"
	"time"
)

// HourMinutes is how many minutes an [Hour] has.
const HourMinutes = 60

// End is how a call ended, or an attempt at an upstream.
type End int

// The ends. A call is Refused before it begins, an attempt for a fault of the caller's.
const (
	Answered End = iota
	Left         // by its caller
	Refused
	Failed
	ends
)

// Ended is a call that is over.
type Ended struct {
	Model      string // on offer, or empty
	Upstream   string // that was asked last; empty where none was
	End        End
	Prompt     int // tokens
	Completion int
	Charged    int64         // nano-IU
	FirstToken time.Duration // 0 where none came
}

// Hour adds up calls by minute: all of them, by model and by upstream. It is in memory only and
// knows nothing of the time before the process began. The zero value is ready; it is safe for
// concurrent use. Model and upstream must be of few values: each takes some 30 KB.
type Hour struct {
	mu      sync.Mutex
	minutes [HourMinutes]minute
}

// minute is what ended in one minute since 1970.
type minute struct {
	number            int64
	all               Flow
	models, upstreams map[string]*Flow
}

// Flow is what calls add up to. Of an upstream its Ends and first tokens are those of attempts,
// its tokens and charges those of calls that it answered.
type Flow struct {
	Ends               [ends]int64
	Prompt, Completion int64 // tokens
	Charged            int64 // nano-IU
	first              [buckets]uint32
}

// Series is a flow and how it came about.
type Series struct {
	Flow
	Minutes []Tally // oldest first; the last has not ended
}

// Tally is what one minute had.
type Tally struct{ Calls, Failed int64 }

// Traffic is what an [Hour] has of its last minutes.
type Traffic struct {
	All               Series
	Models, Upstreams map[string]Series
}

// First tokens are counted in buckets whose bounds grow by 2^(1/4): what is read of them is at
// most 9 % off. The first ends at 1 ms, the last is open: it begins at some 15 minutes.
const (
	buckets   = 80
	perDouble = 4
)

// bucketOf is the bucket of a time to the first token; below 0 where there was none.
func bucketOf(d time.Duration) int {
	if d <= 0 {
		return -1
	}
	b := math.Ceil(perDouble * math.Log2(float64(d)/float64(time.Millisecond)))
	return int(min(max(b, 0), buckets-1))
}

// at is the flow of that name.
func at(flows *map[string]*Flow, name string) *Flow {
	f := (*flows)[name]
	if f == nil {
		if *flows == nil {
			*flows = map[string]*Flow{}
		}
		f = &Flow{}
		(*flows)[name] = f
	}
	return f
}

// minute is the one of now, emptied when its place was that of another hour. The caller has
// the lock.
func (h *Hour) minute(now time.Time) *minute {
	number := now.Unix() / 60
	m := &h.minutes[number%HourMinutes]
	if m.number != number {
		clear(m.models)
		clear(m.upstreams)
		m.number, m.all = number, Flow{}
	}
	return m
}

// Call counts a call that ended now.
func (h *Hour) Call(now time.Time, c Ended) {
	first := bucketOf(c.FirstToken)
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.minute(now)
	m.all.add(c.End, first)
	m.all.amounts(c)
	if c.Model != "" {
		f := at(&m.models, c.Model)
		f.add(c.End, first)
		f.amounts(c)
	}
	if c.Upstream != "" {
		at(&m.upstreams, c.Upstream).amounts(c)
	}
}

// Attempt counts what an upstream was asked for and ended now; first is 0 where no token came.
func (h *Hour) Attempt(now time.Time, upstream string, e End, first time.Duration) {
	bucket := bucketOf(first)
	h.mu.Lock()
	defer h.mu.Unlock()
	at(&h.minute(now).upstreams, upstream).add(e, bucket)
}

func (f *Flow) add(e End, bucket int) {
	f.Ends[e]++
	if bucket >= 0 {
		f.first[bucket]++
	}
}

func (f *Flow) amounts(c Ended) {
	f.Prompt += int64(c.Prompt)
	f.Completion += int64(c.Completion)
	f.Charged += c.Charged
}

// Calls is how many ended, refused ones among them.
func (f *Flow) Calls() (n int64) {
	for _, e := range f.Ends {
		n += e
	}
	return n
}

// FirstToken is the time within which that share of the calls had their first token, at most 9 %
// off; 0 where none had one.
func (f *Flow) FirstToken(share float64) time.Duration {
	var all int64
	for _, n := range f.first {
		all += int64(n)
	}
	if all == 0 {
		return 0
	}
	rank := max(int64(math.Ceil(share*float64(all))), 1)
	for b, n := range f.first {
		if rank -= int64(n); rank <= 0 {
			// The middle of the bucket, as its bounds are powers.
			return time.Duration(float64(time.Millisecond) * math.Exp2((float64(b)-0.5)/perDouble))
		}
	}
	return 0
}

func (s *Series) merge(f *Flow, minute int) {
	for e, n := range f.Ends {
		s.Ends[e] += n
	}
	s.Prompt += f.Prompt
	s.Completion += f.Completion
	s.Charged += f.Charged
	for b, n := range f.first {
		s.first[b] += n
	}
	s.Minutes[minute].Calls += f.Calls()
	s.Minutes[minute].Failed += f.Ends[Failed]
}

// Since is what the last minutes had, at most [HourMinutes]; the one of now is the last of them.
func (h *Hour) Since(now time.Time, minutes int) Traffic {
	series := func() Series { return Series{Minutes: make([]Tally, minutes)} }
	t := Traffic{All: series(), Models: map[string]Series{}, Upstreams: map[string]Series{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := now.Unix() / 60
	for i := range minutes {
		number := last - int64(minutes-1-i)
		m := &h.minutes[number%HourMinutes]
		if m.number != number {
			continue
		}
		t.All.merge(&m.all, i)
		for _, by := range []struct {
			flows map[string]*Flow
			into  map[string]Series
		}{{m.models, t.Models}, {m.upstreams, t.Upstreams}} {
			for name, f := range by.flows {
				s, ok := by.into[name]
				if !ok {
					s = series()
				}
				s.merge(f, i)
				by.into[name] = s
			}
		}
	}
	return t
}
