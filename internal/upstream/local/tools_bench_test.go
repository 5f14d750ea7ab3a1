package local

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/parley-ai/parley/engine"
	"github.com/parley-ai/parley/internal/upstream"
	"github.com/parley-ai/parley/internal/wire"
)

// weights is where the script puts them.
const weights = "../../../weights/SmolLM2-135M-Instruct.Q4_1.gguf"

// toolTasks are questions with the call that answers them, or with none.
type toolTasks struct {
	Tools map[string]struct {
		Description string
		Parameters  json.RawMessage
	}
	Tasks []struct {
		Question, Want string // the tool, "" for none
		Arguments      map[string]any
		Tools          []string // on offer
	}
}

// BenchmarkTools asks the real model the questions of testdata/tools.json, with several
// ways to tell it of its tools: how often it chooses the right one when it must (tool),
// with the right arguments (args), how often it calls when it may and should (called),
// and when it should not (wrongly). docs/structured-output.md has the figures.
func BenchmarkTools(b *testing.B) {
	e, err := engine.Open(weights, engine.Options{Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	var set toolTasks
	text, err := os.ReadFile("testdata/tools.json")
	if err != nil {
		b.Fatal(err)
	}
	if err := json.Unmarshal(text, &set); err != nil {
		b.Fatal(err)
	}
	chosen := chosenWords()
	bare := chosen
	bare.after, _, _ = strings.Cut(chosen.after, "\n\nFor example")
	short := toolWords{
		before: "You can use these tools:\n",
		after:  "\nIf a tool helps to answer, answer with\n<tool_call>{\"name\": \"tool\", \"arguments\": {...}}</tool_call>\nIf no tool helps, answer in words.",
		lean:   chosen.lean,
	}
	for _, way := range []struct {
		name  string
		words toolWords
	}{{"chosen", chosen}, {"without example", bare}, {"short", short}} {
		for _, lean := range []float64{0, chosen.lean, chosen.lean + 2} {
			w := way.words
			w.lean = lean
			b.Run(fmt.Sprintf("%s/auto, lean %v", way.name, lean), func(b *testing.B) { ask(b, e, &set, w, wire.ToolAuto) })
		}
		b.Run(way.name+"/required", func(b *testing.B) { ask(b, e, &set, way.words, wire.ToolRequired) })
	}
}

func ask(b *testing.B, e *engine.Engine, set *toolTasks, w toolWords, mode wire.ToolMode) {
	b.Helper()
	p := New(e)
	p.words = w
	var right, args, called, asked, wrongly, talk float64
	for _, t := range set.Tasks {
		if t.Want == "" && mode == wire.ToolRequired {
			continue
		}
		req := &wire.ChatRequest{
			Messages: []wire.Message{{Role: wire.RoleUser, Content: t.Question}}, N: 1, TopP: 1, ToolChoice: wire.ToolChoice{Mode: mode},
		}
		for _, n := range t.Tools {
			req.Tools = append(req.Tools, wire.Tool{Name: n, Description: set.Tools[n].Description, Parameters: set.Tools[n].Parameters})
		}
		var name, arguments string
		err := p.Generate(b.Context(), &upstream.Call{Owner: "o", Request: req, MaxTokens: 120}, func(e upstream.Event) error {
			if e.Tool != nil {
				name += e.Tool.Name
				arguments += e.Tool.Arguments
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		if t.Want == "" {
			talk++
			if name != "" {
				wrongly++
			}
			continue
		}
		asked++
		if name != "" {
			called++
		}
		if name != t.Want {
			continue
		}
		right++
		var got map[string]any
		if err := json.Unmarshal([]byte(arguments), &got); err != nil {
			b.Fatal(err)
		}
		same := true
		for k, v := range t.Arguments {
			same = same && strings.EqualFold(fmt.Sprint(got[k]), fmt.Sprint(v))
		}
		if same {
			args++
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*right/asked, "%tool")
	b.ReportMetric(100*args/asked, "%args")
	if mode == wire.ToolAuto {
		b.ReportMetric(100*called/asked, "%called")
		b.ReportMetric(100*wrongly/talk, "%wrongly")
	}
}
