// Fills in forms as people do: wrong, twice, and too late; with script and without. What came of
// it is asked of the command line.
import { execFileSync } from "node:child_process";
import { glance, launch, open, shots, watch } from "./browser.mjs";
import { base, check, claim, email, form, heading, password, signIn } from "./site.mjs";

const browser = await launch();
const parley = (...args) => {
  const out = execFileSync(process.env.PARLEY, [...args, "--json", "--data", process.env.DATA], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  return JSON.parse(out);
};
const other = parley("account", "create", "other", "--plan", "free");
const balance = (of) => Number(parley("account", "show", of).balance);
const keys = () => parley("key", "ls", "--account", "default").length;
const code = () => parley("code", "create", "--amount", "5", "--count", "1", "--note", "gift")[0].code;

// Each form with what is wrong with each of its fields, with what is right, and a count that
// goes up by one when it is done once.
const forms = (mode) => [
  {
    name: "create a key", path: "/keys/new", button: "Create key", count: keys,
    wrong: { Name: "night batch", "Requests per minute": "1e3", "Tokens per minute": "999,999,999", Budget: "0", "Allowed networks": "10.0.0.0/8\n300.1.2.3" },
    says: { "Requests per minute": /Enter a whole number/, "Tokens per minute": /The account allows/, Budget: /above 0/, "Allowed networks": /300\.1\.2\.3.+is no network/ },
    right: { Name: `twice ${mode}`, "Requests per minute": "", "Tokens per minute": "", Budget: "", "Allowed networks": "" },
  },
  {
    name: "add credit", path: `/operator/accounts/${other.id}/credit`, button: "Add credit", count: () => balance("other"),
    wrong: { Amount: "1.0000000001", "Last day": "2020-01-31", Note: "for ten calls" },
    says: { Amount: /9 decimals at most/, "Last day": /This day is over/ },
    right: { Amount: "1", "Last day": "", Note: `once ${mode}` },
  },
  {
    name: "adjust credit", path: `/operator/accounts/${other.id}/adjust`, button: "Adjust credit", count: () => balance("other"),
    wrong: { Amount: "--1", Reason: "given too little" },
    says: { Amount: /above 0/ },
    right: { Amount: "1", Reason: `once ${mode}` },
  },
  {
    name: "create an account", path: "/operator/accounts/new", button: "Create account", count: () => parley("account", "ls").length,
    wrong: { Name: "Example Lab", "Credit to begin with": "five" },
    says: { "Credit to begin with": /Enter a number of IU above 0/ },
    right: { Name: `once ${mode}`, "Credit to begin with": "" },
  },
  {
    name: "make a token", path: "/operator/settings", button: "Create token", count: () => parley("operator", "token", "ls").length,
    wrong: { Name: "billing-sync", Lasts: "0" },
    says: { Lasts: /Enter a whole number from 1 to/ },
    right: { Name: `once ${mode}`, Lasts: "30" },
  },
  {
    name: "redeem a code", path: "/billing", button: "Redeem", count: () => balance("default") / 5,
    wrong: { Code: "AAAA-BBBB-CCCC-DDDD-EEEE" },
    says: { Code: /There is no such code/ },
    right: { Code: code() },
  },
  {
    name: "rotate a key", path: `/keys/${parley("key", "create", "--account", "default", "--name", "old " + mode).id}/rotate`, button: `Rotate old ${mode}`, count: keys,
    right: {},
  },
  {
    name: "invite", path: "/members/invite", button: "Make the link", right: { Email: `dora-${mode}@example.test` },
    count: async (page) => {
      const tab = await page.context().newPage();
      await tab.goto("/members");
      const n = await tab.getByRole("button", { name: `the invitation of dora-${mode}@example.test` }).count();
      await tab.close();
      return n;
    },
  },
];

const fill = async (page, fields) => {
  for (const [label, text] of Object.entries(fields)) await page.getByLabel(label, { exact: true }).fill(text);
};

const told = async (page, f, problems) => {
  await page.goto(f.path);
  await form(page, f.wrong, f.button);
  if (!(await page.title()).startsWith("Error: ")) problems.push(`the title is ${await page.title()}`);
  for (const [label, text] of Object.entries(f.wrong)) {
    const field = page.getByLabel(label, { exact: true });
    const kept = await field.inputValue();
    if (kept !== text) problems.push(`${label} has become ${JSON.stringify(kept)}`);
    const invalid = await field.getAttribute("aria-invalid");
    if ((invalid === "true") !== label in (f.says ?? {})) problems.push(`${label}: aria-invalid is ${invalid}`);
  }
  const list = page.getByRole("alert");
  for (const [label, words] of Object.entries(f.says)) {
    const beside = page.locator("#" + (await page.getByLabel(label, { exact: true }).getAttribute("aria-describedby")));
    if (!(await beside.isVisible()) || !words.test(await beside.textContent())) problems.push(`beside ${label} stands ${await beside.textContent()}`);
    await list.getByRole("link", { name: label, exact: true }).waitFor();
  }
  if (!(await list.evaluate((e) => e === document.activeElement))) problems.push("the list of errors has not the focus");
};

// twice sends the form as a double click does, and the same bytes once more.
const twice = async (page, f, problems) => {
  await page.goto(f.path);
  const before = await f.count(page);
  await fill(page, f.right);
  const [sent] = await Promise.all([page.waitForRequest((r) => r.method() === "POST"), page.getByRole("button", { name: f.button, exact: true }).dblclick()]);
  await page.waitForLoadState();
  const again = await page.context().request.post(sent.url(), { data: sent.postData(), headers: { "content-type": "application/x-www-form-urlencoded" }, maxRedirects: 0 });
  if (again.status() >= 500) problems.push(`sent again: ${again.status()}`);
  const more = (await f.count(page)) - before;
  if (more !== 1) problems.push(`sent three times it was done ${more} times`);
};

for (const script of [true, false]) {
  const mode = script ? "with script" : "without script";
  const context = await open(browser, base, { javaScriptEnabled: script });
  const visit = async (problems) => {
    const page = await context.newPage();
    watch(page, problems);
    return page;
  };
  await check(`signed in, ${mode}`, async (problems) => (script ? claim : signIn)(await visit(problems)));
  for (const f of forms(script ? "on" : "off")) {
    await check(`${f.name}, ${mode}`, async (problems) => {
      const page = await visit(problems);
      if (f.says) {
        await told(page, f, problems);
        if (script) await glance(page, problems, shots("wrong-" + f.name.replaceAll(" ", "-")));
      }
      await twice(page, f, problems);
    });
  }

  await check(`a page that is too late, ${mode}`, async (problems) => {
    const page = await visit(problems);
    const key = parley("key", "create", "--account", "default", "--name", "gone");
    await page.goto(`/keys/${key.id}/edit`);
    parley("key", "revoke", key.id);
    await form(page, { Name: "back again" }, "Save changes");
    await page.getByText("has ended").first().waitFor();
    await page.goto(`/keys/${key.id}`);
    await heading(page, "gone");

    const before = keys();
    await page.goto("/keys/new");
    const [tab, ended] = [await page.context().newPage(), await page.context().cookies()];
    await tab.goto("/operator/accounts/" + other.id);
    await form(tab, {}, "Look into");
    await form(page, { Name: "for another account" }, "Create key");
    await heading(page, "Read only");
    await tab.goto("/");
    await tab.locator("summary.acct").click();
    await form(tab, {}, "default");

    await page.goto("/keys/new");
    await tab.goto("/security");
    await form(tab, {}, "Sign out");
    await form(page, { Name: "after the session" }, "Create key");
    await heading(page, "Sign in");
    const late = await page.context().request.get("/keys", { headers: { cookie: "__Host-session=" + ended[0].value }, maxRedirects: 0 });
    if (late.status() !== 303) problems.push(`the session that was ended: ${late.status()}`);
    if (keys() !== before) problems.push(`${keys() - before} keys were made`);
    await form(page, { Email: email, Password: password }, "Sign in");
    await heading(page, "Send it again");
    await form(page, {}, "Send what was typed");
    await heading(page, "after the session is ready");
    if (keys() !== before + 1) problems.push(`${keys() - before} keys were made of one form`);
  });
  await context.close();
}
await check("long names on a narrow page", async (problems) => {
  const context = await open(browser, base, { viewport: { width: 360, height: 780 } });
  const page = await context.newPage();
  await signIn(page);
  const long = "m".repeat(120) + "@" + "d".repeat(100) + ".example.test";
  const key = parley("key", "create", "--account", "default", "--name", "K".repeat(100));
  const { url } = parley("account", "invite", "default", long, "--role", "member");
  await (await open(browser, base)).request.post(new URL(url).pathname, { form: { password } });
  for (const path of ["/members", `/keys/${key.id}/revoke`, `/keys/${key.id}/rotate`]) {
    await page.goto(path);
    if (path === "/members") await page.getByRole("link", { name: long }).click();
    await page.getByRole("heading", { level: 1 }).waitFor();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 0) problems.push(`${path} scrolls sideways by ${wide} px`);
  }
});
await browser.close();
