// Command bench measures the engine on real weights, beside llama.cpp on the same
// file: prefill of 256 tokens, and decoding of 1 to 16 sequences that have 64
// positions behind them, in tokens a second.
//
//	go run ./engine/internal/bench -weights FILE [-threads 1,2] [-llamacpp DIR] [-rounds 5] [-best]
//
// Rows called "model" are steps of the graph with the most likely token taken; rows
// called "engine" go through Generate, with one consumer a sequence; the row "avx2"
// is the engine with that kernel level forced. All take turns within a round, so that
// what else the machine does falls on all; the median of the rounds counts, or with
// -best the best one, for a machine that others use too.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/engine/kernel"
)

const (
	prefill = 256
	behind  = 64 // positions before decoding is measured
	steps   = 48
	chunk   = 64
)

func batches() []int { return []int{1, 4, 8, 16} }

// setting is how ours is run.
type setting struct {
	threads int
	level   string // "": the best
}

// ours is what can be measured of ours.
type ours interface {
	prompt() (seconds float64, err error)
	decode(n int) (seconds float64, err error)
}

type options struct {
	weights, threads, llamacpp string
	rounds                     int
	best                       bool
	temperature                float64
}

func main() {
	var o options
	flag.StringVar(&o.weights, "weights", "weights/SmolLM2-135M-Instruct.Q4_1.gguf", "GGUF `file`")
	flag.StringVar(&o.threads, "threads", "1,2", "numbers of threads, with commas")
	flag.StringVar(&o.llamacpp, "llamacpp", "", "`folder` of llama-bench and llama-batched-bench; none: only ours is measured")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds")
	flag.BoolVar(&o.best, "best", false, "take the best round, not the median")
	flag.Float64Var(&o.temperature, "temperature", 0, "of the engine's rows; above 0 they sample with top_p 0.95")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(o options) error {
	r := newReport(o.best)
	seconds, mb, err := start(o.weights) // the least of all rounds counts
	if err != nil {
		return err
	}
	var numbers []int
	for s := range strings.SplitSeq(o.threads, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("bench: -threads: %q is not a number of threads", s)
		}
		numbers = append(numbers, n)
	}
	if err := findLlamacpp(o.llamacpp); err != nil {
		fmt.Printf("llama.cpp is not measured: %v\n", err)
		o.llamacpp = ""
	}
	for round := range o.rounds {
		r.read = max(r.read, memory())
		for _, n := range numbers {
			if err := measureOurs(r, o, n); err != nil {
				return err
			}
			if err := measureTheirs(r, o, n, round); err != nil {
				return err
			}
		}
		again, _, err := start(o.weights)
		if err != nil {
			return err
		}
		seconds = min(seconds, again)
	}
	if err := r.print(os.Stdout, numbers); err != nil {
		return err
	}
	return r.printRest(os.Stdout, seconds, mb)
}

// measureOurs measures the model, the engine, and, with one thread, the engine on the
// AVX2 level where it is not the best one.
func measureOurs(r *report, o options, threads int) error {
	m, err := openModel(o.weights, setting{threads: threads})
	if err != nil {
		return err
	}
	weights, _ := m.m.Weights()
	r.bytes = weights + m.cache.Shape().Stride()/kernel.Page*(behind+steps/2)
	err = r.measure("model", threads, m)
	m.close()
	if err != nil {
		return err
	}
	rows := []string{"engine"}
	if threads == 1 && slices.Contains(kernel.Levels(), "avx2") {
		rows = append(rows, "avx2")
	}
	for _, row := range rows {
		e, err := openEngine(o.weights, setting{threads, map[string]string{"avx2": "avx2"}[row]}, o.temperature)
		if err != nil {
			return err
		}
		err = r.measure(row, threads, e)
		e.e.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// measureTheirs measures llama.cpp; the first round finds out whether flash attention
// is good for it, and only the faster way counts.
func measureTheirs(r *report, o options, threads, round int) error {
	if o.llamacpp == "" {
		return nil
	}
	ways, least := []string{"on", "off"}, math.Inf(1)
	if round > 0 {
		ways = []string{r.flash[threads]}
	}
	for _, way := range ways {
		l := &llamacpp{o.llamacpp, o.weights, threads, way}
		rate, build, err := l.prompt()
		if err != nil {
			return err
		}
		decode, err := l.decode()
		if err != nil {
			return err
		}
		r.build = build
		r.add(cell{theirs(way), threads, 0}, rate)
		took := 1 / rate
		for n, rate := range decode {
			r.add(cell{theirs(way), threads, n}, rate)
			took += 1 / rate
		}
		if took < least {
			least, r.flash[threads] = took, way
		}
	}
	return nil
}

func timed(f func() error) (float64, error) {
	start := time.Now()
	err := f()
	return time.Since(start).Seconds(), err
}

// memory is what one thread reads of 256 MB, in GB/s, the best of five.
func memory() float64 {
	const n = 256 << 20
	b := make([]byte, n+8192)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	best := 0.0
	for range 5 {
		sec, _ := timed(func() error {
			kernel.Stream(&b[0], n)
			return nil
		})
		best = max(best, n/sec/1e9)
	}
	return best
}
