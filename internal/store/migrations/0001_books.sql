-- Accounts and their books. Amounts are nano-IU, times are microseconds since 1970 UTC.
CREATE TABLE account (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,
  plan       TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  granted    BIGINT NOT NULL DEFAULT 0,
  posted     BIGINT NOT NULL DEFAULT 0,
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

-- Streams that are running. A row is deleted in the transaction that writes its charge.
CREATE TABLE hold (
  id            TEXT PRIMARY KEY, -- the request id
  completion_id TEXT NOT NULL,
  account_id    TEXT NOT NULL REFERENCES account (id),
  key_id        TEXT NOT NULL,
  model         TEXT NOT NULL,
  price_id      TEXT NOT NULL REFERENCES model_price (id),
  plan_version  TEXT NOT NULL,
  prompt_tokens BIGINT NOT NULL,
  output_limit  BIGINT NOT NULL,
  amount        BIGINT NOT NULL CHECK (amount >= 0),
  created_at    BIGINT NOT NULL
);

-- One row for every admitted call that has ended.
CREATE TABLE charge (
  id                TEXT PRIMARY KEY, -- the request id: a call is charged once
  completion_id     TEXT NOT NULL,
  account_id        TEXT NOT NULL REFERENCES account (id),
  key_id            TEXT NOT NULL,
  model             TEXT NOT NULL,
  price_id          TEXT NOT NULL REFERENCES model_price (id),
  plan_version      TEXT NOT NULL,
  stream            BOOLEAN NOT NULL,
  created_at        BIGINT NOT NULL,
  prompt_tokens     BIGINT NOT NULL,
  cached_tokens     BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  output_limit      BIGINT NOT NULL,
  held              BIGINT NOT NULL CHECK (held >= 0),
  amount            BIGINT NOT NULL CHECK (amount >= 0),
  written_off       BIGINT NOT NULL CHECK (written_off >= 0),
  status            BIGINT NOT NULL,
  error_code        TEXT NOT NULL,
  state             TEXT NOT NULL CHECK (state IN ('settled', 'recovered', 'voided')),
  ending            TEXT NOT NULL,
  usage_source      TEXT NOT NULL,
  target            TEXT NOT NULL,
  attempts          BIGINT NOT NULL,
  first_token_us    BIGINT NOT NULL,
  total_us          BIGINT NOT NULL
) WITHOUT ROWID; -- ids come in the order of time: rows go to the end of one tree
CREATE INDEX charge_account ON charge (account_id, id);
