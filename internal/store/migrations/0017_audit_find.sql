-- Operators look for what somebody did, and for changes of one kind.
CREATE INDEX audit_log_by_actor ON audit_log (actor, seq);
CREATE INDEX audit_log_by_kind ON audit_log (substr(action, 1, instr(action, '.') - 1), seq);
