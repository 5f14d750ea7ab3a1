// LangChain.js, unmodified, against an upstream behind Parley.

import { HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';
import { asked, askedAgain, THOUGHTS, WORDS, baseURL, check, control, done, equal, keys, left, rejects, truth, unique, watched } from './check.mjs';

const make = (model, { key = keys.rich, fetch = watched(), ...more } = {}) =>
  new ChatOpenAI({ model, apiKey: key, maxRetries: 0, configuration: { baseURL, fetch }, ...more });
const MESSAGES = [new SystemMessage('You are brief.'), new HumanMessage('Say hello.')];
const Place = z.object({ city: z.string(), temp: z.number() });

async function collect(model, messages = MESSAGES, options) {
  let all;
  for await (const chunk of await model.stream(messages, options)) all = all ? all.concat(chunk) : chunk;
  return all;
}

await check('invoke', async () => {
  const m = await make('text').invoke(MESSAGES);
  equal([m.content, m.response_metadata.finish_reason, m.usage_metadata.output_tokens], [WORDS, 'stop', 5]);
  equal([m.usage_metadata.input_token_details.cache_read, m.response_metadata.model_name], [40, 'text']);
  equal(m.usage_metadata.total_tokens, m.usage_metadata.input_tokens + 5);
});
await check('invoke with limits and stop', async () => {
  const m = await make('unstopped', { maxTokens: 50, temperature: 0, topP: 1 }).invoke(MESSAGES, { stop: ['nd:'] });
  equal(m.content, 'Hello, dear frie');
});
await check('batch', async () => {
  equal((await make('text').batch([MESSAGES, MESSAGES])).map((m) => m.content), [WORDS, WORDS]);
});
await check('stream', async () => {
  const m = await collect(make('text'));
  equal([m.content, m.usage_metadata.output_tokens, m.response_metadata.finish_reason], [WORDS, 5, 'stop']);
});
await check('stream without usage', async () => {
  const m = await collect(make('text', { streamUsage: false }));
  equal([m.content, m.usage_metadata], [WORDS, undefined]);
});
await check('reasoning', async () => {
  const m = await make('reasoning').invoke(MESSAGES);
  equal([m.additional_kwargs.reasoning_content, m.content], [THOUGHTS, WORDS]);
});
await check('reasoning in a stream', async () => {
  const m = await collect(make('reasoning'));
  equal([m.additional_kwargs.reasoning_content, m.content], [THOUGHTS, WORDS]);
});

const weather = tool((place) => 'sun in ' + place.city, { name: 'get_weather', description: 'The weather', schema: Place });
const time = tool(() => 'it is noon', { name: 'get_time', description: 'The time', schema: z.object({}) });
const CALLS = [['get_weather', { city: 'Rome', temp: 21 }], ['get_time', {}]];

for (const model of ['tools', 'tools-whole']) {
  for (const [how, run] of [['', (m, messages) => m.invoke(messages)], [' in a stream', collect]]) {
    await check(`bindTools loop with ${model}${how}`, async () => {
      const bound = make(model).bindTools([weather, time]);
      const first = await run(bound, MESSAGES);
      equal(first.tool_calls.map((c) => [c.name, c.args]), CALLS);
      equal(first.invalid_tool_calls ?? [], []);
      const results = [await weather.invoke(first.tool_calls[0]), await time.invoke(first.tool_calls[1])];
      truth(results.every((r) => r instanceof ToolMessage), 'no tool messages');
      const second = await run(bound, [...MESSAGES, first, ...results]);
      equal(second.content, 'The tools say sun in Rome and it is noon.');
    });
  }
}
await check('a named tool', async () => {
  const m = await make('tools').bindTools([weather, time], { tool_choice: 'get_time' }).invoke(MESSAGES);
  equal(m.tool_calls.map((c) => c.name), ['get_time']);
});

for (const [method, model] of [['jsonMode', 'json'], ['jsonSchema', 'json'], ['functionCalling', 'tools']]) {
  await check(`withStructuredOutput ${method}`, async () => {
    equal(await make(model).withStructuredOutput(Place, { method, name: 'place' }).invoke(MESSAGES), { city: 'Rome', temp: 21 });
  });
}
await check('withStructuredOutput by default', async () => {
  equal(await make('json').withStructuredOutput(Place).invoke(MESSAGES), { city: 'Rome', temp: 21 });
});
await check('withStructuredOutput in a stream', async () => {
  let last;
  for await (const part of await make('json').withStructuredOutput(Place, { method: 'jsonSchema' }).stream(MESSAGES)) last = part;
  equal(last, { city: 'Rome', temp: 21 });
});

for (const script of ['cut', 'fault']) {
  await check(`${script} mid-stream`, async () => {
    let got = '';
    const e = await rejects((async () => {
      for await (const chunk of await make(script).stream(MESSAGES)) got += chunk.content;
    })());
    equal([got, e.code], ['Hello, dear', 'upstream_error']);
    truth(!/secret|rate.?limit|host-7/.test(e.message), e.message);
  });
}
const refusals = [
  ['400', 400, 'decimal_above_max_value', { temperature: 3 }],
  ['401', 401, 'invalid_api_key', { key: 'sk-nope' }],
  ['402', 402, 'insufficient_quota', { key: keys.poor }],
  ['403', 403, 'model_access_denied', { key: keys.free }, 'pro-text'],
  ['404', 404, 'model_not_found', {}, 'typo'],
];
for (const [what, status, code, options, model = 'text'] of refusals) {
  for (const how of ['invoke', 'stream']) {
    await check(`${what} is not asked again by ${how}`, async () => {
      const fetch = watched();
      const llm = make(model, { fetch, maxRetries: 3, ...options });
      const e = await rejects(how === 'invoke' ? llm.invoke(MESSAGES) : collect(llm));
      equal([e.status, e.code, fetch.list.length], [status, code, 1]);
    });
  }
}
await check('a long prompt is an overflow of the context', async () => {
  const e = await rejects(make('too-long', { maxRetries: 2 }).invoke(MESSAGES));
  equal(e.name, 'ContextOverflowError');
});
await check('502 is asked again', async () => {
  const fetch = watched();
  equal((await make('flaky', { fetch, maxRetries: 2 }).invoke(unique('flaky'))).content, WORDS);
  equal(fetch.list.map((r) => r.status), [502, 200]);
});
await check('429 is asked again', async () => {
  const fetch = watched();
  const content = unique('hold');
  const held = make('hold', { key: keys.narrow, fetch }).invoke(content);
  await asked(content);
  const second = make('text', { key: keys.narrow, fetch, maxRetries: 20 }).invoke(MESSAGES);
  while (fetch.list.length < 2 || !fetch.list[1].status) await new Promise((resolve) => setTimeout(resolve, 5));
  await control('POST', 'release', content);
  equal([(await held).content, (await second).content], ['Hold on.', WORDS]);
  askedAgain(fetch.list);
});
await check('abort mid-stream', () =>
  left('langchain abort', async (content) => {
    const leave = new AbortController();
    let at;
    await rejects((async () => {
      for await (const _ of await make('endless').stream(content, { signal: leave.signal })) {
        at ??= Date.now();
        leave.abort();
      }
    })());
    return at;
  }));
await check('break out of a stream', () =>
  left('langchain break', async (content) => {
    for await (const chunk of await make('endless').stream(content)) if (chunk.content) break;
    return Date.now();
  }));
done();
