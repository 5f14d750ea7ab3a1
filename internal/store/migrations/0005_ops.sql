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
