package console

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/parley-ai/parley/internal/account"
	"github.com/parley-ai/parley/internal/apikey"
)

const (
	// playgroundName is the name of keys that the playground makes for itself.
	playgroundName = "playground"
	// playgroundLife is how long such a key works unless its session renews it.
	playgroundLife = 15 * time.Minute
	// renewBefore is how much of its life is left when it is renewed.
	renewBefore = 10 * time.Minute
)

// playground has the keys with which the playground calls. A key is of one session and one
// account, is made when it is first asked for, and dies with them. Its secret is in the memory
// of this process and of the page's script only: no page, address or log has it. It is safe for
// concurrent use.
type playground struct {
	keys keyring
	mu   sync.Mutex
	held map[string]heldKey // by session
}

// heldKey is the key of a session.
type heldKey struct {
	id                string
	memberID, account string
	secret            apikey.Secret
	ends              time.Time
}

// key returns the session's key for the account that it looks at, good for some minutes.
func (p *playground) key(v *visit) (heldKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for session, k := range p.held {
		if !k.ends.After(v.now) {
			delete(p.held, session)
		}
	}
	session := v.who.Session.ID
	k, ok := p.held[session]
	if ok {
		known, found := p.keys.Find(k.id)
		switch {
		case found && k.account == v.account.ID && known.Status(v.now) == "active":
			return p.renew(v, k)
		case found && known.RevokedAt.IsZero():
			if _, err := p.keys.Revoke(v.context(), k.id); err != nil {
				return heldKey{}, err
			}
		}
		delete(p.held, session)
	}
	ends := v.now.Add(playgroundLife)
	made, secret, err := p.keys.Create(v.context(), apikey.NewKey{
		AccountID: v.account.ID, CreatedBy: v.who.Member.ID, Name: playgroundName, ExpiresAt: ends, Scopes: account.ScopeChat,
	})
	if err != nil {
		return heldKey{}, err
	}
	k = heldKey{made.ID, v.who.Member.ID, v.account.ID, secret, ends}
	p.held[session] = k
	return k, nil
}

// renew gives k a whole life again when much of it is over. p is locked.
func (p *playground) renew(v *visit, k heldKey) (heldKey, error) {
	if k.ends.Sub(v.now) >= renewBefore {
		return k, nil
	}
	k.ends = v.now.Add(playgroundLife)
	if _, err := p.keys.Change(v.context(), k.id, apikey.Change{ExpiresAt: &k.ends}); err != nil {
		return heldKey{}, err
	}
	p.held[v.who.Session.ID] = k
	return k, nil
}

// end revokes the keys of a member's sessions that are over.
func (p *playground) end(ctx context.Context, memberID string, over func(session string) bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for session, k := range p.held {
		if k.memberID != memberID || !over(session) {
			continue
		}
		if _, err := p.keys.Revoke(ctx, k.id); err != nil {
			return err
		}
		delete(p.held, session)
	}
	return nil
}

// endPlayground revokes the playground's keys of the visitor's sessions that are over.
func (v *visit) endPlayground(over func(session string) bool) error {
	return v.s.play.end(v.context(), v.who.Member.ID, over)
}

func (v *visit) thisSession(id string) bool { return id == v.who.Session.ID }

func (v *visit) otherSession(id string) bool { return id != v.who.Session.ID }

// playgroundPage is what templates/playground.html shows.
type playgroundPage struct {
	Models []modelRow
	Model  string // of the address, to begin with
	Base   string
	Try    snippet // for browsers without script
}

// playgroundPage is the page of an island that does everything but this.
func (s *Server) playgroundPage(v *visit) error {
	p := playgroundPage{Model: v.r.URL.Query().Get("model"), Base: s.PublicURL.JoinPath("v1").String(), Try: v.samplePage("try", v.exampleModel(nil))}
	for _, m := range s.Models.List(v.now) {
		r, err := v.modelRow(m)
		if err != nil {
			return err
		}
		if r.Allowed {
			p.Models = append(p.Models, r)
		}
	}
	return v.page("playground", "Playground", p)
}

// playgroundKey gives the island the session's key: {"key": …, "expires_in": seconds}.
func (s *Server) playgroundKey(v *visit) error {
	k, err := s.play.key(v)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"key": string(k.secret), "expires_in": int(k.ends.Sub(v.now).Seconds())})
	if err != nil {
		return err
	}
	v.writeAs(http.StatusOK, "application/json", body)
	return nil
}
