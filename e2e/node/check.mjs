// What the scripts share: one line a check, and a note of every answer.
//
// A script prints "ok NAME" or "not ok NAME: why" for each check and "request ID STATUS" for each
// answer to a chat call; the Go test counts them and compares the answers with the books.

export const baseURL = process.env.OPENAI_BASE_URL;
export const keys = {
  rich: process.env.OPENAI_API_KEY,
  free: process.env.FREE_KEY,
  poor: process.env.POOR_KEY,
  narrow: process.env.NARROW_KEY,
};

// What the provider's scripts say.
export const WORDS = 'Hello, dear friend: 1 < 2 & é 🙂.';
export const THOUGHTS = 'The user greets me.';

let failed = 0;

export async function check(name, f) {
  try {
    await f();
    console.log(`ok ${name}`);
  } catch (e) {
    failed++;
    console.log(`not ok ${name}: ${e?.stack ?? e} ${e?.cause?.stack ?? ''} ${e?.cause?.cause?.stack ?? ''}`.replace(/\s+/g, ' ').slice(0, 2000));
  }
}

export function done() {
  process.exitCode = failed ? 1 : 0;
}

export function equal(got, want, what = 'got') {
  const [g, w] = [JSON.stringify(got), JSON.stringify(want)];
  if (g !== w) throw new Error(`${what} ${g}, want ${w}`);
}

export function truth(condition, what) {
  if (!condition) throw new Error(what);
}

/** rejects returns what the promise rejects with. */
export async function rejects(promise) {
  let value;
  try {
    value = await promise;
  } catch (e) {
    return e;
  }
  throw new Error(`it did not fail: ${JSON.stringify(value)}`);
}

/**
 * askedAgain checks that one call was answered and that a second, refused while the first ran, was
 * asked again until it was answered too: a slow machine takes more than one Retry-After.
 */
export function askedAgain(list) {
  const status = list.map((x) => x.status);
  truth(status.length > 2 && status[0] === 200 && status.at(-1) === 200 && status.slice(1, -1).every((x) => x === 429), `statuses ${status}`);
}

/** watched is a fetch that notes every request in list. It changes nothing. */
export function watched(list = []) {
  const f = async (url, init) => {
    const headers = new Headers(init?.headers ?? url.headers);
    const entry = { retry: headers.get('x-stainless-retry-count'), body: init?.body };
    list.push(entry);
    const response = await fetch(url, init);
    entry.status = response.status;
    entry.headers = response.headers;
    entry.id = response.headers.get('x-request-id');
    if (String(url.url ?? url).endsWith('/chat/completions')) console.log(`request ${entry.id} ${response.status}`);
    return response;
  };
  f.list = list;
  return f;
}

/** control asks the provider about the calls whose last message is text. */
export async function control(method, what, text) {
  const response = await fetch(`${process.env.CONTROL_URL}/${what}?text=${encodeURIComponent(text)}`, { method });
  const body = await response.text();
  return body && JSON.parse(body);
}

let texts = 0;

/** unique is a text by which the provider tells calls apart. */
export const unique = (name) => `${name} ${process.pid} ${++texts}`;

/**
 * left runs a call and leaves it; leave starts the call, leaves it and returns the time of that. The
 * provider must lose its connection within 100 ms. A busy machine may delay that, so it is tried at
 * least three times and at most twelve times, until it was quick and most of the time not late.
 */
export async function left(name, leave) {
  const took = [];
  const quick = () => took.length >= 3 && took[0] < 100 && took[took.length >> 1] < 2000;
  for (let i = 0; i < 12 && !quick(); i++) {
    const text = unique(name);
    const at = await leave(text);
    if (!(await control('GET', 'calls', text)).calls) continue; // a client in a hurry left before it was sent
    const { gone_ms } = await control('GET', 'gone', text);
    truth(gone_ms > 0, 'the provider was not left');
    took.push(gone_ms - at);
    took.sort((a, b) => a - b);
  }
  console.log(`note the provider lost its connection ${took.map((t) => t.toFixed(1)).join(', ')} ms after: ${name}`);
  truth(quick(), `left after ${took} ms`);
}

/** until polls until f is true. */
export async function until(what, f) {
  const deadline = Date.now() + 120_000;
  while (!(await f())) {
    if (Date.now() > deadline) throw new Error(`not in two minutes: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** asked waits until the provider has a call with text. */
export const asked = (text) => until('a call', async () => (await control('GET', 'calls', text)).calls > 0);
