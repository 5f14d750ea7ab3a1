// What the scripts of the console's checks share: the people, the doors, and a hand that counts.
import crypto from "node:crypto";

export const base = process.env.BASE;
export const email = "ada@example.test";
export const password = "correct horse battery";

// check prints "ok NAME", or "not ok NAME: why" with everything that test has put into problems.
export const check = async (name, test) => {
  const problems = [];
  try {
    await test(problems);
  } catch (e) {
    problems.push(e.message.split("\n").slice(0, 4).join(" "));
  }
  console.log(problems.length ? `not ok ${name}: ${[...new Set(problems)].slice(0, 8).join("; ").replace(/\s+/g, " ")}` : `ok ${name}`);
};

// form fills in fields by their labels and presses a button.
export const form = async (page, fields, button) => {
  for (const [label, text] of Object.entries(fields)) await page.getByLabel(label, { exact: true }).fill(text);
  const [answer] = await Promise.all([page.waitForResponse((r) => r.request().method() === "POST"), page.getByRole("button", { name: button, exact: true }).click()]);
  await answer.finished();
  await page.waitForLoadState();
};

export const at = (path) => (u) => u.pathname === path;

export const claim = async (page) => {
  await page.goto(process.env.CLAIM);
  await form(page, { Email: email, Password: password }, "Claim");
  await page.waitForURL(at("/"));
};

export const signIn = async (page, next = "/", as = email) => {
  await page.goto("/sign-in?next=" + encodeURIComponent(next));
  await form(page, { Email: as, Password: password }, "Sign in");
  await page.waitForURL((u) => u.pathname !== "/sign-in");
};

// call asks the API as a program does, with a key that it was given.
export const call = async (key, more = {}, signal) =>
  fetch(base + "/v1/chat/completions", {
    method: "POST", signal, headers: { authorization: "Bearer " + key, "content-type": "application/json" },
    body: JSON.stringify({ model: "svc-pulse", max_tokens: 2, messages: [{ role: "user", content: "Say hello." }], ...more }),
  });

// code is why the API refused.
export const code = async (answer) => (answer.ok ? "none" : (await answer.json()).error.code);

// oneTime is what an authenticator app shows: RFC 6238.
export const oneTime = (secret, step) => {
  const bits = [...secret].map((c) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(c).toString(2).padStart(5, "0")).join("");
  const key = Buffer.from(bits.match(/.{8}/g).map((b) => parseInt(b, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const sum = crypto.createHmac("sha1", key).update(counter).digest();
  return String((sum.readUInt32BE(sum[19] & 15) & 0x7fffffff) % 1_000_000).padStart(6, "0");
};

export const heading = (page, name) => page.getByRole("heading", { level: 1, name }).waitFor();

// hand does what a person does, with the mouse or with keys alone, and counts the clicks: typing
// and choosing are free, Enter in a field is a click.
export const hand = (page, keys = false) => {
  const press = async (locator, key) => {
    if (!keys) return locator.click();
    await reach(page, locator);
    return page.keyboard.press(key);
  };
  const h = {
    page, clicks: 0,
    async link(name, where = page) {
      h.clicks++;
      await press(where.getByRole("link", { name, exact: typeof name === "string" }).first(), "Enter");
    },
    async button(name) {
      h.clicks++;
      await press(page.getByRole("button", { name, exact: typeof name === "string" }), "Enter");
    },
    async type(label, text) {
      const field = page.getByLabel(label, { exact: true });
      if (!keys) return field.fill(text);
      await reach(page, field);
      await page.keyboard.press("Control+A");
      await page.keyboard.type(text);
    },
    async choose(label) {
      const radio = page.getByLabel(label);
      if (!keys) return radio.check();
      const name = await radio.getAttribute("name");
      await reach(page, page.locator(`input[name="${name}"]:checked`));
      for (let n = 0; n < 20 && !(await radio.isChecked()); n++) await page.keyboard.press("ArrowDown");
    },
    async find(text) {
      const field = page.locator(".find input");
      if (keys) await reach(page, field);
      await (keys ? page.keyboard.type(text) : field.fill(text));
      h.clicks++;
      await field.press("Enter");
    },
  };
  return h;
};

// reach presses Tab until the focus is there.
const reach = async (page, locator) => {
  await locator.waitFor();
  const away = await locator.evaluate((e) => {
    const stops = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, pre[tabindex]")].filter((x) => x === e || x.checkVisibility());
    return stops.indexOf(e) - stops.indexOf(document.activeElement);
  });
  for (let n = 1; n < away; n++) await page.keyboard.press("Tab");
  for (let n = 0; n < 120; n++) {
    if (await locator.evaluate((e) => e === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`Tab does not come to ${locator}`);
};
