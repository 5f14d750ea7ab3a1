-- Subscriptions: paid periods, what they include, and codes that become credit.

-- What a plan gives its subscribers and how long its answers may be: JSON, '{}' for none.
ALTER TABLE plan_version ADD COLUMN terms TEXT NOT NULL DEFAULT '{}';

-- One row for every subscription there was; at most one of an account runs.
CREATE TABLE subscription (
  id         TEXT PRIMARY KEY,
  account_id TEXT NOT NULL REFERENCES account (id),
  revision   BIGINT NOT NULL CHECK (revision > 0), -- a change names the one that it follows
  status     TEXT NOT NULL CHECK (status IN ('active', 'past_due', 'canceled', 'expired')),
  plan       TEXT NOT NULL,
  next_plan  TEXT NOT NULL DEFAULT '', -- from the next period on
  every      TEXT NOT NULL, -- how long a period is: month, year, 30d
  grace      BIGINT NOT NULL DEFAULT 0, -- microseconds
  anchor     BIGINT NOT NULL, -- the beginning of period base; later ones are counted from it
  base       BIGINT NOT NULL,
  period     BIGINT NOT NULL CHECK (period >= base AND base > 0), -- the current one
  starts_at  BIGINT NOT NULL,
  ends_at    BIGINT NOT NULL CHECK (ends_at > starts_at),
  until      BIGINT, -- a fixed end
  manual     BOOLEAN NOT NULL DEFAULT FALSE, -- a period begins when it was renewed by hand
  paid       BIGINT NOT NULL, -- the last period that was
  ending     BOOLEAN NOT NULL DEFAULT FALSE, -- canceled at the end of the period
  tokens     BIGINT NOT NULL CHECK (tokens >= 0), -- what a whole period of the best plan of this one includes
  credit     BIGINT NOT NULL CHECK (credit >= 0),
  created_at BIGINT NOT NULL,
  ended_at   BIGINT,
  CHECK ((ended_at IS NULL) = (status IN ('active', 'past_due')))
);
CREATE UNIQUE INDEX subscription_running ON subscription (account_id) WHERE ended_at IS NULL;
CREATE INDEX subscription_account ON subscription (account_id, created_at);

-- What was said of subscriptions before: a plan until a time.
INSERT INTO subscription (id, account_id, revision, status, plan, every, anchor, base, period, starts_at, ends_at, until, paid, tokens, credit, created_at)
  SELECT 'sub_' || substr(id, 6), id, 1, 'active', sub_plan, 'month', created_at, 1, 1, created_at, max(sub_until, created_at + 1), sub_until, 1, 0, 0, created_at
  FROM account WHERE sub_until IS NOT NULL;
ALTER TABLE account DROP COLUMN sub_plan;
ALTER TABLE account DROP COLUMN sub_until;

-- Each period that began, and what it has included so far.
CREATE TABLE subscription_period (
  subscription_id TEXT NOT NULL REFERENCES subscription (id),
  number          BIGINT NOT NULL,
  plan_version    TEXT NOT NULL, -- of its beginning
  starts_at       BIGINT NOT NULL,
  tokens          BIGINT NOT NULL DEFAULT 0,
  credit          BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (subscription_id, number)
) WITHOUT ROWID;

ALTER TABLE credit_grant ADD COLUMN subscription_id TEXT;
ALTER TABLE credit_grant ADD COLUMN period BIGINT CHECK ((period IS NULL) = (subscription_id IS NULL));
CREATE INDEX credit_grant_period ON credit_grant (subscription_id, period) WHERE subscription_id IS NOT NULL;

