// Looks at every page of the console with Chromium. The pages are found by following links from the
// first one, so that a new page is checked by being linked. Each line "ok NAME" or "not ok NAME: why" is one test.
import crypto from "node:crypto";
import { budget, glance, launch, look, shots, walk, watch } from "./browser.mjs";

const base = new URL(process.env.CLAIM).origin;
const email = "ada@example.test";
const password = "correct horse battery";

const browser = await launch();
const check = async (name, test) => {
  const problems = [];
  try {
    await test(problems);
  } catch (e) {
    problems.push(e.message.split("\n")[0]);
  }
  console.log(problems.length ? `not ok ${name}: ${[...new Set(problems)].slice(0, 8).join("; ")}` : `ok ${name}`);
};
const context = async (more = {}) => browser.newContext({ baseURL: base, viewport: { width: 1280, height: 860 }, ...more });

// pattern is a page's address without what differs from one thing to the next.
const pattern = (href) => {
  const path = new URL(href).pathname.replace(/\/(?:[a-z]+_[0-9a-z]{16,}|chatcmpl-[0-9A-Za-z]+|svc-[a-z]+)(?=\/|$)/g, "/{id}");
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
};
const fileName = (path) => (path === "/" ? "overview" : path.slice(1).replace(/[{}]/g, "").replaceAll("/", "-"));

const links = (page) => page.evaluate(() => [...document.querySelectorAll("a[href]")].map((a) => a.href));

const signIn = async (page) => {
  await page.goto("/sign-in");
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.waitForURL((u) => !u.pathname.startsWith("/sign-in"));
};

const member = await context();
const first = await member.newPage();
await check("claim", async (problems) => {
  watch(first, problems);
  await first.goto(process.env.CLAIM);
  if (new URL(first.url()).hash) problems.push("the token stays in the address");
  await look(first, problems, shots("claim"));
  await walk(first, problems);
  await first.getByLabel("Email").fill(email);
  await first.getByLabel("Password").fill(password);
  await first.getByRole("button", { name: "Claim" }).click();
  await first.waitForURL((u) => !u.pathname.startsWith("/claim"));
  const [cookie, ...more] = await member.cookies();
  if (cookie?.name !== "__Host-session" || !cookie.secure || !cookie.httpOnly || cookie.sameSite !== "Lax" || more.length) {
    problems.push(`the cookies are ${JSON.stringify([cookie, ...more])}`);
  }
});

