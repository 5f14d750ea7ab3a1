// Command loadgen calls a server from many clients at once and checks every answer and
// every bill. Speed that is wrong is worth nothing: a single answer that does not fit
// the convention, or a charge that is missing, double or not exact, fails the run.
//
// Without -data it starts the binary on a directory of its own, in front of a provider
// that answers at once, so that what it measures is Parley and not a model:
//
//	go -C tools run ./loadgen -bin ../bin/parley -clients 128 -duration 30s
//
// With -data and -url it calls a server that runs already.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// options is the command line.
type options struct {
	bin, data, url, model, plan string
	clients, words, rpm         int
	ramp, duration              time.Duration
	streams, leave              float64
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/parley", "the parley `binary`")
	flag.StringVar(&o.data, "data", "", "data `directory` of a running server; empty starts one")
	flag.StringVar(&o.url, "url", "", "where that server listens")
	flag.StringVar(&o.model, "model", "load", "`model` to call")
	flag.StringVar(&o.plan, "plan", "load", "`plan` of the accounts that are made")
	flag.IntVar(&o.clients, "clients", 64, "how many clients call at once")
	flag.IntVar(&o.words, "words", 64, "words of an answer of the server that is started")
	flag.IntVar(&o.rpm, "rpm", 0, "requests in any minute that the server that is started allows an account; 0 is no limit")
	flag.DurationVar(&o.ramp, "ramp", time.Second, "time in which the clients begin")
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "how long they call")
	flag.Float64Var(&o.streams, "streams", 0.5, "share of calls that are streams")
	flag.Float64Var(&o.leave, "leave", 0.02, "share of streams whose client leaves in the middle")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	problems, err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i, p := range problems {
		if i == 20 {
			fmt.Printf("and %d more\n", len(problems)-i)
			break
		}
		fmt.Println("WRONG:", p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
	fmt.Println("Every answer and every bill is right.")
}

// run calls, reports and returns what was wrong.
func run(ctx context.Context, o options) (problems []string, err error) {
	text := ""
	if o.data == "" {
		s, err := serve(ctx, &o)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		text = answer(o.words)
	} else if o.url == "" {
		return nil, errors.New("-data needs -url")
	}
	operator := &operator{bin: o.bin, data: o.data}
	purse := &purse{operator: operator, plan: o.plan}
	begin := time.Now()
	calls, err := load(ctx, o, purse, text)
	took := time.Since(begin)
	if err != nil {
		return nil, err
	}
	report(os.Stdout, calls, took)
	return check(ctx, operator, purse.accounts, calls)
}

// load is the clients.
func load(ctx context.Context, o options, p *purse, text string) ([]*call, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: o.clients, MaxIdleConnsPerHost: o.clients}}
	defer client.CloseIdleConnections()
	end := time.Now().Add(o.duration)
	var (
		mu    sync.Mutex
		all   []*call
		group sync.WaitGroup
	)
	for i := range o.clients {
		group.Go(func() {
			pause(ctx, o.ramp*time.Duration(i)/time.Duration(o.clients))
			var mine []*call
			for ctx.Err() == nil && time.Now().Before(end) {
				key, err := p.key(ctx)
				if err != nil {
					cancel(err)
					break
				}
				c := &call{account: key.account, stream: rand.Float64() < o.streams}
				if c.stream && rand.Float64() < o.leave {
					c.leaveAfter = 1 + rand.IntN(8)
				}
				c.do(ctx, client, o, key.secret, text)
				mine = append(mine, c)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	return all, nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
