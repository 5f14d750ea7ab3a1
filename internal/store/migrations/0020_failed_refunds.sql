-- What of a payment went back, part by part, in the smallest unit of its currency: the sum of all
-- refunds as the charge has it, single refunds, and disputes that were lost. A refund that
-- failed later is known by its id, so its money is subtracted once however often it is told.
CREATE TABLE payment_claim (
  account_id TEXT NOT NULL REFERENCES account (id),
  payment    TEXT NOT NULL, -- the source of the grant
  part       TEXT NOT NULL, -- 'refunds', or the id of a refund or dispute
  kind       TEXT NOT NULL CHECK (kind IN ('refunds', 'refund', 'dispute')),
  back       BIGINT NOT NULL CHECK (back >= 0), -- of so much
  whole      BIGINT NOT NULL CHECK (whole > 0),
  failed     BOOLEAN NOT NULL DEFAULT FALSE,
  PRIMARY KEY (account_id, payment, part)
) WITHOUT ROWID;

-- What was told before is known in credit only. Refunds of such payments are told by their sum,
-- which takes the place of this: no currency of theirs is known to compare single ones by.
INSERT INTO payment_claim (account_id, payment, part, kind, back, whole)
  SELECT e.account_id, e.payment, e.part, CASE e.part WHEN 'refunds' THEN 'refunds' ELSE 'dispute' END, sum(e.taken + e.written_off), g.amount
  FROM payment_event e JOIN credit_grant g ON g.account_id = e.account_id AND g.source = e.payment
  GROUP BY e.account_id, e.payment, e.part HAVING sum(e.taken + e.written_off) > 0;

-- Of what was taken and written off, a message can say that it was not due: what was taken is
-- granted again, and what was written off is so no more.
ALTER TABLE payment_event ADD COLUMN returned BIGINT NOT NULL DEFAULT 0 CHECK (returned >= 0);
ALTER TABLE payment_event ADD COLUMN written_back BIGINT NOT NULL DEFAULT 0 CHECK (written_back >= 0);
ALTER TABLE payment_event ADD COLUMN grant_id TEXT REFERENCES credit_grant (id) CHECK ((grant_id IS NULL) = (returned = 0));