await check("claim twice", async (problems) => {
  const page = await (await context()).newPage();
  await page.goto(process.env.CLAIM);
  await page.getByLabel("Email").fill("mallory@example.test");
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Claim" }).click();
  if (!(await page.getByText("This link was used").count())) problems.push("a used link does not say so");
  await look(page, problems, shots("claim-used"));
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

// Signed in: everything that the first page leads to.
const seen = new Map([["/", base + "/"]]);
const queue = ["/nothing-here", "/"].map((p) => base + p);
const done = new Set();
const visit = async (href) => {
  const page = await member.newPage();
  const problems = [];
  watch(page, problems);
  const answer = await page.goto(href).catch(() => null); // a download is no page
  const landed = pattern(page.url());
  if (answer?.headers()["content-type"]?.startsWith("text/html") && (landed === pattern(href) || !done.has(landed))) {
    done.add(landed);
    seen.set(landed, page.url());
    await check(`page ${landed}`, async (found) => {
      if (answer.headers()["cache-control"] !== "no-store") found.push("it may be cached");
      if ((await page.locator("h1").count()) !== 1) found.push("it has not one h1");
      for (const next of await links(page)) {
        if (new URL(next).origin === base && !done.has(pattern(next))) queue.push(next);
      }
      await look(page, found, shots(fileName(landed)));
      await walk(page, found);
      await budget(member, page.url(), found);
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

// form fills in fields by their labels and presses a button.
const form = async (page, fields, button) => {
  for (const [label, text] of Object.entries(fields)) await page.getByLabel(label, { exact: true }).fill(text);
  await page.getByRole("button", { name: button, exact: true }).click();
  await page.waitForLoadState();
};

await check("a wrong password", async (problems) => {
  const page = await (await context()).newPage();
  watch(page, problems);
  await page.goto("/sign-in");
  await form(page, { Email: email, Password: "wrong wrong wrong" }, "Sign in");
  if (!(await page.title()).startsWith("Error:")) problems.push(`the title is ${await page.title()}`);
  await glance(page, problems, shots("sign-in-wrong"));
});

await check("plain HTTP", async (problems) => {
  const page = await (await context()).newPage();
  const answer = await page.goto(`http://plain.example:${new URL(base).port}/sign-in`);
  if (answer.status() !== 403 || !(await page.getByText("ssh -L").count())) problems.push(`${answer.status()} and no word of what to do`);
  await glance(page, problems, shots("plain-http"));
});

await check("an invitation", async (problems) => {
  const page = await member.newPage();
  watch(page, problems);
  await page.goto("/members/invite");
  await form(page, { Email: "ben@example.test" }, "Make the link");
  const link = (await page.locator("output").textContent()).trim();
  await glance(page, problems, shots("invited"));
  const guest = await (await context()).newPage();
  watch(guest, problems);
  await guest.goto(link);
  await glance(guest, problems, shots("join"));
  await form(guest, { Password: password }, "Join default");
  await guest.goto("/members");
  if (!(await guest.getByText("ben@example.test").count())) problems.push("the new member is not in the list");
  await glance(guest, problems, shots("members-of-a-member"));
  await guest.goto("/members/invite");
  await glance(guest, problems, shots("forbidden"));
  await page.goto("/members");
  await page.getByRole("link", { name: "ben@example.test" }).click();
  await glance(page, problems, shots("member-other"));
});

await check("an operator looks into another account", async (problems) => {
  const page = await member.newPage();
  watch(page, problems);
  await page.goto("/members");
  const looks = (to) => page.evaluate((to) => fetch("/switch", { method: "POST", body: new URLSearchParams({ to }) }).then((r) => r.status), to);
  await looks(process.env.OTHER);
  await page.goto("/members");
  if (!(await page.getByText("as operator. Read only.").count())) problems.push("there is no banner");
  await glance(page, problems, shots("operator-looks"));
  await page.locator("summary.acct").click();
  await glance(page, problems, shots("switcher"));
  await page.getByRole("button", { name: "default" }).click();
  await page.waitForLoadState();
  await page.goto("/members");
  if (await page.getByText("as operator. Read only.").count()) problems.push("the banner stays");
  await page.close();
});

await check("a passkey", async (problems) => {
  const own = await context();
  const page = await own.newPage();
  watch(page, problems);
  await signIn(page);
  const cdp = await own.newCDPSession(page);
  await cdp.send("WebAuthn.enable");
  await cdp.send("WebAuthn.addVirtualAuthenticator", {
    options: { protocol: "ctap2", transport: "internal", hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true },
  });
  await page.goto("/security");
  await page.getByRole("button", { name: "Add a passkey" }).click();
  await page.getByText("The passkey is added.").waitFor();
  await glance(page, problems, shots("security-passkey"));
  await page.goto("/prove?next=/members");
  await page.getByRole("button", { name: "Use a passkey" }).click();
  await page.waitForURL((u) => u.pathname === "/members");
  const before = (await own.cookies())[0].value;
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL((u) => u.pathname === "/sign-in");
  await page.goto("/sign-in?next=/members");
  await page.getByRole("button", { name: "Continue with a passkey" }).click();
  await page.waitForURL((u) => u.pathname === "/members");
  if ((await own.cookies())[0].value === before) problems.push("the token is the same as before");
  await page.goto("/security");
  await page.getByRole("button", { name: "Remove Chrome on Linux" }).click();
  await page.getByText("The passkey is removed.").waitFor();
});

// An authenticator app: RFC 6238.
const oneTime = (secret, step) => {
  const bits = [...secret].map((c) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(c).toString(2).padStart(5, "0")).join("");
  const key = Buffer.from(bits.match(/.{8}/g).map((b) => parseInt(b, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const sum = crypto.createHmac("sha1", key).update(counter).digest();
  return String((sum.readUInt32BE(sum[19] & 15) & 0x7fffffff) % 1_000_000).padStart(6, "0");
};

await check("one-time codes", async (problems) => {
  const page = await (await context()).newPage();
  watch(page, problems);
  await page.goto("/sign-in");
  await form(page, { Email: "ben@example.test", Password: password }, "Sign in");
  await page.goto("/security/codes");
  const secret = (await page.locator("#totp").textContent()).replaceAll(" ", "").trim();
  const step = Math.floor(Date.now() / 30_000);
  await form(page, { Code: oneTime(secret, step) }, "Turn codes on");
  const recovery = (await page.locator("#recovery").textContent()).trim().split("\n");
  if (recovery.length !== 10) problems.push(`${recovery.length} recovery codes`);
  await glance(page, problems, shots("recovery-codes"));
  await page.goto("/security");
  await glance(page, problems, shots("security-with-codes"));
  const again = await (await context()).newPage();
  await again.goto("/sign-in?next=/members");
  await form(again, { Email: "ben@example.test", Password: password }, "Sign in");
  await glance(again, problems, shots("code"));
  await form(again, { Code: oneTime(secret, step + 1) }, "Sign in"); // the app's clock is ahead
  if (new URL(again.url()).pathname !== "/members") problems.push(`the code leads to ${again.url()}`);
});

await check("menu on a phone", async (problems) => {
  const page = await member.newPage();
  await page.setViewportSize({ width: 390, height: 800 });
  await page.goto("/security");
  await page.getByRole("button", { name: "Menu" }).click();
  await page.screenshot({ path: `${shots("menu")}.390.light.png` });
  if (!(await page.locator(".side:popover-open").count())) problems.push("it does not open");
  await page.keyboard.press("Escape");
  if (await page.locator(".side:popover-open").count()) problems.push("Escape does not close it");
  await page.close();
});

await check("without script", async (problems) => {
  const plain = await context({ javaScriptEnabled: false });
  const page = await plain.newPage();
  await signIn(page);
  for (const [path, href] of seen) {
    const answer = await page.goto(href);
    if (answer.status() >= 400 && path !== "/nothing-here") problems.push(`${path}: ${answer.status()}`);
  }
  await page.goto("/security");
  await page.getByLabel("Dark").check();
  await page.getByRole("button", { name: "Save" }).click();
  if ((await page.locator("html").getAttribute("data-theme")) !== "dark") problems.push("the theme was not kept");
  await page.getByLabel("As the system has it").check();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  if (new URL(page.url()).pathname !== "/sign-in") problems.push(`signing out leads to ${page.url()}`);
  await page.goto("/security");
  if (!new URL(page.url()).pathname.startsWith("/sign-in")) problems.push("the session is still good");
});

await check("another site", async (problems) => {
  const page = await member.newPage();
  await page.route("http://evil.localhost/", (route) =>
    route.fulfill({ contentType: "text/html", body: `<form method="post" action="${base}/sign-out"><button>Win</button></form>` }),
  );
  await page.goto("http://evil.localhost/");
  const [answer] = await Promise.all([page.waitForResponse((r) => r.url() === `${base}/sign-out`), page.getByRole("button").click()]);
  if (answer.status() !== 403) problems.push(`a form of another site got ${answer.status()}`);
  await page.goto(`${base}/security`);
  if (new URL(page.url()).pathname !== "/security") problems.push("it has signed the member out");
  await page.close();
});

console.log(`note ${seen.size} pages: ${[...seen.keys()].join(" ")}`);
await browser.close();
