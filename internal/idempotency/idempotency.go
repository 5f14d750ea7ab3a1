// Package idempotency lets a caller send a call again under one key and have it
// computed and charged once.
//
// A key belongs to an account. The charge and the fact that the key was used are one
// transaction of the books, so nothing that ends the process comes between them. Keys
// and answers are not kept in the clear: an answer is sealed under what the caller's key
// gives, and only who presents the key again can have it opened.
package idempotency

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/ledger"
)

// Lifetime is how long a key stands for its call.
const Lifetime = 24 * time.Hour

// MaxKey is how many bytes a key may have.
const MaxKey = 255

// accountBytes is how many bytes of answers are kept of one account. What comes on top
// is answered and charged like all else; only its repetition is not.
const accountBytes = 32 << 20

// sweepRows is how many rows one transaction forgets: calls wait meanwhile.
const sweepRows = 256

// Errors of [Room.Begin].
var (
	ErrKey        = errors.New("an idempotency key has 1 to 255 printable ASCII characters")
	ErrInProgress = errors.New("a call of this idempotency key is running")
	ErrReuse      = errors.New("the idempotency key was used with another body")
)

// CompletedError is a call that has been charged before. Answer is what was answered, or
// nil where that is not kept: of streams, of calls that were cut, of too many bytes.
type CompletedError struct {
	CompletionID string
	Answer       []byte
}

func (e *CompletedError) Error() string {
	return "the call of this idempotency key is done: " + e.CompletionID
}

// Record is what the store knows of a key.
type Record struct {
	RequestID, CompletionID string
	Body                    [32]byte
	Running                 bool
	Answer                  []byte // sealed
	CreatedAt               time.Time
}

// Store is where keys are remembered. They are written with the books, by
// [ledger.Store].
type Store interface {
	// FindIdempotent returns what is known of an account's key.
	FindIdempotent(ctx context.Context, accountID string, key [32]byte) (r Record, found bool, err error)
	// KeptAnswers returns how many bytes of answers there are, by account.
	KeptAnswers(ctx context.Context) (map[string]int64, error)
	// ForgetIdempotent forgets at most that many keys older than before, never those of
	// running calls, and returns how many, and the bytes of their answers by account.
	ForgetIdempotent(ctx context.Context, before time.Time, most int) (n int, freed map[string]int64, err error)
	// ForgetKey is ForgetIdempotent of one key of an account: freed is 0 where there is
	// none so old, too.
	ForgetKey(ctx context.Context, accountID string, key [32]byte, before time.Time) (freed int64, err error)
}

// Room knows the calls that run under a key. It is safe for concurrent use.
type Room struct {
	store Store

	mu      sync.Mutex
	running map[name][32]byte // the bodies of calls that are under way
	kept    map[string]int64  // bytes of answers, by account
}

// name is a key of an account.
type name struct {
	account string
	key     [32]byte
}

// Open returns the room over store.
func Open(ctx context.Context, store Store) (*Room, error) {
	kept, err := store.KeptAnswers(ctx)
	if err != nil {
		return nil, fmt.Errorf("kept answers: %w", err)
	}
	return &Room{store: store, running: map[name][32]byte{}, kept: kept}, nil
}

// Ticket is a call that runs under a key.
type Ticket struct {
	room   *Room
	name   name
	secret []byte // of the caller's key
	body   [32]byte
	kept   int64 // bytes counted for its answer
	Now    time.Time
}

// Begin gives the call of that key and body, received at now, the right to run, until
// [Ticket.End]. It fails with [ErrKey], [ErrInProgress], [ErrReuse] or
// [*CompletedError].
func (r *Room) Begin(ctx context.Context, accountID, key string, body []byte, now time.Time) (*Ticket, error) {
	if !valid(key) {
		return nil, ErrKey
	}
	t := &Ticket{room: r, body: sha256.Sum256(body), Now: now}
	var err error
	// Extract never fails with SHA-256, nor Expand for so few bytes.
	if t.secret, err = hkdf.Extract(sha256.New, []byte(key), []byte(accountID)); err != nil {
		return nil, err
	}
	found, err := hkdf.Expand(sha256.New, t.secret, "name", 32)
	if err != nil {
		return nil, err
	}
	t.name = name{accountID, [32]byte(found)}
	if err := r.enter(t); err != nil {
		return nil, err
	}
	if err := t.before(ctx, now); err != nil {
		t.leave()
		return nil, err
	}
	return t, nil
}

