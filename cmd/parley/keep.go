package main

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/parley-ai/parley/internal/admin"
	"github.com/parley-ai/parley/internal/app"
	"github.com/parley-ai/parley/internal/english"
)

type backupCmd struct {
	directory
	Path string `arg:"" help:"File that is not there yet, or directory to put one into."`
}

func (backupCmd) Help() string {
	return `Writes the books as they are at one moment, while calls go on. The file appears
when it is on the disk, was read back and its books are proved.

  parley backup /var/backups/parley/ --data /var/lib/parley`
}

func (b *backupCmd) Run(e *env) error {
	path, err := filepath.Abs(b.Path)
	if err != nil {
		return err
	}
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		path = filepath.Join(path, app.BackupName())
	}
	return e.with(b.directory, false, func(c *admin.Client) error {
		var made admin.Backup
		err := e.patiently("Copying the books", func() (err error) {
			made, err = c.Backup(e.ctx, admin.NewBackup{Path: path})
			return err
		})
		if err != nil {
			return err
		}
		return e.answer(made, func() {
			e.print("%s", made.Path)
			e.note("%s, %s, %s bytes: balanced.", english.Plural(made.Accounts, "account"), english.Plural(made.Entries, "entry"), english.Count(made.Bytes))
		})
	})
}

type restoreCmd struct {
	directory
	File  string `arg:"" help:"The backup."`
	Force bool   `help:"Move books that are there into backups in the data directory."`
}

func (restoreCmd) Help() string {
	return `Proves the backup, then makes it the books of the data directory. Refused while a
server runs on the directory, and where there are books, unless --force moves
those aside: then it also says which keys, operator tokens and accounts were closed
in them and work again.

  parley restore parley-20260314T150926.535Z.db --data /var/lib/parley`
}

func (r *restoreCmd) Run(e *env) error {
	c, err := r.configuration()
	if err != nil {
		return err
	}
	var done restored
	err = e.patiently("Restoring", func() error {
		x, err := app.Restore(e.ctx, r.File, c.Data, r.Force)
		done = restored{Data: c.Data, Schema: x.Schema, Accounts: x.Report.Accounts, Entries: x.Report.Entries, Aside: x.Aside, Compared: x.Compared, Revived: []revived{}}
		if !x.Newest.IsZero() {
			done.AsOf = &x.Newest
		}
		for _, v := range x.Revived {
			done.Revived = append(done.Revived, revived{v.Kind, v.ID, v.Name, v.Account})
		}
		return err
	})
	if err != nil {
		return err
	}
	return e.answer(done, func() {
		e.print("%s Schema %d, %s, %s.", e.paint(green, "Restored."), done.Schema, english.Plural(done.Accounts, "account"), english.Plural(done.Entries, "entry"))
		if done.Aside != "" {
			e.print("The books before are in %s.", done.Aside)
		}
		e.noteRevived(&done)
	})
}

// noteRevived says what an old state of the books opens again.
func (e *env) noteRevived(done *restored) {
	if done.AsOf != nil {
		e.note("The last entry is of %s: what was charged, paid or changed after it is not in these books.", date(*done.AsOf))
	}
	e.note("Everybody is signed out of the console, and links into it are void.")
	switch {
	case !done.Compared:
		e.note("%s", "Keys and operator tokens that were revoked or rotated since, and accounts that were suspended, work again.")
		e.note("%s", "Close them anew before the server starts.")
	case len(done.Revived) > 0:
		e.note("%s", "These were closed in the books before and work again. Close them anew before the server starts:")
	}
	for _, v := range done.Revived {
		switch v.Kind {
		case "key":
			e.note("  parley key revoke %s --data %s   # %s of %s", v.ID, done.Data, v.Name, v.Account)
		case "token":
			e.note("  parley operator token revoke %s --data %s   # %s", v.ID, done.Data, v.Name)
		case "account":
			e.note("  parley account set %s --status suspended --data %s   # %s", v.ID, done.Data, v.Name)
		}
	}
}

// restored is what restore prints as JSON.
type restored struct {
	Data     string `json:"data"`
	Schema   int    `json:"schema"`
	Accounts int64  `json:"accounts"`
	Entries  int64  `json:"entries"`
	Aside    string `json:"aside"` // empty: there were no books before
	// AsOf is the time of the last entry; null where the backup does not say.
	AsOf *time.Time `json:"as_of"`
	// Revived is what had ended in the books before and works again, where Compared is true.
	Revived  []revived `json:"revived"`
	Compared bool      `json:"compared"`
}

type revived struct {
	Kind    string `json:"kind"` // key, account or token
	ID      string `json:"id"`
	Name    string `json:"name"`
	Account string `json:"account,omitzero"`
}

type doctorCmd struct{ directory }

func (doctorCmd) Help() string {
	return `Looks at the data directory, the books and the weights, whether a server runs or
not, and changes nothing. Exit code 1 when something is wrong.`
}

func (d *doctorCmd) Run(e *env) error {
	c, err := d.configuration()
	if err != nil {
		return err
	}
	var findings []app.Finding
	if err := e.patiently("Looking", func() error { findings = app.Examine(e.ctx, c); return e.ctx.Err() }); err != nil {
		return err
	}
	wrong := 0
	for _, f := range findings {
		if f.Standing == app.Wrong {
			wrong++
		}
	}
	err = e.answer(struct {
		OK       bool          `json:"ok"`
		Findings []app.Finding `json:"findings"`
	}{wrong == 0, findings}, func() { e.findings(findings, wrong) })
	if wrong > 0 {
		return errors.Join(err, exitError(exitFailed))
	}
	return err
}

func (e *env) findings(list []app.Finding, wrong int) {
	words := map[app.Standing]string{app.Fine: e.paint(green, "ok   "), app.Noted: e.paint(yellow, "note "), app.Wrong: e.paint(red, "wrong")}
	for _, f := range list {
		e.print("%s  %-9s  %s", words[f.Standing], f.Check, f.Text)
		if f.Do != "" {
			e.print("                  %s", f.Do)
		}
	}
	if wrong == 0 {
		e.print("%s", "Nothing is wrong.")
	} else {
		e.print("%s.", english.Plural(wrong, "thing")+" to see to")
	}
}
