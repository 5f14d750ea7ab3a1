-- Accounts read what was done to them and their keys.
CREATE INDEX audit_log_by_target ON audit_log (target, seq);
