-- Migration 3 began to add charges up and left out those that were there.
DELETE FROM usage_row;
INSERT INTO usage_row (account, hour, terms, calls, prompt_tokens, cached_tokens, completion_tokens, amount, written_off)
SELECT account, created_at / 3600000000, terms, count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), sum(amount), sum(written_off)
FROM charge_row GROUP BY 1, 2, 3;
