// The official Node client, unmodified, against an upstream behind Parley.

import OpenAI from 'openai';
import { LengthFinishReasonError } from 'openai/core/error';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { asked, askedAgain, THOUGHTS, WORDS, baseURL, check, control, done, equal, keys, left, rejects, truth, unique, watched } from './check.mjs';

const make = (options = {}) => new OpenAI({ baseURL, apiKey: keys.rich, maxRetries: 0, fetch: watched(), ...options });
const client = make();
const user = (content) => [{ role: 'system', content: 'You are brief.' }, { role: 'user', content }];
const ask = (model, more = {}) => ({ model, messages: user('Say hello.'), ...more });
const Place = z.object({ city: z.string(), temp: z.number() });

async function text(stream) {
  let all = '';
  for await (const chunk of stream) all += chunk.choices[0]?.delta?.content ?? '';
  return all;
}

await check('create', async () => {
  const c = await client.chat.completions.create(ask('text'));
  equal(c.choices[0].message, { role: 'assistant', content: WORDS, refusal: null });
  equal([c.object, c.model, c.choices[0].finish_reason], ['chat.completion', 'text', 'stop']);
  equal(c.usage.total_tokens, c.usage.prompt_tokens + c.usage.completion_tokens);
  equal([c.usage.completion_tokens, c.usage.prompt_tokens_details.cached_tokens], [5, 40]);
  truth(/^req_[0-9a-f]{32}$/.test(c._request_id) && /^chatcmpl-/.test(c.id), 'the ids');
});
await check('create after a slow first token', async () => {
  equal((await client.chat.completions.create(ask('slow'))).choices[0].message.content, WORDS);
});
await check('create without usage of the provider', async () => {
  const { usage } = await client.chat.completions.create(ask('no-usage'));
  truth(usage.prompt_tokens > 0 && usage.completion_tokens > 0, JSON.stringify(usage));
});
await check('create with content parts', async () => {
  const messages = [{ role: 'user', content: [{ type: 'text', text: 'Say ' }, { type: 'text', text: 'hello.' }] }];
  equal((await client.chat.completions.create({ model: 'text', messages })).choices[0].message.content, WORDS);
});
await check('create with stop', async () => {
  const c = await client.chat.completions.create(ask('unstopped', { stop: ['nd:'] }));
  equal([c.choices[0].message.content, c.choices[0].finish_reason], ['Hello, dear frie', 'stop']);
});
await check('raw response', async () => {
  const { data, response } = await client.chat.completions.create(ask('text')).withResponse();
  equal(response.headers.get('content-type'), 'application/json');
  truth(data.choices.length === 1 && response.headers.get('x-request-id') === data._request_id, 'the ids');
});

await check('stream', async () => {
  equal(await text(await client.chat.completions.create(ask('text', { stream: true }))), WORDS);
});
await check('stream of a model with a slash', async () => {
  equal(await text(await client.chat.completions.create(ask('org/text', { stream: true }))), WORDS);
});
await check('stream with usage', async () => {
  const chunks = [];
  for await (const c of await client.chat.completions.create(ask('text', { stream: true, stream_options: { include_usage: true } }))) chunks.push(c);
  const last = chunks.pop();
  equal([last.choices, last.usage.completion_tokens], [[], 5]);
  truth(chunks.every((c) => c.usage === null && c.id === last.id && c.system_fingerprint === last.system_fingerprint), 'the other chunks');
  equal(chunks.filter((c) => c.choices[0].finish_reason).length, 1);
});
await check('stream with stop', async () => {
  equal(await text(await client.chat.completions.create(ask('unstopped', { stream: true, stop: ['nd:'] }))), 'Hello, dear frie');
});
await check('stream helper', async () => {
  const runner = client.chat.completions.stream(ask('text', { stream_options: { include_usage: true } }));
  let heard = '';
  runner.on('content', (delta) => (heard += delta));
  const c = await runner.finalChatCompletion();
  equal([heard, c.choices[0].message.content, c.choices[0].message.role, c.choices[0].finish_reason], [WORDS, WORDS, 'assistant', 'stop']);
  equal(c.usage.completion_tokens, 5);
});
await check('reasoning', async () => {
  const { message } = (await client.chat.completions.create(ask('reasoning'))).choices[0];
  equal([message.reasoning_content, message.content], [THOUGHTS, WORDS]);
});
await check('reasoning in a stream', async () => {
  let [thoughts, words] = ['', ''];
  for await (const c of await client.chat.completions.create(ask('reasoning', { stream: true }))) {
    thoughts += c.choices[0].delta.reasoning_content ?? '';
    words += c.choices[0].delta.content ?? '';
  }
  equal([thoughts, words], [THOUGHTS, WORDS]);
});

