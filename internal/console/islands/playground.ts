// The playground: a conversation with a model over the same API that programs use. Nothing of it
// leaves this tab but the calls; the key that they are made with is in this closure and nowhere else.

type Call = { id: string; type: "function"; function: { name: string; arguments: string } };
type Message = { role: "user" | "assistant" | "tool"; content: string; tool_calls?: Call[]; tool_call_id?: string };
type Turn = Message & { model?: string; failed?: string; request?: string };
type Usage = { prompt_tokens: number; completion_tokens: number; prompt_tokens_details?: { cached_tokens?: number } };
type Body = Record<string, unknown>;

const el = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const value = (id: string): string => el<HTMLInputElement>(id).value.trim();

// node makes an element with texts and other nodes in it; texts never become markup.
const node = (name: string, cls: string, ...inside: (string | Node)[]): HTMLElement => {
  const e = document.createElement(name);
  if (cls) e.className = cls;
  e.append(...inside);
  return e;
};

const button = (text: string, about: string, click: () => void): HTMLElement => {
  const b = node("button", "btn bare", text, node("span", "vh", " " + about));
  b.setAttribute("type", "button");
  b.addEventListener("click", click);
  return b;
};

// nano is a price per 1,000 tokens as nano-IU of one token: prices have at most 6 decimals.
const nano = (perThousand: string | undefined): number => Math.round(Number(perThousand ?? 0) * 1e6);
const amount = (nanos: number): string => (nanos / 1e9).toFixed(6) + " IU";
const commas = (n: number): string => n.toLocaleString("en-US");

