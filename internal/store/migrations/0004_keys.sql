-- What a key may do: names of rights, with spaces between.
ALTER TABLE api_key ADD COLUMN scopes TEXT NOT NULL DEFAULT 'chat models';

-- Where it may be used from: networks with spaces between; empty is everywhere.
ALTER TABLE api_key ADD COLUMN networks TEXT NOT NULL DEFAULT '';

-- The key that has taken its place; this one works until it expires or is revoked.
ALTER TABLE api_key ADD COLUMN replaced_by TEXT REFERENCES api_key (id);
