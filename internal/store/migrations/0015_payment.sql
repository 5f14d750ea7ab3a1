-- What was paid for a grant, in the smallest unit of the payment's currency; 0 where nobody
-- has said. Of a payment that goes back in part, the same part of its credit does.
ALTER TABLE credit_grant ADD COLUMN paid BIGINT NOT NULL DEFAULT 0 CHECK (paid >= 0);
CREATE INDEX credit_grant_source ON credit_grant (source) WHERE source IS NOT NULL;

-- What the payment provider has told of a payment after it: that some of it was refunded, or
-- is disputed. Credit is taken by a debit; what could not be taken is written off.
CREATE TABLE payment_event (
  source      TEXT PRIMARY KEY, -- the same message counts once
  account_id  TEXT NOT NULL REFERENCES account (id),
  payment     TEXT NOT NULL, -- the source of the grant
  part        TEXT NOT NULL, -- of the payment: 'refunds', or the id of a dispute
  reason      TEXT NOT NULL,
  taken       BIGINT NOT NULL CHECK (taken >= 0),
  written_off BIGINT NOT NULL CHECK (written_off >= 0),
  debit_id    TEXT REFERENCES debit (id) CHECK ((debit_id IS NULL) = (taken = 0)),
  created_at  BIGINT NOT NULL
);
CREATE INDEX payment_event_payment ON payment_event (account_id, payment);
