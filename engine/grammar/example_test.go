package grammar_test

import (
	"fmt"

	"github.com/parley-ai/parley/engine/grammar"
)

// A sampler draws a token, asks whether it may be next, and only if not draws again
// among those that may.
func Example() {
	// Every byte is a token, and token 256 ends the text.
	vocab, err := grammar.NewVocab(257, func(id int32) []byte { return []byte{byte(id)} }, func(id int32) bool { return id == 256 })
	if err != nil {
		panic(err)
	}
	g, err := grammar.Schema(vocab, []byte(`{"type":"object","properties":{"size":{"enum":["small","large"]}},"required":["size"]}`))
	if err != nil {
		panic(err)
	}
	fmt.Println("max_tokens must be at least", g.Least())

	draw := func(candidates []uint64) int32 { // stands for the model: it likes the highest byte
		for id := int32(255); id >= 0; id-- {
			if candidates[id>>6]>>(id&63)&1 == 1 {
				return id
			}
		}
		return 256
	}
	m := g.NewMatcher()
	var text []byte
	for left := g.Least() + 5; !m.MustEnd(); left-- {
		id := int32('{')
		if !m.Allows(id, left) {
			id = draw(m.Mask(left))
		}
		if m.Accept(id); id < 256 {
			text = append(text, byte(id))
		}
	}
	fmt.Printf("%s\n", text)
	// Output:
	// max_tokens must be at least 16
	// {"size":"small"}
}
