package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// cell is a place in the table: who, with how many threads, decoding how many
// sequences (0: the prefill).
type cell struct {
	row     string
	threads int
	n       int
}

// columns of the table.
func columns() []int { return append([]int{0}, batches()...) }

// bars are the least ratios to llama.cpp that the engine is to reach.
func bars() map[cell]float64 {
	return map[cell]float64{
		{"engine", 1, 0}: 6, {"engine", 1, 1}: 2.2, {"engine", 1, 4}: 6, {"engine", 1, 8}: 7, {"engine", 1, 16}: 7,
		{"engine", 2, 0}: 6, {"engine", 2, 16}: 5,
		{"avx2", 1, 1}: 1.8, {"avx2", 1, 8}: 3.5,
	}
}

// Bars that are not ratios to llama.cpp.
const (
	barRead  = 0.85 // of what memory delivers, decoding one sequence
	barStart = 0.3  // seconds
	barRSS   = 130  // MB without keys and values
)

// report collects rates in tokens a second, one a round.
type report struct {
	best  bool
	rates map[cell][]float64
	flash map[int]string // with which setting llama.cpp is faster, by threads
	build string         // llama.cpp's
	bytes int            // of packed weights, and of keys and values in the mean, all of which a token needs
	read  float64        // of memory, GB/s, the best round
}

func newReport(best bool) *report {
	return &report{best: best, rates: map[cell][]float64{}, flash: map[int]string{}}
}

func (r *report) add(c cell, rate float64) { r.rates[c] = append(r.rates[c], rate) }

// measure adds a round of one of ours. As in llama.cpp's benchmarks keys and values
// have their memory before: the first touch of 6 MB of it, which a prompt needs, takes
// 5 % of a prefill. So all of it is used once.
func (r *report) measure(row string, threads int, o ours) error {
	if _, err := o.decode(slices.Max(batches())); err != nil {
		return err
	}
	const warm, prompts = 10, 4
	for range warm {
		if _, err := o.prompt(); err != nil {
			return err
		}
	}
	seconds := 0.0
	for range prompts {
		s, err := o.prompt()
		if err != nil {
			return err
		}
		seconds += s
	}
	r.add(cell{row, threads, 0}, prompts*prefill/seconds)
	for _, n := range batches() {
		seconds, err := o.decode(n)
		if err != nil {
			return err
		}
		r.add(cell{row, threads, n}, float64(n*steps)/seconds)
	}
	return nil
}

// theirs names llama.cpp's row with a setting of flash attention.
func theirs(flash string) string { return "llama.cpp, flash attention " + flash }

// rate is what counts of a cell's rounds, 0 if there are none.
func (r *report) rate(c cell) float64 {
	rates := slices.Sorted(slices.Values(r.rates[c]))
	switch {
	case len(rates) == 0:
		return 0
	case r.best:
		return rates[len(rates)-1]
	}
	return rates[len(rates)/2]
}

// ratio of a cell to the faster setting of llama.cpp, 0 if that was not measured.
func (r *report) ratio(c cell) float64 {
	their := max(r.rate(cell{theirs("on"), c.threads, c.n}), r.rate(cell{theirs("off"), c.threads, c.n}))
	if their == 0 {
		return 0
	}
	return r.rate(c) / their
}

// print writes the table of rates, with the ratio and its bar behind a rate that has one.
func (r *report) print(w io.Writer, threads []int) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "tokens/s\tthreads\tprefill %d\t", prefill)
	for _, n := range batches() {
		fmt.Fprintf(out, "decode %d\t", n)
	}
	fmt.Fprintln(out)
	for _, t := range threads {
		for _, row := range []string{theirs("off"), theirs("on"), "model", "engine", "avx2"} {
			if r.rate(cell{row, t, 0}) == 0 {
				continue
			}
			fmt.Fprintf(out, "%s\t%d\t", row, t)
			for _, n := range columns() {
				fmt.Fprintf(out, "%.0f%s\t", r.rate(cell{row, t, n}), r.verdict(cell{row, t, n}))
			}
			fmt.Fprintln(out)
		}
	}
	return out.Flush()
}

// verdict says a cell's ratio, and how that stands to its bar.
func (r *report) verdict(c cell) string {
	ratio := r.ratio(c)
	if ratio == 0 || c.row == theirs("on") || c.row == theirs("off") {
		return ""
	}
	bar, has := bars()[c]
	if !has {
		return fmt.Sprintf(" (%.1fx)", ratio)
	}
	return fmt.Sprintf(" (%.1fx, bar %v: %s)", ratio, bar, met(ratio >= bar))
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "MISSED"
}

// printRest writes what has no cell of its own.
func (r *report) printRest(w io.Writer, start float64, mb int) error {
	one := r.rate(cell{"engine", 1, 1})
	share := one * float64(r.bytes) / 1e9 / r.read
	_, err := fmt.Fprintf(w, `
one thread reads memory at %.1f GB/s; a token of one sequence needs %.1f MB: %.0f tokens/s are %.0f %% (bar %.0f %%: %s)
file to ready: %.2f s (bar %.1f s: %s); memory then, keys and values untouched: %d MB (bar %d MB: %s)
`, r.read, float64(r.bytes)/1e6, one, 100*share, 100*barRead, met(share >= barRead),
		start, barStart, met(start <= barStart), mb, barRSS, met(mb <= barRSS))
	if err == nil && r.build != "" {
		_, err = fmt.Fprintf(w, "llama.cpp: commit %s, the same file, CPU, native flags; a ratio is to its faster setting\n", r.build)
	}
	return err
}
