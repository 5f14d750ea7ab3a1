package store

// wrongTokens is how a law of included tokens says that it is broken: an amount of credit
// with the digits of so many tokens would mislead.
const wrongTokens = "%[1]s: the included tokens do not add up"

// planLaws are the laws of included tokens, paid periods and redemption codes.
var planLaws = []question{
	{
		"included tokens are the sum of their grants",
		`SELECT a.id, 0, 0 FROM account a
		 LEFT JOIN (SELECT account_id, sum(amount - expired) AS total FROM token_grant GROUP BY account_id) g ON g.account_id = a.id
		 WHERE a.tokens_granted <> coalesce(g.total, 0) ORDER BY a.id LIMIT 1`,
		wrongTokens,
		nil,
	},
	{
		"no grant gave more tokens than it had",
		`SELECT g.id, 0, 0 FROM token_grant g
		 LEFT JOIN (SELECT grant_id, sum(amount) AS total FROM token_expiry GROUP BY grant_id) e ON e.grant_id = g.id
		 WHERE g.burned < 0 OR g.burned + g.expired > g.amount OR g.expired <> coalesce(e.total, 0)
		 UNION ALL
		 SELECT e.grant_id, 0, 0 FROM token_expiry e WHERE NOT EXISTS (SELECT 1 FROM token_grant g WHERE g.id = e.grant_id)
		 UNION ALL
		 SELECT a.id, 0, 0 FROM account a
		 JOIN (SELECT account_id, sum(burned) AS total FROM token_grant GROUP BY account_id) g ON g.account_id = a.id
		 WHERE g.total > a.tokens_posted LIMIT 1`,
		wrongTokens,
		nil,
	},
	{
		"included tokens used are those of the charges",
		`SELECT a.id, 0, 0 FROM account a
		 LEFT JOIN (SELECT account, sum(plan_tokens) AS total FROM charge_row GROUP BY account) c ON c.account = a.number
		 WHERE a.tokens_posted <> coalesce(c.total, 0) ORDER BY a.id LIMIT 1`,
		wrongTokens,
		func(s *screened) bool { return s.tokens },
	},
	{
		"included tokens used and held are covered by what was granted",
		`SELECT a.id, 0, 0 FROM account a
		 LEFT JOIN (SELECT account, sum(plan_tokens) AS total FROM hold_row GROUP BY account) h ON h.account = a.number
		 WHERE a.tokens_posted < 0 OR a.tokens_posted + coalesce(h.total, 0) > a.tokens_granted ORDER BY a.id LIMIT 1`,
		wrongTokens,
		nil,
	},
	{
		"what a period includes was granted once",
		`WITH
		   granted (subscription_id, period, tokens, credit) AS
		     (SELECT subscription_id, period, sum(tokens), sum(credit) FROM
		        (SELECT subscription_id, period, amount AS tokens, 0 AS credit FROM token_grant
		         UNION ALL SELECT subscription_id, period, 0, amount FROM credit_grant WHERE subscription_id IS NOT NULL)
		      GROUP BY subscription_id, period)
		 SELECT p.subscription_id || ' in period ' || p.number, p.credit, coalesce(g.credit, 0) FROM subscription_period p
		 LEFT JOIN granted g ON g.subscription_id = p.subscription_id AND g.period = p.number
		 WHERE p.tokens <> coalesce(g.tokens, 0) OR p.credit <> coalesce(g.credit, 0)
		 UNION ALL
		 SELECT g.subscription_id || ' in period ' || g.period, 0, g.credit FROM granted g
		 WHERE NOT EXISTS (SELECT 1 FROM subscription_period p WHERE p.subscription_id = g.subscription_id AND p.number = g.period)
		 UNION ALL
		 SELECT s.id || ' in period ' || s.period, 0, 0 FROM subscription s
		 JOIN subscription_period p ON p.subscription_id = s.id WHERE p.number > s.period LIMIT 1`,
		"%[1]s: the grants and the period differ; it says %[2]s, %[3]s were granted",
		nil,
	},
	{
		"every code became credit at most once",
		`SELECT c.id, c.amount, coalesce(g.amount, 0) FROM redemption_code c LEFT JOIN credit_grant g ON g.id = c.grant_id
		 WHERE c.redeemed_at IS NOT NULL AND
		   (g.id IS NULL OR g.amount <> c.amount OR g.account_id <> c.account_id OR coalesce(g.source, '') <> 'code:' || c.id)
		 UNION ALL
		 SELECT g.id, 0, g.amount FROM credit_grant g WHERE g.source >= 'code:' AND g.source < 'code;'
		   AND NOT EXISTS (SELECT 1 FROM redemption_code c WHERE c.grant_id = g.id) LIMIT 1`,
		"%[1]s: the code says %[2]s, its grant %[3]s",
		nil,
	},
}
