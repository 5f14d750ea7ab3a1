package proof_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// callers is how many clients call a victim at once.
const callers = 8

// A server kills itself at every step of the path of a charge, 20 times at each under make
// prove, twice elsewhere, while clients call it over HTTP; the next one goes on where it
// died. What a client has received is in the books, once and exactly.
func TestKillAtEveryStep(t *testing.T) {
	t.Parallel()
	dir, who := furnish(t)
	f := &figures{}
	ws := &witnesses{who: who, inFlight: callers}
	seed := uint64(time.Now().UnixNano())
	chance := rand.New(rand.NewPCG(seed, 0))
	var all []string
	for range size(20) {
		all = append(all, steps()...)
	}
	chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, step := range all {
		f.rounds++
		if strings.Contains(step, "recovery") { // then there must be something to recover
			f.die(t, order{Dir: dir, Who: *who.Account, Step: "after text of a stream", Times: 9}, ws)
		}
		f.die(t, order{Dir: dir, Who: *who.Account, Step: step, Times: times(step, chance)}, ws)
		if i%10 == 9 || i == len(all)-1 {
			f.settleAfter(t, dir, ws)
		}
		if len(f.wrong) > 0 {
			break
		}
	}
	f.tell(t, "T2", fmt.Sprintf("%d kills at %d steps", f.rounds, len(steps())))
	f.report(t, "kills", fmt.Sprintf(" at %d steps; charged by a start %d, without an answer %d; seed %d", len(steps()), f.ofStarts, f.unheard, seed))
	if f.finished < f.rounds || f.streams == 0 || f.ofStarts == 0 {
		t.Error("the test proves little")
	}
}

// times is how often a step is passed before it kills: seldom ones once.
func times(step string, chance *rand.Rand) int {
	switch {
	case strings.Contains(step, "recovery"), strings.Contains(step, "reset"), strings.Contains(step, "truncate"), strings.Contains(step, "sync of the database"):
		return 1
	case strings.Contains(step, "database"):
		return 1 + chance.IntN(4)
	}
	return 1 + chance.IntN(40)
}

// die runs a victim among clients until it is dead.
func (f *figures) die(t *testing.T, o order, ws *witnesses) {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	exe, err := os.Executable()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), victimOrder+"="+string(text))
	// A test binary that dies must not leave victims behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// One that lives on says where it stands.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 10 * time.Second
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	url, _ := bufio.NewReader(out).ReadString('\n')
	if url != "" { // it lived that long
		clients(strings.TrimSpace(url), ws)
	}
	err = cmd.Wait()
	if ctx.Err() != nil || err == nil || !strings.Contains(err.Error(), "killed") {
		f.found("round %d: %q, %d times: the victim ended with %v %v %s", f.rounds, o.Step, o.Times, err, ctx.Err(), said.String())
	}
}

// clients call until nobody answers.
func clients(url string, ws *witnesses) {
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			c := &http.Client{Transport: &http.Transport{}}
			for ask(c, url, ws) == nil {
			}
		})
	}
	wg.Wait()
}

// ask makes one call and notes what arrives.
func ask(c *http.Client, url string, ws *witnesses) error {
	w := &witness{stream: rand.IntN(2) == 0, log: ws}
	body := fmt.Sprintf(`{"model":"m","stream":%v,"seed":%d,"max_tokens":%d,"messages":[{"role":"user","content":"Hi"}]`, w.stream, rand.IntN(1000), 1+rand.IntN(12))
	if w.stream {
		body += `,"stream_options":{"include_usage":true}`
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body+"}"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer anybody")
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusBadGateway { // which the provider's faults are
		panic(fmt.Sprint("status ", res.Status))
	}
	w.id = res.Header.Get("X-Request-Id")
	ws.mu.Lock()
	ws.list = append(ws.list, w)
	ws.mu.Unlock()
	for lines := bufio.NewReader(res.Body); ; {
		line, err := lines.ReadString('\n')
		whole := err == nil || !w.stream && json.Valid([]byte(line))
		if whole && res.StatusCode == http.StatusOK {
			w.hear(strings.TrimPrefix(strings.TrimSpace(line), "data: "))
		}
		if err != nil {
			return nil // the next call sees whether somebody is there
		}
	}
}

// hear notes an event of a stream, or a whole answer.
func (w *witness) hear(data string) {
	if data == "[DONE]" {
		w.finished.Store(true)
	}
	var v struct {
		Choices []struct{ Delta, Message struct{ Content string } }
		Usage   *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		}
	}
	if json.Unmarshal([]byte(data), &v) != nil {
		return
	}
	for _, c := range v.Choices {
		if c.Delta.Content != "" {
			w.pieces.Add(1)
		}
	}
	if v.Usage != nil {
		w.usage.PromptTokens, w.usage.CompletionTokens = v.Usage.Prompt, v.Usage.Completion
		if !w.stream {
			w.finished.Store(true)
		}
	}
}

// settleAfter starts once in this process, which recovers, and checks everything.
func (f *figures) settleAfter(t *testing.T, dir string, ws *witnesses) {
	t.Helper()
	l, err := open(dir)
	must(t, err)
	f.recovered, f.voided = f.recovered+l.recovery.Settled, f.voided+l.recovery.Voided
	f.verify(t, l)
	must(t, l.close())
	f.check(t, dir, ws, false)
}
