// Looks at every page of the console with Chromium. The pages are found by following links from the
// first one, so that a new page is checked by being linked. Each line "ok NAME" or "not ok NAME: why" is one test.
import fs from "node:fs";
import { forbidden, glance, launch, look, open, shots, still, walk, watch, weight } from "./browser.mjs";
import { until } from "./check.mjs";
import { at, base, call, check, claim, email, form, heading, password, signIn } from "./site.mjs";

const browser = await launch();
const context = (more) => open(browser, base, more);

// pattern is a page's address without what differs from one thing to the next.
const pattern = (href) => {
  const path = new URL(href).pathname.replace(/\/(?:[a-z]+_[0-9a-z]{16,}|chatcmpl-[0-9A-Za-z]+|svc-[a-z]+)(?=\/|$)/g, "/{id}");
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
};
const fileName = (path) => (path === "/" ? "overview" : path.slice(1).replace(/[{},]/g, "").replace(/[/ ]/g, "-"));

const member = await context();
const first = await member.newPage();
await check("claim", async (problems) => {
  watch(first, problems);
  await first.goto(process.env.CLAIM);
  if (new URL(first.url()).hash) problems.push("the token stays in the address");
  await look(first, problems, shots("claim"));
  await walk(first, problems);
  await claim(first);
  const [cookie, ...more] = await member.cookies();
  if (cookie?.name !== "__Host-session" || !cookie.secure || !cookie.httpOnly || cookie.sameSite !== "Lax" || more.length) {
    problems.push(`the cookies are ${JSON.stringify([cookie, ...more])}`);
  }
});

// state looks at a page in a state of its own, as who is not signed in or as somebody else.
const state = (name, who, path, status, then = () => {}) =>
  check(name, async (problems) => {
    const page = await who.newPage();
    watch(page, problems);
    const answer = await page.goto(path);
    if (answer.status() !== status) problems.push(`${answer.status()}, want ${status}`);
    await then(page, problems);
    await glance(page, problems, shots(name.replace(/^[^a-z0-9]+/, "").replace(/[^a-z0-9]+/g, "-")));
    await page.close();
  });

// What there is to see before the first call.
for (const path of ["/", "/requests", "/usage", "/audit"]) await state(`nothing yet on ${path === "/" ? "overview" : path.slice(1)}`, member, path, 200);

await check("claim twice", async (problems) => {
  const page = await (await context()).newPage();
  await page.goto(process.env.CLAIM);
  await form(page, { Email: "mallory@example.test", Password: password }, "Claim");
  if (!(await page.getByText("This link was used").count())) problems.push("a used link does not say so");
  await glance(page, problems, shots("claim-used"));
});

// Signed out.
for (const path of ["/sign-in", "/nothing-here", "/join/nothing"]) {
  await check(path, async (problems) => {
    const page = await (await context()).newPage();
    watch(page, problems);
    await page.goto(path);
    await look(page, problems, shots(`out-${fileName(path)}`));
    await walk(page, problems);
  });
}

// What the pages are to show: a call that was answered, one of each refusal, a token.
const refusals = [];
let receipt;
await check("something to see", async (problems) => {
  for (const [more, status] of [[{ temperature: 3 }, 400], [{ model: "svc-tian" }, 404]]) {
    const refused = await call(process.env.KEY, more);
    if (refused.status !== status) problems.push(`a wrong call: ${refused.status}`);
    refusals.push("/requests/" + refused.headers.get("x-request-id"));
  }
  const answered = await call(process.env.KEY, { max_tokens: 8, temperature: 0 });
  receipt = "/requests/" + answered.headers.get("x-request-id");
  if (answered.status !== 200) problems.push(`a call: ${answered.status} ${await answered.text()}`);
  await first.goto("/operator/settings");
  await form(first, { Name: "billing-sync" }, "Create token");
  await heading(first, "billing-sync is ready");
  await glance(first, problems, shots("operator-token"));
});

