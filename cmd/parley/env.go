package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/app"
	"github.com/parley-ai/parley/internal/config"
)

// env is what a command has of the world.
type env struct {
	ctx         context.Context
	stdin       *os.File
	out         io.Writer // answers
	err         io.Writer // everything else
	json        bool
	colour      bool // of out
	errColour   bool
	width       int  // of the terminal that out is; 0 when it is none
	errTerminal bool // err is a terminal
	asks        bool // stdin is a terminal
	now         func() time.Time

	serving     atomic.Bool   // the command wants to know of a second signal
	cut         chan struct{} // closed by it
	interrupted atomic.Bool
}

func newEnv(ctx context.Context, stdin, stdout, stderr *os.File) *env {
	dumb := os.Getenv("TERM") == "dumb"
	plain := dumb || os.Getenv("NO_COLOR") != ""
	e := &env{ctx: ctx, stdin: stdin, out: stdout, err: stderr, now: time.Now, width: terminalWidth(stdout), cut: make(chan struct{})}
	e.errTerminal = terminalWidth(stderr) > 0 && !dumb
	e.asks = terminalWidth(stdin) > 0
	e.colour = e.width > 0 && !plain
	e.errColour = e.errTerminal && !plain
	return e
}

// terminalWidth is 0 for a file that is no terminal, and 80 for one that does not say.
func terminalWidth(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// Colours only repeat what a word says.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	dim    = "\x1b[2m"
	plain  = "\x1b[0m"
)

func (e *env) paint(colour, s string) string {
	if !e.colour || s == "" {
		return s
	}
	return colour + s + plain
}

// status paints the word that says how something stands.
func (e *env) status(word string) string {
	switch word {
	case "active", "ready", "delivered":
		return e.paint(green, word)
	case "suspended", "expired", "offline", "waiting":
		return e.paint(yellow, word)
	case "revoked", "failed":
		return e.paint(red, word)
	default:
		return word
	}
}

func (e *env) print(format string, args ...any) { fmt.Fprintf(e.out, format+"\n", args...) }

func (e *env) note(format string, args ...any) { fmt.Fprintf(e.err, format+"\n", args...) }

