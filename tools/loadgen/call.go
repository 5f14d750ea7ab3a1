package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// call is one request and what its client saw.
type call struct {
	account    string
	stream     bool
	leaveAfter int // events; 0 stays to the end

	requestID  string
	completion string // its id
	status     int
	code       string // of the error, or what else ended it; empty for a whole answer
	left       bool
	usage      usage
	took       time.Duration
	first      time.Duration // to the first text
	wrong      string        // how the answer breaks the convention
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// answered says whether the client has a whole answer.
func (c *call) answered() bool { return c.status == http.StatusOK && c.code == "" && !c.left }

// tokensPerWord is the most that any vocabulary makes of a word of the provider's. A
// shorter bound would have the answer cut, and rightly so.
const tokensPerWord = 8

// do makes the call. text is the answer that must come, where it is known.
func (c *call) do(ctx context.Context, client *http.Client, o options, secret, text string) {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Say something."}],"max_tokens":%d`, o.model, tokensPerWord*max(o.words, 1)+16)
	if c.stream {
		body += `,"stream":true,"stream_options":{"include_usage":true}`
	}
	begin := time.Now()
	defer func() { c.took = time.Since(begin) }()
	// A call that has begun is ended, also when the time is over: it is to be checked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+"/v1/chat/completions", strings.NewReader(body+"}"))
	if err != nil {
		c.code = "transport"
		return
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		c.code = "transport"
		return
	}
	defer res.Body.Close()
	c.status, c.requestID = res.StatusCode, res.Header.Get("x-request-id")
	var got string
	switch {
	case c.status != http.StatusOK:
		c.refused(res)
		return
	case c.stream:
		got, err = c.events(res, begin)
	default:
		got, err = c.whole(res)
		c.first = time.Since(begin)
	}
	switch {
	case err != nil:
		c.wrong = err.Error()
	case !c.answered():
	case c.usage.Total != c.usage.Prompt+c.usage.Completion || c.usage.Prompt < 1 || c.usage.Completion < 1:
		c.wrong = fmt.Sprintf("usage %+v does not add up", c.usage)
	case text != "" && got != text:
		c.wrong = fmt.Sprintf("the answer is %q with %d bytes, want %d bytes", got[:min(len(got), 80)], len(got), len(text))
	}
}

// refused reads an error that is the whole answer.
func (c *call) refused(res *http.Response) {
	var e struct {
		Error *struct {
			Message, Type, Code string
		} `json:"error"`
	}
	if err := json.NewDecoder(res.Body).Decode(&e); err != nil || e.Error == nil || e.Error.Code == "" || e.Error.Message == "" || c.requestID == "" {
		c.code, c.wrong = "not an error", fmt.Sprintf("status %d has no error of the convention", c.status)
		return
	}
	c.code = e.Error.Code
	if c.status == http.StatusTooManyRequests && res.Header.Get("Retry-After") == "" {
		c.wrong = "429 without Retry-After"
	}
}

// chunk is a whole answer or a piece of one.
type chunk struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Choices []struct {
		Index   int `json:"index"`
		Message struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"message"`
		Delta struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"delta"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage `json:"usage"`
	Error *struct {
		Code string `json:"code"`
	} `json:"error"`
}

func (c *call) whole(res *http.Response) (string, error) {
	var a chunk
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return "", fmt.Errorf("the answer is no JSON: %w", err)
	}
	if a.Object != "chat.completion" || a.ID == "" || len(a.Choices) != 1 || a.Usage == nil || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		return "", fmt.Errorf("the answer is not of the convention: %+v", a)
	}
	if m := a.Choices[0]; m.Message.Role != "assistant" || m.Finish == "" {
		return "", fmt.Errorf("the choice is not of the convention: %+v", m)
	}
	c.completion, c.usage = a.ID, *a.Usage
	return a.Choices[0].Message.Content, nil
}

var errEvent = errors.New("the stream is not of the convention")

// events reads a stream to its end, or leaves it.
func (c *call) events(res *http.Response, begin time.Time) (string, error) {
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return "", fmt.Errorf("%w: content type %q", errEvent, res.Header.Get("Content-Type"))
	}
	var text strings.Builder
	r := bufio.NewReader(res.Body)
	finish, n := "", 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			// A stream that is broken off must have said why.
			if c.code == "" {
				return "", fmt.Errorf("%w: it ends without [DONE]: %w", errEvent, err)
			}
			return text.String(), nil
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			return "", fmt.Errorf("%w: line %q", errEvent, line)
		}
		if data == "[DONE]" {
			return text.String(), c.done(r, finish)
		}
		if n++; n == c.leaveAfter {
			c.left = true
			return text.String(), nil
		}
		var e chunk
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return "", fmt.Errorf("%w: %q", errEvent, data)
		}
		if finish, err = c.event(e, n, finish, &text, begin); err != nil {
			return "", err
		}
	}
}

// event takes the n-th event of a stream.
func (c *call) event(e chunk, n int, finish string, text *strings.Builder, begin time.Time) (string, error) {
	switch {
	case e.Error != nil:
		c.code = e.Error.Code
		return finish, nil
	case c.code != "" || c.usage != usage{}:
		return finish, fmt.Errorf("%w: it goes on behind its end", errEvent)
	case e.Object != "chat.completion.chunk" || n > 1 && e.ID != c.completion:
		return finish, fmt.Errorf("%w: event %d is %+v", errEvent, n, e)
	case e.Usage != nil && len(e.Choices) == 0 && finish != "":
		c.usage = *e.Usage
		return finish, nil
	case len(e.Choices) != 1 || e.Usage != nil || finish != "":
		return finish, fmt.Errorf("%w: event %d is %+v", errEvent, n, e)
	case (e.Choices[0].Delta.Role == "assistant") != (n == 1):
		return finish, fmt.Errorf("%w: the role of event %d is %q", errEvent, n, e.Choices[0].Delta.Role)
	}
	c.completion = e.ID
	if s := e.Choices[0].Delta.Content; s != "" {
		if c.first == 0 {
			c.first = time.Since(begin)
		}
		text.WriteString(s)
	}
	return e.Choices[0].Finish, nil
}

// done checks the end of a stream.
func (c *call) done(r io.Reader, finish string) error {
	rest, err := io.ReadAll(r)
	if err != nil || strings.TrimSpace(string(rest)) != "" {
		return fmt.Errorf("%w: behind [DONE] comes %q, %w", errEvent, rest, err)
	}
	if finish == "" || c.usage == (usage{}) || c.code != "" {
		return fmt.Errorf("%w: [DONE] with finish %q and usage %+v", errEvent, finish, c.usage)
	}
	return nil
}
