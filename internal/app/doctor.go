package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/parley-ai/parley/internal/config"
	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/store"
)

// Standing is how one thing stands that [Examine] has looked at.
type Standing string

// The standings of a finding. Only Wrong needs somebody to act.
const (
	Fine  Standing = "fine"
	Noted Standing = "noted"
	Wrong Standing = "wrong"
)

// Finding is one thing that was looked at: what it is, how it is, and, where it is not
// fine, what to do.
type Finding struct {
	Check    string   `json:"check"`
	Standing Standing `json:"standing"`
	Text     string   `json:"text"`
	Do       string   `json:"do,omitzero"`
}

// examination collects findings.
type examination struct {
	dir      string
	now      time.Time
	free     func(dir string) (uint64, error)
	findings []Finding
}

func (x *examination) add(check string, s Standing, text, do string) {
	x.findings = append(x.findings, Finding{check, s, text, do})
}

// Examine looks at everything a server on c.Data needs, whether one runs or not, and
// changes nothing.
func Examine(ctx context.Context, c *config.Config) []Finding {
	x := &examination{dir: c.Data, now: time.Now(), free: freeBytes}
	if !x.permissions() {
		return x.findings
	}
	running := x.lock()
	x.disk()
	x.books(ctx, running)
	x.weights(c, running)
	return x.findings
}

// permissions is false where there is no directory to go on with.
func (x *examination) permissions() bool {
	fi, err := os.Stat(x.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.add("directory", Wrong, "There is no data directory "+x.dir+".", "Point --data at the right one, or start a server on it: parley serve")
		return false
	case err != nil:
		x.add("directory", Wrong, "The data directory cannot be read: "+err.Error()+".", "Run this as the user that runs the server.")
		return false
	case !fi.IsDir():
		x.add("directory", Wrong, x.dir+" is no directory.", "Point --data at the right one.")
		return false
	}
	if e, ok := errors.AsType[*Error](writable(x.dir)); ok {
		x.add("directory", Wrong, e.Lines[0], e.Lines[1])
		return true
	}
	var open []string
	if fi.Mode().Perm()&0o077 != 0 {
		open = append(open, x.dir)
	}
	for _, name := range []string{store.FileName, store.FileName + "-wal", "progress", "parley.sock", firstFile} {
		path := filepath.Join(x.dir, name)
		if fi, err := os.Lstat(path); err == nil && fi.Mode().Perm()&0o077 != 0 {
			open = append(open, path)
		}
	}
	if len(open) > 0 {
		x.add("directory", Wrong, "Open to other users: "+strings.Join(open, ", ")+".", "chmod go= "+strings.Join(open, " "))
		return true
	}
	x.add("directory", Fine, x.dir+" is closed to other users.", "")
	return true
}

