package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/engine/kv"
)

// whole measures the engine through Generate, with one consumer a sequence.
type whole struct {
	e           *engine.Engine
	temperature float64
	owners      int // a new one finds nothing in the cache
}

// openEngine gives the engine no more memory for keys and values than the largest batch
// and a prompt need, so that a warm-up can use all of it.
func openEngine(weights string, s setting, temperature float64) (*whole, error) {
	p, err := params(weights)
	if err != nil {
		return nil, err
	}
	const longest = max(behind+4*steps, prefill+1) + 1
	pages := (slices.Max(batches()) + 1) * kv.Pages(longest)
	e, err := engine.Open(weights, engine.Options{
		Threads: s.threads, Kernel: s.level, Context: longest, KVBytes: int64(pages * p.KVShape().Stride()),
	})
	if err != nil {
		return nil, err
	}
	return &whole{e: e, temperature: temperature}, nil
}

func (w *whole) prompt() (seconds float64, err error) {
	w.owners++
	return timed(func() error {
		for _, err := range w.e.Generate(context.Background(), engine.Request{Owner: fmt.Sprint(w.owners), Prompt: ids(prefill, 0), MaxTokens: 1}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// decode runs n sequences and gives the time in which all of them decode: from
// when the last has its first token until, steps tokens later, it has its end.
// The others run on past it, so that all n are there all the time.
func (w *whole) decode(n int) (float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	first := make(chan struct{}, n)
	for i := range n - 1 {
		wg.Go(func() {
			r := engine.Request{Owner: fmt.Sprint(i), Prompt: ids(behind, i), MaxTokens: 4 * steps, Temperature: w.temperature, TopP: 0.95, Seed: uint64(i)}
			for tok := range w.e.Generate(ctx, r) {
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
	for tok, err := range w.e.Generate(ctx, engine.Request{Owner: fmt.Sprint(n), Prompt: ids(behind, n), MaxTokens: 1 + steps, Temperature: w.temperature, TopP: 0.95, Seed: uint64(n)}) {
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
	return 0, errors.New("bench: a sequence ended early")
}

// start gives the time from the file to a ready engine, and the memory then, in MB
// (0 where the system does not tell). It comes first in the process, because memory
// given back may still be counted.
func start(weights string) (seconds float64, mb int, err error) {
	var e *engine.Engine
	seconds, err = timed(func() error {
		e, err = engine.Open(weights, engine.Options{})
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return seconds, rss(), e.Close()
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