-- Included tokens: as credit_grant and grant_expiry, and apart from them, because an
-- amount here counts tokens.
CREATE TABLE token_grant (
  id              TEXT PRIMARY KEY,
  account_id      TEXT NOT NULL REFERENCES account (id),
  kind            TEXT NOT NULL CHECK (kind IN ('included')),
  amount          BIGINT NOT NULL CHECK (amount > 0),
  priority        BIGINT NOT NULL,
  note            TEXT NOT NULL,
  source          TEXT,
  actor           TEXT NOT NULL,
  request_id      TEXT CHECK (request_id IS NULL),
  subscription_id TEXT NOT NULL,
  period          BIGINT NOT NULL,
  burned          BIGINT NOT NULL DEFAULT 0 CHECK (burned >= 0),
  expired         BIGINT NOT NULL DEFAULT 0 CHECK (expired >= 0 AND burned + expired <= amount),
  created_at      BIGINT NOT NULL,
  expires_at      BIGINT,
  UNIQUE (account_id, source)
);
CREATE INDEX token_grant_expires ON token_grant (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX token_grant_period ON token_grant (subscription_id, period);
CREATE TABLE token_expiry (
  grant_id   TEXT NOT NULL REFERENCES token_grant (id),
  number     BIGINT NOT NULL,
  amount     BIGINT NOT NULL CHECK (amount > 0),
  created_at BIGINT NOT NULL,
  PRIMARY KEY (grant_id, number)
);
ALTER TABLE account ADD COLUMN tokens_granted BIGINT NOT NULL DEFAULT 0;
ALTER TABLE account ADD COLUMN tokens_posted BIGINT NOT NULL DEFAULT 0 CHECK (tokens_posted >= 0 AND tokens_posted <= tokens_granted);

-- Of the tokens of a call, those that its plan included: they cost no credit.
ALTER TABLE hold_row ADD COLUMN plan_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE charge_row ADD COLUMN plan_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage_row ADD COLUMN plan_tokens BIGINT NOT NULL DEFAULT 0;

DROP VIEW hold;
CREATE VIEW hold AS
SELECT h.id, h.completion_id, a.id AS account_id, t.key_id, t.model, t.price_id, t.plan_version,
  h.prompt_tokens, h.output_limit, h.amount, h.created_at, h.plan_tokens
FROM hold_row h LEFT JOIN account a ON a.number = h.account LEFT JOIN terms t ON t.number = h.terms;

DROP VIEW charge;
CREATE VIEW charge AS
SELECT c.id, c.completion_id, a.id AS account_id, t.key_id, t.model, t.price_id, t.plan_version, o.stream, c.created_at,
  c.prompt_tokens, c.cached_tokens, c.completion_tokens, c.output_limit, c.held, c.amount, c.written_off,
  o.status, o.error_code, o.state, o.ending, o.usage_source, o.target, o.attempts, c.first_token_us, c.total_us, o.class, c.previous, c.plan_tokens
FROM charge_row c LEFT JOIN account a ON a.number = c.account
  LEFT JOIN terms t ON t.number = c.terms LEFT JOIN outcome o ON o.number = c.outcome;

DROP VIEW usage_hour;
CREATE VIEW usage_hour AS
SELECT a.id AS account_id, t.key_id, t.model, u.hour, sum(u.calls) AS calls, sum(u.prompt_tokens) AS prompt_tokens,
  sum(u.cached_tokens) AS cached_tokens, sum(u.completion_tokens) AS completion_tokens, sum(u.amount) AS amount,
  sum(u.written_off) AS written_off, sum(u.failed) AS failed, sum(u.refused) AS refused, sum(u.gone) AS gone,
  sum(u.plan_tokens) AS plan_tokens
FROM usage_row u LEFT JOIN account a ON a.number = u.account LEFT JOIN terms t ON t.number = u.terms
GROUP BY a.id, t.key_id, t.model, u.hour;

-- Codes that become credit, once. What they say is not kept, only its SHA-256.
CREATE TABLE redemption_code (
  id          TEXT PRIMARY KEY,
  hash        BYTEA NOT NULL UNIQUE,
  last4       TEXT NOT NULL,
  kind        TEXT NOT NULL CHECK (kind IN ('prepaid', 'promo')),
  amount      BIGINT NOT NULL CHECK (amount > 0),
  note        TEXT NOT NULL,
  created_at  BIGINT NOT NULL,
  expires_at  BIGINT, -- it can no longer be redeemed then
  revoked_at  BIGINT,
  redeemed_at BIGINT,
  account_id  TEXT REFERENCES account (id),
  grant_id    TEXT REFERENCES credit_grant (id),
  CHECK ((redeemed_at IS NULL) = (account_id IS NULL) AND (redeemed_at IS NULL) = (grant_id IS NULL)),
  CHECK (redeemed_at IS NULL OR revoked_at IS NULL)
);
CREATE INDEX redemption_code_created ON redemption_code (created_at);