// answer prints v as JSON, or for people where JSON was not asked for.
func (e *env) answer(v any, people func()) error {
	if !e.json {
		people()
		return nil
	}
	enc := json.NewEncoder(e.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// fail tells err and returns the exit code.
func (e *env) fail(err error) int {
	if e.interrupted.Load() {
		return exitInterrupted
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	code := exitCode(err)
	if code == exitDone || code == exitInterrupted {
		return code
	}
	if e.json {
		enc := json.NewEncoder(e.err)
		enc.SetEscapeHTML(false)
		var v struct {
			Error struct {
				Message string `json:"message"`
				Code    string `json:"code"`
			} `json:"error"`
		}
		v.Error.Message, v.Error.Code = err.Error(), errorCode(err)
		_ = enc.Encode(v) // There is nowhere else to tell.
		return code
	}
	first, rest, more := strings.Cut(sentence(err.Error()), "\n")
	if e.errColour {
		first = red + first + plain
	}
	e.note("%s", first)
	if more {
		e.note("%s", rest)
	}
	return code
}

// errorCode is the code of err for scripts.
func errorCode(err error) string {
	if x, ok := errors.AsType[*admin.Error](err); ok {
		return x.Code
	}
	if x, ok := errors.AsType[*app.Error](err); ok {
		return x.Code
	}
	if x, ok := errors.AsType[coded](err); ok {
		return x.code
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return "invalid_configuration"
	}
	if _, ok := errors.AsType[*app.InUseError](err); ok {
		return "data_in_use"
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return "usage"
	}
	return "failed"
}

// coded is an error in the command line's own words.
type coded struct{ code, message string }

func (e coded) Error() string { return e.message }

// sentence begins with a capital and ends with a full stop.
func sentence(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if word, _, _ := strings.Cut(s, " "); n > 0 && !strings.ContainsAny(word, "./:_") {
		s = string(unicode.ToUpper(r)) + s[n:]
	}
	if s != "" && !strings.Contains(s, "\n") && !strings.ContainsAny(s[len(s)-1:], ".?!") {
		s += "."
	}
	return s
}

// wrongUse says as sentences what the parser found wrong, and which help there is.
func wrongUse(err error) error {
	message, hint, ok := strings.Cut(strings.NewReplacer(standIn, "", `\x00`, "").Replace(err.Error()), ", did you mean ")
	message = sentence(message)
	if ok {
		message += " Did you mean " + hint
	}
	var at *kong.Context
	if p, ok := errors.AsType[*kong.ParseError](err); ok {
		at = p.Context
	}
	return misused(message, at)
}

// misused is a message and which help there is; at may be nil.
func misused(message string, at *kong.Context) error {
	help := []string{"parley help"}
	if at != nil {
		for _, part := range at.Path {
			if part.Command != nil {
				help = append(help, part.Command.Name)
			}
		}
	}
	return usageError{message + "\n  " + strings.Join(help, " ")}
}

// directory is the flags of commands that need the data directory.
type directory struct {
	Data   string `help:"Data directory; default ./data." placeholder:"DIR"`
	Config string `help:"Configuration file, for its data directory and, when no server runs, its plans and models." placeholder:"FILE"`
}

// configuration is what the flags say, read only when it is needed.
func (d directory) configuration() (*config.Config, error) {
	c := config.Default()
	if d.Config != "" {
		var err error
		if c, err = config.Load(d.Config); err != nil {
			return nil, err
		}
	}
	if d.Data != "" {
		c.Data = d.Data
	}
	return c, nil
}

// with calls use with a client of the server that runs on the directory or, when none
// does, of the directory itself. create says that an unused directory is a beginning.
func (e *env) with(d directory, create bool, use func(*admin.Client) error) error {
	c, err := d.configuration()
	if err != nil {
		return err
	}
	client, err := admin.Dial(e.ctx, c.Data)
	if err == nil {
		defer client.Close()
		return use(client)
	}
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		return coded{"permission", fmt.Sprintf("The data directory %s belongs to another user.\nRun this as the user that runs the server.", c.Data)}
	}
	if !errors.Is(err, admin.ErrNoServer) {
		return fmt.Errorf("the server on %s cannot be reached: %w", c.Data, err)
	}
	off, err := app.OpenOffline(e.ctx, c, create)
	if locked, ok := errors.AsType[*app.InUseError](err); ok {
		return coded{"data_in_use", fmt.Sprintf("No server is running on %s, and the directory is locked by %s.\nWait for it to stop, or point --data at the right directory.", c.Data, locked.Process())}
	}
	if err != nil {
		return err
	}
	return errors.Join(use(off.Client()), off.Close())
}

// named adds the nearest name to the refusal of an account that does not exist.
func (e *env) named(c *admin.Client, name string, err error) error {
	refused, ok := errors.AsType[*admin.Error](err)
	if !ok || refused.Code != "account_not_found" {
		return err
	}
	all, listErr := c.Accounts(e.ctx)
	if listErr != nil {
		return err
	}
	var names []string
	for _, a := range all {
		names = append(names, a.Name)
	}
	if near := config.Nearest(name, names); near != "" {
		return coded{refused.Code, fmt.Sprintf("%s Did you mean %q?", refused.Message, near)}
	}
	return err
}

// patiently tells on a terminal what is done when it takes longer than a second.
func (e *env) patiently(what string, do func() error) error {
	if !e.errTerminal {
		return do()
	}
	done, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		begin, drawn := time.Now(), false
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				if drawn {
					fmt.Fprint(e.err, "\r\x1b[K")
				}
				return
			case <-tick.C:
				drawn = true
				fmt.Fprintf(e.err, "\r\x1b[K%s, %d s", what, int(time.Since(begin).Seconds()))
			}
		}
	}()
	err := do()
	close(done)
	<-told
	return err
}