// lock says whether a process uses the directory. It asks for a shared lock and lets it
// go at once.
func (x *examination) lock() (running bool) {
	f, err := os.Open(filepath.Join(x.dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		x.add("lock", Fine, "No process uses the directory.", "")
		return false
	}
	if err != nil {
		x.add("lock", Wrong, "The lock cannot be read: "+err.Error()+".", "Run this as the user that runs the server.")
		return false
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	switch {
	case err == nil:
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // see unlock
		x.add("lock", Fine, "No process uses the directory.", "")
		return false
	case !errors.Is(err, syscall.EWOULDBLOCK):
		x.add("lock", Wrong, "The directory cannot be locked: "+err.Error()+".", "Put it on a local disk: a file system without locks cannot keep two servers apart.")
		return false
	}
	who := (&InUseError{Dir: x.dir, PID: holder(f)}).Process()
	x.add("lock", Fine, "In use by "+who+".", "")
	return true
}

func (x *examination) disk() {
	free, err := x.free(x.dir)
	switch {
	case err != nil:
		x.add("disk", Wrong, "The free space cannot be measured: "+err.Error()+".", "See to the file system of "+x.dir+".")
	case free < leastFree:
		x.add("disk", Wrong, fmt.Sprintf("%s are free, %s are needed: no call is admitted.", english.Bytes(free), english.Bytes(leastFree)), "Make room on the disk of "+x.dir+".")
	case free < 4*leastFree:
		x.add("disk", Noted, fmt.Sprintf("%s are free; below %s no call is admitted.", english.Bytes(free), english.Bytes(leastFree)), "Make room soon.")
	default:
		x.add("disk", Fine, english.Bytes(free)+" are free.", "")
	}
}

func (x *examination) books(ctx context.Context, running bool) {
	i, err := store.Inspect(ctx, x.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.add("books", Noted, "There are no books yet.", "parley serve makes them. If there should be some, restore a backup: parley restore FILE")
		return
	case errors.Is(err, store.ErrGone):
		x.add("books", Wrong, sentence(err), "Parley has served from here. Restore a backup: parley restore FILE")
		return
	case errors.Is(err, store.ErrNewerSchema):
		x.add("schema", Wrong, sentence(err), "Run the newer version of Parley, or restore a backup made before it: parley restore FILE --force")
		return
	case errors.Is(err, store.ErrRestoring):
		x.add("books", Wrong, sentence(err), "Run parley restore again.")
		return
	case errors.Is(err, store.ErrUnbalanced):
		x.add("books", Wrong, sentence(err), "Keep a copy of the directory, stop serving and report it; see parley ledger verify.")
		x.proof(i.Proof, running)
		return
	case errors.Is(err, store.ErrNotOurs):
		x.add("books", Wrong, sentence(err), "Keep a copy of the directory, then restore the last backup: parley restore FILE --force")
		return
	case err != nil:
		x.add("books", Wrong, "They cannot be looked at: "+sentence(err), "That need not be damage: see to the disk and the permissions of "+x.dir+" first, then look again.")
		return
	}
	x.add("schema", Fine, fmt.Sprintf("Schema %d; the pages of the database are sound.", i.Schema), "")
	if i.Report.Invariants == nil {
		x.add("books", Noted, "The schema is older than this build's: the books are proved when they have been brought up to date.", "Start the server; it keeps a backup first.")
		return
	}
	x.add("books", Fine, fmt.Sprintf("Balanced: %s, %s, %s.", english.Plural(i.Report.Accounts, "account"), english.Plural(i.Report.Entries, "entry"), english.Plural(len(i.Report.Invariants), "invariant")), "")
	x.proof(i.Proof, running)
	x.leftovers(i, running)
	x.payments(i.Undecided)
	x.webhooks(i.Waiting, running)
	x.parts(i.Parts)
	x.clock(i.Newest)
}

// proof is how the server's own proof stands, which it makes at its start and every day.
func (x *examination) proof(p store.Proof, running bool) {
	const late = 36 * time.Hour
	age := x.now.Sub(p.At)
	switch {
	case p.At.IsZero():
		x.add("proof", Fine, "None yet: a server proves new books after a day, others at its start.", "")
	case p.Law != "":
		x.add("proof", Wrong, fmt.Sprintf("The proof of %s failed: %s: %s.", p.At.Format(time.RFC3339), p.Law, p.Detail),
			"Keep a copy of the directory and run parley ledger verify. If it says balanced, the books were mended since.")
	case running && age > late:
		x.add("proof", Wrong, fmt.Sprintf("The last proof is of %s; a running server makes one every day.", p.At.Format(time.RFC3339)),
			"Look for \"books not proved\" in the server's log; restart it.")
	default:
		x.add("proof", Fine, fmt.Sprintf("Balanced at %s, %s.", p.At.Format(time.RFC3339), english.Plural(p.Entries, "entry")), "")
	}
}

// leftovers are what a process that was killed did not resolve.
func (x *examination) leftovers(i store.Inspection, running bool) {
	switch {
	case running:
		x.add("holds", Fine, english.Plural(i.Holds, "stream")+" running.", "")
	case i.Holds > 0:
		x.add("holds", Noted, english.Plural(i.Holds, "stream")+" did not end before the last process did.", "The next start charges what they had delivered; nothing else is to be done.")
	case i.Slots > 0:
		x.add("holds", Noted, "The last process was killed; no stream was left open.", "The next start clears up; nothing else is to be done.")
	default:
		x.add("holds", Fine, "Nothing is left of the last process.", "")
	}
}

// payments are what went back of payments and nobody has decided yet.
func (x *examination) payments(list []store.Undecided) {
	for _, u := range list {
		x.add("payments", Wrong, fmt.Sprintf("%s of account %s: %s.", u.At.Format(time.RFC3339), u.Name, u.Reason),
			fmt.Sprintf("Look at it in Stripe's dashboard, then take what it is worth (-AMOUNT), or give it again, at most the %s IU that the payment brought: parley credit adjust %s AMOUNT --reason %q",
				u.Credit, u.AccountID, u.Part))
	}
	if len(list) == 0 {
		x.add("payments", Fine, "None that went back waits for a decision.", "")
	}
}

// webhooks are what other systems have not taken, whose events are forgotten after a week.
func (x *examination) webhooks(list []store.WaitingEvents, running bool) {
	const late = 24 * time.Hour
	held := false
	for _, w := range list {
		text := fmt.Sprintf("%s for %s, the oldest of %s.", english.Plural(w.Events, "event")+" waiting", w.Address, w.Oldest.Format(time.RFC3339))
		switch {
		case x.now.Sub(w.Oldest) <= late:
			continue
		case !w.Wanted:
			x.add("webhooks", Noted, text, "The configuration has no such webhook any more: they are forgotten after seven days.")
		case !running:
			x.add("webhooks", Noted, text, "A server tries them for a day: parley serve")
		default:
			x.add("webhooks", Wrong, text, "See parley webhook ls for the last error, and to the system at that address: what it does not take is given up after a day, and forgotten after seven.")
		}
		held = true
	}
	if !held {
		x.add("webhooks", Fine, "No event waits longer than a day.", "")
	}
}

// parts are what backups have left that were killed.
func (x *examination) parts(list []store.Part) {
	for _, p := range list {
		x.add("backup", Noted, fmt.Sprintf("%s (%s) is part of a backup that runs, or was killed; it was last written at %s.", p.Path, english.Bytes(p.Bytes), p.Written.UTC().Format(time.RFC3339)),
			"If no backup runs: rm "+p.Path+". The next one into its directory does so a day after that time.")
	}
	if len(list) == 0 {
		x.add("backup", Fine, "Nothing is left of backups that were killed.", "")
	}
}

// clock compares with the last call: a clock that was set back lets subscriptions and
// keys live longer than they should.
func (x *examination) clock(newest time.Time) {
	const tolerance = time.Minute
	if ahead := newest.Sub(x.now); ahead > tolerance {
		x.add("clock", Wrong, fmt.Sprintf("The last call was made at %s, which has not come yet: the clock was set back by %s or more.", newest.Format(time.RFC3339), ahead.Round(time.Second)), "Set the clock; run a time service (chrony, systemd-timesyncd).")
		return
	}
	x.add("clock", Fine, x.now.UTC().Format(time.RFC3339)+", after the last call.", "")
}

// weights looks for the files that local upstreams load.
func (x *examination) weights(c *config.Config, running bool) {
	for _, u := range c.Upstreams {
		if u.Kind != config.KindLocal {
			continue
		}
		path, size, err := findWeights(u, c.Data)
		e, ok := errors.AsType[*Error](err)
		if ok && running && c.Source == config.BuiltIn {
			x.add("weights", Noted, "Those of the built-in configuration are not here, and the running server does not need them.", "Name its configuration to look at others: --config FILE")
			continue
		}
		if ok {
			x.add("weights", Wrong, strings.Join(e.Lines[:len(e.Lines)-1], "\n"), e.Lines[len(e.Lines)-1])
			continue
		}
		if err == nil {
			err = startsLikeGGUF(path)
		}
		if err != nil {
			x.add("weights", Wrong, "The weights of upstream "+u.ID+" cannot be used: "+err.Error()+".", "Fetch them again.")
			continue
		}
		x.add("weights", Fine, fmt.Sprintf("%s of upstream %s: %s.", path, u.ID, english.Bytes(size)), "")
	}
}

func startsLikeGGUF(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var magic [4]byte
	if _, err := io.ReadFull(f, magic[:]); err != nil || string(magic[:]) != "GGUF" {
		return fmt.Errorf("%s is no GGUF file", path)
	}
	return nil
}

// sentence is an error's text as a sentence.
func sentence(err error) string { return strings.TrimSuffix(err.Error(), ".") + "." }
