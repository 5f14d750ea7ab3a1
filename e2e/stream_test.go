package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-ai/parley/e2e/proc"
)

// chunk is one event of a stream.
type chunk struct {
	ID                string `json:"id"`
	Object            string `json:"object"`
	Created           int64  `json:"created"`
	Model             string `json:"model"`
	SystemFingerprint string `json:"system_fingerprint"`
	Choices           []struct {
		Index int `json:"index"`
		Delta struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage `json:"usage"`
}

// streamed is a stream read to its end, or as far as it went.
type streamed struct {
	chunks []chunk
	raw    []string // the JSON of each event
	text   string
	finish string
	usage  *usage
	done   bool
}

func (s *streamed) add(data string) {
	if data == "[DONE]" {
		s.done = true
		return
	}
	var c chunk
	s.raw = append(s.raw, data)
	if json.Unmarshal([]byte(data), &c) != nil {
		return
	}
	s.chunks = append(s.chunks, c)
	for _, choice := range c.Choices {
		s.text += choice.Delta.Content
		if choice.FinishReason != nil {
			s.finish = *choice.FinishReason
		}
	}
	if c.Usage != nil {
		s.usage = c.Usage
	}
}

// readStream parses a whole stream.
func readStream(text string) *streamed {
	s := &streamed{}
	for line := range strings.SplitSeq(text, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			s.add(data)
		}
	}
	return s
}

// openStream starts a stream; the caller closes the body.
func openStream(t *testing.T, c *http.Client, s *proc.Server, key, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/chat/completions", bytes.NewBufferString(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	return c.Do(req)
}

// endless forbids the embedded model the tokens that end an answer: it goes on to max_tokens.
const endless = `,"logit_bias":{"0":-100,"2":-100}`

const countTo = `"messages":[{"role":"user","content":"Count from one to thirty in words."}]`

