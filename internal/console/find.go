package console

import (
	"net/url"
	"strings"

	"github.com/parley-ai/parley/internal/apikey"
	"github.com/parley-ai/parley/internal/ident"
)

// findPage is what templates/find.html shows.
type findPage struct {
	Hits   []hit
	Looked string
}

// hit is something that was found. Another account than the one that is looked at has what
// an operator is led to by looking into it.
type hit struct{ Path, Name, Kind, Account string }

// find leads to what has the id or the name that was typed: one hit to its page, several to a
// list. It is a POST so that a secret that is pasted by mistake gets into no address; and of
// a secret nothing but its first characters and its last four is looked at.
func (s *Server) find(v *visit) error {
	q := mask(v.value("q"))
	hits := v.hits(q)
	if len(hits) == 1 {
		if id := hits[0].Account; id != "" {
			if err := v.lookInto(id); err != nil {
				return err
			}
		}
		return v.seeOther(hits[0].Path)
	}
	looked := "Type an id, or the beginning of a name."
	if q != "" {
		looked = "Nothing has the id " + q + ", and no name begins with it."
	}
	return v.page("find", "Find", findPage{hits, looked})
}

// mask cuts a key's secret to what lists show of it, also one that was copied with words
// around it or without its beginning.
func mask(q string) string {
	const start, shown, end = "sk-", 14, 4 // what a list shows of a secret
	if _, secret, ok := strings.Cut(q, start); ok {
		secret, _, _ = strings.Cut(start+secret, " ")
		if secret = strings.Trim(secret, `"',;`); len(secret) > shown+end+6 {
			return secret[:shown] + ellipsis + secret[len(secret)-end:]
		}
		return secret
	}
	const longest = 40 // of an id without its prefix
	for _, prefix := range []string{ident.Request, ident.Completion, ident.Key, ident.Account} {
		if strings.HasPrefix(q, prefix) {
			return q
		}
	}
	if len(q) > longest && !strings.ContainsAny(q, " /.") {
		return ellipsis + q[len(q)-end:]
	}
	return q
}

// ellipsis stands for what is not shown of a secret.
const ellipsis = "…"

// finders look for what q names, of what the visitor may see, a line a kind of thing.
func finders() []func(v *visit, q string) []hit {
	return []func(v *visit, q string) []hit{
		(*visit).findAccounts,
		(*visit).findAccountsOfPeople,
		(*visit).findAccountsOfKeys,
		(*visit).findCalls,
		(*visit).findKeys,
		(*visit).findModels,
	}
}

// hits is everything that was found.
func (v *visit) hits(q string) (all []hit) {
	if q == "" {
		return nil
	}
	for _, look := range finders() {
		all = append(all, look(v, q)...)
	}
	return all
}

// findCalls finds a call by the id of its request or completion: of the account, and for
// operators of any.
func (v *visit) findCalls(q string) []hit {
	if !strings.HasPrefix(q, ident.Request) && !strings.HasPrefix(q, ident.Completion) {
		return nil
	}
	x, err := v.s.Explain.Request(v.context(), q, v.now)
	switch {
	case err != nil || x.Account == nil:
		return nil
	case v.account != nil && x.Account.ID == v.account.ID:
		return []hit{{Path: "/requests/" + x.RequestID, Name: x.RequestID, Kind: "Request"}}
	case v.who.Member.Operator:
		return []hit{{Path: "/requests/" + x.RequestID, Name: x.RequestID, Kind: "Request of " + x.Account.Name, Account: x.Account.ID}}
	}
	return nil
}

// findKeys finds the keys of the account that the visitor may see.
func (v *visit) findKeys(q string) (all []hit) {
	if v.account == nil {
		return nil
	}
	for _, k := range v.s.Keys.List(v.account.ID) {
		if v.mayKey(&k) && (q == k.ID || keyNamed(&k, q)) {
			all = append(all, hit{Path: "/keys/" + k.ID, Name: k.Name, Kind: "API key " + k.Prefix + ellipsis + k.Last4})
		}
	}
	return all
}

// findModels finds models on offer.
func (v *visit) findModels(q string) (all []hit) {
	if v.account == nil {
		return nil
	}
	for _, m := range v.s.Models.List(v.now) {
		if !begins(m.ID, q) {
			continue
		}
		path := "/requests?model=" + url.QueryEscape(m.ID)
		if v.s.paths["/models/{id}"] {
			path = "/models/" + url.PathEscape(m.ID)
		}
		all = append(all, hit{Path: path, Name: m.ID, Kind: "Model"})
	}
	return all
}

// begins reports whether name begins with q, in whatever case.
func begins(name, q string) bool {
	return len(name) >= len(q) && strings.EqualFold(name[:len(q)], q)
}

// keyNamed reports whether q is part of a key's name, or the beginning or the end of what is
// shown of its secret.
func keyNamed(k *apikey.Key, q string) bool {
	q = strings.ToLower(q)
	shown := strings.ToLower(k.Prefix + ellipsis + k.Last4)
	return strings.Contains(strings.ToLower(k.Name), q) || strings.HasPrefix(shown, q) || strings.HasSuffix(shown, q)
}
