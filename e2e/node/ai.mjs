// Vercel's AI SDK, unmodified, against an upstream behind Parley: once with the provider for
// compatible servers, once with OpenAI's own, whose schemas are stricter.

import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, Output, RetryError, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from 'ai';
import { z } from 'zod';
import { asked, askedAgain, THOUGHTS, WORDS, baseURL, check, control, done, equal, keys, left, rejects, truth, unique, watched } from './check.mjs';

const fetch = watched();
const compatible = (apiKey, fetch, more) => {
  const p = createOpenAICompatible({ name: 'parley', baseURL, apiKey, fetch, ...more });
  return (id) => p(id);
};
const strict = (apiKey, fetch) => {
  const p = createOpenAI({ baseURL, apiKey, fetch });
  return (id) => p.chat(id);
};
const Place = z.object({ city: z.string(), temp: z.number() });
const quiet = () => {};
globalThis.AI_SDK_LOG_WARNINGS = false;

/** parts of a stream; a stream that is broken off throws after its error part. */
async function parts(result) {
  const list = [];
  try {
    for await (const part of result.fullStream) list.push(part);
  } catch (e) {
    list.push({ type: 'thrown', error: e });
  }
  return list;
}
const join = (list, type) => list.filter((p) => p.type === type).map((p) => p.text ?? p.delta ?? '').join('');

