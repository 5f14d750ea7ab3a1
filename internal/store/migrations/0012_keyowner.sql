-- Which member made a key; empty where the operator did, at the command line.
ALTER TABLE api_key ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
