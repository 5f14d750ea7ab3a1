package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// llamacpp is llama.cpp's own benchmarks: llama-bench for the prefill, and
// llama-batched-bench for decoding, whose sequences have 64 positions behind them as
// ours have, and which draws tokens without looking at the logits. Its settings are
// its defaults on a CPU: batches of 2048 in parts of 512, float16 keys and values,
// repacked weights where it has such kernels, and flash attention on or off, whichever
// is faster here.
type llamacpp struct {
	dir, weights string
	threads      int
	flash        string // "on" or "off"
}

// findLlamacpp says why it cannot be measured with an error.
func findLlamacpp(dir string) error {
	if dir == "" {
		return errors.New("no -llamacpp")
	}
	for _, name := range []string{"llama-bench", "llama-batched-bench"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// run gives what a program writes to its standard output.
func (l *llamacpp) run(name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	c := exec.CommandContext(ctx, filepath.Join(l.dir, name), append([]string{"-m", l.weights, "-ngl", "0"}, args...)...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w: %s", name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// prompt gives the tokens a second of a prefill, and which build that was.
func (l *llamacpp) prompt() (rate float64, build string, err error) {
	flash := map[string]string{"on": "1", "off": "0"}[l.flash]
	out, err := l.run("llama-bench", "-p", strconv.Itoa(prefill), "-n", "0", "-t", strconv.Itoa(l.threads), "-fa", flash, "-r", "1", "-o", "json")
	if err != nil {
		return 0, "", err
	}
	var rows []struct {
		Commit string  `json:"build_commit"`
		Rate   float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &rows); err != nil || len(rows) != 1 {
		return 0, "", fmt.Errorf("bench: llama-bench wrote %q: %w", out, err)
	}
	return rows[0].Rate, rows[0].Commit, nil
}

// decode gives the tokens a second of each number of sequences.
func (l *llamacpp) decode() (map[int]float64, error) {
	var numbers []string
	for _, n := range batches() {
		numbers = append(numbers, strconv.Itoa(n))
	}
	t := strconv.Itoa(l.threads)
	out, err := l.run("llama-batched-bench", "-c", "4096", "-npp", strconv.Itoa(behind), "-ntg", strconv.Itoa(steps),
		"-npl", strings.Join(numbers, ","), "-t", t, "-tb", t, "-fa", l.flash, "--output-format", "jsonl")
	if err != nil {
		return nil, err
	}
	rates := map[int]float64{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		var row struct {
			N    int     `json:"pl"`
			Rate float64 `json:"speed_tg"`
		}
		if json.Unmarshal(s.Bytes(), &row) == nil && row.N > 0 {
			rates[row.N] = row.Rate
		}
	}
	if len(rates) != len(batches()) {
		return nil, fmt.Errorf("bench: llama-batched-bench wrote %q", out)
	}
	return rates, nil
}
