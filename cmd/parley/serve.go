package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/parley-ai/parley/internal/app"
)

type serveCmd struct {
	Config       string `help:"Configuration file; built-in without." placeholder:"FILE"`
	Data         string `help:"Data directory; default ./data." placeholder:"DIR"`
	Listen       string `help:"Address of the public interface; port 0 takes a free one." placeholder:"ADDR"`
	Log          string `help:"Log as text or json; text on a terminal, else json." placeholder:"FORM"`
	QuietSecrets bool   `help:"On the first start, print only the path of the file that has the key."`
	Debug        bool   `help:"Log more."`
}

func (serveCmd) Help() string {
	return `The first start on an empty data directory makes an account with credit and
prints its key, once. Ctrl+C or SIGTERM lets running calls finish; a second one
cuts them.

  parley serve --config parley.yaml --data /var/lib/parley --listen :8080`
}

func (s *serveCmd) Run(e *env) error {
	c, err := directory{Data: s.Data, Config: s.Config}.configuration()
	if err != nil {
		return err
	}
	if s.Listen != "" {
		c.Listen = s.Listen
	}
	switch s.Log {
	case "", "text", "json":
	default:
		return usageError{"--log must be text or json."}
	}
	// Whoever reads the log may end before the server does: that is a failed write, not
	// the end of the process.
	signal.Ignore(syscall.SIGPIPE)
	a, err := app.Open(e.ctx, app.Options{
		Config: c, Version: version, Stdout: e.out, Stderr: e.err, Terminal: e.errTerminal,
		QuietSecrets: s.QuietSecrets, JSONLog: s.Log == "json" || s.Log == "" && !e.errTerminal, Debug: s.Debug,
	})
	if errors.Is(err, context.Canceled) && e.ctx.Err() != nil {
		e.note("Stopped before it was ready.")
		return nil
	}
	if err != nil {
		return err
	}
	e.serving.Store(true)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-e.cut:
			a.Cut()
		case <-done:
		}
	}()
	if err := a.Run(e.ctx); err != nil {
		_ = a.Close() // What follows from the first error says nothing new.
		return err
	}
	return a.Close()
}
