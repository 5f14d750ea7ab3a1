package app

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/english"
)

// screen is what a person at the server sees beside the log.
type screen struct {
	mu       sync.Mutex
	out, err io.Writer
	terminal bool
}

// note prints a line of progress. A terminal that is gone is no reason to stop.
func (s *screen) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.err, format+"\n", args...)
}

// barWidth is what leaves the line of progress within 80 columns.
const barWidth = 18

// loading shows the progress of reading weights: redrawn on a terminal, one line at
// the start elsewhere. report is called with rising values and done.
func (s *screen) loading(name string, size int64) (report func(done, total int64)) {
	if !s.terminal {
		s.note("weights  %s, %s", name, english.Bytes(size))
		return nil
	}
	begin := time.Now()
	drawn := begin // What is read at once needs no bar.
	return func(done, total int64) {
		now := time.Now()
		if done <= 0 || total <= 0 || now.Sub(drawn) < 100*time.Millisecond {
			return
		}
		drawn = now
		filled := int(barWidth * done / total)
		bar := strings.Repeat("#", filled) + strings.Repeat("-", barWidth-filled)
		// The rest takes as long a byte as what is done.
		left := time.Duration(float64(now.Sub(begin)) / float64(done) * float64(total-done))
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(s.err, "\r\x1b[Kweights  %s  [%s]  %s of %s   %s left", name, bar, english.Bytes(size*done/total), english.Bytes(size), seconds(left))
	}
}

// loaded replaces the progress by its result.
func (s *screen) loaded(format string, args ...any) {
	if s.terminal {
		format = "\r\x1b[K" + format
	}
	s.note(format, args...)
}

func newLog(o Options) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if o.Debug {
		options.Level = slog.LevelDebug
	}
	if o.JSONLog {
		return slog.New(slog.NewJSONHandler(o.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(o.Stderr, options))
}

// seconds is d for people: "1.3 s".
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s" }

// minutes is a limit for people: "10 min", "30 s".
func minutes(d time.Duration) string {
	if d >= time.Minute && d%time.Minute == 0 {
		return strconv.Itoa(int(d/time.Minute)) + " min"
	}
	return strconv.FormatFloat(d.Seconds(), 'g', -1, 64) + " s"
}
