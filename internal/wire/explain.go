package wire

// Explanation says in one plain sentence why an answer carries a code and what
// to do about it. Console, documentation and command line show the same words.
type Explanation struct {
	Code     string
	Status   int
	Sentence string
}

// Explain returns the sentence for code, and whether there is one.
func Explain(code string) (string, bool) {
	for _, e := range Explanations() {
		if e.Code == code {
			return e.Sentence, true
		}
	}
	return "", false
}

// Explanations returns every code a client can meet, in order of status.
func Explanations() []Explanation {
	return []Explanation{
		{"invalid_json", 400, "The body was not valid JSON, named a field twice or was nested too deeply; send one JSON object in UTF-8."},
		{"missing_required_parameter", 400, "A field that the request needs was absent, null or empty; param names it."},
		{"invalid_type", 400, "A field had another JSON type than it must have; param names it."},
		{"invalid_value", 400, "A field had a value it may not have, or one that does not go with the rest of the request; param names it."},
		{"invalid_parameter_combination", 400, "Two fields that exclude each other were given together; send one of them."},
		{"integer_below_min_value", 400, "An integer was smaller than the field allows; the message names the bound."},
		{"integer_above_max_value", 400, "An integer was larger than the field allows; the message names the bound."},
		{"decimal_below_min_value", 400, "A number was smaller than the field allows; the message names the bound."},
		{"decimal_above_max_value", 400, "A number was larger than the field allows; the message names the bound."},
		{"empty_array", 400, "An array that needs at least one element was empty."},
		{"array_above_max_length", 400, "An array had more elements than the field allows; the message names the bound."},
		{"object_above_max_properties", 400, "An object had more members than the field allows; the message names the bound."},
		{"empty_string", 400, "A string that must not be empty was empty."},
		{"string_above_max_length", 400, "A string was longer than the field allows; the message names the bound."},
		{"invalid_json_schema", 400, "The schema of response_format does not obey the rules of strict schemas; close every object and require all its properties, or leave strict out."},
		{"invalid_function_parameters", 400, "The schema of a function does not obey the rules of strict schemas; close every object and require all its properties, or leave strict out."},
		{"unsupported_parameter", 400, "The model cannot do what the field asks for; leave the field out or choose another model."},
		{"unsupported_value", 400, "The model cannot do what this value of the field asks for; choose another value or another model."},
		{"context_length_exceeded", 400, "The messages are longer than the model's context window; shorten them or choose a model with a larger window."},
		{"invalid_body", 400, "The body broke off or its transfer encoding was broken; send the request again."},
		{"malformed_request", 400, "The request was not valid HTTP, so nothing of it was read; this is a matter of the client's HTTP library or of a proxy between."},
		{"invalid_idempotency_key", 400, "The header Idempotency-Key was sent twice, or was not 1 to 255 printable ASCII characters."},
		{"idempotency_key_reuse", 400, "The idempotency key stands for another request of the last 24 hours; every request needs a key of its own."},
		{"invalid_signature", 400, "A message for the operator's payments was not signed with the secret of the configuration, or is too old."},
		{"missing_api_key", 401, "The request carried no API key; send it in the header Authorization as Bearer and the key."},
		{"invalid_api_key", 401, "The API key is malformed or unknown; check that it was copied whole, without spaces or line breaks."},
		{"api_key_revoked", 401, "The API key was revoked or disabled and will not work again; use another key."},
		{"api_key_expired", 401, "The API key has passed its expiry date; make a new one."},
		{"account_suspended", 401, "The account is suspended, so none of its keys work; ask the operator."},
		{"insufficient_quota", 402, "The balance does not cover the call; add credit, wait for running calls to end, or lower max_tokens."},
		{"key_budget_exceeded", 402, "The budget of the API key does not cover the call; raise the budget or use another key."},
		{"billing_not_active", 402, "The subscription has ended and there is no credit; renew it or add credit."},
		{"model_access_denied", 403, "The plan or the API key does not include the model; upgrade the plan, change the key's models, or choose another model."},
		{"address_not_allowed", 403, "The API key may be used only from certain network addresses, and the call came from another."},
		{"scope_missing", 403, "The API key does not have the right that the call needs; use a key that has it."},
		{"model_not_found", 404, "No model of that name is offered; names are case-sensitive, and the list of models shows them all."},
		{"unknown_url", 404, "Nothing is served under that path; chat completions are at /v1/chat/completions."},
		{"method_not_allowed", 405, "The path exists but not for that method; the header Allow names the right one."},
		{"request_timeout", 408, "The request did not arrive in time; send it again."},
		{"idempotency_in_progress", 409, "A call with this idempotency key is running; wait for it, or ask again as Retry-After says."},
		{"idempotency_completed", 409, "The call of this idempotency key was charged and its answer is not kept; the message names the completion, and another call needs another key."},
		{"request_too_large", 413, "The body was larger than the server accepts; the message names the bound."},
		{"unsupported_media_type", 415, "The body was not sent as uncompressed application/json."},
		{"expectation_failed", 417, "The header Expect named something other than 100-continue; leave it out."},
		{"rate_limit_exceeded", 429, "The account or the API key has used up its requests, tokens or running calls for the moment; wait as long as Retry-After says."},
		{"headers_too_large", 431, "The path and the headers together were longer than the server accepts; shorten them."},
		{"internal_error", 500, "The server failed in a way it should not; nothing was charged for an answer that was not given, and the operator can find it by the request id."},
		{"ledger_unavailable", 500, "The server could not record usage durably and stopped rather than guess; try again in a few seconds."},
		{"unsupported_transfer_encoding", 501, "The header Transfer-Encoding named something other than chunked; send the body as it is, or chunked."},
		{"upstream_error", 502, "The provider that runs the model failed or sent nothing of use; try again."},
		{"upstream_timeout", 502, "The provider that runs the model took too long; try again."},
		{"upstream_overloaded", 502, "The provider that runs the model had no room even after several attempts; try again later."},
		{"server_is_overloaded", 503, "The server is full or shutting down; wait as long as Retry-After says."},
		{"unsupported_http_version", 505, "The request was in another version of HTTP than 1.0 and 1.1; HTTP/2 needs TLS."},
	}
}
