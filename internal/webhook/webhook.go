// Package webhook tells other systems of an operator what has changed: signed, in
// order, again until they have it.
//
// The store writes an event in the transaction of what it tells of, so none is lost and
// none is told of a change that did not happen. An endpoint may get an event twice; its
// id says so.
package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/parley-ai/parley/internal/address"
)

// The kinds of events.
const (
	CreditLow           = "credit.low"
	BudgetLow           = "budget.low"   // a tenth of a key's budget is left
	BudgetSpent         = "budget.spent" // a hundredth or less is: for hardly a call
	AccountSuspended    = "account.suspended"
	AccountActivated    = "account.activated"
	SubscriptionChanged = "subscription.changed" // it was made, changed, paid ahead or canceled
	SubscriptionRenewed = "subscription.renewed" // its next period has begun
	SubscriptionPastDue = "subscription.past_due"
	SubscriptionEnded   = "subscription.ended"
	LedgerUnbalanced    = "ledger.unbalanced" // the daily proof has failed
)

// Kinds are all kinds of events.
func Kinds() []string {
	return []string{CreditLow, BudgetLow, BudgetSpent, AccountSuspended, AccountActivated, SubscriptionChanged, SubscriptionRenewed, SubscriptionPastDue, SubscriptionEnded, LedgerUnbalanced}
}

// SignatureHeader carries "t=…,v1=…": see [Sign].
const SignatureHeader = "Parley-Signature"

const (
	patience  = 10 * time.Second // for one answer
	firstWait = time.Second
	mostWait  = time.Hour
	giveUp    = 24 * time.Hour
	poll      = time.Second
	history   = 7 * 24 * time.Hour // how long deliveries can be listed
	untried   = 4 * history        // how long they wait for a server that tries them for a day
	mostError = 200                // bytes
)

// Endpoint is where events go.
type Endpoint struct {
	URL    string
	Secret string
	// Events are the kinds that it wants; none means all.
	Events []string
}

// State says what became of a delivery.
type State string

// The states of a delivery.
const (
	Waiting   State = "waiting"
	Delivered State = "delivered"
	Failed    State = "failed" // given up, until it is retried
)

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	Number    int64
	EventID   string
	Kind      string
	Endpoint  string // URL
	Body      []byte
	State     State
	Attempts  int
	LastError string
	CreatedAt time.Time // of the event
	Since     time.Time // when the attempts began
	NextAt    time.Time // of a waiting one
}

// Lost are events that were forgotten before their endpoint had taken them, or they were given up.
type Lost struct {
	Address string // of the endpoint, without what of its URL may be secret
	Events  int
	Oldest  time.Time
}

// Errors of trying a delivery again.
var (
	ErrNotFound = errors.New("there is no such delivery")
	ErrEndpoint = errors.New("events do not go to that endpoint any more")
)

// Store is the outbox.
type Store interface {
	// NextDelivery returns the waiting delivery of an endpoint that comes first.
	NextDelivery(ctx context.Context, endpoint string) (d Delivery, found bool, err error)
	// NoteDelivery writes State, Attempts, LastError and NextAt.
	NoteDelivery(ctx context.Context, d Delivery) error
	// ForgetEvents forgets events with their deliveries, at most that many: those older than
	// ended of which no delivery waits, and those older than waiting. It returns how many, and
	// which of them were lost.
	ForgetEvents(ctx context.Context, ended, waiting time.Time, most int) (n int, lost []Lost, err error)
}

// Sender sends what is in the outbox.
type Sender struct {
	store     Store
	endpoints []Endpoint
	log       *slog.Logger
	clients   map[string]*http.Client
	began     time.Time
}

// New returns a sender to those endpoints.
func New(store Store, endpoints []Endpoint, log *slog.Logger) *Sender {
	s := &Sender{store: store, endpoints: endpoints, log: log, clients: map[string]*http.Client{}, began: time.Now()}
	for _, e := range endpoints {
		s.clients[e.URL] = client(e.URL)
	}
	return s
}

