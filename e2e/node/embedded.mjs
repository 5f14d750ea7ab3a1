// Unmodified clients against the embedded model. It is small and not clever: what is checked is
// that its answers have the form that was asked for and that loops of tools come to an end.

import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool as langchainTool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { Output, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { baseURL, check, done, equal, keys, rejects, truth, watched } from './check.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;
const model = 'svc-pulse';
const client = new OpenAI({ baseURL, apiKey: keys.rich, maxRetries: 0, fetch: watched() });
const Place = z.object({
  city: z.string().max(20),
  population: z.number().int().min(1).max(50_000_000),
  kind: z.enum(['town', 'city', 'village']),
  rivers: z.array(z.string().max(12)).max(2),
});
const question = 'What is the weather in Rome?';
const ask = (more = {}) => ({ model, messages: [{ role: 'user', content: question }], temperature: 0, seed: 1, max_tokens: 200, ...more });
const places = (more = {}) => ask({ messages: [{ role: 'user', content: 'Tell me about Rome in JSON.' }], response_format: zodResponseFormat(Place, 'place'), ...more });

const City = z.object({ city: z.string().max(20) });
const Clock = z.object({ zone: z.enum(['UTC', 'CET']) });
const weather = (log) => (input) => (log.push(['get_weather', City.parse(input)]), 'sun, 21 degrees');
const clock = (log) => (input) => (log.push(['get_time', Clock.parse(input)]), 'it is noon');
/** called checks a log of calls; each was parsed by its schema. */
const called = (log) => truth(log.length > 0 && log.every(([name]) => /^get_(weather|time)$/.test(name)), JSON.stringify(log));

// --- openai-node

await check('openai json_object', async () => {
  for (const max_tokens of [3, 8, 40]) {
    const c = await client.chat.completions.create(ask({ max_tokens, response_format: { type: 'json_object' } }));
    const value = JSON.parse(c.choices[0].message.content);
    truth(value && typeof value === 'object' && !Array.isArray(value), c.choices[0].message.content);
    truth(c.usage.completion_tokens <= max_tokens, JSON.stringify(c.usage));
  }
});
await check('openai parse', async () => {
  const c = await client.chat.completions.parse(places());
  equal(Place.parse(c.choices[0].message.parsed), JSON.parse(c.choices[0].message.content));
});
await check('openai parse of two choices', async () => {
  const c = await client.chat.completions.parse(places({ n: 2, temperature: 1.5 }));
  equal(c.choices.map((x) => Place.safeParse(x.message.parsed).success), [true, true]);
});
await check('openai parse in the stream helper', async () => {
  const runner = client.chat.completions.stream(places());
  let parsed;
  runner.on('content.done', (event) => (parsed = event.parsed));
  const c = await runner.finalChatCompletion();
  equal(parsed, Place.parse(c.choices[0].message.parsed));
  equal(parsed, (await client.chat.completions.parse(places())).choices[0].message.parsed);
});
await check('openai too few tokens are refused', async () => {
  const e = await rejects(client.chat.completions.parse(places({ max_tokens: 5 })));
  truth(e.status === 400 && e.param === 'max_tokens' && /at least \d+ completion tokens/.test(e.message), e);
  const least = Number(/at least (\d+)/.exec(e.message)[1]);
  const c = await client.chat.completions.create(places({ max_tokens: least }));
  Place.parse(JSON.parse(c.choices[0].message.content));
});

const runnable = (log) => [
  zodFunction({ name: 'get_weather', parameters: City, function: weather(log), description: 'The weather in a city' }),
  zodFunction({ name: 'get_time', parameters: Clock, function: clock(log), description: 'The time of day' }),
];
for (const stream of [false, true]) {
  await check(`openai runTools${stream ? ' in a stream' : ''}`, async () => {
    const log = [];
    const runner = client.chat.completions.runTools(ask({ tools: runnable(log), stream }), { maxChatCompletions: 6 });
    truth((await runner.finalContent()).length > 0, 'no words at the end');
    called(log);
    truth(runner.allChatCompletions().length <= 6, 'the loop does not end');
  });
}
await check('openai a required tool, whole and streamed', async () => {
  const tools = runnable([]).map(({ type, function: { name, description, parameters, strict } }) => ({ type, function: { name, description, parameters, strict } }));
  const whole = await client.chat.completions.create(ask({ tools, tool_choice: 'required' }));
  const streamed = await client.chat.completions.stream(ask({ tools, tool_choice: 'required' })).finalChatCompletion();
  for (const { choices: [c] } of [whole, streamed]) {
    equal([c.finish_reason, c.message.content], ['tool_calls', null]);
    equal(new Set(c.message.tool_calls.map((t) => t.id)).size, c.message.tool_calls.length);
  }
  const spoken = (c) => c.choices[0].message.tool_calls.map((t) => [t.type, t.function.name, JSON.parse(t.function.arguments)]);
  equal(spoken(streamed), spoken(whole));
  const one = await client.chat.completions.create(ask({ tools, tool_choice: { type: 'function', function: { name: 'get_time' } } }));
  equal(one.choices[0].message.tool_calls.map((t) => t.function.name), ['get_time']);
  Clock.parse(JSON.parse(one.choices[0].message.tool_calls[0].function.arguments));
  const none = await client.chat.completions.create(ask({ tools, tool_choice: 'none' }));
  equal('tool_calls' in none.choices[0].message, false);
});
await check('openai parse of strict tools', async () => {
  const c = await client.chat.completions.parse(ask({ tools: [zodFunction({ name: 'get_weather', parameters: City })], tool_choice: 'required', parallel_tool_calls: false }));
  equal(c.choices[0].message.tool_calls.map((t) => City.safeParse(t.function.parsed_arguments).success), [true]);
});

// --- Vercel's AI SDK

const fetch = watched();
const compatible = createOpenAICompatible({ name: 'parley', baseURL, apiKey: keys.rich, fetch, includeUsage: true, supportsStructuredOutputs: true })(model);
const loose = createOpenAICompatible({ name: 'parley', baseURL, apiKey: keys.rich, fetch })(model);
const strict = createOpenAI({ baseURL, apiKey: keys.rich, fetch }).chat(model);
const tools = (log) => ({
  get_weather: tool({ description: 'The weather in a city', inputSchema: City, execute: weather(log) }),
  get_time: tool({ description: 'The time of day', inputSchema: Clock, execute: clock(log) }),
});
for (const [name, model] of [['compatible', compatible], ['openai.chat', strict]]) {
  const ask = (more) => ({ model, prompt: question, temperature: 0, seed: 1, maxRetries: 0, maxOutputTokens: 200, ...more });
  await check(`ai ${name} generateObject`, async () => {
    const r = await generateObject(ask({ schema: Place }));
    equal([Place.safeParse(r.object).success, r.finishReason], [true, 'stop']);
  });
  await check(`ai ${name} an array and an enum`, async () => {
    const list = await generateObject(ask({ output: 'array', schema: City.extend({ size: z.number().int().max(99) }), temperature: 1 }));
    truth(Array.isArray(list.object), JSON.stringify(list.object));
    const one = await generateObject(ask({ output: 'enum', enum: ['sunny', 'rainy'] }));
    truth(['sunny', 'rainy'].includes(one.object), one.object);
  });
  await check(`ai ${name} streamObject`, async () => {
    const r = streamObject(ask({ schema: Place, onError: () => {} }));
    let last;
    for await (const part of r.partialObjectStream) last = part;
    equal(last, Place.parse(await r.object));
  });
  await check(`ai ${name} Output.object`, async () => {
    Place.parse((await generateText(ask({ output: Output.object({ schema: Place }) }))).output);
  });
  await check(`ai ${name} generateText with tools`, async () => {
    const log = [];
    const r = await generateText(ask({ tools: tools(log), stopWhen: stepCountIs(5) }));
    called(log);
    truth(r.steps.length <= 5 && r.text.length > 0, JSON.stringify(r.steps.map((s) => s.finishReason)));
  });
  await check(`ai ${name} streamText with tools`, async () => {
    const log = [];
    // Required at first and auto behind it, as its prepareStep is for.
    const r = streamText(ask({
      tools: tools(log), stopWhen: stepCountIs(5), onError: () => {},
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'auto' }),
    }));
    const parts = [];
    for await (const part of r.fullStream) parts.push(part);
    equal(parts.filter((p) => p.type === 'error' || p.type === 'tool-error'), []);
    called(log);
    const steps = await r.steps;
    equal(steps[0].finishReason, 'tool-calls');
    truth(steps.length <= 5 && (await r.text).length > 0, `${steps.length} steps, ${await r.text}`);
    equal(parts.filter((p) => p.type === 'tool-call').length, log.length);
  });
}
await check('ai generateObject without a schema', async () => {
  const r = await generateObject({ model: loose, prompt: 'Say anything in JSON.', output: 'no-schema', temperature: 0, maxRetries: 0, maxOutputTokens: 60 });
  truth(r.object && typeof r.object === 'object', JSON.stringify(r.object));
});