for (const [name, make] of [['compatible', compatible], ['openai.chat', strict]]) {
  const of = make(keys.rich, fetch, { includeUsage: true });
  const ask = (model, more = {}) => ({ model: of(model), system: 'You are brief.', prompt: 'Say hello.', maxRetries: 0, onError: quiet, ...more });

  await check(`${name} generateText`, async () => {
    const r = await generateText(ask('text'));
    equal([r.text, r.finishReason, r.usage.outputTokens, r.usage.cachedInputTokens], [WORDS, 'stop', 5, 40]);
    truth(r.usage.totalTokens === r.usage.inputTokens + 5 && r.response.id.startsWith('chatcmpl-'), 'usage or id');
  });
  await check(`${name} streamText`, async () => {
    const r = streamText(ask('text'));
    let text = '';
    for await (const piece of r.textStream) text += piece;
    equal([text, await r.finishReason, (await r.usage).outputTokens], [WORDS, 'stop', 5]);
  });
  await check(`${name} a slow first token`, async () => {
    const r = streamText(ask('slow'));
    await r.consumeStream();
    equal(await r.text, WORDS);
  });
  await check(`${name} stop sequences`, async () => {
    const r = await generateText(ask('unstopped', { stopSequences: ['nd:'] }));
    equal([r.text, r.finishReason], ['Hello, dear frie', 'stop']);
  });
  await check(`${name} length`, async () => {
    const r = await generateText(ask('length'));
    equal([r.text, r.finishReason], ['Hello, dear', 'length']);
  });
  if (name === 'compatible') {
    await check(`${name} reasoning`, async () => {
      const r = await generateText(ask('reasoning'));
      equal([r.reasoningText, r.text], [THOUGHTS, WORDS]);
    });
    await check(`${name} reasoning in a stream`, async () => {
      const list = await parts(streamText(ask('reasoning')));
      equal([join(list, 'reasoning-delta'), join(list, 'text-delta')], [THOUGHTS, WORDS]);
    });
  }

  const tools = (log) => ({
    get_weather: tool({ inputSchema: z.object({ city: z.string() }), execute: (input) => (log.push(['get_weather', input]), 'sun in ' + input.city) }),
    get_time: tool({ inputSchema: z.object({}), execute: (input) => (log.push(['get_time', input]), 'it is noon') }),
  });
  const called = [['get_weather', { city: 'Rome' }], ['get_time', {}]];
  for (const model of ['tools', 'tools-whole']) {
    await check(`${name} tool loop with ${model}`, async () => {
      const log = [];
      const r = await generateText(ask(model, { tools: tools(log), stopWhen: stepCountIs(4) }));
      truth(/^The tools say .*sun in Rome.* and .*it is noon.*\.$/.test(r.text), r.text);
      equal([log, r.steps.length, r.steps[0].finishReason, r.totalUsage.outputTokens], [called, 2, 'tool-calls', 20]);
    });
    await check(`${name} tool loop with ${model} in a stream`, async () => {
      const log = [];
      const r = streamText(ask(model, { tools: tools(log), stopWhen: stepCountIs(4) }));
      const list = await parts(r);
      equal(list.filter((p) => p.type === 'error' || p.type === 'thrown'), []);
      truth(/^The tools say .*sun in Rome.* and .*it is noon.*\.$/.test(await r.text), await r.text);
      equal([log, (await r.steps).length], [called, 2]);
      equal(list.filter((p) => p.type === 'tool-call').map((p) => p.toolName), ['get_weather', 'get_time']);
    });
  }
  await check(`${name} a required tool`, async () => {
    const r = await generateText(ask('tools', { tools: { get_time: tool({ inputSchema: z.object({}) }) }, toolChoice: 'required' }));
    equal(r.toolCalls.map((c) => c.toolName), ['get_time']);
  });

  await check(`${name} generateObject`, async () => {
    equal((await generateObject(ask('json', { schema: Place }))).object, { city: 'Rome', temp: 21 });
  });
  await check(`${name} generateObject without a schema`, async () => {
    equal((await generateObject(ask('json', { output: 'no-schema' }))).object, { city: 'Rome', temp: 21 });
  });
  await check(`${name} streamObject`, async () => {
    const r = streamObject(ask('json', { schema: Place }));
    let last;
    for await (const part of r.partialObjectStream) last = part;
    equal([last, await r.object], [{ city: 'Rome', temp: 21 }, { city: 'Rome', temp: 21 }]);
  });
  await check(`${name} Output.object`, async () => {
    equal((await generateText(ask('json', { output: Output.object({ schema: Place }) }))).output, { city: 'Rome', temp: 21 });
  });

  for (const script of ['cut', 'fault']) {
    await check(`${name} ${script} mid-stream is an error part`, async () => {
      const list = await parts(streamText(ask(script)));
      const errors = list.filter((p) => p.type === 'error');
      equal(join(list, 'text-delta'), 'Hello, dear');
      truth(errors.length > 0 && /upstream_error/.test(JSON.stringify(errors[0].error)), JSON.stringify(list));
      truth(!list.some((p) => p.type === 'finish' && p.finishReason === 'stop'), 'a clean end');
      truth(!/secret|rate.?limit|host-7/.test(JSON.stringify(errors)), 'the words of the provider');
    });
  }

  const refusals = [
    ['400', 400, 'decimal_above_max_value', keys.rich, 'text', { temperature: 3 }],
    ['401', 401, 'invalid_api_key', 'sk-nope', 'text'],
    ['402', 402, 'insufficient_quota', keys.poor, 'text'],
    ['403', 403, 'model_access_denied', keys.free, 'pro-text'],
    ['404', 404, 'model_not_found', keys.rich, 'typo'],
  ];
  for (const [what, status, code, key, model, more = {}] of refusals) {
    await check(`${name} ${what} is not asked again`, async () => {
      const fetch = watched();
      const e = await rejects(generateText(ask(model, { model: make(key, fetch)(model), maxRetries: 2, ...more })));
      truth(APICallError.isInstance(e), e);
      equal([e.statusCode, e.isRetryable, e.data.error.code, e.message === e.data.error.message, fetch.list.length], [status, false, code, true, 1]);
    });
    await check(`${name} ${what} before a stream is an error part`, async () => {
      const list = await parts(streamText(ask(model, { model: make(key, fetch)(model), ...more })));
      const { error } = list.find((p) => p.type === 'error');
      equal([error.statusCode, error.data.error.code], [status, code]);
    });
  }
  await check(`${name} 502 is asked again`, async () => {
    const fetch = watched();
    const r = await generateText(ask('', { model: make(keys.rich, fetch)('flaky'), prompt: unique('flaky'), maxRetries: 1 }));
    equal([r.text, fetch.list.map((x) => x.status)], [WORDS, [502, 200]]);
  });
  await check(`${name} 502 for good`, async () => {
    const fetch = watched();
    const e = await rejects(generateText(ask('', { model: make(keys.rich, fetch)('status-500'), maxRetries: 1 })));
    truth(RetryError.isInstance(e) && e.lastError.statusCode === 502, e);
    equal([fetch.list.map((x) => x.status), e.lastError.data.error.code], [[502, 502], 'upstream_error']);
  });
  await check(`${name} 429 is asked again after Retry-After`, async () => {
    const fetch = watched();
    const narrow = make(keys.narrow, fetch);
    const prompt = unique('hold');
    const held = generateText(ask('', { model: narrow('hold'), prompt }));
    await asked(prompt);
    const second = generateText(ask('', { model: narrow('text'), maxRetries: 20 }));
    while (fetch.list.length < 2 || !fetch.list[1].status) await new Promise((resolve) => setTimeout(resolve, 5));
    await control('POST', 'release', prompt);
    equal([(await held).text, (await second).text], ['Hold on.', WORDS]);
    askedAgain(fetch.list);
  });
  await check(`${name} abort mid-stream`, () =>
    left(`${name} abort`, async (prompt) => {
      const leave = new AbortController();
      const r = streamText(ask('endless', { prompt, abortSignal: leave.signal }));
      let at;
      for await (const part of r.fullStream) {
        if (part.type !== 'text-delta' || at) continue;
        at = Date.now();
        leave.abort();
      }
      return at;
    }));
}

await check('structured outputs of the compatible provider', async () => {
  const of = compatible(keys.rich, fetch, { supportsStructuredOutputs: true });
  const r = await generateObject({ model: of('json'), prompt: 'Where?', schema: Place, maxRetries: 0 });
  equal(r.object, { city: 'Rome', temp: 21 });
  truth(fetch.list.at(-1).body.includes('json_schema'), 'no schema was sent');
});
done();
