-- The balance below which an account's credit is low; NULL is what the configuration says.
ALTER TABLE account ADD COLUMN low_credit BIGINT CHECK (low_credit >= 0);