// --- LangChain.js

const llm = (more) => new ChatOpenAI({ model, apiKey: keys.rich, maxRetries: 0, temperature: 0, maxTokens: 200, configuration: { baseURL, fetch: watched() }, ...more });
for (const method of ['jsonSchema', 'functionCalling']) {
  await check(`langchain withStructuredOutput by ${method}`, async () => {
    Place.parse(await llm().withStructuredOutput(Place, { method, name: 'place' }).invoke([new HumanMessage('Tell me about Rome.')]));
  });
}
await check('langchain withStructuredOutput by jsonMode', async () => {
  const value = await llm().withStructuredOutput(z.object({}).passthrough(), { method: 'jsonMode', name: 'any' }).invoke([new HumanMessage('Tell me about Rome in JSON.')]);
  truth(value && typeof value === 'object', JSON.stringify(value));
});
for (const streamed of [false, true]) {
  await check(`langchain an agent with two tools${streamed ? ' in a stream' : ''}`, async () => {
    const log = [];
    const kit = {
      get_weather: langchainTool(weather(log), { name: 'get_weather', description: 'The weather in a city', schema: City }),
      get_time: langchainTool(clock(log), { name: 'get_time', description: 'The time of day', schema: Clock }),
    };
    const run = async (bound, messages) => {
      if (!streamed) return bound.invoke(messages);
      let all;
      for await (const chunk of await bound.stream(messages)) all = all ? all.concat(chunk) : chunk;
      return all;
    };
    const messages = [new HumanMessage(question)];
    // A choice that is required is repeated by bindTools, so only the first turn has it.
    let bound = llm().bindTools(Object.values(kit), { tool_choice: 'required' });
    for (let turn = 0; turn < 6; turn++) {
      const m = await run(bound, messages);
      equal(m.invalid_tool_calls ?? [], []);
      messages.push(m);
      if (!m.tool_calls?.length) break;
      for (const call of m.tool_calls) {
        const result = await kit[call.name].invoke(call);
        truth(result instanceof ToolMessage && result.status !== 'error', JSON.stringify(result));
        messages.push(result);
      }
      bound = llm().bindTools(Object.values(kit));
    }
    called(log);
    const last = messages.at(-1);
    truth(!last.tool_calls?.length && last.content.length > 0, JSON.stringify(last));
  });
}
done();