await check('json_object', async () => {
  const c = await client.chat.completions.create(ask('json', { response_format: { type: 'json_object' } }));
  equal(JSON.parse(c.choices[0].message.content), { city: 'Rome', temp: 21 });
});
await check('json_object in a stream', async () => {
  const s = await client.chat.completions.create(ask('json', { stream: true, response_format: { type: 'json_object' } }));
  equal(JSON.parse(await text(s)), { city: 'Rome', temp: 21 });
});
await check('json_object of a model that writes none', async () => {
  const e = await rejects(client.chat.completions.create(ask('no-json', { response_format: { type: 'json_object' } })));
  equal([e.status, e.code], [502, 'upstream_error']);
});
await check('json_object of a model that writes none, in a stream', async () => {
  const e = await rejects(client.chat.completions.create(ask('no-json', { stream: true, response_format: { type: 'json_object' } })).then(text));
  truth(e instanceof OpenAI.APIError && e.code === 'upstream_error', e);
});
await check('parse', async () => {
  const c = await client.chat.completions.parse(ask('json', { response_format: zodResponseFormat(Place, 'place') }));
  equal(c.choices[0].message.parsed, { city: 'Rome', temp: 21 });
});
await check('parse in the stream helper', async () => {
  const runner = client.chat.completions.stream(ask('json', { response_format: zodResponseFormat(Place, 'place') }));
  let parsed;
  runner.on('content.done', (event) => (parsed = event.parsed));
  equal((await runner.finalChatCompletion()).choices[0].message.parsed, { city: 'Rome', temp: 21 });
  equal(parsed, { city: 'Rome', temp: 21 });
});
await check('parse of an answer cut at its length', async () => {
  const e = await rejects(client.chat.completions.parse(ask('length', { response_format: zodResponseFormat(Place, 'place') })));
  truth(e instanceof LengthFinishReasonError, e);
});
await check('parse of a refusal', async () => {
  const { message } = (await client.chat.completions.parse(ask('refusal', { response_format: zodResponseFormat(Place, 'place') }))).choices[0];
  equal([message.refusal, message.parsed, message.content], ['I cannot do that.', null, null]);
});
await check('parse of a refusal in the stream helper', async () => {
  const runner = client.chat.completions.stream(ask('refusal', { response_format: zodResponseFormat(Place, 'place') }));
  const { message } = (await runner.finalChatCompletion()).choices[0];
  equal([message.refusal, message.parsed], ['I cannot do that.', null]);
});
await check('length', async () => {
  const c = await client.chat.completions.create(ask('length'));
  equal([c.choices[0].message.content, c.choices[0].finish_reason], ['Hello, dear', 'length']);
});
await check('content_filter', async () => {
  const c = await client.chat.completions.create(ask('filter'));
  equal([c.choices[0].message.content, c.choices[0].finish_reason], ['Hello', 'content_filter']);
});

