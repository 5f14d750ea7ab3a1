-- Where a change came from. Of an entry that has none, the hash is as it was.
ALTER TABLE audit_log ADD COLUMN origin TEXT NOT NULL DEFAULT '';
