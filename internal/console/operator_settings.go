package console

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/parley-ai/parley/internal/apikey"
)

// Setting is what the configuration says, in words. Key is its name in the file.
type Setting struct{ Name, Key, Value string }

// operatorTokens is what the operator's pages ask of apikey.Tokens.
type operatorTokens interface {
	List() []apikey.Token
	Create(ctx context.Context, name, by string, expires time.Time) (apikey.Token, string, error)
	Revoke(ctx context.Context, id string) (apikey.Token, error)
}

// operatorSettingsPage is what templates/operator-settings.html shows.
type operatorSettingsPage struct {
	Settings []Setting
	Tokens   []apikey.Token // the newest first
	Form     *form
	Token    string // of the form
}

// tokenPage is what templates/operator-token.html shows: a token that was made, with its
// text, once; or one that is about to be revoked.
type tokenPage struct {
	apikey.Token
	Secret  *secret
	ShownAt time.Time
}

// operatorSettings shows the configuration and the tokens of operators' programs.
func (s *Server) operatorSettings(v *visit) error {
	v.done(map[string]string{"revoked": "The token is revoked. It is refused from now on."})
	return v.page("operator-settings", "Settings", v.settingsPage(v.tokenForm()))
}

func (v *visit) tokenForm() *form {
	return v.form(
		field{Name: "name", Label: "Name", Maximum: 100, Autocomplete: "off", Hint: "What uses it, such as billing-sync.", Wide: "w3"},
		field{Name: "days", Label: "Lasts", Unit: "days", Inputmode: "numeric", Maximum: 4, Autocomplete: "off", Optional: true, Hint: "Empty: until it is revoked.", Wide: "w3"},
	)
}

func (v *visit) settingsPage(f *form) operatorSettingsPage {
	p := operatorSettingsPage{Settings: v.s.Operator.Settings, Form: f, Token: v.s.once.token(v)}
	all := v.s.Operator.Tokens.List()
	for i := range all {
		p.Tokens = append(p.Tokens, all[len(all)-1-i])
	}
	return p
}

// mostDays is how long a token can last: ten years.
const mostDays = 3650

// createToken makes a token. The answer is the only page that ever has its text.
func (s *Server) createToken(v *visit) error {
	f := v.tokenForm()
	wrong := func() error { return v.wrong("operator-settings", "Settings", v.settingsPage(f)) }
	d, ok := s.once.take(v)
	if !ok {
		f.failAll(staleForm)
		return wrong()
	}
	defer d.mu.Unlock()
	if !d.at.IsZero() {
		if p, ok := d.again(v.now).(tokenPage); ok {
			return v.page("operator-token", p.Name+" is ready", p)
		}
		return v.page("operator-token", "Token shown before", tokenPage{ShownAt: d.at})
	}
	var expires time.Time
	if text := v.value("days"); text != "" {
		days, err := strconv.Atoi(text)
		if err != nil || days < 1 || days > mostDays {
			f.fail("days", "Enter a whole number from 1 to "+count(mostDays)+", or nothing.")
			return wrong()
		}
		expires = v.now.AddDate(0, 0, days)
	}
	t, text, err := s.Operator.Tokens.Create(v.context(), v.value("name"), v.who.Member.ID, expires)
	if errors.Is(err, apikey.ErrName) {
		f.fail("name", "A name has 1 to 100 printable characters.")
		return wrong()
	}
	if err != nil {
		return err
	}
	p := tokenPage{Token: t, Secret: &secret{"secret", "Operator token", text}, ShownAt: v.now}
	d.done(v.now, p)
	return v.page("operator-token", t.Name+" is ready", p)
}

// token is the one that the path names.
func (v *visit) operatorToken() (apikey.Token, error) {
	for _, t := range v.s.Operator.Tokens.List() {
		if t.ID == v.r.PathValue("id") {
			return t, nil
		}
	}
	return apikey.Token{}, errNotFound
}

func (s *Server) revokeTokenPage(v *visit) error {
	t, err := v.operatorToken()
	if err != nil {
		return err
	}
	return v.page("operator-token", "Revoke "+t.Name, tokenPage{Token: t})
}

func (s *Server) revokeToken(v *visit) error {
	t, err := v.operatorToken()
	if err != nil {
		return err
	}
	if _, err := s.Operator.Tokens.Revoke(v.context(), t.ID); err != nil {
		return err
	}
	return v.seeOther("/operator/settings?done=revoked")
}
