// Package payment turns payments into credit: a thin client of Stripe's, for the two
// things that are needed of it. It makes a page on which an account's owner pays, and
// takes the signed message that the payment has been made.
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

	"github.com/parley-ai/parley/internal/audit"
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

// granter is what payment asks of ledger.Ledger.
type granter interface {
	Grant(ctx context.Context, g ledger.Grant) (ledger.Granted, error)
}

// Room makes pages and takes messages. It is safe for concurrent use.
type Room struct {
	options Options
	ledger  granter
	client  *http.Client
}

// New returns the room. The secrets must not be empty: anybody could sign.
func New(o Options, l granter) (*Room, error) {
	if o.SecretKey == "" || o.WebhookSecret == "" {
		return nil, errors.New("payments need a secret key and a webhook secret")
	}
	if o.BaseURL == "" {
		o.BaseURL = stripe
	}
	return &Room{options: o, ledger: l, client: &http.Client{
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
		"mode":                               {"payment"},
		"line_items[0][price]":               {p.Price},
		"line_items[0][quantity]":            {"1"},
		"success_url":                        {r.options.SuccessURL},
		"client_reference_id":                {accountID},
		"metadata[" + metaAccount + "]":      {accountID},
		"metadata[" + metaCredit + "]":       {p.Credit.String()},
		"payment_intent_data[description]":   {"Credit of " + p.Credit.String() + " IU"},
		"payment_intent_data[metadata][for]": {accountID},
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

// message is what is read of an event.
type message struct {
	Type string `json:"type"`
	Data struct {
		Object struct {
			ID            string            `json:"id"`
			PaymentIntent string            `json:"payment_intent"`
			PaymentStatus string            `json:"payment_status"`
			Metadata      map[string]string `json:"metadata"`
		} `json:"object"`
	} `json:"data"`
}

// Notify takes a message with its header Stripe-Signature. A payment of a page of ours
// becomes credit, once however often it is told; everything else is nothing to us. It
// fails with [ErrSignature], [ErrMessage] or the errors of [ledger.Ledger.Grant]: the
// message is then sent again.
func (r *Room) Notify(ctx context.Context, signature string, body []byte, now time.Time) error {
	if !signed(r.options.WebhookSecret, signature, body, now) {
		return ErrSignature
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	paid := m.Data.Object
	switch m.Type {
	case "checkout.session.completed", "checkout.session.async_payment_succeeded":
	default:
		return nil
	}
	account := paid.Metadata[metaAccount]
	if paid.PaymentStatus != "paid" || account == "" {
		return nil // not yet, or no page of ours
	}
	credit, err := money.ParseAmount(paid.Metadata[metaCredit])
	if err != nil || paid.ID == "" {
		return fmt.Errorf("%w: session %q, credit %q", ErrMessage, paid.ID, paid.Metadata[metaCredit])
	}
	id := paid.PaymentIntent
	if id == "" {
		id = paid.ID
	}
	g := ledger.Grant{AccountID: account, Kind: ledger.Prepaid, Amount: credit, Note: "payment " + id, Source: "stripe:" + id}
	if _, err := r.ledger.Grant(audit.WithActor(ctx, actor), g); err != nil {
		return fmt.Errorf("payment %s for %s of %s IU: %w", id, account, credit, err)
	}
	return nil
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
