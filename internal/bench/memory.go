package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"time"
)

// settleTime is how long a target has to come to rest before its memory is read.
const settleTime = 1500 * time.Millisecond

// streams measures what an open stream takes of each target's memory.
func (b *bench) streams(ctx context.Context, w io.Writer) error {
	t := table{title: fmt.Sprintf("%d streams open at once, each after its first piece. Memory: what is resident beyond before, collected garbage included.", b.held)}
	t.add("", "KiB a stream", "goroutines a stream")
	for _, target := range b.targets[1:] {
		memory, goroutines, err := b.hold(ctx, target)
		if err != nil {
			return fmt.Errorf("%s: open streams: %w", target.name, err)
		}
		row := "-"
		if target.goroutines != nil {
			row = fmt.Sprintf("%.2f", float64(goroutines)/float64(b.held))
		}
		t.add(target.name, fmt.Sprintf("%.1f", float64(memory)/1024/float64(b.held)), row)
	}
	t.print(w)
	return nil
}

// hold opens the streams and leaves them.
func (b *bench) hold(ctx context.Context, t *target) (memory, goroutines int, err error) {
	if _, err := t.run(ctx, load{callers: 8, window: 100 * time.Millisecond}, request(modelWhole, false, t.key), (*client).whole); err != nil {
		return 0, 0, err
	}
	count := func() int {
		if t.goroutines == nil || err != nil {
			return 0
		}
		var n int
		n, err = t.goroutines()
		return n
	}
	rest(ctx, settleTime)
	memory, goroutines = -t.memory(), -count()
	open := make([]*client, b.held)
	defer func() {
		for _, c := range open {
			if c != nil {
				c.conn.Close()
			}
		}
		rest(ctx, settleTime) // they are charged
	}()
	opened := make(chan error, b.held)
	tokens := make(chan struct{}, 32)
	for i := range open {
		tokens <- struct{}{}
		go func() {
			defer func() { <-tokens }()
			var err error
			if open[i], err = dial(ctx, t.addr); err == nil {
				err = open[i].first(request(modelHeld, true, t.key))
			}
			opened <- err
		}()
	}
	for range open {
		err = errors.Join(err, <-opened)
	}
	t.calls += b.held
	rest(ctx, settleTime)
	memory, goroutines = memory+t.memory(), goroutines+count()
	return memory, goroutines, err
}

// first makes a call that is streamed and reads up to its first piece.
func (c *client) first(req []byte) error {
	if _, err := c.begin(req); err != nil {
		return err
	}
	piece := regexp.MustCompile(`"content":"` + pieceText)
	for !piece.Match(c.body) {
		n, err := c.chunk()
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rest lets d pass, or less when ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// ask reads a number that a server tells under path.
func ask(ctx context.Context, addr, path, pattern string) (int, error) {
	conn, err := (&net.Dialer{Timeout: callTimeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: parley\r\n\r\n", path); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("no %s in %.200q", pattern, text)
	}
	return strconv.Atoi(string(found[1]))
}

// freeAddr is an address that nobody listens on now.
func freeAddr(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// reachable waits until somebody listens.
func reachable(ctx context.Context, addr string) error {
	for deadline := time.Now().Add(callTimeout); ; rest(ctx, 10*time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}
