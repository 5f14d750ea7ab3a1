package store

// paymentLaws are the laws of payments that went back.
var paymentLaws = []question{{
	name: "no payment was taken back more than once",
	query: `SELECT e.payment, e.total, coalesce(g.amount, 0) FROM
		   (SELECT account_id, payment, sum(taken + written_off - returned - written_back) AS total, sum(taken - returned) AS taken, sum(written_off - written_back) AS off
		    FROM payment_event GROUP BY account_id, payment) e
		 LEFT JOIN credit_grant g ON g.account_id = e.account_id AND g.source = e.payment
		 WHERE g.id IS NULL OR e.total > g.amount OR e.taken < 0 OR e.off < 0
		 UNION ALL
		 SELECT e.source, e.taken, coalesce(d.amount, 0) FROM payment_event e LEFT JOIN debit d ON d.id = e.debit_id
		 WHERE e.taken <> coalesce(d.amount, 0) OR d.account_id <> e.account_id
		 UNION ALL
		 SELECT e.source, e.returned, coalesce(g.amount, 0) FROM payment_event e LEFT JOIN credit_grant g ON g.id = e.grant_id
		 WHERE e.returned <> coalesce(g.amount, 0) OR g.account_id <> e.account_id LIMIT 1`,
	detail: "%[1]s: %[2]s was taken back of %[3]s",
}}
