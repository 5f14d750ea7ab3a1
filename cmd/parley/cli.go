package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells report a program that Ctrl+C has ended
)

// cli is the whole command line.
type cli struct {
	JSON    bool `name:"json" help:"Print JSON, also for errors."`
	NoColor bool `help:"Print without colour."`

	Serve   serveCmd `cmd:"" help:"Run the server in the foreground."`
	Account struct {
		Create accountCreate `cmd:"" help:"Make an account."`
		Show   accountShow   `cmd:"" help:"Show an account and its credit."`
		Set    accountSet    `cmd:"" help:"Change an account's plan, status or warning of low credit."`
		Invite accountInvite `cmd:"" help:"Make a link that gives somebody a place in an account, once."`
		Ls     accountLs     `cmd:"" help:"List all accounts."`
	} `cmd:"" help:"Accounts: who pays."`
	Invitation struct {
		Ls     invitationLs     `cmd:"" help:"List the invitations into an account that are still open."`
		Revoke invitationRevoke `cmd:"" help:"Make the link of an invitation worthless."`
	} `cmd:"" help:"Invitations into accounts; account invite makes them."`
	Subscription struct {
		Set    subscriptionSet    `cmd:"" help:"Give an account a subscription to a plan, or another end to it."`
		Show   subscriptionShow   `cmd:"" help:"Show a subscription and what is left of its period."`
		Renew  subscriptionRenew  `cmd:"" help:"Say that the next period is paid for."`
		Change subscriptionChange `cmd:"" help:"Move a subscription to another plan."`
		Cancel subscriptionCancel `cmd:"" help:"End a subscription with its period, or now."`
	} `cmd:"" help:"Paid periods of accounts."`
	Credit struct {
		Add    creditAdd    `cmd:"" help:"Add credit to an account."`
		Adjust creditAdjust `cmd:"" help:"Correct the credit of an account."`
		Ls     creditLs     `cmd:"" help:"List the grants of an account and what is left of each."`
	} `cmd:"" help:"Credit of accounts."`
	Topup struct {
		Create topupCreate `cmd:"" help:"Make a page on which credit can be paid."`
	} `cmd:"" help:"Credit that customers pay."`
	Code struct {
		Create codeCreate `cmd:"" help:"Make redemption codes and print them, once."`
		Ls     codeLs     `cmd:"" help:"List redemption codes, the newest first."`
		Revoke codeRevoke `cmd:"" help:"Make sure that a code is never redeemed."`
		Redeem codeRedeem `cmd:"" help:"Give an account the credit of a code."`
	} `cmd:"" help:"Codes that become credit, once."`
	Key struct {
		Create keyCreate `cmd:"" help:"Make an API key and print its secret, once."`
		Ls     keyLs     `cmd:"" help:"List the keys of an account."`
		Set    keySet    `cmd:"" help:"Change what a key may do, from now on."`
		Rotate keyRotate `cmd:"" help:"Give a key a new secret; the old one works a while longer."`
		Revoke keyRevoke `cmd:"" help:"Refuse a key from now on."`
	} `cmd:"" help:"API keys of accounts."`
	Refund    refund    `cmd:"" help:"Give back what a call was charged."`
	Receipts  receipts  `cmd:"" help:"List the calls of an account, newest first."`
	Explain   explain   `cmd:"" help:"Tell how a call was charged or why it was refused."`
	Usage     usage     `cmd:"" help:"Add up what an account used."`
	Statement statement `cmd:"" help:"Print a month of an account as CSV."`
	Audit     struct {
		Ls auditLs `cmd:"" help:"List changes, the last first."`
	} `cmd:"" help:"What operators changed."`
	Ledger struct {
		Verify ledgerVerify `cmd:"" help:"Prove that the books are balanced."`
	} `cmd:"" help:"The books."`
	Webhook struct {
		Ls    webhookLs    `cmd:"" help:"List what was told to webhooks, newest first."`
		Retry webhookRetry `cmd:"" help:"Tell it again."`
	} `cmd:"" help:"What other systems are told."`
	Backup   backupCmd  `cmd:"" help:"Copy the books into one file, while the server runs."`
	Restore  restoreCmd `cmd:"" help:"Make a backup the books of a data directory."`
	Doctor   doctorCmd  `cmd:"" help:"Look for everything that could be wrong with a data directory."`
	Operator struct {
		Link  operatorLink `cmd:"" help:"Make a link that lets an operator into the console, once."`
		Token struct {
			Create tokenCreate `cmd:"" help:"Make a token for the operator's API and print it, once."`
			Ls     tokenLs     `cmd:"" help:"List the tokens."`
			Revoke tokenRevoke `cmd:"" help:"Refuse a token from now on."`
		} `cmd:"" help:"Tokens for the operator's API on the public address."`
	} `cmd:"" help:"Operators of the console and of the API."`
	Models models `cmd:"" help:"List the models on offer."`
	Plan   struct {
		Ls   planLs   `cmd:"" help:"List the plans."`
		Show planShow `cmd:"" help:"Show a plan."`
	} `cmd:"" help:"Plans: what an account may use."`
	Config struct {
		Check configCheck `cmd:"" help:"Report every problem of a configuration file."`
	} `cmd:"" help:"The configuration file."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// Help is shown by parley help.
func (cli) Help() string {
	return `Examples:

  parley serve
  parley account create "Example Lab" --plan pro --credit 50
  parley key create --account "Example Lab" --name web
  parley receipts --account "Example Lab"

Commands speak to the server that runs on the data directory; where none runs
they open the directory themselves.`
}

// usageError is a command line that cannot be meant: exit code 2.
type usageError struct{ message string }

func (e usageError) Error() string { return e.message }

// exitError is a failure that the command has told already.
type exitError int

func (exitError) Error() string { return "failed" }

// run does what args say and returns the exit code.
func run(args []string, stdin, stdout, stderr *os.File) (code int) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	e := newEnv(ctx, stdin, stdout, stderr)
	e.json = slices.Contains(args, "--json") // A wrong command line is told as JSON too.
	defer e.watchSignals(stop)()

	var grammar cli
	parser, err := kong.New(&grammar,
		kong.Name("parley"),
		kong.Description("Chat completions for paying customers, with a model of its own inside."),
		kong.Writers(stdout, stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 80}),
		kong.Exit(func(code int) { panic(exitError(code)) }),
		kong.Bind(e),
	)
	if err != nil {
		return e.fail(err)
	}
	// Help ends the parsing by Exit.
	defer func() {
		if p := recover(); p != nil {
			c, ok := p.(exitError)
			if !ok {
				panic(p)
			}
			code = int(c)
		}
	}()
	command, err := parser.Parse(helped(args))
	if err != nil {
		return e.fail(wrongUse(err))
	}
	if err := typed(command); err != nil {
		return e.fail(err)
	}
	e.json, e.colour = grammar.JSON, e.colour && !grammar.NoColor
	return e.fail(command.Run())
}

// helped turns "parley", "parley help key" and numbers below 0 into what the grammar knows.
func helped(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	}
	args = slices.Clone(args)
	for i, a := range args {
		if len(a) > 1 && a[0] == '-' && (a[1] >= '0' && a[1] <= '9' || a[1] == '.') {
			args[i] = standIn + a
		}
	}
	return args
}

// standIn stands before "-5" on its way through the parser, which would take that for a flag. No
// argument of a process can have it.
const standIn = "\x00"

// typed puts in the place of every stand-in what was typed, and refuses an argument that is empty,
// as that of a script whose variable is not set: it would name another thing, or all of an amount.
func typed(command *kong.Context) error {
	for n := command.Selected(); n != nil; n = n.Parent {
		for _, p := range n.Positional {
			if restore(p.Target); p.Set && p.Target.IsZero() {
				return misused("<"+p.Name+"> is empty.", command)
			}
		}
		for _, f := range n.Flags {
			if restore(f.Target); f.Set && f.Required && f.Target.Kind() == reflect.String && f.Target.IsZero() {
				return misused("--"+f.Name+" is empty.", command)
			}
		}
	}
	return nil
}

// restore takes the stand-ins out of a value of the grammar.
func restore(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			restore(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			restore(v.Index(i))
		}
	case reflect.String:
		v.SetString(strings.ReplaceAll(v.String(), standIn, ""))
	}
}

// watchSignals ends e's context at the first signal. The second goes to the command,
// or ends the process where the command does not listen. The caller ends the watch.
func (e *env) watchSignals(stop context.CancelFunc) (end func()) {
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup wants it
		signal.Notify(signals, syscall.SIGHUP)
	}
	done := make(chan struct{})
	go func() {
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case s := <-signals:
				if s == syscall.SIGHUP && n > 1 { // a terminal that is closed says so twice
					n--
					continue
				}
			}
			switch {
			case n == 1:
				stop()
			case n == 2 && e.serving.Load():
				e.interrupted.Store(true)
				close(e.cut)
			default:
				os.Exit(exitInterrupted)
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// exitCode says which code err is.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return exitFailed
}