const start = (root: HTMLElement): void => {
  const base = root.dataset.base ?? "";
  const input = el<HTMLTextAreaElement>("pg-in");
  let turns: Turn[] = [];
  let running: AbortController | undefined;
  let lang = "curl";
  let key = "";
  let ends = 0; // when the key does, on this machine's steady clock
  let live: HTMLElement | undefined; // where the answer is being written

  // renew asks for the session's key when the one at hand is about to end.
  const renew = async (): Promise<void> => {
    if (key && ends - performance.now() > 120_000) return;
    const r = await fetch("/playground/key", { method: "POST", body: new URLSearchParams({ account: root.dataset.account ?? "" }), redirect: "manual" });
    if (r.type === "opaqueredirect") throw new Error("You are signed out. Sign in again in another tab, then send it again.");
    if (r.status === 409) throw new Error("You look at another account now. Reload this page.");
    if (!r.ok) throw new Error(`No key could be made (${r.status}). Reload this page.`);
    const made: { key: string; expires_in: number } = await r.json();
    key = made.key;
    ends = performance.now() + made.expires_in * 1000;
  };

  const hint = (field: string, text: string, wrong = false): void => {
    el(field + "-f").classList.toggle("has-err", wrong);
    const h = el(field + "-h");
    h.className = wrong ? "err" : "hint";
    h.textContent = text;
    if (wrong) el(field).setAttribute("aria-invalid", "true");
    else el(field).removeAttribute("aria-invalid");
  };

  // tools reads the editor; undefined is none, null is a text that cannot be sent.
  const tools = (): unknown[] | undefined | null => {
    const text = value("p-tools");
    if (!text) {
      hint("p-tools", "A list of functions, as JSON.");
      return undefined;
    }
    try {
      const list: unknown = JSON.parse(text);
      if (!Array.isArray(list)) throw new Error("It must be a list: begin with [ and end with ].");
      list.forEach((t, i) => {
        if (t?.type !== "function" || typeof t?.function?.name !== "string") throw new Error(`Entry ${i + 1} needs "type": "function" and a function with a name.`);
      });
      hint("p-tools", `${list.length} ${list.length === 1 ? "function" : "functions"}, valid.`);
      return list;
    } catch (e) {
      hint("p-tools", (e as Error).message, true);
      return null;
    }
  };

  const model = (): HTMLOptionElement => el<HTMLSelectElement>("p-model").selectedOptions[0];

  // body is the call as it would be made with one more message; null when a field is wrong.
  const body = (more = input.value.trim()): Body | null => {
    const list = tools();
    const most = Number(value("p-m"));
    const ceiling = Number(model().dataset.most);
    const fits = Number.isInteger(most) && most >= 1 && most <= ceiling;
    if (!fits) hint("p-m", `${model().value} gives at most ${commas(ceiling)}. Enter 1 to ${commas(ceiling)}.`, true);
    if (list === null || !fits) return null;
    const messages: Body[] = [];
    if (value("p-system")) messages.push({ role: "system", content: value("p-system") });
    for (const { role, content, tool_calls, tool_call_id, failed } of turns) {
      if (!failed) messages.push({ role, content, ...(tool_calls && { tool_calls }), ...(tool_call_id && { tool_call_id }) });
    }
    if (more) messages.push({ role: "user", content: more });
    const b: Body = { model: model().value, messages, max_tokens: most };
    if (value("p-t-n") !== "1") b.temperature = Number(value("p-t-n"));
    if (value("p-p-n") !== "1") b.top_p = Number(value("p-p-n"));
    const stop = value("p-s").split(",").map((s) => s.trim()).filter(Boolean);
    if (stop.length) b.stop = stop;
    if (value("p-seed")) b.seed = Number(value("p-seed"));
    if (root.querySelector<HTMLInputElement>('input[name="rf"]:checked')?.value === "json") b.response_format = { type: "json_object" };
    if (list) b.tools = list;
    if (el<HTMLInputElement>("p-stream").checked) Object.assign(b, { stream: true, stream_options: { include_usage: true } });
    // No token is shorter than a byte, and a message costs a few of its frame.
    const prompt = Math.min(new TextEncoder().encode(JSON.stringify([messages, list ?? []])).length + 16 * messages.length, Number(model().dataset.context) - most);
    hint("p-m", `This call can cost ${amount(prompt * nano(model().dataset.in) + most * nano(model().dataset.out))} at most.`);
    return b;
  };

  const python = (x: unknown, pad = "    "): string => {
    const inner = pad + "    ";
    if (x === null) return "None";
    if (x === true) return "True";
    if (x === false) return "False";
    if (Array.isArray(x)) return x.length ? `[\n${x.map((y) => inner + python(y, inner)).join(",\n")},\n${pad}]` : "[]";
    if (typeof x === "object") return `{${Object.entries(x as Body).map(([k, y]) => `${JSON.stringify(k)}: ${python(y, inner)}`).join(", ")}}`;
    return JSON.stringify(x);
  };

  const languages: Record<string, (b: Body) => string> = {
    curl: (b) => `curl ${base}/chat/completions \\\n  -H "Authorization: Bearer $PARLEY_API_KEY" \\\n  -H "Content-Type: application/json" \\\n  -d '${JSON.stringify(b, null, 2).replaceAll("'", "'\\''")}'`,
    python: (b) =>
      `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${base}", api_key=os.environ["PARLEY_API_KEY"])\n${b.stream ? "stream" : "answer"} = client.chat.completions.create(\n${Object.entries(b).map(([k, x]) => `    ${k}=${python(x)},`).join("\n")}\n)\n` +
      (b.stream ? `for chunk in stream:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="")` : `print(answer.choices[0].message.content)`),
    node: (b) =>
      `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${base}", apiKey: process.env.PARLEY_API_KEY });\nconst ${b.stream ? "stream" : "answer"} = await client.chat.completions.create(${JSON.stringify(b, null, 2)});\n` +
      (b.stream ? `for await (const chunk of stream) {\n  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");\n}` : `console.log(answer.choices[0].message.content);`),
    go: (b) =>
      `body := strings.NewReader(${JSON.stringify(JSON.stringify(b))})\nreq, err := http.NewRequestWithContext(ctx, "POST", "${base}/chat/completions", body)\nif err != nil {\n\treturn err\n}\nreq.Header.Set("Authorization", "Bearer "+os.Getenv("PARLEY_API_KEY"))\nreq.Header.Set("Content-Type", "application/json")\nres, err := http.DefaultClient.Do(req)\nif err != nil {\n\treturn err\n}\ndefer res.Body.Close()\n_, err = io.Copy(os.Stdout, res.Body)\nreturn err`,
  };

  const code = (): void => {
    const b = body(input.value.trim() || (turns.length ? "" : "Say hello."));
    if (b) el("pg-code").textContent = languages[lang](b);
    for (const a of el("pg-langs").querySelectorAll("a")) {
      if (a.dataset.lang === lang) a.setAttribute("aria-current", "true");
      else a.removeAttribute("aria-current");
    }
  };

  // edit puts a turn's text into a field.
  const edit = (turn: Turn, at: HTMLElement): void => {
    const area = document.createElement("textarea");
    area.value = turn.content;
    area.rows = 4;
    area.setAttribute("aria-label", "Text of the message");
    const keep = (): void => {
      turn.content = area.value;
      draw();
    };
    at.replaceChildren(area, node("div", "acts", button("Save", "the message", keep), button("Cancel", "the change", draw)));
    area.focus();
  };

  const names = { user: "You", assistant: "", tool: "Tool result" };

  const drawTurn = (turn: Turn, i: number): HTMLElement => {
    const inside = node("div", "");
    const about = `message ${i + 1}`;
    if (turn.failed) {
      inside.append(node("p", "txt", turn.failed));
      if (turn.request) {
        const a = node("a", "", "Explain this");
        a.setAttribute("href", "/requests/" + turn.request);
        inside.append(a);
      }
    } else if (turn.content || !turn.tool_calls) {
      inside.append(node("p", "txt", turn.content));
    }
    for (const c of turn.tool_calls ?? []) {
      const pre = node("pre", "", `${c.function.name}(${c.function.arguments})`);
      pre.tabIndex = 0;
      pre.setAttribute("aria-label", "Tool call");
      inside.append(node("div", "code", pre));
      if (!turns.some((t) => t.tool_call_id === c.id)) {
        const add = (): void => {
          turns.splice(turns.indexOf(turn) + 1, 0, { role: "tool", content: "", tool_call_id: c.id });
          draw();
          el("pg-talk").querySelectorAll<HTMLElement>(".turn")[turns.indexOf(turn) + 1]?.querySelector<HTMLElement>("button")?.click();
        };
        inside.append(button("Add result", "of " + c.function.name, add));
      }
    }
    const remove = (): void => {
      turns = turns.filter((t) => t !== turn);
      draw();
    };
    const acts = node("div", "acts", ...(turn.failed ? [] : [button("Edit", about, () => edit(turn, inside))]), button("Delete", about, remove));
    if (!running) inside.append(acts);
    const who = turn.failed ? "Refused" : turn.role === "assistant" ? (turn.model ?? "") : names[turn.role];
    return node("div", "turn" + (turn.role === "assistant" ? " out" : ""), node("p", "who", who), inside);
  };

  const draw = (): void => {
    const talk = el("pg-talk");
    talk.replaceChildren(...(turns.length ? turns.map(drawTurn) : [node("p", "quiet", "Nothing is stored: the conversation is in this tab only.")]));
    el<HTMLButtonElement>("pg-stop").disabled = !running;
    el<HTMLButtonElement>("pg-send").disabled = Boolean(running);
    live = running ? talk.querySelector<HTMLElement>(".turn:last-child .txt") ?? undefined : undefined;
    live?.parentElement?.setAttribute("aria-busy", "true");
    code();
  };

  // show writes the figures of the answer: tokens as they were counted, or so far.
  const show = (begun: number, first: number, tokens: number, usage?: Usage, last = performance.now()): void => {
    const o = model().dataset;
    el("pg-completion").textContent = commas(usage?.completion_tokens ?? tokens);
    el("pg-first").textContent = first ? ((first - begun) / 1000).toFixed(2) + " s" : "–";
    const spent = (last - first) / 1000;
    el("pg-speed").textContent = first && spent > 0.05 && tokens > 1 ? `${Math.round((tokens - 1) / spent)} tokens/s` : "–";
    if (!usage) return;
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    el("pg-prompt").textContent = commas(usage.prompt_tokens);
    el("pg-charge").textContent = amount((usage.prompt_tokens - cached) * nano(o.in) + cached * nano(o.cached) + usage.completion_tokens * nano(o.out));
  };

  // correct is the charge where the plan has paid for tokens: the receipt knows for how many.
  const correct = async (request?: string): Promise<void> => {
    const r = await fetch(`/requests/${request}/json`);
    if (!r.ok) return;
    const { state, charge, plan_tokens: plan } = await r.json();
    if (state === "running" || !plan) return;
    el("pg-charge").textContent = `${amount(Number(charge) * 1e9)} and ${commas(plan)} plan token${plan === 1 ? "" : "s"}`;
  };

  // refused says in the conversation what the API has answered: its first two sentences.
  const refused = async (r: Response, turn: Turn): Promise<void> => {
    const text = await r.text();
    let message = `The API answered ${r.status}.`;
    try {
      message = JSON.parse(text).error.message;
    } catch {
      // not the API's own answer: the status must do
    }
    turn.failed = (message.match(/^(?:.*?[.!?](?:\s+|$)){1,2}/s)?.[0] ?? message).trim();
    turn.request = r.headers.get("x-request-id") ?? undefined;
  };

  // read takes the events of a stream as they come.
  const read = async (r: Response, turn: Turn, begun: number): Promise<void> => {
    const reader = (r.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let first = 0;
    let tokens = 0;
    let usage: Usage | undefined;
    for (;;) {
      const { done, value: text } = await reader.read();
      if (done) break;
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
        const event = JSON.parse(line.slice("data: ".length));
        if (event.error) {
          turn.failed = event.error.message;
          continue;
        }
        usage = event.usage ?? usage;
        const delta = event.choices?.[0]?.delta;
        if (!delta) continue;
        if (delta.content || delta.refusal || delta.tool_calls) {
          first ||= performance.now();
          tokens++;
        }
        turn.content += delta.content ?? delta.refusal ?? "";
        for (const part of delta.tool_calls ?? []) {
          turn.tool_calls ??= [];
          const c = (turn.tool_calls[part.index ?? 0] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
          c.id ||= part.id ?? "";
          c.function.name += part.function?.name ?? "";
          c.function.arguments += part.function?.arguments ?? "";
        }
      }
      if (live) live.textContent = turn.content;
      show(begun, first, tokens, usage);
    }
  };

  const call = async (b: Body, turn: Turn, signal: AbortSignal, again = true): Promise<void> => {
    await renew();
    const begun = performance.now();
    const r = await fetch("/v1/chat/completions", {
      method: "POST", signal, credentials: "omit", headers: { authorization: "Bearer " + key, "content-type": "application/json" }, body: JSON.stringify(b),
    });
    if (r.status === 401 && again) { // the key was revoked meanwhile
      key = "";
      return call(b, turn, signal, false);
    }
    turn.request = r.headers.get("x-request-id") ?? undefined;
    if (turn.request) {
      const a = node("a", "mono", turn.request.slice(0, 8) + "…" + turn.request.slice(-4));
      a.setAttribute("href", "/requests/" + turn.request);
      el("pg-request").replaceChildren(a);
    }
    if (!r.ok) return refused(r, turn);
    if (b.stream) return read(r, turn, begun);
    const answer = await r.json();
    turn.content = answer.choices[0].message.content ?? answer.choices[0].message.refusal ?? "";
    turn.tool_calls = answer.choices[0].message.tool_calls;
    show(begun, 0, 0, answer.usage);
  };

  const send = async (): Promise<void> => {
    const text = input.value.trim();
    const b = body();
    if (running || !b || (!text && !turns.length)) {
      input.focus();
      return;
    }
    turns = turns.filter((t) => !t.failed);
    if (text) turns.push({ role: "user", content: text });
    input.value = "";
    const turn: Turn = { role: "assistant", content: "", model: model().value };
    turns.push(turn);
    running = new AbortController();
    for (const f of ["prompt", "completion", "charge", "first", "speed", "request"]) el("pg-" + f).textContent = "–";
    el("pg-said").textContent = "";
    draw();
    let said = "";
    try {
      await call(b, turn, running.signal);
      if (!turn.failed) await correct(turn.request);
    } catch (e) {
      if ((e as Error).name === "AbortError") said = "Stopped. ";
      else turn.failed = e instanceof TypeError ? "Parley did not answer. Look at your connection, then send it again." : (e as Error).message;
    }
    running = undefined;
    if (!turn.failed && !turn.content && !turn.tool_calls) turns = turns.filter((t) => t !== turn);
    draw();
    const asked = turn.tool_calls ? " It calls " + turn.tool_calls.map((c) => c.function.name).join(", ") + "." : "";
    el("pg-said").textContent = said + (turn.failed ? "Refused: " + turn.failed : "Answer: " + turn.content + asked);
  };

  const describe = (): void => {
    const o = model().dataset;
    el("p-model-h").textContent = `${o.in} in, ${o.out} out, IU per 1K tokens. ${commas(Number(o.context))} tokens of context.`;
    code();
  };

  // Each range has a number beside it.
  for (const id of ["p-t", "p-p"]) {
    const range = el<HTMLInputElement>(id);
    const exact = el<HTMLInputElement>(id + "-n");
    range.addEventListener("input", () => (exact.value = range.value));
    exact.addEventListener("input", () => (range.value = exact.value));
  }
  el("pg-send").addEventListener("click", () => void send());
  el("pg-stop").addEventListener("click", () => running?.abort());
  el("pg-clear").addEventListener("click", () => {
    running?.abort();
    turns = [];
    draw();
    input.focus();
  });
  input.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void send();
  });
  addEventListener("keydown", (e) => {
    if (e.key === "Escape") running?.abort();
  });
  el("pg-form").addEventListener("submit", (e) => e.preventDefault());
  el("pg-form").addEventListener("input", describe);
  input.addEventListener("input", code);
  el("pg-langs").addEventListener("click", (e) => {
    const chosen = e.target instanceof HTMLElement ? e.target.dataset.lang : undefined;
    if (!chosen) return;
    e.preventDefault();
    lang = chosen;
    code();
  });
  root.hidden = false;
  describe();
};

const root = document.getElementById("pg");
if (root) start(root);