const tools = (log) => [
  {
    type: 'function',
    function: {
      name: 'get_weather', description: 'The weather', parse: JSON.parse,
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
      function: (place) => (log.push(['get_weather', place]), 'sun in ' + place.city),
    },
  },
  { type: 'function', function: { name: 'get_time', parse: JSON.parse, function: (none) => (log.push(['get_time', none]), 'it is noon') } },
];
const called = [['get_weather', { city: 'Rome', temp: 21 }], ['get_time', {}]];
const said = 'The tools say sun in Rome and it is noon.';

for (const model of ['tools', 'tools-whole']) {
  await check(`tool calls of ${model}`, async () => {
    const { message, finish_reason } = (await client.chat.completions.create(ask(model, { tools: plain() }))).choices[0];
    equal([message.content, finish_reason], [null, 'tool_calls']);
    equal(message.tool_calls.map((c) => [c.type, c.function]), [
      ['function', { name: 'get_weather', arguments: '{"city":"Rome","temp":21}' }],
      ['function', { name: 'get_time', arguments: '{}' }],
    ]);
    equal(new Set(message.tool_calls.map((c) => c.id)).size, 2);
  });
  await check(`tool calls of ${model} in a stream`, async () => {
    const calls = [];
    for await (const c of await client.chat.completions.create(ask(model, { tools: plain(), stream: true }))) {
      for (const d of c.choices[0].delta.tool_calls ?? []) {
        if (d.id) calls[d.index] = { id: d.id, type: d.type, name: d.function.name, arguments: '' };
        else truth(!('type' in d) && !('name' in d.function), `repeated: ${JSON.stringify(d)}`);
        calls[d.index].arguments += d.function.arguments;
      }
    }
    equal(calls.map((c) => [c.type, c.name, c.arguments]), [
      ['function', 'get_weather', '{"city":"Rome","temp":21}'],
      ['function', 'get_time', '{}'],
    ]);
  });
  await check(`runTools with ${model}`, async () => {
    const log = [];
    const runner = client.chat.completions.runTools(ask(model, { tools: tools(log) }));
    equal(await runner.finalContent(), said);
    equal([log, runner.allChatCompletions().length], [called, 2]);
    equal((await runner.totalUsage()).completion_tokens, 20);
  });
  await check(`runTools with ${model} in a stream`, async () => {
    const log = [];
    const runner = client.chat.completions.runTools(ask(model, { tools: tools(log), stream: true }));
    equal([await runner.finalContent(), log], [said, called]);
  });
}
await check('one tool by name', async () => {
  const c = await client.chat.completions.create(ask('tools', { tools: plain(), tool_choice: { type: 'function', function: { name: 'get_time' } } }));
  equal([c.choices[0].message.tool_calls.map((t) => t.function.name), c.choices[0].finish_reason], [['get_time'], 'tool_calls']);
});
await check('no tool', async () => {
  const c = await client.chat.completions.create(ask('tools', { tools: plain(), tool_choice: 'none' }));
  equal([c.choices[0].message.content, 'tool_calls' in c.choices[0].message], [WORDS, false]);
});
await check('no parallel tools', async () => {
  const c = await client.chat.completions.create(ask('tools', { tools: plain(), parallel_tool_calls: false }));
  equal(c.choices[0].message.tool_calls.length, 1);
});
await check('parse of strict tools', async () => {
  const c = await client.chat.completions.parse(ask('tools', { tools: [zodFunction({ name: 'get_weather', parameters: Place })] }));
  equal(c.choices[0].message.tool_calls[0].function.parsed_arguments, { city: 'Rome', temp: 21 });
});
await check('text before tool calls', async () => {
  const c = await client.chat.completions.create(ask('tools-text', { tools: plain() }));
  equal([c.choices[0].message.content, c.choices[0].message.tool_calls.length], ['I look. ', 2]);
});
await check('text before tool calls in the stream helper', async () => {
  const c = await client.chat.completions.stream(ask('tools-text', { tools: plain() })).finalChatCompletion();
  equal([c.choices[0].message.content, c.choices[0].message.tool_calls.length, c.choices[0].finish_reason], ['I look. ', 2, 'tool_calls']);
});
await check('a tool call that is cut', async () => {
  const e = await rejects(client.chat.completions.stream(ask('tools-cut', { tools: plain() })).finalChatCompletion());
  truth(e instanceof OpenAI.APIError && e.code === 'upstream_error', e);
});
await check('a tool call that ends at the length', async () => {
  for (const more of [{}, { stream: true }]) {
    const c = await client.chat.completions[more.stream ? 'stream' : 'create'](ask('tools-length', { tools: plain() }));
    const [choice] = (more.stream ? await c.finalChatCompletion() : c).choices;
    equal([choice.finish_reason, choice.message.tool_calls[0].function.arguments], ['length', '{"city":"Ro']);
  }
});
await check('a history of another client', async () => {
  const call = { id: 'call_1', type: 'function', function: { name: 'get_time', arguments: '{}' } };
  const messages = [
    { role: 'developer', content: [{ type: 'text', text: 'You are brief.' }] },
    { role: 'user', content: 'When?' },
    { role: 'assistant', content: 'I look.', reasoning_content: THOUGHTS, refusal: null },
    { role: 'assistant', tool_calls: [call] },
    { role: 'tool', tool_call_id: 'call_1', name: 'get_time', content: [{ type: 'text', text: 'noon' }] },
  ];
  const c = await client.chat.completions.create({ model: 'tools', messages, tools: plain() });
  equal(c.choices[0].message.content, 'The tools say noon.');
});
const spelled = (i) => WORDS.split(' ').map((w, at, all) => `${w}${at < all.length - 1 ? ' ' : ''}${i}`);
await check('choices with log-probabilities', async () => {
  const c = await client.chat.completions.create(ask('choices', { n: 3, logprobs: true, top_logprobs: 2 }));
  equal(c.choices.map((x) => [x.index, x.message.content, x.finish_reason]), [0, 1, 2].map((i) => [i, spelled(i).join(''), i < 2 ? 'stop' : 'length']));
  for (const { index, logprobs } of c.choices) {
    equal(logprobs.content.map((l) => l.token), spelled(index));
    equal([logprobs.content[0].logprob, logprobs.content[0].bytes, logprobs.content[0].top_logprobs.map((l) => l.logprob)], [-0.25, null, [-0.25, -0.5]]);
  }
  equal(c.usage.completion_tokens, 3 * spelled(0).length);
});
await check('choices with log-probabilities in the stream helper', async () => {
  const order = [];
  const runner = client.chat.completions.stream(ask('choices', { n: 3, logprobs: true, stream_options: { include_usage: true } }));
  runner.on('chunk', (chunk) => chunk.choices.forEach((x) => order.includes(x.index) || order.push(x.index)));
  const c = await runner.finalChatCompletion();
  equal(order, [0, 1, 2]);
  equal(c.choices.map((x) => [x.message.content, x.logprobs.content.length]), [0, 1, 2].map((i) => [spelled(i).join(''), spelled(i).length]));
  equal(c.usage.completion_tokens, 3 * spelled(0).length);
});
await check('what an upstream leaves out', async () => {
  for (const more of [{ n: 2 }, { logprobs: true }]) {
    const e = await rejects(client.chat.completions.create(ask('no-usage', more)));
    equal([e.status, e.code], [502, 'upstream_error']);
  }
});
await check('max_completion_tokens', async () => {
  equal((await client.chat.completions.create(ask('text', { max_completion_tokens: 50 }))).choices[0].message.content, WORDS);
});
function plain() {
  return tools([]).map(({ type, function: { name, description, parameters } }) => ({ type, function: { name, description, parameters } }));
}

