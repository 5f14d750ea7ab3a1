package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/ident"
	"github.com/parley-ai/parley/internal/money"
	"github.com/parley-ai/parley/internal/store"
	"github.com/parley-ai/parley/internal/webhook"
)

const secret = "whsec_0123456789abcdef"

// other is a system of the operator.
type other struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []string // ids of events in the order they came
	bad    []string
	more   chan struct{}
}

func newOther(t *testing.T) *other {
	t.Helper()
	o := &other{status: http.StatusNoContent, more: make(chan struct{}, 100)}
	o.Server = httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(o.Close)
	return o
}

func (o *other) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	t, v1, _ := strings.Cut(strings.TrimPrefix(r.Header.Get(webhook.SignatureHeader), "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s", t, body)
	at, err := strconv.ParseInt(t, 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > time.Minute || v1 != hex.EncodeToString(mac.Sum(nil)) || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" {
		o.bad = append(o.bad, fmt.Sprint(r.Method, r.Header))
	}
	if o.status/100 == 2 {
		o.got = append(o.got, r.Header.Get("Parley-Event"))
	}
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(o.status)
	o.more <- struct{}{}
}

func (o *other) answer(status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status = status
}

// books are a database that tells endpoint of what happens to an account.
func books(t *testing.T, endpoint string) (db *store.DB, toggle func()) {
	t.Helper()
	db, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	a := account.Account{ID: ident.New(ident.Account), Name: "a", Plan: "pro", Status: account.Active, CreatedAt: time.Now()}
	if err := db.CreateAccount(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := db.Announce(t.Context(), []webhook.Endpoint{{URL: endpoint}}, money.IU); err != nil {
		t.Fatal(err)
	}
	return db, func() {
		t.Helper()
		if a.Status == account.Active {
			a.Status = account.Suspended
		} else {
			a.Status = account.Active
		}
		if err := db.UpdateAccount(context.Background(), a); err != nil {
			t.Fatal(err)
		}
	}
}

func sender(db *store.DB, url string) *webhook.Sender {
	return webhook.New(db, []webhook.Endpoint{{URL: url, Secret: secret}}, slog.New(slog.DiscardHandler))
}

func deliveries(t *testing.T, db *store.DB) []webhook.Delivery {
	t.Helper()
	list, err := db.Deliveries(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// What an endpoint does not take is sent again, and what is behind it waits.
func TestSender_InOrderAndAgain(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	db, toggle := books(t, o.URL+"/secret-path")
	s := webhook.New(patientStore{db}, []webhook.Endpoint{{URL: o.URL + "/secret-path", Secret: secret}}, slog.New(slog.DiscardHandler))
	step := func() {
		t.Helper()
		if err := s.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	toggle()
	toggle()
	for _, status := range []int{500, 302, 404} {
		o.answer(status)
		before := time.Now()
		step()
		d := deliveries(t, db)[1]
		if d.State != webhook.Waiting || !strings.Contains(d.LastError, strconv.Itoa(status)) || d.NextAt.Sub(before) < moreWait+400*time.Millisecond {
			t.Errorf("after %d: %+v", status, d)
		}
		step() // it is not due
		if n := deliveries(t, db)[1].Attempts; n != d.Attempts {
			t.Errorf("it was sent again before its time")
		}
		if err := db.RetryDelivery(t.Context(), d.Number); err != nil {
			t.Fatal(err)
		}
	}
	o.answer(200)
	step()
	step()
	step()
	list := deliveries(t, db)
	if len(o.got) != 2 || o.got[0] != list[1].EventID || o.got[1] != list[0].EventID || len(o.bad) != 0 {
		t.Errorf("came %v, bad %v, want %s and %s", o.got, o.bad, list[1].EventID, list[0].EventID)
	}
	if list[0].State != webhook.Delivered || list[1].State != webhook.Delivered || list[1].Attempts != 4 {
		t.Errorf("deliveries: %+v", list)
	}
	if err := db.RetryDelivery(t.Context(), 1000); err == nil {
		t.Error("a delivery that does not exist is retried")
	}
}

// After a day it is given up, and the next has its turn.
func TestSender_GivesUp(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	o.answer(500)
	db, toggle := books(t, o.URL)
	toggle()
	old := olderStore{db, 25 * time.Hour}
	s := webhook.New(old, []webhook.Endpoint{{URL: o.URL, Secret: secret}}, slog.New(slog.DiscardHandler))
	if err := s.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	// It waited for most of the day for a process that sends it.
	d := deliveries(t, db)[0]
	if d.State != webhook.Waiting || d.Attempts != 1 {
		t.Errorf("at its first attempt: %+v, want it to wait for another", d)
	}
	if err := db.RetryDelivery(t.Context(), d.Number); err != nil {
		t.Fatal(err)
	}
	s.Began(24 * time.Hour)
	if err := s.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := deliveries(t, db)[0]; d.State != webhook.Failed {
		t.Errorf("after a day: %+v, want it to be given up", d)
	}
	if _, found, err := db.NextDelivery(t.Context(), o.URL); found || err != nil {
		t.Errorf("it is still the next: %v", err)
	}
}

// What nobody has taken for a week is forgotten and told, but not by a server that has not tried
// it for a day.
func TestSender_Forgets(t *testing.T) {
	t.Parallel()
	db, toggle := books(t, "https://hooks.example/secret-path")
	toggle()
	toggle()
	var log strings.Builder
	s := webhook.New(laterStore{db, 8 * 24 * time.Hour}, []webhook.Endpoint{{URL: "https://hooks.example/secret-path", Secret: secret}}, slog.New(slog.NewTextHandler(&log, nil)))
	if err := s.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(deliveries(t, db)); n != 2 || log.Len() > 0 {
		t.Errorf("at its start %d are left, want 2; log %q", n, &log)
	}
	s.Began(24 * time.Hour)
	if err := s.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(deliveries(t, db)); n != 0 {
		t.Errorf("after a day %d are left", n)
	}
	if got := log.String(); !strings.Contains(got, `level=ERROR msg="webhook events lost" endpoint=https://hooks.example/#`) || !strings.Contains(got, "events=2 oldest=") || strings.Contains(got, "secret-path") {
		t.Errorf("log %q", got)
	}
}

// A server that never runs for a day does not keep what it cannot send for ever.
func TestSender_ForgetsUntried(t *testing.T) {
	t.Parallel()
	db, toggle := books(t, "https://hooks.example/")
	toggle()
	s := webhook.New(laterStore{db, 29 * 24 * time.Hour}, nil, slog.New(slog.DiscardHandler))
	if err := s.Forget(t.Context()); err != nil || len(deliveries(t, db)) != 0 {
		t.Errorf("after four weeks: %v, %+v", err, deliveries(t, db))
	}
}

const moreWait = 30 * time.Minute

// patientStore adds moreWait to each wait: what is not due stays so on a machine that stands still.
type patientStore struct{ *store.DB }

func (s patientStore) NoteDelivery(ctx context.Context, d webhook.Delivery) error {
	if d.State == webhook.Waiting {
		d.NextAt = d.NextAt.Add(moreWait)
	}
	return s.DB.NoteDelivery(ctx, d)
}

// laterStore forgets as if it were so much later.
type laterStore struct {
	*store.DB
	by time.Duration
}

func (s laterStore) ForgetEvents(ctx context.Context, ended, waiting time.Time, most int) (int, []webhook.Lost, error) {
	return s.DB.ForgetEvents(ctx, ended.Add(s.by), waiting.Add(s.by), most)
}

// A clock that was set back does not hold up what waited for it.
func TestSender_ClockSetBack(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	db, toggle := books(t, o.URL)
	toggle()
	s := sender(db, o.URL)
	for _, c := range []struct {
		ahead time.Duration
		sent  int
	}{{59 * time.Minute, 0}, {25 * time.Hour, 1}} {
		d := deliveries(t, db)[0]
		d.NextAt = time.Now().Add(c.ahead)
		if err := db.NoteDelivery(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if err := s.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(o.got) != c.sent {
			t.Errorf("due in %s: sent %d times, want %d", c.ahead, len(o.got), c.sent)
		}
	}
}

// A full disk does not become a flood: what was sent and cannot be noted is sent again
// after a wait.
func TestSender_CannotNote(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	db, toggle := books(t, o.URL)
	toggle()
	s := webhook.New(fullStore{db}, []webhook.Endpoint{{URL: o.URL, Secret: secret}}, slog.New(slog.DiscardHandler))
	wait, err := s.StepWait(t.Context())
	if wait < time.Second || !errors.Is(err, errFull) || len(o.got) != 1 {
		t.Errorf("waits %s after %v and %d events", wait, err, len(o.got))
	}
}

var errFull = errors.New("the disk is full")

// fullStore notes nothing.
type fullStore struct{ *store.DB }

func (fullStore) NoteDelivery(context.Context, webhook.Delivery) error { return errFull }

// olderStore makes deliveries older than they are.
type olderStore struct {
	*store.DB
	by time.Duration
}

func (s olderStore) NextDelivery(ctx context.Context, endpoint string) (webhook.Delivery, bool, error) {
	d, found, err := s.DB.NextDelivery(ctx, endpoint)
	d.Since = d.Since.Add(-s.by)
	return d, found, err
}

// The address counts, not the name: http stays in private networks, and nothing is sent
// to where clouds keep credentials.
func TestSender_Addresses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://8.8.8.8/", "http://169.254.169.254/", "https://169.254.169.254/", "https://[fd00:ec2::254]/"} {
		db, toggle := books(t, url)
		toggle()
		if err := sender(db, url).Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := deliveries(t, db)[0]; d.State != webhook.Waiting || !strings.Contains(d.LastError, "not allowed") {
			t.Errorf("%s: %+v", url, d)
		}
	}
}

func TestSender_Run(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	db, toggle := books(t, o.URL)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { sender(db, o.URL).Run(ctx) })
	for range 3 {
		toggle()
	}
	for range 3 {
		<-o.more
	}
	stop()
	wg.Wait()
	if len(o.got) < 3 || len(o.bad) != 0 {
		t.Errorf("came %v, bad %v", o.got, o.bad)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for n := 1; n < 60; n++ {
		most := time.Hour
		if n < 13 {
			most = min(most, time.Second<<(n-1))
		}
		if d := webhook.Backoff(n); d < most/2 || d > most {
			t.Errorf("after %d attempts %s, want %s to %s", n, d, most/2, most)
		}
	}
}
