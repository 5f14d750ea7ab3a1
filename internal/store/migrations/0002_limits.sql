-- Subscriptions: while one is active its plan applies.
ALTER TABLE account ADD COLUMN sub_plan TEXT NOT NULL DEFAULT '';
ALTER TABLE account ADD COLUMN sub_until BIGINT; -- NULL where there never was one

-- Limits of a key, in addition to those of its account's plan; 0 is none.
ALTER TABLE api_key ADD COLUMN rpm BIGINT NOT NULL DEFAULT 0 CHECK (rpm >= 0);
ALTER TABLE api_key ADD COLUMN tpm BIGINT NOT NULL DEFAULT 0 CHECK (tpm >= 0);