await check('a 502 is asked again, with the count of retries', async () => {
  const fetch = watched();
  const messages = user(unique('flaky'));
  equal((await make({ fetch, maxRetries: 2 }).chat.completions.create({ model: 'flaky', messages })).choices[0].message.content, WORDS);
  equal(fetch.list.map((r) => [r.status, r.retry]), [[502, '0'], [200, '1']]);
});
await check('a 502 before a stream is asked again', async () => {
  const fetch = watched();
  const messages = user(unique('flaky'));
  equal(await text(await make({ fetch, maxRetries: 2 }).chat.completions.create({ model: 'flaky', messages, stream: true })), WORDS);
  equal(fetch.list.map((r) => r.status), [502, 200]);
});
await check('what Parley asks again is not seen', async () => {
  const fetch = watched();
  const content = unique('inside');
  await make({ fetch, maxRetries: 2 }).chat.completions.create({ model: 'flaky-inside', messages: user(content) });
  equal([fetch.list.map((r) => r.status), (await control('GET', 'calls', content)).calls], [[200], 2]);
});
await check('a 429 is asked again after Retry-After', async () => {
  const fetch = watched();
  const narrow = make({ apiKey: keys.narrow, fetch, maxRetries: 20 });
  const content = unique('hold');
  const held = narrow.chat.completions.create({ model: 'hold', messages: user(content) });
  await asked(content);
  const begun = Date.now();
  const second = narrow.chat.completions.create(ask('text'));
  while (fetch.list.length < 2 || !fetch.list[1].status) await new Promise((resolve) => setTimeout(resolve, 5));
  await control('POST', 'release', content);
  await held;
  equal((await second).choices[0].message.content, WORDS);
  askedAgain(fetch.list);
  equal(fetch.list.slice(1).map((r) => r.retry), fetch.list.slice(1).map((_, i) => String(i)));
  equal(fetch.list[1].headers.get('retry-after'), '1');
  truth(Date.now() - begun >= 900, 'it did not wait');
});