// client follows no redirects and uses no proxy. What is not encrypted stays within
// private networks.
func client(target string) *http.Client {
	reach := address.Any
	if u, err := url.Parse(target); err != nil || u.Scheme != "https" {
		reach = address.Private
	}
	dialer := &net.Dialer{Timeout: patience, ControlContext: func(_ context.Context, _, host string, _ syscall.RawConn) error {
		return address.Check(host, reach)
	}}
	return &http.Client{
		Timeout:       patience,
		Transport:     &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: patience, MaxIdleConns: 1, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Run sends until ctx ends, to each endpoint in the order of the events: one that is not
// taken holds up those behind it.
func (s *Sender) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, e := range s.endpoints {
		group.Go(func() { s.serve(ctx, e) })
	}
	group.Go(func() { s.sweep(ctx) })
	group.Wait()
	for _, c := range s.clients {
		c.CloseIdleConnections()
	}
}

func (s *Sender) serve(ctx context.Context, e Endpoint) {
	for ctx.Err() == nil {
		wait, err := s.step(ctx, e)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("webhook outbox", "error", err)
		}
		pause(ctx, wait)
	}
}

// step sends the next delivery of e if it is due, and returns how long nothing is to be
// done.
func (s *Sender) step(ctx context.Context, e Endpoint) (time.Duration, error) {
	d, found, err := s.store.NextDelivery(ctx, e.URL)
	now := time.Now()
	if err != nil || !found || !due(d.NextAt, now) {
		return poll, err // a retry by hand may come at any time
	}
	d.Attempts++
	switch err := s.send(ctx, e, d, now); {
	case err == nil:
		d.State, d.LastError = Delivered, ""
	case ctx.Err() != nil:
		return 0, ctx.Err() // it is sent again by the next process
	default:
		d.LastError = clip(reason(err))
		d.NextAt = now.Add(backoff(d.Attempts))
		// What waited while no process ran, and everything behind it, is not given up at
		// the first attempt.
		if now.Sub(d.Since) >= giveUp && now.Sub(s.began) >= giveUp {
			d.State = Failed
			s.log.Error("webhook given up", "event", d.EventID, "attempts", d.Attempts, "error", d.LastError)
		}
	}
	// What was sent is noted whatever ends. What cannot be noted is sent again, not at once.
	if err := s.store.NoteDelivery(context.WithoutCancel(ctx), d); err != nil {
		return poll, err
	}
	return 0, nil
}

// due reports whether a delivery's time has come. No wait is longer than mostWait: a time
// farther ahead was noted before the clock was set back.
func due(at, now time.Time) bool {
	wait := at.Sub(now)
	return wait <= 0 || wait > mostWait
}

func (s *Sender) send(ctx context.Context, e Endpoint, d Delivery, now time.Time) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, strings.NewReader(string(d.Body)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "parley-webhook/1")
	r.Header.Set("Parley-Event", d.EventID)
	r.Header.Set(SignatureHeader, Sign(e.Secret, d.Body, now))
	res, err := s.clients[e.URL].Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // so that the connection can be used again
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("answered %s", res.Status)
	}
	return nil
}

// Sign is the value of [SignatureHeader]: "t=" and the Unix time, ",v1=" and the
// hexadecimal HMAC-SHA256 under secret of that time, a full stop and the body.
func Sign(secret string, body []byte, now time.Time) string {
	t := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// backoff doubles with each attempt, to an hour; the last half of it is random.
func backoff(attempts int) time.Duration {
	d := mostWait
	if attempts < 13 {
		d = min(mostWait, firstWait<<(attempts-1))
	}
	n, _ := rand.Int(rand.Reader, big.NewInt(int64(d/2))) // never fails since Go 1.24
	return d/2 + time.Duration(n.Int64())
}

// reason is an error's text without the URL, which may have a secret in its path.
func reason(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error()
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), mostError)], "") }

func (s *Sender) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		more, err := s.forget(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("webhook outbox not swept", "error", err)
		}
		if !more {
			pause(ctx, time.Hour)
		}
	}
}

// forget forgets some of what is old enough, and reports whether there may be more. What waited
// while no process ran is tried for a day first.
func (s *Sender) forget(ctx context.Context) (more bool, err error) {
	const rows = 256 // in one transaction
	now := time.Now()
	ended, waiting := now.Add(-history), now.Add(-history)
	if now.Sub(s.began) < giveUp {
		waiting = now.Add(-untried)
	}
	n, lost, err := s.store.ForgetEvents(ctx, ended, waiting, rows)
	for _, l := range lost {
		s.log.Error("webhook events lost", "endpoint", l.Address, "events", l.Events, "oldest", l.Oldest)
	}
	return n == rows, err
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