func valid(key string) bool {
	if key == "" || len(key) > MaxKey {
		return false
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return false
		}
	}
	return true
}

// enter is refused while another call of the name is under way.
func (r *Room) enter(t *Ticket) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, ok := r.running[t.name]
	switch {
	case !ok:
		r.running[t.name] = t.body
		return nil
	case body != t.body:
		return ErrReuse
	}
	return ErrInProgress
}

// before asks what became of an earlier call of the name.
func (t *Ticket) before(ctx context.Context, now time.Time) error {
	rec, found, err := t.room.store.FindIdempotent(ctx, t.name.account, t.name.key)
	if err != nil {
		return fmt.Errorf("idempotency key: %w", err)
	}
	switch {
	case !found:
		return nil
	case rec.Running:
		return ErrInProgress // it has ended, and its end is on the way to the disk
	case Expired(rec.CreatedAt, now):
		return t.expire(ctx)
	case subtle.ConstantTimeCompare(rec.Body[:], t.body[:]) == 0:
		return ErrReuse
	}
	done := &CompletedError{CompletionID: rec.CompletionID}
	if rec.Answer != nil {
		box, err := t.box(rec.RequestID)
		if err != nil {
			return err
		}
		if done.Answer, err = box.Open(nil, nil, rec.Answer, nil); err != nil {
			return fmt.Errorf("the answer of %s cannot be opened: %w", rec.RequestID, err)
		}
	}
	return done
}

// expire forgets an earlier call before this one is written in its place: the bytes of its
// answer would stay counted.
func (t *Ticket) expire(ctx context.Context) error {
	freed, err := t.room.store.ForgetKey(ctx, t.name.account, t.name.key, t.Now.Add(-Lifetime))
	if err != nil {
		return fmt.Errorf("idempotency key: %w", err)
	}
	t.room.free(map[string]int64{t.name.account: freed})
	return nil
}

// Expired says whether a key that was used then is free again.
func Expired(created, now time.Time) bool { return !created.Add(Lifetime).After(now) }

// Record is what the books note of the call.
func (t *Ticket) Record() *ledger.Idempotency {
	return &ledger.Idempotency{Key: t.name.key, Body: t.body, FreeBefore: t.Now.Add(-Lifetime)}
}

// Seal closes the answer to the request, for the books to keep, or returns nil where the
// account has too many bytes of answers. It is called at most once.
func (t *Ticket) Seal(requestID string, answer []byte) ([]byte, error) {
	box, err := t.box(requestID)
	if err != nil {
		return nil, err
	}
	n := int64(len(answer) + box.Overhead())
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	if t.room.kept[t.name.account]+n > accountBytes {
		return nil, nil
	}
	t.room.kept[t.name.account] += n
	t.kept = n
	return box.Seal(nil, nil, answer, nil), nil
}

// box seals under a key of its own for each request: the same idempotency key may come
// again when it has expired.
func (t *Ticket) box(requestID string) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, t.secret, "answer "+requestID, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// End lets the key go, when what became of the call has been sent to the books. With
// charged false a sealed answer was not kept.
func (t *Ticket) End(charged bool) {
	if !charged && t.kept > 0 {
		t.room.free(map[string]int64{t.name.account: t.kept})
	}
	t.leave()
}

func (t *Ticket) leave() {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	delete(t.room.running, t.name)
}

func (r *Room) free(bytes map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for account, n := range bytes {
		if r.kept[account] -= n; r.kept[account] <= 0 {
			delete(r.kept, account)
		}
	}
}

// Sweep forgets the keys that have expired.
func (r *Room) Sweep(ctx context.Context, now time.Time) error {
	for {
		n, freed, err := r.store.ForgetIdempotent(ctx, now.Add(-Lifetime), sweepRows)
		if err != nil {
			return err
		}
		r.free(freed)
		if n < sweepRows {
			return nil
		}
	}
}
