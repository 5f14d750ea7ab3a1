package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"
	"time"
)

// How long forms and what they did are remembered.
const (
	// formLife is how long after it was made a form with a token is taken.
	formLife = 12 * time.Hour
	// repeatLimit is how long after it was done a form that is sent again, as by a double
	// click, gets the same answer.
	repeatLimit = 10 * time.Second
)

// once does what a form asks for once, however often it is sent. A form has a token that only
// this process can have made, for that person, account and page: after a restart, when nothing
// is remembered, forms made before do nothing. It is safe for concurrent use.
type once struct {
	key   [32]byte
	mu    sync.Mutex
	deeds map[string]*deed
}

// deed is what the form of one token did.
type deed struct {
	mu     sync.Mutex
	at     time.Time // zero until it is done
	answer any       // nil again when repeatLimit is over
}

func newOnce() *once {
	o := &once{deeds: map[string]*deed{}}
	rand.Read(o.key[:]) // never fails since Go 1.24
	return o
}

const (
	nonceSize = 16
	stampSize = nonceSize + 8
)

// token is for one form that the visitor is shown now.
func (o *once) token(v *visit) string {
	var b [stampSize]byte
	rand.Read(b[:nonceSize])
	binary.BigEndian.PutUint64(b[nonceSize:], uint64(v.now.Unix()))
	return base64.RawURLEncoding.EncodeToString(append(b[:], o.sum(v, b[:])...))
}

func (o *once) sum(v *visit, stamp []byte) []byte {
	account := "" // an operator may look at none
	if v.account != nil {
		account = v.account.ID
	}
	h := hmac.New(sha256.New, o.key[:])
	h.Write(stamp)
	page := strings.TrimSuffix(v.r.URL.Path, "/new") // some forms are sent to the list they add to
	h.Write([]byte(strings.Join([]string{v.who.Member.ID, account, page}, "\n")))
	return h.Sum(nil)
}

// take returns the deed of the token that the visitor sends, for it alone until it gives it
// back. ok is false for a token that is not of this process, person, account and page, or too old.
func (o *once) take(v *visit) (d *deed, ok bool) {
	token := v.value("token")
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != stampSize+sha256.Size || subtle.ConstantTimeCompare(b[stampSize:], o.sum(v, b[:stampSize])) != 1 {
		return nil, false
	}
	made := time.Unix(int64(binary.BigEndian.Uint64(b[nonceSize:])), 0)
	if v.now.Sub(made) > formLife {
		return nil, false
	}
	o.mu.Lock()
	for token, d := range o.deeds {
		if d.over(v.now) {
			delete(o.deeds, token)
		}
	}
	if d = o.deeds[token]; d == nil {
		d = &deed{}
		o.deeds[token] = d
	}
	o.mu.Unlock()
	d.mu.Lock()
	return d, true
}

// over reports whether no form can ask for d any more. One that is being done is not over.
func (d *deed) over(now time.Time) bool {
	if !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	return !d.at.IsZero() && now.Sub(d.at) > formLife
}

// done notes what the form did, and its answer for who has sent it twice.
func (d *deed) done(now time.Time, answer any) {
	d.at, d.answer = now, answer
	time.AfterFunc(repeatLimit, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.answer = nil
	})
}

// again is the answer once more, or nil when it is too late for that.
func (d *deed) again(now time.Time) any {
	if now.Sub(d.at) > repeatLimit {
		return nil
	}
	return d.answer
}
