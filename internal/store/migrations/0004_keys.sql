-- What a key may do: names of rights, with spaces between.
ALTER TABLE api_key ADD COLUMN scopes TEXT NOT NULL DEFAULT 'chat models';
