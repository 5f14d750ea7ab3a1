package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

const (
	maxFaultBytes   = 64 << 10
	maxFaultExcerpt = 300 // of a provider's words in the log
	maxRetryAfter   = time.Hour
)

// Errors of answers that are none.
var (
	errAnswer = errors.New("the answer breaks the convention")
	// errForm is an errAnswer that is known only at the end of the answer.
	errForm = fmt.Errorf("%w at its end", errAnswer)
)

// fault is what the error bodies of the known servers have in common.
type fault struct {
	Message string
	Type    string
	Code    string
	Param   string
	// Of llama-server.
	Prompt, Window int
}

// faultError is an error object in a stream, where a chunk should be.
type faultError struct{ body []byte }

// Error names the fault; its message may repeat what the caller sent.
func (e *faultError) Error() string {
	f := parseFault(e.body)
	return fmt.Sprintf("error event: %s %s", f.Type, f.Code)
}

// status is the one that the error object names, else 500.
func (e *faultError) status() int {
	if n, err := strconv.Atoi(parseFault(e.body).Code); err == nil && n >= 400 && n < 600 {
		return n
	}
	return http.StatusInternalServerError
}

// parseFault reads {"error":{…}}, {"error":"…"} and {"message":"…"}. Of anything else
// the message is the whole of it.
func parseFault(body []byte) fault {
	type object struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Param   string          `json:"param"`
		Prompt  int             `json:"n_prompt_tokens"`
		Window  int             `json:"n_ctx"`
	}
	var (
		outer struct {
			Error json.RawMessage `json:"error"`
		}
		o    object
		text string
	)
	inner := body
	if json.Unmarshal(body, &outer) == nil && len(outer.Error) > 0 {
		inner = outer.Error
	}
	if json.Unmarshal(inner, &text) == nil {
		return fault{Message: text}
	}
	// A member of another type leaves the others as they are.
	_ = json.Unmarshal(inner, &o)
	if o.Message == "" {
		o.Message = string(body)
	}
	return fault{Message: o.Message, Type: o.Type, Code: strings.Trim(string(o.Code), `"`), Param: o.Param, Prompt: o.Prompt, Window: o.Window}
}

// Providers word it in many ways; these are the servers' own sources and the hosted
// APIs' bodies.
var (
	aboutContext = regexp.MustCompile(`(?i)context.?(length|window|size)|maximum context|prompt is too long|longer than the model|max_model_len|input is too long|too many (input )?tokens|.inputs. tokens`)
	aboutHTTPS   = regexp.MustCompile(`(?i)plain HTTP (request was sent )?to (HTTPS|an SSL)|HTTP request to an HTTPS`)
	windowIs     = regexp.MustCompile(`(?i)context length (?:is|of) (?:only )?\(?(\d{1,9})`)
	promptIs     = regexp.MustCompile(`(?i)(\d{1,9}) in the messages|(\d{1,9}) input tokens|(\d{1,9}) tokens from the input|input \((\d{1,9}) tokens\)|resulted in (\d{1,9}) tokens`)
)

// tooLong is a prompt that is too long for the provider, alone or together with the
// bound of the answer. Numbers that the provider does not tell are 0.
type tooLong struct {
	window, prompt int
	err            error
}

func (e *tooLong) Error() string { return e.err.Error() }

// room is how long an answer fits, as far as known.
func (e *tooLong) room() int {
	if e.window == 0 || e.prompt == 0 {
		return 0
	}
	return e.window - e.prompt
}

// answer is the refusal in our words. window is the one that we publish, if known.
func (e *tooLong) answer(window int) *wire.Error {
	if window == 0 {
		window = e.window
	}
	a := wire.ContextLengthExceeded(window, max(window, e.prompt), e.prompt < window || e.prompt == 0)
	if window == 0 {
		// Clients look for the first six words.
		a.Message = "This model's maximum context length is shorter than your messages. Please reduce the length of the messages. (context_length_exceeded)"
	}
	return a
}

func (f fault) tooLong(err error) *tooLong {
	e := &tooLong{window: f.Window, prompt: f.Prompt, err: err}
	if m := windowIs.FindStringSubmatch(f.Message); m != nil && e.window == 0 {
		e.window, _ = strconv.Atoi(m[1])
	}
	if m := promptIs.FindStringSubmatch(f.Message); m != nil && e.prompt == 0 {
		e.prompt, _ = strconv.Atoi(strings.Join(m[1:], ""))
	}
	return e
}

