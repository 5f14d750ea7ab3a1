package console

// access is who may ask for a page. Each has the rights of those before it.
type access int

const (
	forAnyone   access = iota // also who is not signed in
	forPerson                 // who is signed in
	forMember                 // who belongs to the account that is looked at
	forOwner                  // who owns it
	forOperator               // who runs Parley
)

// handler answers one visit.
type handler func(*Server, *visit) error

// route is one page, or one change.
type route struct {
	method, path string
	who          access
	serve        handler
}

// pattern is the route's in the words of net/http: "/" alone is the root, not everything.
func (r route) pattern() string {
	if r.path == "/" {
		return "/{$}"
	}
	return r.path
}

// routes is every page of the console. Operators may read what members may, in every
// account, and change nothing there.
func routes() []route {
	return append([]route{
		// The door.
		{"GET", "/sign-in", forAnyone, (*Server).signInPage},
		{"POST", "/sign-in", forAnyone, (*Server).signIn},
		{"GET", "/sign-in/check", forAnyone, (*Server).signedIn},
		{"GET", "/claim", forAnyone, (*Server).claimPage},
		{"POST", "/claim", forAnyone, (*Server).claim},
		{"GET", "/join/{token}", forAnyone, (*Server).joinPage},
		{"POST", "/join/{token}", forAnyone, (*Server).join},
		{"GET", "/prove", forPerson, (*Server).provePage},
		{"POST", "/prove", forPerson, (*Server).prove},
		{"POST", "/sign-out", forPerson, (*Server).signOut},
		{"POST", "/switch", forPerson, (*Server).switchAccount},
		{"POST", "/find", forPerson, (*Server).find},

		// Overview.
		{"GET", "/", forPerson, (*Server).home},

		// Playground.

		// API keys.

		// Models.

		// Requests, usage and billing: see moneyRoutes.

		// Limits.

		// Members.
		{"GET", "/members", forMember, (*Server).members},
		{"GET", "/members/invite", forOwner, proved((*Server).invitePage)},
		{"POST", "/members/invite", forOwner, proved((*Server).invite)},
		{"POST", "/members/invitations/{id}/revoke", forOwner, (*Server).revokeInvitation},
		{"GET", "/members/{id}", forOwner, (*Server).memberPage},
		{"POST", "/members/{id}/role", forOwner, proved((*Server).setRole)},
		{"POST", "/members/{id}/remove", forOwner, proved((*Server).removeMember)},

		// Security.
		{"GET", "/security", forPerson, (*Server).security},
		{"POST", "/security/password", forPerson, proved((*Server).setPassword)},
		{"POST", "/security/taste", forPerson, (*Server).setTaste},
		{"POST", "/security/sessions/{id}/end", forPerson, (*Server).endSession},
		{"POST", "/security/sessions/end-others", forPerson, (*Server).endOthers},

		// Audit log.

		// Operator: Traffic.

		// Operator: Upstreams.

		// Operator: System.

		// Operator: Accounts.

		// Operator: Plans, models and routes.

		// Operator: Ledger, audit log, settings.
	}, moneyRoutes()...)
}

// moneyRoutes are the pages of what calls did and cost.
func moneyRoutes() []route {
	return []route{
		// Requests.
		{"GET", "/requests", forMember, (*Server).requests},
		{"GET", "/requests/csv", forMember, (*Server).callsCSV},
		{"GET", "/requests/{id}", forMember, (*Server).request},
		{"GET", "/requests/{id}/json", forMember, (*Server).requestJSON},

		// Usage.
		{"GET", "/usage", forMember, (*Server).usage},
		{"GET", "/usage/csv", forMember, (*Server).usageCSV},

		// Billing.
		{"GET", "/billing", forMember, (*Server).billing},
		{"GET", "/billing/entries", forMember, (*Server).entries},
		{"GET", "/billing/entries/csv", forMember, (*Server).entriesCSV},
		{"POST", "/billing/checkout", forOwner, proved((*Server).checkout)},
	}
}
