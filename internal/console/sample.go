package console

import (
	"slices"
	"strings"

	"github.com/parley-ai/parley/internal/apikey"
)

// samples are the same call in each language. BASE and MODEL are filled in.
var samples = map[string]string{
	"curl": `curl BASE/chat/completions \
  -H "Authorization: Bearer $PARLEY_API_KEY" \
  -H "Content-Type: application/json" \
  -d '{
    "model": "MODEL",
    "messages": [
      {"role": "user", "content": "Say hello."}
    ]
  }'`,
	"python": `import os
from openai import OpenAI

client = OpenAI(base_url="BASE", api_key=os.environ["PARLEY_API_KEY"])
answer = client.chat.completions.create(
    model="MODEL",
    messages=[{"role": "user", "content": "Say hello."}],
)
print(answer.choices[0].message.content)`,
	"node": `import OpenAI from "openai";

const client = new OpenAI({ baseURL: "BASE", apiKey: process.env.PARLEY_API_KEY });
const answer = await client.chat.completions.create({
  model: "MODEL",
  messages: [{ role: "user", content: "Say hello." }],
});
console.log(answer.choices[0].message.content);`,
	"go": `client := openai.NewClient(
	option.WithBaseURL("BASE"),
	option.WithAPIKey(os.Getenv("PARLEY_API_KEY")),
)
answer, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
	Model:    "MODEL",
	Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say hello.")},
})
if err != nil {
	log.Fatal(err)
}
fmt.Println(answer.Choices[0].Message.Content)`,
}

// sample is a call of a model in a language; in curl for one that there is not.
func (v *visit) sample(lang, model string) string {
	text, ok := samples[lang]
	if !ok {
		text = samples["curl"]
	}
	return strings.NewReplacer("BASE", v.s.PublicURL.JoinPath("v1").String(), "MODEL", model).Replace(text)
}

// exampleModel is the first model that the account may use, with the key if one is given.
func (v *visit) exampleModel(k *apikey.Key) string {
	plan := v.account.PlanAt(v.now)
	for _, m := range v.s.Models.List(v.now) {
		if m.OnPlan(plan) && (k == nil || k.Models == nil || slices.Contains(k.Models, m.ID)) {
			return m.ID
		}
	}
	return "a-model-of-your-plan"
}

// sampleLanguages are those in which calls are shown.
var sampleLanguages = []formOption{{"curl", "curl"}, {"python", "Python"}, {"node", "Node"}, {"go", "Go"}}

// samplePage is a sample in the language of the address, with links to the others.
func (v *visit) samplePage(id, model string) snippet {
	lang := v.r.URL.Query().Get("lang")
	if _, ok := samples[lang]; !ok {
		lang = "curl"
	}
	s := snippet{ID: id, Text: v.sample(lang, model)}
	for _, l := range sampleLanguages {
		s.Others = append(s.Others, language{l.Name, v.with("lang", l.Value) + "#" + id, l.Value == lang})
		if l.Value == lang {
			s.Language = l.Name
		}
	}
	return s
}