// TestStream_Invariants is wire.md 63, 64 and 67: what every chunk must and must not hold.
func TestStream_Invariants(t *testing.T) {
	t.Parallel()
	s := server(t)
	a := post(t, s, s.Key, `{"model":"svc-pulse","stream":true,"max_tokens":24,"temperature":0,`+countTo+`}`)
	if a.Status != http.StatusOK {
		t.Fatalf("status %d: %s", a.Status, a.Body)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache, no-transform",
		"X-Accel-Buffering": "no", "Content-Length": "", "Content-Encoding": "",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	text := string(a.Body)
	if !strings.HasSuffix(text, "\n\ndata: [DONE]\n\n") {
		t.Errorf("the stream ends with %q", text[max(0, len(text)-60):])
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if line != "" && !strings.HasPrefix(line, "data: ") {
			t.Errorf("a line that is neither data nor empty: %q", line)
		}
		if len(line) >= 64<<10 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}

	st := readStream(text)
	first := st.chunks[0]
	roles, finishes := 0, 0
	for i, c := range st.chunks {
		if c.ID != first.ID || c.Created != first.Created || c.Model != first.Model || c.SystemFingerprint != first.SystemFingerprint {
			t.Errorf("chunk %d differs from the first: %s", i, st.raw[i])
		}
		if c.Object != "chat.completion.chunk" || len(c.Choices) != 1 {
			t.Errorf("chunk %d: %s", i, st.raw[i])
			continue
		}
		if c.Choices[0].Delta.Role != "" {
			roles++
		}
		if c.Choices[0].FinishReason != nil {
			finishes++
			if i != len(st.chunks)-1 || c.Choices[0].Delta.Content != "" {
				t.Errorf("the finish reason is not on a chunk of its own at the end: %s", st.raw[i])
			}
		}
		if strings.Contains(st.raw[i], `"error"`) || strings.Contains(st.raw[i], `"usage"`) {
			t.Errorf("chunk %d has a key it must not have: %s", i, st.raw[i])
		}
		if strings.ContainsRune(c.Choices[0].Delta.Content, '\uFFFD') {
			t.Errorf("chunk %d was cut inside a character: %s", i, st.raw[i])
		}
	}
	if roles != 1 || first.Choices[0].Delta.Role != "assistant" || finishes != 1 {
		t.Errorf("%d roles, %d finishes, want one of each and the role first", roles, finishes)
	}
	if first.Choices[0].Delta.Content != "" || !strings.Contains(st.raw[0], `"content":""`) {
		t.Errorf("the first chunk is %s", st.raw[0])
	}
}

// TestStream_SameAsWhole: both ways of asking give the same text, the same usage, the same charge.
func TestStream_SameAsWhole(t *testing.T) {
	t.Parallel()
	s := server(t)
	const rest = `"max_tokens":20,"temperature":0,` + countTo + `}`
	whole := wantCompletion(t, post(t, s, s.Key, `{"model":"svc-pulse",`+rest))
	a := post(t, s, s.Key, `{"model":"svc-pulse","stream":true,"stream_options":{"include_usage":true},`+rest)
	st := readStream(string(a.Body))
	if st.text != *whole.Choices[0].Message.Content {
		t.Errorf("streamed %q, whole %q", st.text, *whole.Choices[0].Message.Content)
	}
	if st.usage == nil || *st.usage != *whole.Usage || st.finish != whole.Choices[0].FinishReason {
		t.Errorf("streamed %v %s, whole %v %s", st.usage, st.finish, *whole.Usage, whole.Choices[0].FinishReason)
	}
}

// TestStream_Usage is wire.md 65: usage only when asked, null on all chunks but the last.
func TestStream_Usage(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, ask := range []string{`,"stream_options":{"include_usage":false}`, ``, `,"stream_options":null`} {
		a := post(t, s, s.Key, `{"model":"svc-pulse","stream":true,"max_tokens":2`+ask+`,`+countTo+`}`)
		if bytes.Contains(a.Body, []byte(`"usage"`)) {
			t.Errorf("usage without being asked (%s): %s", ask, a.Body)
		}
	}
	a := post(t, s, s.Key, `{"model":"svc-pulse","stream":true,"max_tokens":2,"stream_options":{"include_usage":true}`+endless+`,`+countTo+`}`)
	st := readStream(string(a.Body))
	for i, raw := range st.raw {
		last := i == len(st.raw)-1
		if last != (st.chunks[i].Usage != nil) || last != (len(st.chunks[i].Choices) == 0) || !strings.Contains(raw, `"usage":`) {
			t.Errorf("chunk %d of %d: %s", i, len(st.raw), raw)
		}
	}
	if st.usage == nil || st.usage.Completion != 2 || st.usage.Total != st.usage.Prompt+2 {
		t.Errorf("usage = %+v", st.usage)
	}
	if !st.done {
		t.Error("no [DONE]")
	}
}

// TestStream_ArrivesInPieces is wire.md 68: the first text is there long before the last. Where the
// reader stands still, much comes at once, so it may try again.
func TestStream_ArrivesInPieces(t *testing.T) {
	t.Parallel()
	s := server(t)
	most := 0
	for range 5 {
		if most = max(most, countReads(t, s)); most >= 10 {
			return
		}
	}
	t.Errorf("200 tokens came in %d reads, want them one by one", most)
}

// countReads is in how many reads a stream of 200 tokens comes.
func countReads(t *testing.T, s *proc.Server) (reads int) {
	t.Helper()
	resp, err := openStream(t, httpClient, s, s.Key, `{"model":"svc-pulse","stream":true,"max_tokens":200,"temperature":0`+endless+`,`+countTo+`}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			reads++
		}
		if err == io.EOF {
			return reads
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestStream_ClientGone is wire.md 75: the call ends within a second and what was generated is
// charged. Where the server alone stands still meanwhile, it may try again.
func TestStream_ClientGone(t *testing.T) {
	t.Parallel()
	s := start(t)
	quickest := time.Hour
	for range 5 {
		if quickest = min(quickest, leaveStream(t, s)); quickest <= 2*time.Second {
			return
		}
	}
	t.Errorf("the call was settled only %v after its client left", quickest)
}

// leaveStream leaves a stream when some of it has come, checks its charge, and returns how long it
// took to be settled; that is asked of the command line, which takes time, too.
func leaveStream(t *testing.T, s *proc.Server) time.Duration {
	t.Helper()
	resp, err := openStream(t, newClient(), s, s.Key, `{"model":"svc-pulse","stream":true,"max_tokens":2000,"temperature":0.9,"seed":7`+endless+`,`+
		`"messages":[{"role":"user","content":"Write a very long story about a lighthouse."}]}`)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(resp.Body)
	delivered := 0
	for delivered < 3 {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && readStream("data: "+data).text != "" {
			delivered++
		}
	}
	resp.Body.Close()
	var got receipt
	took := ownTime(func() {
		eventually(t, func() error {
			list := runJSON[[]receipt](t, s, "receipts", "--account", "default", "--limit", "1")
			if len(list) != 1 || list[0].RequestID != resp.Header.Get("X-Request-Id") || list[0].State != "settled" {
				return fmt.Errorf("receipts %+v", list)
			}
			got = list[0]
			return nil
		})
	})
	if got.Ending != "client_gone" {
		t.Errorf("ending = %q, want client_gone", got.Ending)
	}
	if got.CompletionTokens < int64(delivered) || got.CompletionTokens >= 2000 {
		t.Errorf("charged %d tokens, delivered at least %d", got.CompletionTokens, delivered)
	}
	if nano(t, got.Charge) != price("svc-pulse", got.PromptTokens, got.CompletionTokens) || nano(t, got.Charge) > nano(t, got.Hold) {
		t.Errorf("charge %s for %d and %d tokens under a hold of %s", got.Charge, got.PromptTokens, got.CompletionTokens, got.Hold)
	}
	return took
}

// TestStream_Many is wire.md 90: a hundred streams at once keep their own ids and their own text.
func TestStream_Many(t *testing.T) {
	t.Parallel()
	s := start(t)
	secret, _ := account(t, s, "many", "pro", "100")
	var mu sync.Mutex
	ids := map[string]bool{}
	byPrompt := map[string]string{}
	var wg sync.WaitGroup
	failures := make(chan error, 100)
	c := newClient()
	for i := range 100 {
		wg.Go(func() {
			// Ten prompts, ten times each: equal prompts must give equal text, others other ids.
			prompt := fmt.Sprintf("Tell me about the number %d.", i%10)
			body := fmt.Sprintf(`{"model":"svc-pulse","stream":true,"max_tokens":8,"temperature":0,"messages":[{"role":"user","content":%q}]}`, prompt)
			var a answer
			// More than the plan's 64 at once may be refused with 429, to be tried again.
			for {
				resp, err := openStream(t, c, s, secret, body)
				if err != nil {
					failures <- err
					return
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil {
					failures <- err
					return
				}
				a = answer{resp.StatusCode, resp.Header, text}
				if a.Status != http.StatusTooManyRequests && a.Status != http.StatusServiceUnavailable {
					break
				}
				<-time.After(50 * time.Millisecond)
			}
			st := readStream(string(a.Body))
			if a.Status != http.StatusOK || !st.done {
				failures <- fmt.Errorf("status %d: %s", a.Status, a.Body)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if id := st.chunks[0].ID; ids[id] {
				failures <- fmt.Errorf("id %s twice", id)
			} else {
				ids[id] = true
			}
			if had, ok := byPrompt[prompt]; ok && had != st.text {
				failures <- fmt.Errorf("%q gave %q and %q", prompt, had, st.text)
			}
			byPrompt[prompt] = st.text
		})
	}
	wg.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
}