// Signed in: everything that the first page leads to.
const seen = new Map([["/", base + "/"]]);
const queue = ["/nothing-here", "/"].map((p) => base + p);
const done = new Set();
const table = [];
const visit = async (href, name = pattern(href)) => {
  const page = await member.newPage();
  const problems = [];
  watch(page, problems);
  if (name === "/operator") await still(page, name);
  const answer = await page.goto(href).catch(() => null); // a download is no page
  const landed = name === pattern(href) ? pattern(page.url()) : name;
  if (answer?.headers()["content-type"]?.startsWith("text/html") && (landed === name || !done.has(landed))) {
    done.add(landed);
    seen.set(landed, page.url());
    await check(`page ${landed}`, async (found) => {
      if (answer.headers()["cache-control"] !== "no-store") found.push("it may be cached");
      if ((await page.locator("h1").count()) !== 1) found.push("it has not one h1");
      for (const next of await page.evaluate(() => [...document.querySelectorAll("a[href]")].map((a) => a.href))) {
        if (new URL(next).origin === base && !done.has(pattern(next))) queue.push(next);
      }
      table.push({ page: landed, ...(await weight(page, answer, found)) });
      await look(page, found, shots(fileName(landed)));
      await walk(page, found);
      found.push(...problems);
    });
  }
  await page.close();
};
// Two at a time: a page keeps one processor busy.
const running = new Set();
while ((queue.length || running.size) && done.size < 80) {
  const href = queue.shift();
  if (!href || running.size === 2) {
    if (href) queue.unshift(href);
    await Promise.race(running);
    continue;
  }
  if (done.has(pattern(href))) continue;
  done.add(pattern(href));
  const work = visit(href).finally(() => running.delete(work));
  running.add(work);
}
await Promise.all(running);
await visit(base + receipt, "/requests/{id}, answered"); // a refusal's page is linked by the overview

await check("pages that must be there", async (problems) => {
  const wanted = ["/", "/playground", "/keys", "/keys/new", "/keys/{id}", "/keys/{id}/edit", "/keys/{id}/rotate", "/keys/{id}/revoke", "/models", "/models/{id}", "/requests", "/requests/{id}", "/usage", "/limits", "/billing", "/billing/entries", "/members", "/members/invite", "/members/{id}", "/security", "/security/codes", "/audit", "/operator", "/operator/upstreams", "/operator/system", "/operator/accounts", "/operator/accounts/new", "/operator/accounts/{id}", "/operator/accounts/{id}/credit", "/operator/accounts/{id}/adjust", "/operator/accounts/{id}/plan", "/operator/accounts/{id}/suspend", "/operator/plans", "/operator/models", "/operator/ledger", "/operator/audit", "/operator/settings", "/operator/settings/tokens/{id}/revoke"];
  const missing = wanted.filter((p) => !seen.has(p));
  if (missing.length) problems.push(`no link leads to ${missing.join(", ")}`);
});

// What else pages can say: errors, and what others see.
await state("refused by a field", member, refusals[0], 200);
await check("a wrong password", async (problems) => {
  const page = await (await context()).newPage();
  watch(page, problems);
  await page.goto("/sign-in");
  await form(page, { Email: email, Password: "wrong wrong wrong" }, "Sign in");
  if (!(await page.title()).startsWith("Error:")) problems.push(`the title is ${await page.title()}`);
  await glance(page, problems, shots("sign-in-wrong"));
});
await state("plain HTTP", await context(), `http://plain.example:${new URL(base).port}/sign-in`, 403, async (page, problems) => {
  if (!(await page.getByText("ssh -L").count())) problems.push("no word of what to do");
});
await check("a browser that keeps no cookie", async (problems) => {
  const own = await context();
  const page = await own.newPage();
  watch(page, problems);
  await page.route("**/sign-in", async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    const answer = await route.fetch({ maxRedirects: 0 });
    const { "set-cookie": _, ...headers } = answer.headers();
    await own.clearCookies();
    await route.fulfill({ response: answer, headers });
  });
  await page.goto("/sign-in");
  await form(page, { Email: email, Password: password }, "Sign in");
  await heading(page, "Your browser kept no session");
  await glance(page, problems, shots("no-cookie"));
});

