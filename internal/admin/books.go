package admin

import (
	"cmp"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/parley-ai/parley/internal/ledger"
)

// Bounds of how many receipts one answer lists.
const (
	defaultReceipts = 50
	mostReceipts    = 10_000
)

// receipts lists running calls too, newest first.
func (s *service) receipts(r *http.Request) (any, error) {
	a, err := s.named(r)
	if err != nil {
		return nil, err
	}
	limit := defaultReceipts
	if text := r.URL.Query().Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostReceipts {
			return nil, invalid("invalid_limit", "limit is a whole number from 1 to %d, not %q.", mostReceipts, text)
		}
	}
	// The running calls first: one that ends in between is then in both, never in none.
	running := s.Ledger.Running(a.ID)
	all, err := s.Store.Receipts(r.Context(), a.ID, limit)
	if err != nil {
		return nil, err
	}
	ended := make(map[string]bool, len(all))
	for _, c := range all {
		ended[c.RequestID] = true
	}
	for _, c := range running {
		if !ended[c.RequestID] {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b ledger.Receipt) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.RequestID, a.RequestID))
	})
	out := make([]Receipt, 0, min(len(all), limit))
	for _, c := range all[:min(len(all), limit)] {
		out = append(out, receiptView(c))
	}
	return out, nil
}

func receiptView(c ledger.Receipt) Receipt {
	return Receipt{
		RequestID: c.RequestID, CompletionID: c.CompletionID, CreatedAt: c.CreatedAt.UTC(),
		KeyID: c.KeyID, Model: c.Model,
		PromptTokens: c.PromptTokens, CachedTokens: c.CachedTokens, CompletionTokens: c.CompletionTokens, PlanTokens: c.PlanTokens,
		Charge: c.Charge.String(), Hold: c.Hold.String(), WrittenOff: c.WrittenOff.String(),
		Status: c.Status, ErrorCode: c.ErrorCode, State: string(c.State), Ending: string(c.Ending),
		UsageSource: string(c.UsageSource), Target: c.Target, Attempts: c.Attempts,
	}
}

func (s *service) verify(r *http.Request) (any, error) {
	report, err := s.Store.Verify(r.Context())
	if err != nil {
		return nil, err
	}
	out := Verification{OK: report.OK(), Accounts: report.Accounts, Entries: report.Entries, Invariants: []Invariant{}, Seconds: report.Took.Seconds()}
	for _, i := range report.Invariants {
		out.Invariants = append(out.Invariants, Invariant{Name: i.Name, OK: i.OK, Detail: i.Detail})
	}
	return out, nil
}

// backup writes a copy of the books to a path of the server's machine: whoever may open
// the socket may write as the server does.
func (s *service) backup(r *http.Request) (any, error) {
	var in NewBackup
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(in.Path) {
		return nil, invalid("invalid_path", "The path of a backup begins with /, %q does not.", in.Path)
	}
	report, err := s.Store.Backup(r.Context(), in.Path)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil, &Error{Status: http.StatusConflict, Code: "file_exists", Message: "There is a file " + in.Path + " already. Choose another name, or give a directory."}
	case errors.Is(err, fs.ErrNotExist):
		return nil, invalid("invalid_path", "There is no directory %s.", filepath.Dir(in.Path))
	case errors.Is(err, fs.ErrPermission):
		return nil, invalid("invalid_path", "The server may not write to %s.", filepath.Dir(in.Path))
	case err != nil:
		return nil, err
	}
	out := Backup{Path: in.Path, Accounts: report.Accounts, Entries: report.Entries}
	if info, err := os.Stat(in.Path); err == nil {
		out.Bytes = info.Size()
	}
	return out, nil
}
