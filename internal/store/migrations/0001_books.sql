-- Accounts and their books. Amounts are nano-IU, times are microseconds since 1970 UTC.
CREATE TABLE account (
  number     INTEGER PRIMARY KEY, -- what holds and charges say instead of the id
  id         TEXT NOT NULL UNIQUE,
  name       TEXT NOT NULL UNIQUE,
  plan       TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  granted    BIGINT NOT NULL DEFAULT 0,
  posted     BIGINT NOT NULL DEFAULT 0,
  last       TEXT, -- the charge that was written last: the head of a chain
  created_at BIGINT NOT NULL,
  CHECK (posted >= 0 AND posted <= granted)
);

CREATE TABLE credit_grant (
  id         TEXT PRIMARY KEY,
  account_id TEXT NOT NULL REFERENCES account (id),
  amount     BIGINT NOT NULL CHECK (amount > 0),
  note       TEXT NOT NULL,
  source     TEXT, -- the same source adds once; NULL may repeat
  created_at BIGINT NOT NULL,
  UNIQUE (account_id, source)
);

CREATE TABLE api_key (
  id           TEXT PRIMARY KEY,
  account_id   TEXT NOT NULL REFERENCES account (id),
  name         TEXT NOT NULL,
  prefix       TEXT NOT NULL,
  last4        TEXT NOT NULL,
  hash         BYTEA NOT NULL UNIQUE, -- SHA-256 of the secret, which is not kept
  models       TEXT NOT NULL, -- JSON array, or empty for all
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT,
  revoked_at   BIGINT,
  last_used_at BIGINT
);
CREATE INDEX api_key_account ON api_key (account_id);

-- What the configuration said when a call was priced. Rows are never changed: a new
-- price or plan is a new row, and every receipt cites the one it was made under.
CREATE TABLE model_price (
  id         TEXT PRIMARY KEY,
  model      TEXT NOT NULL,
  input      BIGINT NOT NULL CHECK (input >= 0), -- nano-IU a token
  cached     BIGINT NOT NULL CHECK (cached >= 0),
  output     BIGINT NOT NULL CHECK (output >= 0),
  created_at BIGINT NOT NULL
);

CREATE TABLE plan_version (
  id          TEXT PRIMARY KEY,
  plan        TEXT NOT NULL,
  rpm         BIGINT NOT NULL,
  tpm         BIGINT NOT NULL,
  concurrency BIGINT NOT NULL,
  models      TEXT NOT NULL, -- JSON array
  created_at  BIGINT NOT NULL
);

-- What calls have in common, said once. A charge is written while its client waits, so
-- its row is short; the views put it together again.
CREATE TABLE terms (
  number       INTEGER PRIMARY KEY,
  key_id       TEXT NOT NULL,
  model        TEXT NOT NULL,
  price_id     TEXT NOT NULL REFERENCES model_price (id),
  plan_version TEXT NOT NULL,
  UNIQUE (key_id, model, price_id, plan_version)
);

CREATE TABLE outcome (
  number       INTEGER PRIMARY KEY,
  stream       BOOLEAN NOT NULL,
  status       BIGINT NOT NULL,
  error_code   TEXT NOT NULL,
  state        TEXT NOT NULL CHECK (state IN ('settled', 'recovered', 'voided')),
  ending       TEXT NOT NULL,
  usage_source TEXT NOT NULL,
  target       TEXT NOT NULL,
  attempts     BIGINT NOT NULL,
  UNIQUE (stream, status, error_code, state, ending, usage_source, target, attempts)
);

-- Streams that are running. A row is deleted in the transaction that writes its charge.
CREATE TABLE hold_row (
  id            TEXT PRIMARY KEY, -- the request id
  completion_id TEXT NOT NULL,
  account       BIGINT NOT NULL REFERENCES account (number),
  terms         BIGINT NOT NULL REFERENCES terms (number),
  prompt_tokens BIGINT NOT NULL,
  output_limit  BIGINT NOT NULL,
  amount        BIGINT NOT NULL CHECK (amount >= 0),
  created_at    BIGINT NOT NULL
) WITHOUT ROWID;

-- One row for every admitted call that has ended.
CREATE TABLE charge_row (
  id                TEXT PRIMARY KEY, -- the request id: a call is charged once
  completion_id     TEXT NOT NULL,
  account           BIGINT NOT NULL REFERENCES account (number),
  terms             BIGINT NOT NULL REFERENCES terms (number),
  outcome           BIGINT NOT NULL REFERENCES outcome (number),
  previous          TEXT, -- charge of the account: an index would be one more page to write
  created_at        BIGINT NOT NULL,
  prompt_tokens     BIGINT NOT NULL,
  cached_tokens     BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  output_limit      BIGINT NOT NULL,
  held              BIGINT NOT NULL CHECK (held >= 0),
  amount            BIGINT NOT NULL CHECK (amount >= 0),
  written_off       BIGINT NOT NULL CHECK (written_off >= 0),
  first_token_us    BIGINT NOT NULL,
  total_us          BIGINT NOT NULL
) WITHOUT ROWID; -- ids come in the order of time: rows go to the end of one tree

CREATE VIEW hold AS
SELECT h.id, h.completion_id, a.id AS account_id, t.key_id, t.model, t.price_id, t.plan_version,
  h.prompt_tokens, h.output_limit, h.amount, h.created_at
FROM hold_row h LEFT JOIN account a ON a.number = h.account LEFT JOIN terms t ON t.number = h.terms;

CREATE VIEW charge AS
SELECT c.id, c.completion_id, a.id AS account_id, t.key_id, t.model, t.price_id, t.plan_version, o.stream, c.created_at,
  c.prompt_tokens, c.cached_tokens, c.completion_tokens, c.output_limit, c.held, c.amount, c.written_off,
  o.status, o.error_code, o.state, o.ending, o.usage_source, o.target, o.attempts, c.first_token_us, c.total_us, c.previous
FROM charge_row c LEFT JOIN account a ON a.number = c.account
  LEFT JOIN terms t ON t.number = c.terms LEFT JOIN outcome o ON o.number = c.outcome;