// refused returns the error of an answer that does not begin as a stream, nil for one
// that does.
func (p *Provider) refused(req *wire.ChatRequest, h *head, body io.Reader) error {
	kind := h.contentType
	if kind != eventStream {
		kind, _, _ = mime.ParseMediaType(kind)
	}
	encoding := h.encoding
	plain := encoding == "" || strings.EqualFold(encoding, "identity")
	if h.status == http.StatusOK && plain && (kind == eventStream || kind == "") {
		return nil
	}
	if !plain {
		return &upstream.Failure{Class: upstream.Failed, Err: fmt.Errorf("%w: status %d in an encoding that was not asked for", errAnswer, h.status)}
	}
	text, _ := io.ReadAll(io.LimitReader(body, maxFaultBytes))
	if h.status != http.StatusOK {
		return p.classify(req, h.status, text, retryAfter(h, time.Now()))
	}
	if kind == "application/json" && json.Valid(text) && strings.Contains(string(text), `"error"`) {
		e := &faultError{body: text}
		return p.classify(req, e.status(), text, 0)
	}
	return &upstream.Failure{Class: upstream.Failed, Err: p.clean(fmt.Sprintf("%v: %d bytes of %s instead of a stream", errAnswer, len(text), kind))}
}

// classify tells whose fault an error status is: the caller's, ours or the provider's.
func (p *Provider) classify(req *wire.ChatRequest, status int, body []byte, wait time.Duration) error {
	f := parseFault(body)
	failure := &upstream.Failure{
		Class: upstream.Failed, RetryAfter: wait,
		Err: p.clean(fmt.Sprintf("status %d: %s %s %s", status, f.Type, f.Code, f.words(status))),
	}
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		if f.Code == "context_length_exceeded" || f.Type == "exceed_context_size_error" || aboutContext.MatchString(f.Message) {
			return f.tooLong(failure.Err)
		}
		failure.Class = upstream.Refused
		if p.transport.tls == nil && aboutHTTPS.MatchString(f.Message) {
			failure.Class, failure.Err = upstream.Failed, errSpeaksTLS
		}
		if param := f.asked(req); param != "" {
			failure.Err = &upstream.Rejected{Answer: wire.ValueRefused(param), Err: failure.Err}
		}
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound:
		failure.Class = upstream.Denied
	case http.StatusTooManyRequests:
		failure.Class, failure.Retryable = upstream.Overloaded, true
		// The account there is empty: waiting does not fill it.
		if f.Code == "insufficient_quota" || f.Type == "insufficient_quota" {
			failure.Class, failure.Retryable = upstream.Denied, false
		}
	case http.StatusRequestTimeout:
		failure.Class, failure.Retryable = upstream.Timeout, true
	case http.StatusConflict, http.StatusTooEarly:
		failure.Retryable = true
	default:
		failure.Retryable = status >= 500
		if failure.Retryable && (f.Code == "context_length_exceeded" || f.Type == "exceed_context_size_error") {
			return f.tooLong(failure.Err)
		}
	}
	return failure
}

// words is the provider's message where it is about our account or its own trouble.
// One that refuses a request often repeats it, and prompts do not belong in logs.
func (f fault) words(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return f.Message
	}
	if status >= http.StatusInternalServerError {
		return f.Message
	}
	return ""
}

// clean makes a provider's words fit for a line of the log: short, printable, without
// our key, which some servers repeat.
func (p *Provider) clean(words string) error {
	if len(words) > 4*maxFaultExcerpt {
		words = words[:4*maxFaultExcerpt]
	}
	if p.options.APIKey != "" {
		words = strings.ReplaceAll(words, p.options.APIKey, "***")
	}
	words = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, words)
	words = strings.Join(strings.Fields(words), " ")
	if len(words) > maxFaultExcerpt {
		words = strings.ToValidUTF8(words[:maxFaultExcerpt], "") + "…"
	}
	return errors.New(words)
}

// retryAfter reads how long a provider asks to be left alone, at most an hour.
func retryAfter(h *head, now time.Time) time.Duration {
	for _, field := range []struct {
		value string
		unit  time.Duration
	}{{h.retryAfterMs, time.Millisecond}, {h.retryAfter, time.Second}} {
		value := field.value
		// NaN and infinity parse, too; the comparison lets neither through.
		if n, err := strconv.ParseFloat(value, 64); err == nil && n >= 0 {
			return time.Duration(min(n*float64(field.unit), float64(maxRetryAfter)))
		}
		if at, err := http.ParseTime(value); err == nil {
			return max(0, min(at.Sub(now), maxRetryAfter))
		}
	}
	return 0
}
