-- Calls that their callers named with an Idempotency-Key. A row is written in the
-- transaction of the hold or the charge that it stands for.
CREATE TABLE idempotency (
  number        INTEGER PRIMARY KEY,
  account       BIGINT NOT NULL REFERENCES account (number),
  key           BYTEA NOT NULL, -- derived from the caller's, which is not kept
  body          BYTEA NOT NULL, -- SHA-256 of the request
  request_id    TEXT NOT NULL,
  completion_id TEXT NOT NULL,
  running       BOOLEAN NOT NULL, -- a stream with a hold; else it was charged
  answer        BYTEA, -- sealed; NULL where none is kept
  created_at    BIGINT NOT NULL,
  UNIQUE (account, key)
);
CREATE INDEX idempotency_age ON idempotency (created_at);
CREATE INDEX idempotency_running ON idempotency (request_id) WHERE running;

-- What operators' other systems are told, written in the transaction of what it tells of;
-- a trigger, which follows the configuration (announce.go), gives it to those who want it.
CREATE TABLE event (
  number     INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE,
  kind       TEXT NOT NULL,
  body       TEXT NOT NULL, -- JSON as it is sent
  created_at BIGINT NOT NULL
);
CREATE TABLE delivery (
  number     INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of one endpoint
  event      BIGINT NOT NULL REFERENCES event (number),
  endpoint   TEXT NOT NULL,
  state      TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'failed')),
  attempts   BIGINT NOT NULL DEFAULT 0,
  last_error TEXT NOT NULL DEFAULT '',
  since      BIGINT NOT NULL, -- it is given up a day later
  next_at    BIGINT NOT NULL,
  ended_at   BIGINT
);
CREATE INDEX delivery_waiting ON delivery (endpoint, number) WHERE state = 'waiting';
CREATE INDEX delivery_event ON delivery (event);
-- By which an event of a budget finds its key.
CREATE INDEX api_key_budget ON api_key (budget_id) WHERE budget_id IS NOT NULL;
