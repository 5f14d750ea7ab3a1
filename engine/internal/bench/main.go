// Command bench measures the engine on real weights: prefill of 256 tokens, and
// decoding of 1 to 16 sequences that have 64 positions behind them, in tokens a
// second, medians of five.
//
//	go run ./engine/internal/bench -weights FILE [-threads 1,2] [-kernel avx2] [-temperature 0.8]
//
// Rows called "model" are steps of the graph with the most likely token taken;
// rows called "engine" go through Generate, with one consumer a sequence.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/gguf"
	"github.com/parley-ai/parley/engine/kernel"
	"github.com/parley-ai/parley/engine/kv"
	"github.com/parley-ai/parley/engine/llama"
)

const (
	prefill = 256
	behind  = 64 // positions before decoding is measured
	steps   = 48
	chunk   = 64
	repeats = 5
)

func batches() []int { return []int{1, 4, 8, 16} }

func main() {
	weights := flag.String("weights", "weights/SmolLM2-135M-Instruct.Q4_1.gguf", "GGUF `file`")
	threads := flag.String("threads", "1,2", "numbers of threads, with commas")
	temperature := flag.Float64("temperature", 0, "of the engine's rows; above 0 they sample with top_p 0.95")
	level := flag.String("kernel", os.Getenv("PARLEY_KERNEL"), "force a kernel `level`")
	flag.Parse()
	if err := run(*weights, *threads, *level, *temperature); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(weights, threads, level string, temperature float64) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "tokens/s\tthreads\tprefill %d\t", prefill)
	for _, n := range batches() {
		fmt.Fprintf(out, "decode %d\t", n)
	}
	fmt.Fprintln(out)
	for s := range strings.SplitSeq(threads, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("bench: -threads: %q is not a number of threads", s)
		}
		row, err := model(weights, n, level)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "model\t%d\t", n)
		for _, v := range row {
			fmt.Fprintf(out, "%.0f\t", v)
		}
		if row, err = whole(weights, n, level, temperature); err != nil {
			return err
		}
		fmt.Fprintf(out, "\nengine\t%d\t", n)
		for _, v := range row {
			fmt.Fprintf(out, "%.0f\t", v)
		}
		fmt.Fprintln(out)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Printf("one thread reads memory at %.1f GB/s\n", memory())
	return nil
}

// median of the times f takes, as a rate of n.
func median(n int, f func() error) (float64, error) {
	var took []float64
	for range repeats {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start).Seconds())
	}
	slices.Sort(took)
	return float64(n) / took[repeats/2], nil
}

// ids are n ordinary tokens.
func ids(n, from int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(300 + (from+i)*7919%40000)
	}
	return out
}

// lab is a model with its cache.
type lab struct {
	m     *llama.Model
	cache *kv.Cache
}

// seq is a sequence in the lab.
type seq struct {
	pages kv.Table
	n     int
	next  int32
}

func (l *lab) start() *seq {
	t, _ := l.cache.Reserve(prefill + steps)
	return &seq{pages: t}
}

func (l *lab) prefill(s *seq, ids []int32) error {
	for c := range slices.Chunk(ids, chunk) {
		var cols []llama.Column
		for i, id := range c {
			cols = append(cols, llama.Column{ID: id, Pos: s.n, Pages: s.pages, Logits: i == len(c)-1})
			s.n++
		}
		rows, err := l.m.Step(cols)
		if err != nil {
			return err
		}
		s.next = l.m.Argmax(rows[0])
	}
	return nil
}

func (l *lab) decode(seqs []*seq) error {
	cols := make([]llama.Column, len(seqs))
	for range steps {
		for i, s := range seqs {
			cols[i] = llama.Column{ID: s.next, Pos: s.n, Pages: s.pages, Logits: true}
			s.n++
		}
		rows, err := l.m.Step(cols)
		if err != nil {
			return err
		}
		for i, s := range seqs {
			s.next = l.m.Argmax(rows[i])
		}
	}
	return nil
}

// model measures the graph alone.
func model(weights string, threads int, level string) ([]float64, error) {
	l, done, err := load(weights, threads, level)
	if err != nil {
		return nil, err
	}
	defer done()
	rate, err := median(prefill, func() error {
		s := l.start()
		defer l.cache.Release(s.pages)
		return l.prefill(s, ids(prefill, 0))
	})
	if err != nil {
		return nil, err
	}
	row := []float64{rate}
	for _, n := range batches() {
		var seqs []*seq
		for i := range n {
			s := l.start()
			if err := l.prefill(s, ids(behind, i)); err != nil {
				return nil, err
			}
			seqs = append(seqs, s)
		}
		rate, err := median(n*steps, func() error {
			for _, s := range seqs {
				s.n = behind
			}
			return l.decode(seqs)
		})
		if err != nil {
			return nil, err
		}
		row = append(row, rate)
		for _, s := range seqs {
			l.cache.Release(s.pages)
		}
	}
	return row, nil
}

