package config

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// entry reads the id of a list's entry first, so that every other problem can name
// it, and returns the words that begin them: "model svc-titan: ".
func (r *reader) entry(n *yaml.Node, kind string, id *string) string {
	v := child(n, "id")
	if v == nil {
		if n.Kind == yaml.MappingNode {
			r.problem(n, "a %s has no id.", kind)
		}
		return kind + " without id: "
	}
	s, ok := r.text(v, kind+": id")
	if !ok {
		return kind + " without id: "
	}
	if !idShape.MatchString(s) {
		r.problem(v, "%s: id %q must be 1 to 64 letters, digits or . _ : / - and not begin with a sign.", kind, s)
		return kind + " " + strconv.Quote(s) + ": "
	}
	*id = s
	return kind + " " + s + ": "
}

// cross checks what concerns more than one entry: ids that repeat, names that
// nobody defined, answers longer than their window.
func (r *reader) cross(c *Config, s *section) {
	var plans, upstreams, models []string
	for _, p := range c.Plans {
		plans = append(plans, p.ID)
	}
	for _, u := range c.Upstreams {
		upstreams = append(upstreams, u.ID)
	}
	for _, m := range c.Models {
		models = append(models, m.ID)
	}
	r.unique("plan", plans, s.plans)
	r.unique("upstream", upstreams, s.upstreams)
	r.unique("model", models, s.models)
	for _, ref := range s.refs {
		defined := plans
		switch ref.kind {
		case "upstream":
			defined = upstreams
		case "model":
			defined = models
		}
		if ref.name == "" || slices.Contains(defined, ref.name) {
			continue
		}
		if near := Nearest(ref.name, defined); near != "" {
			r.problem(ref.node, "%sno %s is called %q. Did you mean %q?", ref.where, ref.kind, ref.name, near)
			continue
		}
		r.problem(ref.node, "%sno %s is called %q. Defined: %s.", ref.where, ref.kind, ref.name, names(defined))
	}
	for _, w := range s.windows {
		m := c.Models[w.model]
		if m.ContextWindow > 0 && m.MaxOutput > m.ContextWindow {
			r.problem(w.node, "model %s: max_output %d is more than context_window %d.", m.ID, m.MaxOutput, m.ContextWindow)
		}
	}
}

func (r *reader) unique(kind string, ids []string, nodes []*yaml.Node) {
	first := make(map[string]int, len(ids))
	for i, id := range ids {
		if id == "" {
			continue
		}
		if j, ok := first[id]; ok {
			r.problem(nodes[i], "%s %s is defined twice, first on line %d.", kind, id, nodes[j].Line)
			continue
		}
		first[id] = i
	}
}

// names is the ids that could be read, each once.
func names(ids []string) string {
	ids = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(ids))), func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return "none"
	}
	return strings.Join(ids, ", ")
}

// address checks HOST:PORT; the host may be empty for all addresses.
func (r *reader) address(what string, into *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := r.text(n, what)
		if !ok {
			return
		}
		_, port, err := net.SplitHostPort(s)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			r.problem(n, "%s must be HOST:PORT such as 127.0.0.1:8080, not %q.", what, s)
			return
		}
		*into = s
	}
}

// publicURL reads the address that people use: a scheme and a host, because cookies and
// passkeys know no path.
func (r *reader) publicURL(n *yaml.Node, into **url.URL) {
	s, ok := r.text(n, "public_url")
	if !ok {
		return
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || !dialable(u) || u.User != nil || strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		r.problem(n, "public_url must be a scheme and a host such as https://ai.example.org, not %q.", s)
		return
	}
	u.Path, u.Host = "", strings.ToLower(u.Host)
	*into = u
}

// dialable reports whether u has a host, and no port that there cannot be.
func dialable(u *url.URL) bool {
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Hostname() != "" && (u.Port() == "" || err == nil && port > 0)
}

// networks reads a list of networks in CIDR form and of single addresses. IPv4 that is
// written as IPv6 becomes IPv4.
func (r *reader) networks(what string, into *[]netip.Prefix) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.list(n, what, func(item *yaml.Node) {
			s, ok := r.text(item, what)
			if !ok {
				return
			}
			p, err := netip.ParsePrefix(s)
			if a, addrErr := netip.ParseAddr(s); addrErr == nil {
				p, err = netip.PrefixFrom(a.WithZone(""), a.BitLen()), nil
			}
			if err != nil || p != p.Masked() {
				r.problem(item, "%s must name networks such as 10.0.0.0/8 or addresses such as 192.0.2.1, not %q.", what, s)
				return
			}
			if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
				p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
			}
			*into = append(*into, p)
		})
	}
}

// child is the value of key in the mapping n, or nil.
func child(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return resolve(n.Content[i+1])
		}
	}
	return nil
}
