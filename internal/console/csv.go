package console

import (
	"context"
	"encoding/csv"
	"net/http"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// csvFile answers with a file for tables and returns what writes it. Its lines are sent as
// they are made: a file may be larger than memory.
func (v *visit) csvFile(name string) *csv.Writer {
	h := v.w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	v.status = http.StatusOK
	v.w.WriteHeader(http.StatusOK)
	return csv.NewWriter(v.w)
}

// amountColumns are an amount in IU and in nano-IU, which no program rounds.
func amountColumns(a money.Amount) []string {
	return []string{a.String(), strconv.FormatInt(int64(a), 10)}
}

// cell keeps a text that others have chosen from being taken for a formula.
func cell(text string) string {
	if text != "" && (text[0] == '=' || text[0] == '+' || text[0] == '-' || text[0] == '@' || text[0] == '\t' || text[0] == '\r') {
		return "'" + text
	}
	return text
}

// callsMost is how many calls a page of a file reads at once.
const callsMost = ledger.MostPage

// callsCSV streams every call that was admitted and that the filter of the address takes,
// newest first. Each page of it has the time that a page of the console has.
func (s *Server) callsCSV(v *visit) error {
	f := v.readCallFilter()
	q := f.receipts(v.account.ID)
	q.Limit = callsMost
	page, err := s.Records.ReceiptPage(v.context(), q)
	if err != nil {
		return err
	}
	w := v.csvFile("calls.csv")
	_ = w.Write([]string{
		"created_at", "request_id", "key_id", "key", "model", "status", "result", "prompt_tokens", "cached_tokens", "completion_tokens",
		"first_token_s", "total_s", "charge_iu", "charge_niu", "written_off_iu", "written_off_niu",
	}) // errors stay with w
	for v.callLines(w, page.Receipts) && page.Next != "" {
		q.Before = page.Next
		ctx, cancel := context.WithTimeout(context.WithoutCancel(v.context()), deadline)
		page, err = s.Records.ReceiptPage(ctx, q)
		cancel()
		if err != nil {
			v.err = err
			panic(http.ErrAbortHandler) // a file that ends early must not look whole
		}
	}
	return nil
}

// callLines writes lines and reports whether somebody still reads.
func (v *visit) callLines(w *csv.Writer, calls []ledger.Receipt) bool {
	for i := range calls {
		_ = w.Write(v.callLine(&calls[i]))
	}
	w.Flush()
	return w.Error() == nil
}

func (v *visit) callLine(r *ledger.Receipt) []string {
	line := []string{
		r.CreatedAt.UTC().Format(time.RFC3339Nano), r.RequestID, r.KeyID, cell(v.keyName(r.KeyID)), r.Model, strconv.Itoa(r.Status), outcomeOf(r).Words,
		strconv.Itoa(r.PromptTokens), strconv.Itoa(r.CachedTokens), strconv.Itoa(r.CompletionTokens),
		strconv.FormatFloat(r.FirstToken.Seconds(), 'f', 6, 64), strconv.FormatFloat(r.Total.Seconds(), 'f', 6, 64),
	}
	return append(append(line, amountColumns(r.Charge)...), amountColumns(r.WrittenOff)...)
}
