package console

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/parley-ai/parley/internal/member"
)

// Passkeys need a script: the browser signs a challenge between two requests. Both are
// forms; the answers are JSON for islands/passkeys.ts.

// passkeysHere reports whether passkeys work at the address that was asked: they are made for
// the public one.
func (v *visit) passkeysHere() bool {
	return v.s.Passkeys != nil && v.r.Host == v.s.PublicURL.Host
}

// json answers an island.
func (v *visit) json(status int, body []byte) error {
	h := v.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	v.status = status
	v.w.WriteHeader(status)
	_, _ = v.w.Write(body) // who does not read it is not told so
	return nil
}

// tell answers an island with the address that follows, or with what is wrong.
func (v *visit) tell(next string, err error) error {
	status, answer := http.StatusOK, map[string]string{"next": next}
	if throttled, ok := errors.AsType[*member.ThrottledError](err); ok {
		status, answer = http.StatusTooManyRequests, map[string]string{"error": tooManyTries(throttled)}
	} else if errors.Is(err, member.ErrWrong) {
		status, answer = http.StatusUnprocessableEntity, map[string]string{"error": "The passkey was not accepted. Try again, or use your password."}
	} else if err != nil {
		return err
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return v.json(status, body)
}

// challenge sends what a passkey must sign.
func (v *visit) challenge(options []byte, err error) error {
	if err != nil {
		return v.tell("", err)
	}
	return v.json(http.StatusOK, options)
}

// beginProof challenges whoever is at the door, or a member who proves itself again.
func (s *Server) beginProof(v *visit) error {
	if !v.passkeysHere() {
		return errNotFound
	}
	return v.challenge(s.Passkeys.BeginProof(v.from()))
}

func (s *Server) signInByPasskey(v *visit) error {
	if !v.passkeysHere() {
		return errNotFound
	}
	token, err := s.Passkeys.SignIn(v.context(), []byte(v.r.PostFormValue("response")), v.from(), v.token())
	if err == nil {
		v.keep(token)
	}
	return v.tell(v.next(), err)
}

func (s *Server) proveByPasskey(v *visit) error {
	if !v.passkeysHere() {
		return errNotFound
	}
	token, err := s.Passkeys.Prove(v.context(), v.who, []byte(v.r.PostFormValue("response")))
	if err == nil {
		v.keep(token)
	}
	return v.tell(v.next(), err)
}

func (s *Server) beginPasskey(v *visit) error {
	if !v.passkeysHere() {
		return errNotFound
	}
	return v.challenge(s.Passkeys.BeginAdd(v.context(), v.who))
}

func (s *Server) addPasskey(v *visit) error {
	if !v.passkeysHere() {
		return errNotFound
	}
	err := s.Passkeys.Add(v.context(), v.who, agentName(v.r.UserAgent()), []byte(v.r.PostFormValue("response")))
	return v.tell("/security?done=passkey", err)
}

// passkeyID is a passkey's in an address.
func passkeyID(id []byte) string { return base64.RawURLEncoding.EncodeToString(id) }

func (s *Server) removePasskey(v *visit) error {
	id, err := base64.RawURLEncoding.DecodeString(v.r.PathValue("id"))
	if err != nil {
		return errNotFound
	}
	switch err := s.Gate.Store.RemovePasskey(v.context(), v.who.Member.ID, id); {
	case errors.Is(err, member.ErrLastMethod):
		return v.seeOther("/security?refused=last")
	case err != nil && !errors.Is(err, member.ErrNotFound): // it may be gone already
		return err
	}
	return v.seeOther("/security?done=removed")
}