const guests = await context();
await check("an invitation", async (problems) => {
  const page = await member.newPage();
  watch(page, problems);
  await page.goto("/members/invite");
  await form(page, { Email: "ben@example.test" }, "Make the link");
  const link = (await page.locator("output").textContent()).trim();
  await glance(page, problems, shots("invited"));
  const guest = await guests.newPage();
  watch(guest, problems);
  await guest.goto(link);
  await glance(guest, problems, shots("join"));
  await form(guest, { Password: password }, "Join default");
  await page.goto("/members");
  await page.getByRole("link", { name: "ben@example.test" }).click();
  await heading(page, "ben@example.test");
  await glance(page, problems, shots("member-other"));
  await page.close();
});
await state("members, of a member", guests, "/members", 200);
await state("forbidden to a member", guests, "/members/invite", 403);
await state("forbidden to all but operators", guests, "/operator", 403);

await check("an operator looks into another account", async (problems) => {
  const page = await member.newPage();
  watch(page, problems);
  await page.goto("/operator/accounts/" + process.env.OTHER);
  await form(page, {}, "Look into");
  for (const path of ["/", "/keys", "/billing", "/members"]) {
    await page.goto(path);
    if (!(await page.getByText("as operator. Read only.").count())) problems.push(`${path}: there is no banner`);
    await glance(page, problems, shots(`operator-looks-${fileName(path)}`));
  }
  await page.locator("summary.acct").click();
  await glance(page, problems, shots("switcher"));
  await form(page, {}, "default");
  await page.goto("/members");
  if (await page.getByText("as operator. Read only.").count()) problems.push("the banner stays");
  await page.close();
});

await check("an operator takes an invitation back", async (problems) => {
  const page = await member.newPage();
  watch(page, problems);
  await page.goto(`/operator/accounts/${process.env.OTHER}/invite`);
  await form(page, { Email: "ada.lovelace@analytical-engine.example.test" }, "Make the link");
  const link = (await page.locator("output").textContent()).trim();
  await page.getByRole("link", { name: "I have sent it" }).click();
  await page.getByRole("heading", { name: "Open invitations" }).waitFor();
  await glance(page, problems, shots("operator-invitations"));
  await form(page, {}, "Revoke the invitation of ada.lovelace@analytical-engine.example.test");
  await page.getByText("The invitation is revoked.").waitFor();
  if (await page.getByRole("heading", { name: "Open invitations" }).count()) problems.push("it is still listed");
  if ((await page.goto(link)).status() !== 404) problems.push("its link leads somewhere");
  await page.close();
});

await check("what is printed", async (problems) => {
  const page = await member.newPage();
  watch(page, problems);
  await page.emulateMedia({ media: "print", colorScheme: "dark" });
  for (const path of ["/billing", "/billing/entries", "/usage", receipt]) {
    await page.goto(path);
    const found = await page.evaluate(() => {
      const shown = (e) => e.checkVisibility();
      return {
        head: [...document.querySelectorAll(".print")].filter(shown).map((e) => e.textContent).join(" "),
        left: [...document.querySelectorAll("nav, form, button, .note, .crumb, .btn")].filter(shown).map((e) => e.textContent.trim().slice(0, 20)),
        back: getComputedStyle(document.body).backgroundColor,
        footers: [...document.querySelectorAll("tfoot")].filter((e) => getComputedStyle(e).display === "table-footer-group").length, // would stand on every page
      };
    });
    if (!/default, acct_\w+\s*printed \d+ \w+ \d{4}, \d\d:\d\d UTC/.test(found.head)) problems.push(`${path} is headed ${found.head}`);
    if (found.left.length) problems.push(`${path} prints ${found.left.join(", ")}`);
    if (found.back !== "rgb(255, 255, 255)" || found.footers) problems.push(`${path}: ${found.back}, ${found.footers} totals on every page`);
  }
  await page.close();
});

await check("single keys", async (problems) => {
  const page = await member.newPage();
  watch(page, problems);
  await page.goto("/usage");
  await page.keyboard.press("?");
  const list = page.getByRole("dialog", { name: "Keyboard shortcuts" });
  await list.getByText("API keys").waitFor();
  await glance(page, problems, shots("single-keys"));
  await page.keyboard.press("Escape");
  await list.waitFor({ state: "hidden" });
  await page.keyboard.press("/");
  await page.keyboard.type("?");
  if (await list.count()) problems.push("a field opens the list");
  await page.locator(".find input").blur();
  await page.keyboard.press("g");
  await page.keyboard.press("k");
  await page.waitForURL("**/keys");
  await page.close();
});

