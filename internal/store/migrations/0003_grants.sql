-- What a grant is, when it ends, and how much of it is used. Charges know no grants:
-- burned is how what was posted falls on them, as of the last change of the account's grants.
ALTER TABLE credit_grant ADD COLUMN kind TEXT NOT NULL DEFAULT 'prepaid'
  CHECK (kind IN ('prepaid', 'included', 'promo', 'refund', 'adjust'));
ALTER TABLE credit_grant ADD COLUMN priority BIGINT NOT NULL DEFAULT 50; -- lower burns first
ALTER TABLE credit_grant ADD COLUMN expires_at BIGINT;
ALTER TABLE credit_grant ADD COLUMN burned BIGINT NOT NULL DEFAULT 0 CHECK (burned >= 0);
ALTER TABLE credit_grant ADD COLUMN expired BIGINT NOT NULL DEFAULT 0 CHECK (expired >= 0 AND burned + expired <= amount);
CREATE INDEX credit_grant_expires ON credit_grant (expires_at) WHERE expires_at IS NOT NULL;

-- Credit that was not used in time, an entry each time some of it was taken back: what
-- calls held when a grant ended is taken when they have.
CREATE TABLE grant_expiry (
  grant_id   TEXT NOT NULL REFERENCES credit_grant (id),
  number     BIGINT NOT NULL, -- from 1
  amount     BIGINT NOT NULL CHECK (amount > 0),
  created_at BIGINT NOT NULL,
  PRIMARY KEY (grant_id, number)
);

-- Who granted, and of which charge a refund is.
ALTER TABLE credit_grant ADD COLUMN actor TEXT NOT NULL DEFAULT '';
ALTER TABLE credit_grant ADD COLUMN request_id TEXT CHECK ((request_id IS NOT NULL) = (kind = 'refund'));
CREATE INDEX credit_grant_request ON credit_grant (request_id) WHERE request_id IS NOT NULL;

-- Credit that an operator has taken back; it counts as posted.
CREATE TABLE debit (
  id         TEXT PRIMARY KEY,
  account_id TEXT NOT NULL REFERENCES account (id),
  amount     BIGINT NOT NULL CHECK (amount > 0),
  reason     TEXT NOT NULL,
  actor      TEXT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX debit_account ON debit (account_id, created_at);

-- What was used, by account, hour and terms: written with the charges that it sums up.
CREATE TABLE usage_row (
  account           BIGINT NOT NULL, -- no references: a charge of the same transaction has them
  hour              BIGINT NOT NULL, -- since 1970 UTC, of the charge's created_at
  terms             BIGINT NOT NULL,
  calls             BIGINT NOT NULL,
  prompt_tokens     BIGINT NOT NULL,
  cached_tokens     BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  amount            BIGINT NOT NULL,
  written_off       BIGINT NOT NULL,
  PRIMARY KEY (account, hour, terms)
) WITHOUT ROWID;

CREATE VIEW usage_hour AS
SELECT a.id AS account_id, t.key_id, t.model, u.hour, sum(u.calls) AS calls, sum(u.prompt_tokens) AS prompt_tokens,
  sum(u.cached_tokens) AS cached_tokens, sum(u.completion_tokens) AS completion_tokens, sum(u.amount) AS amount,
  sum(u.written_off) AS written_off
FROM usage_row u LEFT JOIN account a ON a.number = u.account LEFT JOIN terms t ON t.number = u.terms
GROUP BY a.id, t.key_id, t.model, u.hour;

-- What operators changed, in the transaction of the change. Each entry's hash covers
-- the one before; head says where the log ends, so that its end cannot be cut off.
CREATE TABLE audit_log (
  seq       BIGINT PRIMARY KEY, -- from 1, without gaps
  at        BIGINT NOT NULL,
  actor     TEXT NOT NULL,
  action    TEXT NOT NULL,
  target    TEXT NOT NULL,
  before    TEXT NOT NULL, -- JSON, or empty
  after     TEXT NOT NULL,
  prev_hash TEXT NOT NULL,
  hash      TEXT NOT NULL
);
CREATE TABLE audit_head (
  one  BIGINT PRIMARY KEY CHECK (one = 1),
  seq  BIGINT NOT NULL,
  hash TEXT NOT NULL
);
INSERT INTO audit_head (one, seq, hash) VALUES (1, 0, '');
CREATE TRIGGER audit_log_is_never_changed BEFORE UPDATE ON audit_log
BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
CREATE TRIGGER audit_log_is_never_cut BEFORE DELETE ON audit_log
BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;
