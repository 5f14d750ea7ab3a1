package console

import (
	"errors"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
)

// newKeyPage is what templates/key-new.html shows.
type newKeyPage struct {
	Form  keyForm
	Token string
}

// secretPage is what templates/key-secret.html shows. Secret is empty when it was shown before,
// at ShownAt.
type secretPage struct {
	Key     apikey.Key
	Facts   keyFacts
	Secret  *secret
	Try     snippet
	ShownAt time.Time
	Old     *apikey.Key // that the key replaces
}

// keyFacts is what a key may do, in words.
type keyFacts struct {
	Limits, Budget, Models, Networks string
}

func (s *Server) newKeyPage(v *visit) error {
	return v.page("key-new", "Create key", newKeyPage{v.keyForm(&apikey.Key{}), s.once.token(v)})
}

// staleForm is said of forms whose token is worth nothing.
const staleForm = "This form was made before Parley was last started, or more than 12 hours ago. Nothing was changed. Check it and send it again."

// createKey makes a key. The answer is the only page that ever has its secret.
func (s *Server) createKey(v *visit) error {
	f := v.keyForm(&apikey.Key{})
	wrong := func() error {
		return v.wrong("key-new", "Create key", newKeyPage{f, s.once.token(v)})
	}
	d, ok := s.once.take(v)
	if !ok {
		f.failAll(staleForm)
		return wrong()
	}
	defer d.mu.Unlock()
	if !d.at.IsZero() {
		return v.shownBefore(d)
	}
	n := f.settings(v.now)
	if f.Failed() {
		return wrong()
	}
	n.AccountID, n.CreatedBy = v.account.ID, v.who.Member.ID
	k, text, err := s.Keys.Create(v.context(), n)
	if f.refuseKey(err) {
		return wrong()
	}
	if err != nil {
		return err
	}
	return v.showSecret(d, secretPage{Key: k}, text)
}

// showSecret answers with a secret that was just made.
func (v *visit) showSecret(d *deed, p secretPage, text apikey.Secret) error {
	p.Facts, p.ShownAt = v.keyFacts(&p.Key), v.now
	p.Secret = &secret{"secret", "API key secret", string(text)}
	p.Try = snippet{ID: "try", Language: "curl", Text: "export PARLEY_API_KEY=…the secret above…\n" + v.sample("curl", v.exampleModel(&p.Key))}
	d.done(v.now, p)
	return v.page("key-secret", p.Key.Name+" is ready", p)
}

// shownBefore answers a form that is sent again. A double click shows the second answer and
// not the first, so within a few seconds it is the same one.
func (v *visit) shownBefore(d *deed) error {
	if p, ok := d.again(v.now).(secretPage); ok {
		return v.page("key-secret", p.Key.Name+" is ready", p)
	}
	return v.page("key-secret", "Secret shown before", secretPage{ShownAt: d.at})
}

// keyFacts says what a key may do.
func (v *visit) keyFacts(k *apikey.Key) keyFacts {
	f := keyFacts{Limits: "those of the account", Budget: "none", Models: "every model of the " + v.account.PlanAt(v.now) + " plan", Networks: "from everywhere"}
	switch {
	case k.RPM > 0 && k.TPM > 0:
		f.Limits = count(k.RPM) + " requests and " + count(k.TPM) + " tokens per minute"
	case k.RPM > 0:
		f.Limits = count(k.RPM) + " requests per minute"
	case k.TPM > 0:
		f.Limits = count(k.TPM) + " tokens per minute"
	}
	if k.Budget.Amount > 0 {
		if f.Budget = k.Budget.Amount.Display() + " IU in all"; k.Budget.Monthly {
			f.Budget = k.Budget.Amount.Display() + " IU a month, starts again on " + day(firstOfMonth(v.now).AddDate(0, 1, 0), v.now)
		}
	}
	if k.Models != nil {
		f.Models = join(k.Models)
	}
	if k.Networks != nil {
		f.Networks = "from " + join(apikey.Networks(k.Networks))
	}
	return f
}

// overlaps are how long a key can work beside the one that replaces it.
var overlaps = []formOption{{"0s", "Not at all: it is revoked"}, {"1h", "1 hour"}, {"24h", "24 hours"}, {"168h", "7 days"}, {"720h", "30 days"}}

func (v *visit) rotateForm() *form {
	return v.form(field{Name: "overlap", Label: "The old secret works for", Value: "24h", Choices: overlaps, Hint: "Long enough to put the new one everywhere the old one is.", Wide: "w3"})
}

func (s *Server) rotateKeyPage(v *visit) error {
	k, err := v.key()
	if err != nil {
		return err
	}
	return v.page("key", "Rotate "+k.Name, v.keyPage(k, "rotate", v.rotateForm()))
}

// rotateKey makes a key with the settings of another, which ends.
func (s *Server) rotateKey(v *visit) error {
	k, err := v.key()
	if err != nil {
		return err
	}
	f := v.rotateForm()
	wrong := func() error {
		return v.wrong("key", "Rotate "+k.Name, v.keyPage(k, "rotate", f))
	}
	d, ok := s.once.take(v)
	if !ok {
		f.failAll(staleForm)
		return wrong()
	}
	defer d.mu.Unlock()
	if !d.at.IsZero() {
		return v.shownBefore(d)
	}
	overlap, err := time.ParseDuration(v.value("overlap"))
	if err != nil {
		f.fail("overlap", "Choose how long the old secret works.")
		return wrong()
	}
	fresh, text, old, err := s.Keys.Rotate(v.context(), k.ID, overlap)
	switch {
	case errors.Is(err, apikey.ErrOverlap):
		f.fail("overlap", "Choose at most 90 days.")
	case errors.Is(err, apikey.ErrReplaced), errors.Is(err, apikey.ErrRevoked), errors.Is(err, apikey.ErrExpired):
		f.failAll("The key has ended meanwhile. Nothing was changed.")
	case err != nil:
		return err
	}
	if f.Failed() {
		k, _ = s.Keys.Find(k.ID)
		return wrong()
	}
	return v.showSecret(d, secretPage{Key: fresh, Old: &old}, text)
}
