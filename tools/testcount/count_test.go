package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCounter(t *testing.T) {
	t.Parallel()
	const pass = `{"Action":"pass","Package":"p","Test":"TestA","Elapsed":2}` + "\n"
	const fail = `{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:3: got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestB"}` + "\n"
	const skip = `{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:9: no such hardware\n"}
{"Action":"skip","Package":"p","Test":"TestC"}` + "\n"
	const ok = `{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}` + "\n"
	const bad = `{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}` + "\n"

	attr := func(value string) string {
		return `{"Action":"attr","Package":"p","Test":"TestA","Key":"proof","Value":"` + value + `"}` + "\n"
	}
	const proved = "T3; 200 losses; lost 0; wrong 0"

	tests := []struct {
		name   string
		in     string
		noskip bool
		last   string
		has    string
		ok     bool
	}{
		{name: "passed", in: pass + ok, last: "1 passed, 0 failed", has: "ok  \tp", ok: true},
		{name: "failed", in: pass + fail + bad, last: "1 passed, 1 failed", has: "got 1, want 2"},
		{name: "package failed alone", in: pass + bad, last: "1 passed, 1 failed", has: "failed: p (the package itself)"},
		{name: "nothing ran", in: ok, last: "0 passed, 0 failed", has: "FAIL"},
		{name: "skipped", in: pass + skip + ok, last: "1 passed, 0 failed", has: "skipped: p.TestC: no such hardware", ok: true},
		{name: "skip forbidden", in: pass + skip + ok, noskip: true, last: "1 passed, 1 failed", has: "TestC was skipped"},
		{
			name: "test that never ended",
			in:   `{"Action":"output","Package":"p","Test":"TestD","Output":"panic: boom\n"}` + "\n" + bad,
			last: "0 passed, 1 failed", has: "panic: boom",
		},
		{name: "line that is no event", in: "# p\nx.go:1: syntax error\n" + pass + ok, last: "1 passed, 0 failed", has: "syntax error", ok: true},
	}
	for _, tc := range []struct {
		name, in, wanted string
		row              string
		ok               bool
	}{
		{"proved", attr(proved) + pass + ok, "T3", "| T3   | 200 losses | 0    | -         | 0     | -        | 2s   |", true},
		{"in order", attr("T10; a; wrong 0") + attr("T9; b; wrong 0") + pass + ok, "T9,T10", "| T10  | a ", true},
		{"found something", attr("T3; 200 losses; lost 1") + pass + ok, "T3", "| T3 FAILED | 200 losses | 1 ", false},
		{"the test failed", attr(proved) + strings.ReplaceAll(fail, "TestB", "TestA") + bad, "T3", "| T3 FAILED |", false},
		{"the test never ended", attr(proved) + bad, "T3", "failed: p (the package itself)", false},
		{"not given", attr(proved) + pass + ok, "T3,T4", "| T4 FAILED | nothing was reported |", false},
		{"not understood", attr("T3; 200 losses; gone 0") + pass + ok, "T3", "| T3 FAILED |", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c := newCounter(&out)
			c.wanted = strings.Split(tc.wanted, ",")
			if err := c.read(strings.NewReader(tc.in)); err != nil {
				t.Fatal(err)
			}
			if got := c.report(); got != tc.ok {
				t.Errorf("report() = %v, want %v\n%s", got, tc.ok, &out)
			}
			if !strings.Contains(out.String(), tc.row) {
				t.Errorf("output lacks %q:\n%s", tc.row, &out)
			}
		})
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c := newCounter(&out)
			c.noskip = tc.noskip
			if err := c.read(strings.NewReader(tc.in)); err != nil {
				t.Fatal(err)
			}
			if got := c.report(); got != tc.ok {
				t.Errorf("report() = %v, want %v\n%s", got, tc.ok, &out)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if got := lines[len(lines)-1]; got != tc.last {
				t.Errorf("last line = %q, want %q", got, tc.last)
			}
			if !strings.Contains(out.String(), tc.has) {
				t.Errorf("output lacks %q:\n%s", tc.has, &out)
			}
		})
	}
}
