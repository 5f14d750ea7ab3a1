package console

// entry is a page in the navigation.
type entry struct {
	Icon, Name, Path string
	Current          bool
}

// menu is a group of entries; the first of an account has no name.
type menu struct {
	ID, Name string
	Entries  []entry
}

// navigation is every page of the design, in its order. What has no route yet is not shown.
func navigation(operator bool) []menu {
	if operator {
		return []menu{
			{"watch", "Watch", []entry{
				{Icon: "pulse", Name: "Traffic", Path: "/operator"},
				{Icon: "server", Name: "Upstreams", Path: "/operator/upstreams"},
				{Icon: "gauge", Name: "System", Path: "/operator/system"},
			}},
			{"run", "Run", []entry{
				{Icon: "users", Name: "Accounts", Path: "/operator/accounts"},
				{Icon: "plan", Name: "Plans", Path: "/operator/plans"},
				{Icon: "route", Name: "Models and routes", Path: "/operator/models"},
			}},
			{"prove", "Prove", []entry{
				{Icon: "book", Name: "Ledger", Path: "/operator/ledger"},
				{Icon: "log", Name: "Audit log", Path: "/operator/audit"},
				{Icon: "gear", Name: "Settings", Path: "/operator/settings"},
			}},
		}
	}
	return []menu{
		{"", "", []entry{{Icon: "overview", Name: "Overview", Path: "/"}}},
		{"build", "Build", []entry{
			{Icon: "play", Name: "Playground", Path: "/playground"},
			{Icon: "key", Name: "API keys", Path: "/keys"},
			{Icon: "models", Name: "Models", Path: "/models"},
		}},
		{"observe", "Observe", []entry{
			{Icon: "list", Name: "Requests", Path: "/requests"},
			{Icon: "chart", Name: "Usage", Path: "/usage"},
			{Icon: "gauge", Name: "Limits", Path: "/limits"},
		}},
		{"account", "Account", []entry{
			{Icon: "card", Name: "Billing", Path: "/billing"},
			{Icon: "users", Name: "Members", Path: "/members"},
			{Icon: "shield", Name: "Security", Path: "/security"},
			{Icon: "log", Name: "Audit log", Path: "/audit"},
		}},
	}
}

// menus are what there is of the account's or the operator's navigation.
func (v *visit) menus(operator bool) []menu {
	var shown []menu
	for _, m := range navigation(operator) {
		var entries []entry
		for _, e := range m.Entries {
			if !v.s.paths[e.Path] {
				continue
			}
			e.Current = v.under(e.Path)
			entries = append(entries, e)
		}
		if m.Entries = entries; len(entries) > 0 {
			shown = append(shown, m)
		}
	}
	return shown
}

// under reports whether the visit is at path, or at a page below it that has no entry of its own.
func (v *visit) under(path string) bool {
	at := v.route.path
	if path == "/" || path == "/operator" {
		return at == path
	}
	return at == path || len(at) > len(path) && at[:len(path)] == path && at[len(path)] == '/'
}
