-- What a key may do: names of rights, with spaces between.
ALTER TABLE api_key ADD COLUMN scopes TEXT NOT NULL DEFAULT 'chat models';

-- Where it may be used from: networks with spaces between; empty is everywhere.
ALTER TABLE api_key ADD COLUMN networks TEXT NOT NULL DEFAULT '';

-- The key that has taken its place; this one works until it expires or is revoked.
ALTER TABLE api_key ADD COLUMN replaced_by TEXT REFERENCES api_key (id);

-- What a key may spend, in a month where that is said. Keys that take each other's place
-- have the budget of one id: they spend from it together.
ALTER TABLE api_key ADD COLUMN budget BIGINT CHECK (budget > 0);
ALTER TABLE api_key ADD COLUMN budget_monthly BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE api_key ADD COLUMN budget_id TEXT;

-- What was spent of a budget, by month or as a whole. Every charge that counts for one
-- cites its row; calls of keys without a budget have none and cost nothing here.
CREATE TABLE budget (
  number INTEGER PRIMARY KEY,
  id     TEXT NOT NULL,
  period BIGINT NOT NULL, -- the month in UTC, as 202611, or 0 for the whole
  spent  BIGINT NOT NULL DEFAULT 0 CHECK (spent >= 0),
  UNIQUE (id, period)
);
-- No foreign keys: they would cost every charge 0.4 µs, and ledger verify looks for the rows.
ALTER TABLE hold_row ADD COLUMN budget BIGINT;
ALTER TABLE charge_row ADD COLUMN budget BIGINT;

-- Limits of a plan on single models: a JSON object by their ids.
ALTER TABLE plan_version ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';
