-- The currency of what was paid, as Stripe writes it: three letters, in lower case. Empty where
-- nobody has said: such a sum is compared with no other.
ALTER TABLE credit_grant ADD COLUMN currency TEXT NOT NULL DEFAULT '';

-- What went back of a payment in a currency that is not the payment's: nothing was taken, and
-- somebody has to decide what is.
ALTER TABLE payment_event ADD COLUMN by_hand BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX payment_event_by_hand ON payment_event (created_at) WHERE by_hand;