await check("menu on a phone", async (problems) => {
  const page = await member.newPage();
  await page.setViewportSize({ width: 390, height: 800 });
  await page.goto("/security");
  await page.getByRole("button", { name: "Menu" }).click();
  await page.locator(".side:popover-open").waitFor();
  await page.screenshot({ path: `${shots("menu")}.390.light.png` });
  await page.keyboard.press("Escape");
  await page.locator(".side:popover-open").waitFor({ state: "detached" });
  await page.close();
});

await check("without script", async (problems) => {
  const plain = await context({ javaScriptEnabled: false });
  const page = await plain.newPage();
  watch(page, problems);
  await signIn(page);
  for (const [path, href] of seen) {
    const answer = await page.goto(href);
    if (answer.status() >= 400 && path !== "/nothing-here") problems.push(`${path}: ${answer.status()}`);
  }
  await page.goto("/security");
  await page.getByLabel("Dark").check();
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("html[data-theme=dark]").waitFor();
  await page.getByLabel("As the system has it").check();
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator("html[data-theme=dark]").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(at("/sign-in"));
  await page.goto("/security");
  if (!new URL(page.url()).pathname.startsWith("/sign-in")) problems.push("the session is still good");
});

await check("a second visit brings only the page", async (problems) => {
  const page = await member.newPage();
  await page.goto("/keys");
  const network = await member.newCDPSession(page);
  const brought = [];
  await network.send("Network.enable");
  network.on("Network.responseReceived", ({ requestId, response }) => brought.push([requestId, response]));
  const kept = new Set();
  network.on("Network.requestServedFromCache", ({ requestId }) => kept.add(requestId));
  await page.goto("/members", { waitUntil: "load" });
  const fresh = brought.filter(([id, r]) => !kept.has(id) && !r.fromDiskCache).map(([, r]) => new URL(r.url).pathname);
  if (fresh.join() !== "/members") problems.push(`it brings ${fresh}`);
  await page.close();
});

const violations = forbidden.violations;
const elsewhere = forbidden.elsewhere;
table.sort((a, b) => b.raw - a.raw);
const kb = (n) => (n / 1024).toFixed(1).padStart(8);
const report = [
  "page                                        requests  HTML,KB   all,KB  gzip,KB",
  ...table.map((r) => r.page.padEnd(44) + String(r.requests).padStart(8) + kb(r.html) + kb(r.raw) + " " + kb(r.gzip)),
  `${table.length} pages: ${violations} violations of the policy, ${elsewhere} requests to other origins`,
];
for (const line of report) console.log("note " + line);
if (process.env.SHOTS) fs.writeFileSync(shots("pages.txt"), report.join("\n") + "\n");

await check("the policy is kept and bites", async (problems) => {
  if (violations || elsewhere) problems.push(`${violations} violations, ${elsewhere} requests to other origins`);
  const page = await member.newPage();
  const found = [];
  watch(page, found);
  await page.goto("/security");
  await page.evaluate(() => {
    document.body.setAttribute("style", "color: red");
    document.body.append(Object.assign(new Image(), { src: "https://other.example/x.png" }));
    const s = document.createElement("script");
    s.append("window.bad = true");
    try {
      document.body.append(s);
    } catch {} // trusted types may throw
  });
  await until("the reports", () => forbidden.violations - violations >= 3).catch((e) => problems.push(e.message));
  if (forbidden.violations - violations < 3 || forbidden.elsewhere !== elsewhere || (await page.evaluate(() => window.bad))) {
    problems.push(`${forbidden.violations - violations} of 3 breaches were reported, ${forbidden.elsewhere - elsewhere} requests left: ${found}`);
  }
  await page.close();
});

console.log(`note ${seen.size} pages: ${[...seen.keys()].join(" ")}`);
await browser.close();
