// Looks at every page of the console with Chromium. The pages are found by following links from the
// first one, so that a new page is checked by being linked. Each line "ok NAME" or "not ok NAME: why" is one test.
import { budget, launch, look, shots, walk, watch } from "./browser.mjs";

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
while (queue.length && done.size < 80) {
  const href = queue.shift();
  if (done.has(pattern(href))) continue;
  done.add(pattern(href));
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
}

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