const refusals = [
  ['400', OpenAI.BadRequestError, 400, 'invalid_request_error', 'decimal_above_max_value', keys.rich, ask('text', { temperature: 3 })],
  ['400 for the context', OpenAI.BadRequestError, 400, 'invalid_request_error', 'context_length_exceeded', keys.rich, ask('too-long')],
  ['401', OpenAI.AuthenticationError, 401, 'authentication_error', 'invalid_api_key', 'sk-nope', ask('text')],
  ['402', OpenAI.APIError, 402, 'insufficient_quota', 'insufficient_quota', keys.poor, ask('text')],
  ['403', OpenAI.PermissionDeniedError, 403, 'permission_error', 'model_access_denied', keys.free, ask('pro-text')],
  ['404', OpenAI.NotFoundError, 404, 'invalid_request_error', 'model_not_found', keys.rich, ask('typo')],
];
const failures = [
  ['500 of the provider', OpenAI.InternalServerError, 502, 'server_error', 'upstream_error', keys.rich, ask('status-500')],
  ['429 of the provider', OpenAI.InternalServerError, 502, 'server_error', 'upstream_overloaded', keys.rich, ask('status-429')],
  ['silence of the provider', OpenAI.InternalServerError, 502, 'server_error', 'upstream_timeout', keys.rich, ask('stall')],
  ['a whole answer that is cut', OpenAI.InternalServerError, 502, 'server_error', 'upstream_error', keys.rich, ask('cut')],
  ['a whole answer with an error inside', OpenAI.InternalServerError, 502, 'server_error', 'upstream_error', keys.rich, ask('fault')],
];
for (const [name, cls, status, type, code, apiKey, params] of [...refusals, ...failures]) {
  const stream = !name.startsWith('a whole');
  for (const more of stream ? [{}, { stream: true }] : [{}]) {
    await check(`${name}${more.stream ? ' before a stream' : ''}`, async () => {
      const fetch = watched();
      const e = await rejects(make({ fetch, apiKey, maxRetries: status < 500 ? 2 : 0 }).chat.completions.create({ ...params, ...more }));
      truth(e.constructor === cls, `${e.constructor.name}, want ${cls.name}`);
      equal([e.status, e.type, e.code], [status, type, code]);
      equal(fetch.list.length, 1, 'attempts');
      truth(e.requestID === fetch.list[0].id && e.message, 'no request id or message');
      truth(!/secret|rate.?limit|host-7/.test(e.message), `the provider's words: ${e.message}`);
      if (status >= 500) truth(!/invalid_request_error/.test(JSON.stringify(e.error)), JSON.stringify(e.error));
    });
  }
}

