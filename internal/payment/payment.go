// Package payment turns payments into credit: a thin client of Stripe's, for the two
// things that are needed of it. It makes a page on which an account's owner pays, and
// takes the signed messages that the payment has been made, or that it went back.
//
// What a payment is worth stands in the page's own metadata, which only who has the
// secret key can write, so a change of the prices does not change what was bought.
package payment

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
	"github.com/parley-ai/parley/internal/money"
)

const (
	// MaxBody bounds a message.
	MaxBody = 256 << 10
	// tolerance is how old a message may be, and how far ahead its clock: Stripe's own
	// libraries have the same.
	tolerance = 5 * time.Minute
	patience  = 30 * time.Second // for Stripe's API
	stripe    = "https://api.stripe.com"
	actor     = "stripe" // of the grants, in the audit log
)

// Names of metadata.
const (
	metaAccount = "parley_account"
	metaCredit  = "parley_credit"
	metaFor     = "for" // of the payment: the account. Its charges have it too.
)

// Errors of this package.
var (
	// ErrSignature means a message that was not signed with our secret within the last
	// minutes.
	ErrSignature = errors.New("the message is not signed, not with our secret, or too old")
	// ErrMessage means a signed message that is not what it should be.
	ErrMessage = errors.New("the message cannot be understood")
	// ErrPrice means a price that the configuration does not have.
	ErrPrice = errors.New("there is no such price")
	// ErrRefused means that Stripe made no page.
	ErrRefused = errors.New("the payment provider made no page")
)

// Price is what can be bought.
type Price struct {
	ID     string // ours
	Price  string // Stripe's
	Credit money.Amount
}

// Options are the operator's side of an account at Stripe.
type Options struct {
	SecretKey, WebhookSecret string
	SuccessURL               string // where the payer goes afterwards
	Prices                   []Price
	// BaseURL is that of Stripe's API; empty is the real one.
	BaseURL string
}

// books is what payment asks of ledger.Ledger.
type books interface {
	Grant(ctx context.Context, g ledger.Grant) (ledger.Granted, error)
	Reverse(ctx context.Context, r ledger.Reversal) (ledger.Reversed, error)
}

// records is what payment asks of store.DB.
type records interface {
	Payment(ctx context.Context, source string) (ledger.Payment, error)
}

// Room makes pages and takes messages. It is safe for concurrent use.
type Room struct {
	options Options
	ledger  books
	records records
	client  *http.Client
}

// New returns the room. The secrets must not be empty: anybody could sign.
func New(o Options, l books, r records) (*Room, error) {
	if o.SecretKey == "" || o.WebhookSecret == "" {
		return nil, errors.New("payments need a secret key and a webhook secret")
	}
	if o.BaseURL == "" {
		o.BaseURL = stripe
	}
	return &Room{options: o, ledger: l, records: r, client: &http.Client{
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Prices is what can be bought, in the order of the configuration.
func (r *Room) Prices() []Price { return slices.Clone(r.options.Prices) }

// Page is where a payment can be made.
type Page struct {
	ID     string
	URL    string
	Credit money.Amount // what it will add
}

// Checkout makes a page on which the account can be given the credit of a price. It fails
// with [ErrPrice] or [ErrRefused].
func (r *Room) Checkout(ctx context.Context, accountID, price string) (Page, error) {
	var p Price
	for _, p = range r.options.Prices {
		if p.ID == price {
			break
		}
	}
	if p.ID != price {
		return Page{}, ErrPrice
	}
	form := url.Values{
		"mode":                                           {"payment"},
		"line_items[0][price]":                           {p.Price},
		"line_items[0][quantity]":                        {"1"},
		"success_url":                                    {r.options.SuccessURL},
		"client_reference_id":                            {accountID},
		"metadata[" + metaAccount + "]":                  {accountID},
		"metadata[" + metaCredit + "]":                   {p.Credit.String()},
		"payment_intent_data[description]":               {"Credit of " + p.Credit.String() + " IU"},
		"payment_intent_data[metadata][" + metaFor + "]": {accountID},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.options.BaseURL+"/v1/checkout/sessions", strings.NewReader(form.Encode()))
	if err != nil {
		return Page{}, err
	}
	req.Header.Set("Authorization", "Bearer "+r.options.SecretKey)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := r.client.Do(req)
	if err != nil {
		return Page{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	defer res.Body.Close()
	var answer struct {
		ID    string `json:"id"`
		URL   string `json:"url"`
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, MaxBody))
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	switch {
	case answer.Error.Message != "":
		return Page{}, fmt.Errorf("%w: %s", ErrRefused, answer.Error.Message)
	case err != nil || res.StatusCode != http.StatusOK || answer.ID == "" || answer.URL == "":
		return Page{}, fmt.Errorf("%w: it answered %s", ErrRefused, res.Status)
	}
	return Page{ID: answer.ID, URL: answer.URL, Credit: p.Credit}, nil
}

// signed says whether header has a fresh time and a right v1 for it and the body. There
// may be several while a secret is changed.
func signed(secret, header string, body []byte, now time.Time) bool {
	var at string
	var given [][]byte
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			at = value
		case "v1":
			if mac, err := hex.DecodeString(value); err == nil {
				given = append(given, mac)
			}
		}
	}
	unix, err := strconv.ParseInt(at, 10, 64)
	if err != nil || now.Sub(time.Unix(unix, 0)).Abs() > tolerance {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(at + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	ok := false
	for _, g := range given {
		ok = hmac.Equal(g, want) || ok
	}
	return ok
}
