package console

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/parley-ai/parley/internal/english"
	"github.com/parley-ai/parley/internal/explain"
	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

// receiptPage is what templates/request.html shows of a call that was admitted.
type receiptPage struct {
	ID      string
	Outcome outcome
	explain.Explained
	Title    string
	Charge   string // the sentence beside the head of the charge
	Notes    []string
	Parts    []part
	Cuts     []part // what of the parts' sum was not charged
	Tokens   int
	Released money.Amount
	Lanes    []lane
	Speed    string
	Key      string
	Operator bool
	// CountedBy is who did, of a call that has ended.
	CountedBy string
}

// part is a row of the charge.
type part struct {
	Name   string
	Count  int
	Price  string // of 1,000 tokens
	Amount money.Amount
}

// lane is a stretch of the timeline, in hundredths of all of it.
type lane struct {
	Name, Class, Took string
	X, Width          float64
}

// request is the page of one call: its receipt, or why it was refused.
func (s *Server) request(v *visit) error {
	x, err := v.explained(v.r.PathValue("id"))
	if err != nil {
		return err
	}
	if x.Refusal != nil {
		return s.refused(v, x)
	}
	p := v.receiptPage(x)
	if x.Receipt.State == ledger.Running {
		v.w.Header().Set("Refresh", "2") // so far; the page is made anew until the call has ended
	}
	return v.page("request", p.Title, p)
}

// counters are who has counted the tokens of a call.
var counters = map[ledger.UsageSource]string{
	ledger.UsageProvider: "the upstream", ledger.UsageCounted: "Parley", ledger.UsageEstimated: "Parley, an estimate",
}

// partNames are those of the rows of a charge.
var partNames = map[ledger.PartKind]string{
	ledger.PartPrompt: "Prompt", ledger.PartCached: "Prompt, cached", ledger.PartCompletion: "Completion",
}

func (v *visit) receiptPage(x explain.Explained) receiptPage {
	r := x.Receipt
	p := receiptPage{
		ID: r.RequestID, Outcome: outcomeOf(r), Explained: x, Key: v.keyName(r.KeyID), Tokens: r.PromptTokens + r.CompletionTokens,
		Released: r.Hold - r.Charge, Lanes: lanes(r), Speed: speed(r), Operator: v.who.Member.Operator, CountedBy: counters[r.UsageSource],
	}
	switch r.State {
	case ledger.Running:
		p.Title = r.Model + ", running"
	case ledger.Voided:
		p.Title = r.Model + ", not charged"
	default:
		p.Title = r.Model + ", " + decimals(r.Charge, 6, 9, down) + " IU"
		if r.PlanTokens > 0 {
			p.Title += " and " + english.Plural(r.PlanTokens, "plan token")
		}
	}
	if len(x.Sentences) > 0 {
		p.Charge, p.Notes = x.Sentences[0], x.Sentences[1:]
	}
	for _, l := range x.Parts {
		p.Parts = append(p.Parts, part{partNames[l.Kind], l.Count, l.Price.PerThousand(), l.Amount})
	}
	if free := x.Free(); free != 0 {
		name := "Not charged"
		if r.PlanTokens > 0 {
			name = "Paid by the plan: " + english.Plural(r.PlanTokens, "token")
		}
		p.Cuts = append(p.Cuts, part{Name: name, Amount: -free})
	}
	if r.WrittenOff != 0 && r.State != ledger.Running {
		p.Cuts = append(p.Cuts, part{Name: "Written off", Amount: -r.WrittenOff})
	}
	return p
}

// lanes is what is known of the time that a call took.
func lanes(r *ledger.Receipt) []lane {
	if r.Total <= 0 {
		return nil
	}
	at := func(d time.Duration) float64 { return 100 * float64(min(d, r.Total)) / float64(r.Total) }
	wait := "Waiting for the first token"
	if n := r.Attempts - 1; n > 0 {
		wait += ", after " + english.Plural(n, "failover")
	}
	if r.FirstToken <= 0 {
		return []lane{{"Without a token", "w", lasting(r.Total), 0, 100}}
	}
	return []lane{
		{wait, "w", lasting(r.FirstToken), 0, at(r.FirstToken)},
		{"Answering, " + english.Plural(r.CompletionTokens, "token"), "", lasting(r.Total - r.FirstToken), at(r.FirstToken), 100 - at(r.FirstToken)},
	}
}

// speed is how fast an answer came after its first token.
func speed(r *ledger.Receipt) string {
	d := r.Total - r.FirstToken
	if r.FirstToken <= 0 || d < 10*time.Millisecond || r.CompletionTokens < 2 {
		return ""
	}
	return count(int(float64(r.CompletionTokens-1)/d.Seconds()+.5)) + " tokens a second"
}

// receiptJSON is a receipt for programs: amounts are decimal texts in IU.
type receiptJSON struct {
	RequestID        string    `json:"request_id"`
	CompletionID     string    `json:"completion_id"`
	KeyID            string    `json:"key_id"`
	Model            string    `json:"model"`
	CreatedAt        time.Time `json:"created_at"`
	State            string    `json:"state"`
	Ending           string    `json:"ending"`
	Status           int       `json:"status"`
	ErrorCode        string    `json:"error_code,omitempty"`
	PromptTokens     int       `json:"prompt_tokens"`
	CachedTokens     int       `json:"cached_tokens"`
	CompletionTokens int       `json:"completion_tokens"`
	PlanTokens       int       `json:"plan_tokens"`
	Held             string    `json:"held"`
	Charge           string    `json:"charge"`
	WrittenOff       string    `json:"written_off"`
	UsageSource      string    `json:"usage_source"`
	PriceID          string    `json:"price_id"`
	PlanVersion      string    `json:"plan_version"`
	Attempts         int       `json:"attempts"`
	FirstTokenMS     float64   `json:"first_token_ms"`
	TotalMS          float64   `json:"total_ms"`
}

// requestJSON is the receipt of a call as JSON.
func (s *Server) requestJSON(v *visit) error {
	x, err := v.explained(v.r.PathValue("id"))
	if err != nil {
		return err
	}
	if x.Receipt == nil {
		return errNotFound
	}
	r := x.Receipt
	body, err := json.MarshalIndent(receiptJSON{
		r.RequestID, r.CompletionID, r.KeyID, r.Model, r.CreatedAt.UTC(), string(r.State), string(r.Ending), r.Status, r.ErrorCode,
		r.PromptTokens, r.CachedTokens, r.CompletionTokens, r.PlanTokens, r.Hold.String(), r.Charge.String(), r.WrittenOff.String(),
		string(r.UsageSource), r.PriceID, r.PlanVersion, r.Attempts, milliseconds(r.FirstToken), milliseconds(r.Total),
	}, "", "  ")
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.status = http.StatusOK
	_, _ = v.w.Write(append(body, '\n')) // who does not read it is not told so
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
