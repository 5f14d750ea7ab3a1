package console

import "net/http"

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
		{"GET", "/sign-in/code", forAnyone, (*Server).codePage},
		{"POST", "/sign-in/code", forAnyone, (*Server).enterCode},
		{"POST", "/sign-in/passkey/begin", forAnyone, (*Server).beginProof},
		{"POST", "/sign-in/passkey", forAnyone, (*Server).signInByPasskey},
		{"GET", "/claim", forAnyone, (*Server).claimPage},
		{"POST", "/claim", forAnyone, (*Server).claim},
		{"GET", "/join/{token}", forAnyone, (*Server).joinPage},
		{"POST", "/join/{token}", forAnyone, (*Server).join},
		{"GET", "/prove", forPerson, (*Server).provePage},
		{"POST", "/prove", forPerson, (*Server).prove},
		{"POST", "/prove/passkey", forPerson, (*Server).proveByPasskey},
		{"POST", "/resend", forPerson, (*Server).resend},
		{"POST", "/sign-out", forPerson, (*Server).signOut},
		{"POST", "/switch", forPerson, (*Server).switchAccount},
		{"POST", "/find", forPerson, (*Server).find},

		// Overview.
		{"GET", "/", forPerson, (*Server).overview},

		// Playground.
		{"GET", "/playground", forMember, (*Server).playgroundPage},
		{"POST", "/playground/key", forMember, (*Server).playgroundKey},

		// API keys.
		{"GET", "/keys", forMember, (*Server).keys},
		{"GET", "/keys/new", forMember, proved((*Server).newKeyPage)},
		{"POST", "/keys/new", forMember, proved((*Server).createKey)},
		{"GET", "/keys/{id}", forMember, (*Server).keySummary},
		{"GET", "/keys/{id}/edit", forMember, proved((*Server).editKeyPage)},
		{"POST", "/keys/{id}/edit", forMember, proved((*Server).editKey)},
		{"GET", "/keys/{id}/rotate", forMember, proved((*Server).rotateKeyPage)},
		{"POST", "/keys/{id}/rotate", forMember, proved((*Server).rotateKey)},
		{"GET", "/keys/{id}/revoke", forMember, (*Server).revokeKeyPage},
		{"POST", "/keys/{id}/revoke", forMember, (*Server).revokeKey},

		// Models.
		{"GET", "/models", forMember, (*Server).models},
		{"GET", "/models/{id}", forMember, (*Server).model},

		// Requests, usage, billing and audit log: see moneyRoutes.

		// Limits.
		{"GET", "/limits", forMember, (*Server).limitsShown},

		// Members.
		{"GET", "/members", forMember, (*Server).members},
		{"GET", "/members/invite", forOwner, proved((*Server).invitePage)},
		{"POST", "/members/invite", forOwner, proved((*Server).invite)},
		{"POST", "/members/invitations/{link}/revoke", forOwner, (*Server).revokeInvitation},
		{"GET", "/members/{id}", forOwner, (*Server).memberPage},
		{"POST", "/members/{id}/role", forOwner, proved((*Server).setRole)},
		{"POST", "/members/{id}/remove", forOwner, proved((*Server).removeMember)},

		// Security.
		{"GET", "/security", forPerson, (*Server).security},
		{"POST", "/security/password", forPerson, proved((*Server).setPassword)},
		{"POST", "/security/passkeys/add", forPerson, proved((*Server).beginPasskey)},
		{"POST", "/security/passkeys", forPerson, proved((*Server).addPasskey)},
		{"POST", "/security/passkeys/{id}/remove", forPerson, proved((*Server).removePasskey)},
		{"GET", "/security/codes", forPerson, proved((*Server).beginCodes)},
		{"POST", "/security/codes", forPerson, proved((*Server).confirmCodes)},
		{"POST", "/security/codes/end", forPerson, proved((*Server).endCodes)},
		{"POST", "/security/taste", forPerson, (*Server).setTaste},
		{"POST", "/security/sessions/{id}/end", forPerson, (*Server).endSession},
		{"POST", "/security/sessions/end-others", forPerson, (*Server).endOthers},

		// Operator: Traffic.
		{"GET", "/operator", forOperator, (*Server).operatorTraffic},

		// Operator: Upstreams.
		{"GET", "/operator/upstreams", forOperator, (*Server).operatorUpstreams},

		// Operator: System.
		{"GET", "/operator/system", forOperator, (*Server).operatorSystem},

		// Operator: Accounts.
		{"GET", "/operator/accounts", forOperator, (*Server).operatorAccounts},
		{"POST", "/operator/accounts", forOperator, proved((*Server).createAccount)},
		{"GET", "/operator/accounts/new", forOperator, proved((*Server).newAccount)},
		{"GET", "/operator/accounts/{id}", forOperator, (*Server).operatorAccount},
		{"GET", "/operator/accounts/{id}/credit", forOperator, proved((*Server).creditPage)},
		{"POST", "/operator/accounts/{id}/credit", forOperator, proved((*Server).addCredit)},
		{"GET", "/operator/accounts/{id}/adjust", forOperator, proved((*Server).adjustPage)},
		{"POST", "/operator/accounts/{id}/adjust", forOperator, proved((*Server).adjust)},
		{"GET", "/operator/accounts/{id}/plan", forOperator, proved((*Server).planPage)},
		{"POST", "/operator/accounts/{id}/plan", forOperator, proved((*Server).changePlan)},
		{"GET", "/operator/accounts/{id}/suspend", forOperator, proved((*Server).suspendPage)},
		{"POST", "/operator/accounts/{id}/suspend", forOperator, proved((*Server).suspend)},
		{"GET", "/operator/accounts/{id}/resume", forOperator, proved((*Server).resumePage)},
		{"POST", "/operator/accounts/{id}/resume", forOperator, proved((*Server).resume)},
		{"GET", "/operator/accounts/{id}/invite", forOperator, proved((*Server).invitePage)},
		{"POST", "/operator/accounts/{id}/invite", forOperator, proved((*Server).invite)},
		{"POST", "/operator/accounts/{id}/invitations/{link}/revoke", forOperator, proved((*Server).revokeInvitation)},

		// Operator: Plans, models and routes.
		{"GET", "/operator/plans", forOperator, (*Server).operatorPlans},
		{"GET", "/operator/models", forOperator, (*Server).operatorModels},

		// Operator: Ledger, audit log, settings.
		{"GET", "/operator/ledger", forOperator, (*Server).operatorLedger},
		{"POST", "/operator/ledger/verify", forOperator, (*Server).verifyLedger},
		{"GET", "/operator/audit", forOperator, (*Server).operatorAudit},
		{"GET", "/operator/settings", forOperator, (*Server).operatorSettings},
		{"POST", "/operator/settings", forOperator, proved((*Server).createToken)},
		{"GET", "/operator/settings/tokens/{id}/revoke", forOperator, (*Server).revokeTokenPage},
		{"POST", "/operator/settings/tokens/{id}/revoke", forOperator, (*Server).revokeToken},
	}, moneyRoutes()...)
}

// Pages are the paths of all that is asked for with GET, with {wildcards}, in the order of the
// table: for whoever must not forget one.
func Pages() (paths []string) {
	for _, rt := range routes() {
		if rt.method == http.MethodGet {
			paths = append(paths, rt.path)
		}
	}
	return paths
}

// moneyRoutes are the pages of what was done and what it cost.
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
		{"POST", "/billing/redeem", forOwner, proved((*Server).redeem)},
		{"POST", "/billing/alert", forOwner, (*Server).setAlert},
		{"GET", "/billing/plan", forOwner, proved((*Server).ownPlanPage)},
		{"POST", "/billing/plan", forOwner, proved((*Server).changeOwnPlan)},
		{"GET", "/billing/cancel", forOwner, proved((*Server).cancelOwnPage)},
		{"POST", "/billing/cancel", forOwner, proved((*Server).cancelOwn)},

		// Audit log.
		{"GET", "/audit", forMember, (*Server).auditLog},
		{"GET", "/audit/csv", forMember, (*Server).auditCSV},
	}
}
