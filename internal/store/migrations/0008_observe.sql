-- How a call ended, for who looks for those that did not end well.
ALTER TABLE outcome ADD COLUMN class TEXT GENERATED ALWAYS AS (CASE
  WHEN ending = 'client_gone' THEN 'left'
  WHEN ending = 'key_revoked' OR state = 'voided' AND status BETWEEN 400 AND 498 THEN 'refused'
  WHEN ending IN ('upstream_cut', 'upstream_error', 'shutdown', 'crash') THEN 'failed'
  ELSE 'answered' END) VIRTUAL;

-- Migration 3 began to add charges up and left out those that were there.
DELETE FROM usage_row;
INSERT INTO usage_row (account, hour, terms, calls, prompt_tokens, cached_tokens, completion_tokens, amount, written_off)
SELECT account, created_at / 3600000000, terms, count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), sum(amount), sum(written_off)
FROM charge_row GROUP BY 1, 2, 3;

-- What was used also says how calls ended, the largest charge, and where their rows are:
-- last is the head of a chain of the charges of one account, hour and terms, newest first.
-- One chain of all charges of an account, which this takes the place of, led to no time.
ALTER TABLE usage_row ADD COLUMN failed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage_row ADD COLUMN refused BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage_row ADD COLUMN gone BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage_row ADD COLUMN most BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage_row ADD COLUMN last TEXT;
UPDATE charge_row SET previous = p.previous FROM (
  SELECT id, lag(id) OVER (PARTITION BY account, created_at / 3600000000, terms ORDER BY id) AS previous FROM charge_row) p
WHERE p.id = charge_row.id;
UPDATE usage_row SET failed = u.failed, refused = u.refused, gone = u.gone, most = u.most, last = u.last FROM (
  SELECT account, created_at / 3600000000 AS hour, terms, sum(class = 'failed') AS failed, sum(class = 'refused') AS refused,
    sum(class = 'left') AS gone, max(amount) AS most, max(id) AS last
  FROM charge_row JOIN outcome ON number = outcome GROUP BY 1, 2, 3) u
WHERE u.account = usage_row.account AND u.hour = usage_row.hour AND u.terms = usage_row.terms;
ALTER TABLE account DROP COLUMN last;

DROP VIEW charge;
CREATE VIEW charge AS
SELECT c.id, c.completion_id, a.id AS account_id, t.key_id, t.model, t.price_id, t.plan_version, o.stream, c.created_at,
  c.prompt_tokens, c.cached_tokens, c.completion_tokens, c.output_limit, c.held, c.amount, c.written_off,
  o.status, o.error_code, o.state, o.ending, o.usage_source, o.target, o.attempts, c.first_token_us, c.total_us, o.class, c.previous
FROM charge_row c LEFT JOIN account a ON a.number = c.account
  LEFT JOIN terms t ON t.number = c.terms LEFT JOIN outcome o ON o.number = c.outcome;

DROP VIEW usage_hour;
CREATE VIEW usage_hour AS
SELECT a.id AS account_id, t.key_id, t.model, u.hour, sum(u.calls) AS calls, sum(u.prompt_tokens) AS prompt_tokens,
  sum(u.cached_tokens) AS cached_tokens, sum(u.completion_tokens) AS completion_tokens, sum(u.amount) AS amount,
  sum(u.written_off) AS written_off, sum(u.failed) AS failed, sum(u.refused) AS refused, sum(u.gone) AS gone
FROM usage_row u LEFT JOIN account a ON a.number = u.account LEFT JOIN terms t ON t.number = u.terms
GROUP BY a.id, t.key_id, t.model, u.hour;

-- Calls that were refused before they began: no entries of the books, kept for a while so
-- that people can be told why. Amounts of money are nano-IU.
CREATE TABLE refusal (
  id            TEXT PRIMARY KEY, -- the request id
  account_id    TEXT NOT NULL, -- empty where nobody knows
  key_id        TEXT NOT NULL,
  model         TEXT NOT NULL,
  created_at    BIGINT NOT NULL,
  status        BIGINT NOT NULL,
  code          TEXT NOT NULL,
  rule          TEXT NOT NULL,
  scope         TEXT NOT NULL, -- whose limit it was: account, key, model or empty
  most          BIGINT NOT NULL, -- the limit
  used          BIGINT NOT NULL,
  held          BIGINT NOT NULL,
  asked         BIGINT NOT NULL,
  fits          BIGINT NOT NULL,
  clears_us     BIGINT NOT NULL,
  prompt_tokens BIGINT NOT NULL,
  max_tokens    BIGINT NOT NULL,
  param         TEXT NOT NULL,
  message       TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX refusal_account ON refusal (account_id, id);

-- How many there were, also of those whose rows are gone.
CREATE TABLE refusal_hour (
  account_id TEXT NOT NULL,
  hour       BIGINT NOT NULL,
  key_id     TEXT NOT NULL,
  model      TEXT NOT NULL,
  code       TEXT NOT NULL,
  calls      BIGINT NOT NULL,
  PRIMARY KEY (account_id, hour, key_id, model, code)
) WITHOUT ROWID;

-- Tokens of operators. Their text is not kept, only its SHA-256.
CREATE TABLE operator_token (
  id           TEXT PRIMARY KEY,
  name         TEXT NOT NULL,
  prefix       TEXT NOT NULL,
  hash         BYTEA NOT NULL UNIQUE,
  created_at   BIGINT NOT NULL,
  created_by   TEXT NOT NULL,
  expires_at   BIGINT,
  revoked_at   BIGINT,
  last_used_at BIGINT
);