for (const script of ['cut', 'fault']) {
  await check(`${script} mid-stream`, async () => {
    let got = '';
    const e = await rejects((async () => {
      for await (const c of await client.chat.completions.create(ask(script, { stream: true }))) got += c.choices[0]?.delta?.content ?? '';
    })());
    truth(e instanceof OpenAI.APIError, e);
    equal([got, e.code, e.type], ['Hello, dear', 'upstream_error', 'server_error']);
    truth(!/secret|rate.?limit|host-7/.test(e.message), e.message);
  });
  await check(`${script} in the stream helper`, async () => {
    const e = await rejects(client.chat.completions.stream(ask(script)).finalChatCompletion());
    truth(e instanceof OpenAI.OpenAIError, e);
  });
}

await check('abort mid-stream', () =>
  left('abort', async (content) => {
    const stream = await client.chat.completions.create({ model: 'endless', messages: user(content), stream: true });
    let at;
    for await (const _ of stream) {
      if (at) continue;
      at = Date.now();
      stream.controller.abort();
    }
    return at;
  }));
await check('break out of a stream', () =>
  left('break', async (content) => {
    for await (const c of await client.chat.completions.create({ model: 'endless', messages: user(content), stream: true })) {
      if (c.choices[0].delta.content) break;
    }
    return Date.now();
  }));
await check('abort of the stream helper', () =>
  left('abort the helper', async (content) => {
    const runner = client.chat.completions.stream({ model: 'endless', messages: user(content) });
    await new Promise((resolve) => runner.once('content', resolve));
    const at = Date.now();
    runner.abort();
    truth((await rejects(runner.done())) instanceof OpenAI.APIUserAbortError, 'another error');
    return at;
  }));
await check('abort before the first token', () =>
  left('abort the wait', async (content) => {
    const leave = new AbortController();
    const call = client.chat.completions.create({ model: 'hold', messages: user(content) }, { signal: leave.signal });
    call.catch(() => {});
    await asked(content);
    const at = Date.now();
    leave.abort();
    truth((await rejects(call)) instanceof OpenAI.APIUserAbortError, 'another error');
    return at;
  }));
await check('timeout of the client', () => {
  let timeout = 150;
  return left('timeout', async (content) => {
    timeout *= 2; // a slow machine takes long to send a call
    const e = await rejects(client.chat.completions.create({ model: 'hold', messages: user(content) }, { timeout }));
    truth(e instanceof OpenAI.APIConnectionTimeoutError, e);
    return Date.now();
  });
});

await check('models list', async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  truth(ids.includes('text') && ids.includes('org/text') && new Set(ids).size === ids.length, ids);
});
await check('models retrieve', async () => {
  const m = await client.models.retrieve('text');
  equal([m.id, m.object, m.context_window, m.pricing.input], ['text', 'model', 8192, 0.05]);
});
await check('models retrieve with a slash', async () => {
  const fetch = watched();
  equal((await make({ fetch }).models.retrieve('org/text')).id, 'org/text');
});
await check('models retrieve of none', async () => {
  const e = await rejects(client.models.retrieve('org/typo'));
  truth(e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.requestID, e);
});
await check('models with a wrong key', async () => {
  truth((await make({ apiKey: 'sk-nope' }).models.list()).data.length > 0, 'no models');
});
done();
