package wire

import (
	"strings"
	"testing"
)

// typical is a request as a chat client sends it, 444 bytes.
const typical = `{"model":"svc-pulse","messages":[{"role":"system","content":"You are a helpful assistant that answers briefly and in plain words."},{"role":"user","content":"What is the tallest mountain on each continent, and how high is it in metres? Please give a list."},{"role":"assistant","content":"Which list of continents do you use?"},{"role":"user","content":"The one with seven of them."}],"temperature":1,"max_tokens":256,"top_p":0.9,"stream":true}`

func BenchmarkDecodeChat(b *testing.B) {
	long := body(`"tools":` + many(1, `{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{`+
		strings.TrimSuffix(strings.Repeat(`"p":{"type":"string","description":"one of many"},`, 2000), ",")+`}}}}`))
	for name, text := range map[string]string{"444B": typical, "100KB_tools": long} {
		b.Run(name, func(b *testing.B) {
			data := []byte(text)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeChat(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkChunkEncoder(b *testing.B) {
	e := NewChunkEncoder(Head{ID: "chatcmpl-abcdefghijklmnopqrstuvwxyz123", Created: 1767225600, Model: "svc-pulse", Fingerprint: "fp_0123456789"}, true)
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		dst = e.AppendContent(dst[:0], 0, " mountain")
	}
}
