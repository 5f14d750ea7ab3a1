package wire

import "time"

// InvalidIdempotencyKey is the 400 for a header that is no key, or two.
func InvalidIdempotencyKey() *Error {
	return refusal(400, typeInvalidRequest, "invalid_idempotency_key", "The header Idempotency-Key is sent once and has 1 to 255 printable ASCII characters.")
}

// IdempotencyKeyReuse is the 400 for a key that stands for another body.
func IdempotencyKeyReuse() *Error {
	return refusal(400, typeInvalidRequest, "idempotency_key_reuse", "This idempotency key was used with another body within 24 hours. Use a new key for every request.")
}

// IdempotencyInProgress is the 409 for a key whose call has not ended.
func IdempotencyInProgress() *Error {
	return refusal(409, typeInvalidRequest, "idempotency_in_progress", "A call with this idempotency key is running. Wait for it, or ask again.", retryAfter(time.Second)...)
}

// IdempotencyCompleted is the 409 for a key whose call was charged and whose answer is
// not kept. Clients that would try again are told not to.
func IdempotencyCompleted(completionID string) *Error {
	return refusal(409, typeInvalidRequest, "idempotency_completed", "The call with this idempotency key is done, as "+completionID+", and its answer is not kept. Use a new key for another call.", Header{"x-should-retry", "false"})
}

// InvalidSignature is the 400 for a payment provider's message that is not signed as it
// should be.
func InvalidSignature() *Error {
	return refusal(400, typeInvalidRequest, "invalid_signature", "The signature is missing, wrong or too old.")
}