// load makes a lab and says what loading took.
func load(weights string, threads int, level string) (*lab, func(), error) {
	start := time.Now()
	f, err := gguf.Open(weights)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	p, err := llama.ReadParams(f)
	if err != nil {
		return nil, nil, err
	}
	k, err := kernel.Find(level)
	if err != nil {
		return nil, nil, err
	}
	cache, err := kv.New(p.KVShape(), 512<<20, 1)
	if err != nil {
		return nil, nil, err
	}
	m, err := llama.Load(f, p, llama.Options{Kernel: k, Cache: cache, Threads: threads, Context: p.Context, Columns: 16 + chunk, Logits: 16})
	if err != nil {
		cache.Close()
		return nil, nil, err
	}
	bytes, _ := m.Weights()
	fmt.Printf("%s, %d threads: model of %.1f MB loaded in %v\n", k.Name, threads, float64(bytes)/1e6, time.Since(start).Round(time.Millisecond))
	return &lab{m, cache}, func() { m.Close(); cache.Close() }, nil
}

// whole measures the engine with one consumer a sequence.
func whole(weights string, threads int, level string, temperature float64) ([]float64, error) {
	start := time.Now()
	e, err := engine.Open(weights, engine.Options{Threads: threads, Kernel: level})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	runtime.GC()
	fmt.Printf("%s, %d threads: engine ready in %v, RSS %d MB\n", e.Info().Kernel, threads, time.Since(start).Round(time.Millisecond), rss())
	owners := 0 // a new one finds nothing in the cache
	rate, err := median(prefill, func() error {
		owners++
		for _, err := range e.Generate(context.Background(), engine.Request{Owner: fmt.Sprint(owners), Prompt: ids(prefill, 0), MaxTokens: 1}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	row := []float64{rate}
	for _, n := range batches() {
		var took []float64
		for range repeats {
			sec, err := together(e, n, temperature)
			if err != nil {
				return nil, err
			}
			took = append(took, sec)
		}
		slices.Sort(took)
		row = append(row, float64(n*steps)/took[repeats/2])
	}
	fmt.Printf("%s, %d threads: RSS after 16 sequences %d MB\n", e.Info().Kernel, threads, rss())
	return row, nil
}

// together runs n sequences and gives the time in which all of them decode: from
// when the last has its first token until, steps tokens later, it has its end.
// The others run on past it, so that all n are there all the time.
func together(e *engine.Engine, n int, temperature float64) (float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	first := make(chan struct{}, n)
	for i := range n - 1 {
		wg.Go(func() {
			r := engine.Request{Owner: fmt.Sprint(i), Prompt: ids(behind, i), MaxTokens: 4 * steps, Temperature: temperature, TopP: 0.95, Seed: uint64(i)}
			for tok := range e.Generate(ctx, r) {
				if tok.Generated == 1 {
					first <- struct{}{}
				}
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	for range n - 1 {
		<-first
	}
	var begin time.Time
	for tok, err := range e.Generate(ctx, engine.Request{Owner: fmt.Sprint(n), Prompt: ids(behind, n), MaxTokens: 1 + steps, Temperature: temperature, TopP: 0.95, Seed: uint64(n)}) {
		if err != nil {
			return 0, err
		}
		switch tok.Generated {
		case 1:
			begin = time.Now()
		case 1 + steps:
			return time.Since(begin).Seconds(), nil
		}
	}
	return 0, fmt.Errorf("bench: a sequence ended early")
}

// rss is the memory of this process in MB, 0 where the system does not tell.
func rss() int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	kb := 0
	if _, s, ok := strings.Cut(string(b), "VmRSS:"); ok {
		fmt.Sscan(s, &kb)
	}
	return kb / 1000
}

// memory is what one thread reads of 256 MB, in GB/s.
func memory() float64 {
	const n = 256 << 20
	b := make([]byte, n+8192)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	rate, _ := median(n, func() error {
		kernel.Stream(&b[0], n)
		return nil
	})
	return rate / 1e9
}
