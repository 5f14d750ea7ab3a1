package console

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/audit"
	"github.com/parley-ai/parley/internal/english"
)

// System is the server as it stands.
type System struct {
	Version string
	Started time.Time
	Schema  int
	Data    string // the directory of the books
	// Unready is why no new call is served; empty when calls are.
	Unready string
	Engines []Engine
	Checks  []Check
	Files   []File // of the directory, the largest first
}

// Engine is what an embedded engine does now. Pages hold 16 tokens of prompts and answers.
type Engine struct {
	Upstream                           string
	Running, Places, Waiting           int
	PagesUsed, PagesCached, PagesTotal int
	TokensPerSecond                    float64
}

// Speed is the tokens a second.
func (e Engine) Speed() string { return fmt.Sprintf("%.1f", e.TokensPerSecond) }

// Check is one thing that was looked at. Standing is fine, noted or wrong; Do says what to do
// where it is not fine.
type Check struct{ Name, Standing, Text, Do string }

// Icon is that of the standing.
func (c Check) Icon() string {
	return map[string]string{"fine": "ok", "noted": "warn", "wrong": "bad"}[c.Standing]
}

// Words say the standing.
func (c Check) Words() string {
	return map[string]string{"fine": "Good", "noted": "Look", "wrong": "Act"}[c.Standing]
}

// File is one of the data directory.
type File struct {
	Name  string
	Bytes int64
}

// Size is the bytes for people.
func (f File) Size() string { return english.Bytes(f.Bytes) }

// operatorSystemPage is what templates/operator-system.html shows.
type operatorSystemPage struct {
	System
	Up     string
	Follow follow
	Total  string // of the files
}

// follow is whether a page asks for itself again every few seconds, and the link to the other.
type follow struct {
	On   bool
	Link string
}

// following makes the browser ask again every 5 seconds where the address says so. It is not the
// way a page begins: what moves by itself disturbs who reads it slowly.
func (v *visit) following() follow {
	if v.r.URL.Query().Get("refresh") != "5" {
		return follow{Link: v.with("refresh", "5")}
	}
	v.refresh(5 * time.Second)
	return follow{On: true, Link: v.with("refresh", "")}
}

// operatorSystem shows the server as it stands.
func (s *Server) operatorSystem(v *visit) error {
	p := operatorSystemPage{System: s.Operator.System(), Follow: v.following()}
	p.Up = uptime(v.now.Sub(p.Started))
	proof := s.Operator.Prover.Proof()
	books := Check{Name: "books", Standing: "fine", Text: proof.Words() + "."}
	switch proof.Icon() {
	case "bad", "warn":
		books.Standing, books.Do = "wrong", "See Ledger."
	case "dash":
		books.Text = "Not proved since the start."
	default:
		books.Text = fmt.Sprintf("Balanced at %s UTC: %s, %s.", proof.At.UTC().Format("2 Jan 15:04"), english.Plural(proof.Report.Entries, "entry"), took(proof.Report.Took))
	}
	backup, err := v.lastBackup(v.context())
	if err != nil {
		return err
	}
	p.Checks = append([]Check{books, backup}, p.Checks...)
	var total int64
	for _, f := range p.Files {
		total += f.Bytes
	}
	p.Total = english.Bytes(total)
	if p.Unready != "" {
		v.say(noteBad, "No new call is served.", strings.TrimSuffix(p.Unready, ".")+".")
	}
	return v.page("operator-system", "System", p)
}

// lastBackup says when one was made, as the audit log has it.
func (v *visit) lastBackup(ctx context.Context) (Check, error) {
	c := Check{Name: "backup", Standing: "noted", Text: "None was ever made.", Do: "parley backup FILE"}
	const most = 50 // entries about the books are backups, but for a few
	entries, err := v.s.Operator.Store.AuditPage(ctx, audit.Filter{Kind: "books", Limit: most})
	for _, e := range entries {
		if e.Action != audit.BooksBackup {
			continue
		}
		c.Text = "The last was made " + e.At.UTC().Format("2 Jan 2006 15:04") + " UTC."
		if v.now.Sub(e.At) < 7*24*time.Hour {
			c.Standing, c.Do = "fine", ""
		}
		break
	}
	return c, err
}

// uptime is how long something has lasted: "12 days", "3 h", "5 min".
func uptime(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return english.Plural(int(d/(24*time.Hour)), "day")
	case d >= time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d min", int(d.Minutes()))
}
