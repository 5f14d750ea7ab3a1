// Does what people come to the console for, as they do it, and counts their clicks: with the mouse,
// and once more without script and by keys alone. What a task has done is asked of the API or of
// the command line.
import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import { until } from "./check.mjs";
import { launch, open, watch } from "./browser.mjs";
import { base, call, check, claim, code, form, hand, heading, password, signIn } from "./site.mjs";

const browser = await launch();
const parley = (...args) => JSON.parse(execFileSync(process.env.PARLEY, [...args, "--json", "--data", process.env.DATA], { encoding: "utf8" }));
const text = async (locator) => (await locator.textContent()).trim();
const equal = (problems, what, got, want) => {
  if (JSON.stringify(got) !== JSON.stringify(want)) problems.push(`${what}: ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
};

// closes holds the page's sum line to its terms: the last is what the others come to.
const closes = async (page, problems) => {
  const terms = await page.locator(".sum > span:not(.op)").allTextContents();
  const nano = terms.map((t) => BigInt(Math.round(Number(t.replace(/[,\s]/g, "").match(/^[<\d.]+/)?.[0].replace("<", "") ?? NaN) * 100)));
  const rest = nano.slice(1, -1).reduce((a, b) => a - b, nano[0]);
  const off = rest - nano.at(-1);
  if (terms.length < 3 || off < -BigInt(terms.length) || off > BigInt(terms.length)) problems.push(`the sum line does not close: ${terms.join(" ")}`);
};

// confirmed waits for the banner that says what was done.
const confirmed = (page, words) => page.locator(".note").filter({ hasText: words }).first().waitFor();

// broken reads a stream to its end, and returns the code with which it was broken off.
const broken = async (response) => {
  let all = "";
  try {
    for await (const part of response.body.pipeThrough(new TextDecoderStream())) all += part;
  } catch {} // it does not end as a whole answer does
  return all.match(/^data: {"error":.*"code":"([a-z_]+)"/m)?.[1] ?? "none";
};

// noted waits until a refusal is in the books, where it comes after its answer; its id is returned.
const noted = async (refused) => {
  const id = refused.headers.get("x-request-id");
  await until("the refusal", async () => spawnSync(process.env.PARLEY, ["explain", id, "--data", process.env.DATA]).status === 0);
  return id;
};

// proved are the rows of the laws on the page of the ledger, none while a proof is under way.
const proved = () => {
  if (document.readyState !== "complete" || document.body.textContent.includes("A proof is under way")) return [];
  return [...document.querySelectorAll("table")].filter((t) => t.caption?.textContent === "Laws of the books").flatMap((t) => [...t.tBodies[0].rows].map((r) => r.textContent));
};

// long is a call that does not end by itself: the tokens that end an answer are forbidden to it.
const long = { stream: true, n: 8, max_tokens: 2000, logit_bias: { 0: -100, 2: -100 } };

// Each task begins at the overview, or at the operator's first page, and has so many clicks.
// mode is a word for names, so that a task finds what it has made itself.
const tasks = [
  ["see what is left and until when", 0, async (h, mode, problems) => {
    await h.page.getByText("Available credit").last().waitFor();
    await closes(h.page, problems);
  }],
  ["create a key and copy its secret", 3, async (h, mode, problems) => {
    await h.link("API keys");
    await h.link("Create key");
    await h.type("Name", "batch-" + mode);
    await h.button("Create key");
    await heading(h.page, `batch-${mode} is ready`);
    const secret = await text(h.page.locator("#secret"));
    if (h.copies) {
      await h.page.locator(".secret").getByRole("button", { name: "Copy" }).click();
      await h.page.getByText("Copied", { exact: true }).waitFor();
      await h.page.locator(".find input").focus(); // a secret that is pasted there gets into no address
      await h.page.keyboard.press("Control+V");
      equal(problems, "copied", await h.page.locator(".find input").inputValue(), secret);
      await h.page.keyboard.press("Enter");
      await heading(h.page, "batch-" + mode);
      if ((await h.page.content()).includes(secret) || h.page.url().includes("sk-")) problems.push("a page after the first shows the secret");
    }
    const answer = await call(secret);
    equal(problems, "a call with the new key", answer.status, 200);
    h.made.key = secret;
  }],
  ["revoke a key", 3, async (h, mode, problems) => {
    const stream = await call(h.made.key, long);
    const cut = broken(stream);
    await h.link("API keys");
    await h.link(`Revoke batch-${mode}`);
    await h.page.getByText("1 running stream is cut").waitFor();
    await h.button(`Revoke batch-${mode}`);
    await confirmed(h.page, `batch-${mode} is revoked.`);
    // Two seconds are promised; the only server needs none: no call that begins now succeeds.
    equal(problems, "a call after the confirmation", await code(await call(h.made.key)), "api_key_revoked");
    equal(problems, "the running stream", await cut, "api_key_revoked");
  }],
  ["find out why a call was refused, from its id", 1, async (h, mode, problems) => {
    const refused = await call(process.env.KEY, { temperature: 3 });
    h.made.refused = await noted(refused);
    await h.find(h.made.refused);
    await heading(h.page, /^Refused: /);
    for (const name of ["Why", "What to do", "What the client saw"]) await h.page.getByRole("heading", { name, exact: true }).waitFor();
    const saw = await text(h.page.locator("pre code"));
    if (!saw.includes(JSON.parse(await refused.text()).error.message)) problems.push(`the client saw something else than ${saw}`);
  }],
  ["find out why a call was refused, from the banner", 1, async (h) => {
    await h.link("Explain");
    await heading(h.page, /^Refused: /);
    await h.page.getByText(h.made.refused).waitFor();
  }],
  ["find a call by its request id", 1, async (h, mode, problems) => {
    const answer = await call(process.env.KEY, { max_tokens: 3 });
    const { usage } = await answer.json();
    await h.find(answer.headers.get("x-request-id"));
    await heading(h.page, /svc-pulse, [\d.]+ IU/);
    const charge = usage.prompt_tokens * 50_000 + usage.completion_tokens * 100_000; // nano-IU
    equal(problems, "the charge", await text(h.page.locator("h1")), `svc-pulse, ${(charge / 1e9).toFixed(9).replace(/0{1,3}$/, "")} IU`);
  }],
  ["see what was spent, by model", 1, async (h, mode, problems) => {
    await h.link("Usage");
    await h.page.getByRole("heading", { name: "Grouped by model" }).waitFor();
    if (!(await text(h.page.locator("tfoot tr"))).match(/100\.0\s%/)) problems.push("there is no total");
  }],
  ["redeem a code", 2, async (h, mode, problems) => {
    const [before, made] = [parley("account", "show", "default"), execFileSync(process.env.PARLEY, ["code", "create", "--amount", "5", "--count", "1", "--note", "gift", "--data", process.env.DATA], { encoding: "utf8" }).trim().split("\n")[0]];
    await h.link("Add credit");
    await h.type("Code", made.toLowerCase());
    await h.button("Redeem");
    await confirmed(h.page, "The code's credit is added.");
    await closes(h.page, problems);
    equal(problems, "credit", Number(parley("account", "show", "default").balance) - Number(before.balance), 5);
  }],
  ["set the balance below which credit is low", 2, async (h, mode, problems) => {
    const below = mode === "mouse" ? "2.5" : "7.25";
    await h.link("Billing");
    await h.type("Warn below", below);
    await h.button("Set the warning");
    await confirmed(h.page, `There is a warning as soon as less than ${Number(below).toFixed(2)} IU are left.`);
    await h.page.goto("/billing");
    equal(problems, "the form shows", await h.page.getByLabel("Warn below", { exact: true }).inputValue(), below);
    const { low_credit, own_threshold } = parley("account", "show", "default");
    equal(problems, "the account has", [low_credit, own_threshold], [below, true]);
  }],
  ["download a statement", 2, async (h, mode, problems) => {
    await h.link("Billing");
    await h.page.getByRole("heading", { name: "Statements" }).waitFor();
    const [file] = await Promise.all([h.page.waitForEvent("download"), h.link(/^CSV of/)]);
    const csv = fs.readFileSync(await file.path(), "utf8");
    if (!/^[a-z_]+(,[a-z_]+)+\r?\n/.test(csv) || csv.trim().split("\n").length < 3) problems.push(`the file is ${csv.slice(0, 120)}`);
  }],
  ["invite a member, who joins", 3, async (h, mode, problems) => {
    await h.link("Members");
    await h.link("Invite a member");
    await h.type("Email", `cleo-${mode}@example.test`);
    await h.button("Make the link");
    await heading(h.page, "The invitation is ready");
    const guest = await (await open(browser, base)).newPage();
    watch(guest, problems);
    await guest.goto(await text(h.page.locator("output")));
    await form(guest, { Password: password }, "Join default");
    await heading(guest, "Overview");
    await guest.goto("/members/invite");
    if (!(await guest.getByText("This page is for an owner of default.").count())) problems.push("a member may invite");
    h.made.guest = guest;
  }],
  ["remove a member", 3, async (h, mode, problems) => {
    await h.link("Members");
    await h.link(`cleo-${mode}@example.test`);
    await h.button(`Remove cleo-${mode}@example.test`);
    await confirmed(h.page, "Removed.");
    await h.made.guest.goto("/keys");
    if (!(await h.made.guest.getByText("You belong to no account.").count())) problems.push("who was removed sees the account");
    await h.made.guest.context().close();
  }],
  ["sign out a lost device", 2, async (h, mode, problems) => {
    const lost = await (await open(browser, base, { userAgent: `Mozilla/5.0 (Windows NT 10.0) Firefox/15${mode.length}.0` })).newPage();
    await signIn(lost, "/security");
    await h.link("Security");
    await h.button("End the session of Firefox on Windows");
    await h.page.getByRole("row", { name: "Firefox on Windows" }).waitFor({ state: "detached" });
    await lost.goto("/security");
    equal(problems, "the lost device is at", new URL(lost.url()).pathname, "/sign-in");
    await lost.context().close();
  }],
  ["operator: see whether anything is wrong now", 0, async (h) => {
    await heading(h.page, "Traffic");
  }],
  ["operator: create an account", 3, async (h, mode, problems) => {
    await h.link("Accounts");
    await h.link("Create account");
    await h.type("Name", "lab-" + mode);
    await h.choose(/^free:/);
    await h.button("Create account");
    await confirmed(h.page, "The account is created.");
    h.made.id = new URL(h.page.url()).pathname.split("/").pop();
    h.made.key = parley("key", "create", "--account", "lab-" + mode).secret;
    equal(problems, "a call without credit", await code(await call(h.made.key)), "insufficient_quota");
  }],
  ["operator: add credit to an account", 3, async (h, mode, problems) => {
    await h.link("Accounts");
    await h.link(`Add credit to lab-${mode}`);
    await h.type("Amount", "12.5");
    await h.type("Note", "to begin with");
    await h.button("Add credit");
    await confirmed(h.page, "The credit is added.");
    await closes(h.page, problems);
    equal(problems, "a call with credit", (await call(h.made.key)).status, 200);
  }],
  ["operator: find an account by name", 1, async (h, mode) => {
    await h.find("lab-" + mode);
    await heading(h.page, new RegExp("^lab-" + mode));
  }],
  ["operator: change the plan of an account", 4, async (h, mode, problems) => {
    await h.link("Accounts");
    await h.link("lab-" + mode);
    await h.link("Change plan");
    await h.choose(/^pro:/);
    await h.button("Change plan");
    await confirmed(h.page, "The plan is changed.");
    equal(problems, "a call of another model", (await call(h.made.key, { model: "svc-titan" })).status, 200);
  }],
  ["operator: invite the first owner of an account, who joins", 5, async (h, mode, problems) => {
    await h.link("Accounts");
    await h.link("lab-" + mode);
    await h.link("Invite an owner");
    await h.type("Email", `dora-${mode}@example.test`);
    await h.button("Make the link");
    await heading(h.page, "The invitation is ready");
    const guest = await (await open(browser, base)).newPage();
    watch(guest, problems);
    await guest.goto(await text(h.page.locator("output")));
    await form(guest, { Password: password }, "Join lab-" + mode);
    await heading(guest, "Overview");
    await guest.goto("/members/invite"); // as owners may
    await heading(guest, "Invite a member");
    await guest.context().close();
    await h.link("I have sent it");
    await h.page.getByRole("table", { name: `Members of lab-${mode}` }).getByRole("cell", { name: "owner", exact: true }).waitFor();
  }],
  ["operator: suspend an account", 4, async (h, mode, problems) => {
    const stream = await call(h.made.key, long);
    const cut = broken(stream);
    await h.link("Accounts");
    await h.link("lab-" + mode);
    await h.link("Suspend");
    await h.page.getByText("1 running call is cut").waitFor();
    await h.button("Suspend account");
    await confirmed(h.page, `lab-${mode} is suspended.`);
    equal(problems, "a call of a suspended account", await code(await call(h.made.key)), "account_suspended");
    equal(problems, "the running stream", await cut, "account_suspended");
  }],
  ["operator: resume an account", 4, async (h, mode, problems) => {
    await h.link("Accounts");
    await h.link("lab-" + mode);
    await h.link("Resume");
    await h.button("Resume account");
    await confirmed(h.page, `lab-${mode} may make calls again.`);
    equal(problems, "a call of a resumed account", (await call(h.made.key)).status, 200);
  }],
  ["operator: prove that the books balance", 2, async (h, mode, problems) => {
    await h.link("Ledger");
    await Promise.all([h.page.waitForEvent("load"), h.button("Verify now")]);
    // The page loads itself again until the proof has ended, also while it is looked at.
    let words;
    await until("the proof", async () => (words = await h.page.evaluate(proved).catch(() => [])).length > 0);
    if (words.length < 5 || words.some((w) => !w.includes("Holds"))) problems.push(`the laws: ${words}`);
  }],
  ["operator: make a token and use it", 2, async (h, mode, problems) => {
    await h.link("Settings");
    await h.type("Name", "sync-" + mode);
    await h.button("Create token");
    await heading(h.page, `sync-${mode} is ready`);
    h.made.token = await text(h.page.locator("#secret"));
    const accounts = await fetch(base + "/admin/v1/accounts", { headers: { authorization: "Bearer " + h.made.token } });
    equal(problems, "with the token", [accounts.status, (await accounts.text()).includes("lab-" + mode)], [200, true]);
  }],
  ["operator: revoke a token", 3, async (h, mode, problems) => {
    await h.link("Settings");
    await h.link(`Revoke sync-${mode}`);
    await h.button(`Revoke sync-${mode}`);
    await confirmed(h.page, "The token is revoked.");
    equal(problems, "with a revoked token", (await fetch(base + "/admin/v1/accounts", { headers: { authorization: "Bearer " + h.made.token } })).status, 401);
  }],
];

const counted = [];
const all = async (mode, more) => {
  const context = await open(browser, base, more);
  const page = await context.newPage();
  const found = [];
  watch(page, found);
  await check(`signed in, ${mode}`, () => (mode === "mouse" ? claim(page) : signIn(page)));
  const made = {};
  for (const [name, most, task] of tasks) {
    await check(`${name}, ${mode}`, async (problems) => {
      await page.goto(name.startsWith("operator: ") ? "/operator" : "/");
      const h = Object.assign(hand(page, mode === "keys"), { made, copies: mode === "mouse" });
      await task(h, mode, problems);
      if (h.clicks !== most) problems.push(`${h.clicks} clicks, want ${most}`);
      counted.push(`${name}: ${h.clicks}`);
      problems.push(...found.splice(0));
    });
  }
  await context.close();
};
await all("mouse", { permissions: ["clipboard-write"] });
await all("keys", { javaScriptEnabled: false });

await check("the playground answers, stops, and its receipts agree", async (problems) => {
  const context = await open(browser, base);
  const page = await context.newPage();
  watch(page, problems);
  await signIn(page, "/playground");
  const ask = async (words, most) => {
    await page.getByRole("button", { name: "Clear" }).click();
    await page.getByLabel("Seed").fill("3"); // with which the answer is long
    await page.getByLabel("Temperature, exact").fill("0.7");
    await page.getByLabel("Max tokens").fill(String(most));
    await page.getByLabel("Message", { exact: true }).fill(words);
    await page.getByRole("button", { name: "Send" }).click();
  };
  const receipt = async () => {
    const tab = await context.newPage();
    await tab.goto(await page.locator("#pg-request a").getAttribute("href"));
    await tab.getByRole("heading", { level: 1, name: /IU$/ }).waitFor(); // it refreshes itself while the call runs
    const said = { head: await text(tab.locator("h1")), all: await text(tab.locator("main")) };
    await tab.close();
    return said;
  };
  await ask("Say hello.", 8);
  await page.getByText("Answer: ").waitFor({ state: "attached" });
  equal(problems, "the receipt of an answer", (await receipt()).head, "svc-pulse, " + (await text(page.locator("#pg-charge"))));
  for (const stop of [() => page.getByRole("button", { name: "Stop" }).click({ timeout: 10_000 }).catch(() => {}), () => page.keyboard.press("Escape")]) {
    // It ends by itself where the browser stands still for long.
    for (let n = 0, stopped; n < 5 && !stopped; n++) {
      await ask("Write a very long story about a river.", 2000);
      await page.locator(".turn:last-child .txt:not(:empty)").waitFor();
      await stop();
      stopped = (await text(page.locator("#pg-said:not(:empty)"))).startsWith("Stopped. ");
    }
    const { all } = await receipt();
    const tokens = Number(all.match(/The client left after ([\d,]+) token/)?.[1].replace(",", ""));
    if (!/Client left/i.test(all) || !(tokens >= 1 && tokens < 2000)) problems.push(`${tokens} tokens of a call that was stopped: ${all.slice(0, 300)}`);
  }
  await page.goto("/");
  await closes(page, problems);
  equal(problems, "running calls", Number(parley("account", "show", "default").held), 0);
  await context.close();
});

await check("a model is tried and copied as code", async (problems) => {
  const context = await open(browser, base, { permissions: ["clipboard-write"] });
  const page = await context.newPage();
  watch(page, problems);
  await signIn(page);
  const h = hand(page);
  await h.link("Open playground");
  await page.getByLabel("Max tokens").fill("8");
  await page.getByLabel("Message", { exact: true }).fill("It's <b>me</b>.");
  await h.button("Copy");
  await page.getByText("Copied", { exact: true }).waitFor();
  equal(problems, "clicks", h.clicks, 2);
  // What was copied runs in a shell as it is.
  const out = execFileSync("sh", ["-c", (await text(page.locator("#pg-code"))).replace('"stream": true', '"stream": false').replace(/,\s*"stream_options": \{[^}]*\}/, "")], { env: { ...process.env, PARLEY_API_KEY: process.env.KEY }, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  equal(problems, "the copied call", JSON.parse(out).object, "chat.completion");
  await context.close();
});

for (const line of new Set(counted)) console.log("note clicks, " + line);
await browser.close();
