// Goes through the doors of the console: every way to sign in and what bars the others.
import { glance, launch, open, shots, watch } from "./browser.mjs";
import { at, base, check, claim, email, form, hand, heading, oneTime, password, signIn } from "./site.mjs";

const browser = await launch();
const visitor = async (problems, more) => {
  const page = await (await open(browser, base, more)).newPage();
  watch(page, problems);
  return page;
};
const session = async (page) => (await page.context().cookies())[0]?.value;

let owner;
await check("the link of the first start", async (problems) => {
  owner = await visitor(problems);
  await claim(owner);
  await heading(owner, "Overview");
  for (const path of ["/members/invite", "/operator"]) if ((await owner.goto(path)).status() !== 200) problems.push(`who claims may not open ${path}`);
  const late = await visitor(problems);
  await late.goto(process.env.CLAIM);
  await form(late, { Email: "mallory@example.test", Password: password }, "Claim");
  await late.getByText("This link was used on").waitFor();
});

await check("the link, pasted without script", async (problems) => {
  const page = await visitor(problems, { javaScriptEnabled: false });
  await page.goto(process.env.CLAIM);
  const field = page.locator("#f-token");
  if (!(await field.isVisible())) problems.push("there is no field to paste the token into");
  await field.fill(process.env.CLAIM.split("#")[1]);
  await form(page, { Email: "mallory@example.test", Password: password }, "Claim");
  await page.getByText("This link was used on").waitFor();
});

for (const script of [true, false]) {
  await check(`a wrong password, ${script ? "with" : "without"} script`, async (problems) => {
    const page = await visitor(problems, { javaScriptEnabled: script });
    await page.goto("/members");
    const said = [];
    for (const who of [email, `nobody${script}@example.test`]) {
      await form(page, { Email: who, Password: "wrong wrong wrong" }, "Sign in");
      if ((await page.getByLabel("Email").inputValue()) !== who || (await page.getByLabel("Password").inputValue())) problems.push("the email is lost or the password kept");
      said.push((await page.locator("main").textContent()).replace(who, ""));
    }
    if (said[0] !== said[1] || !said[0].includes("Email or password is wrong.")) problems.push(`the answers are ${said}`);
    await form(page, { Email: email, Password: password }, "Sign in");
    await page.waitForURL(at("/members")); // where it was going
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL(at("/sign-in"));
  });
}

await check("a second click while the answer is under way", async (problems) => {
  const page = await visitor(problems);
  await signIn(page);
  await page.goto("/prove?next=/keys/new");
  await page.getByLabel("Password", { exact: true }).fill(password);
  let [sent, click] = [0, undefined];
  const clicked = new Promise((done) => (click = done));
  await page.route(at("/prove"), async (route) => {
    sent++;
    await clicked;
    await route.continue();
  });
  const { x, y } = await page.getByRole("button", { name: "Continue", exact: true }).boundingBox();
  await Promise.all([page.waitForRequest((r) => r.method() === "POST"), page.mouse.click(x + 5, y + 5)]);
  await page.mouse.click(x + 5, y + 5);
  click();
  await heading(page, "Create key");
  if (sent !== 1) problems.push(`the form was sent ${sent} times`);
});

await check("a passkey", async (problems) => {
  const page = await visitor(problems);
  await signIn(page, "/security");
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("WebAuthn.enable");
  await cdp.send("WebAuthn.addVirtualAuthenticator", {
    options: { protocol: "ctap2", transport: "internal", hasResidentKey: true, hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true },
  });
  await page.getByRole("button", { name: "Add a passkey" }).click();
  await page.getByText("The passkey is added.").waitFor();
  await glance(page, problems, shots("security-passkey"));
  await page.goto("/prove?next=/members");
  await glance(page, problems, shots("prove"));
  await page.getByRole("button", { name: "Use a passkey" }).click();
  await page.waitForURL(at("/members"));
  const before = await session(page);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(at("/sign-in"));
  await page.goto("/sign-in?next=/members");
  await page.getByRole("button", { name: "Continue with a passkey" }).click();
  await page.waitForURL(at("/members"));
  if ((await session(page)) === before) problems.push("the token is the same as before");
  await page.goto("/security");
  await page.getByRole("button", { name: "Remove Chrome on Linux" }).click();
  await page.getByText("The passkey is removed.").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(at("/sign-in"));
  await page.getByRole("button", { name: "Continue with a passkey" }).click();
  await page.locator("#passkey-says:not(:empty)").waitFor();
  if (!at("/sign-in")(new URL(page.url()))) problems.push("a passkey that was removed still signs in");
});

const ben = "ben@example.test";
let benPage;
await check("an invitation, once", async (problems) => {
  await owner.goto("/members/invite");
  await form(owner, { Email: ben }, "Make the link");
  const link = (await owner.locator("output").textContent()).trim();
  benPage = await visitor(problems);
  await benPage.goto(link);
  await form(benPage, { Password: "too short" }, "Join default");
  await benPage.getByText("12 to 256 characters").first().waitFor();
  await form(benPage, { Password: password }, "Join default");
  await heading(benPage, "Overview");
  if (!(await benPage.getByText(ben).count())) problems.push("somebody else has joined");
  const late = await visitor(problems);
  await late.goto(link);
  await heading(late, "This link was used");
});

await check("one-time codes and a recovery code", async (problems) => {
  await benPage.goto("/security/codes");
  const secret = async () => (await benPage.locator("#totp").textContent()).replaceAll(" ", "").trim();
  const shared = await secret();
  await form(benPage, { Code: "000000" }, "Turn codes on");
  await benPage.locator(".err").waitFor();
  if ((await secret()) !== shared) problems.push("after a wrong code the secret is another, which no app has");
  await glance(benPage, problems, shots("codes-wrong"));
  const step = () => Math.floor(Date.now() / 30_000);
  await form(benPage, { Code: oneTime(shared, step()) }, "Turn codes on");
  const recovery = (await benPage.locator("#recovery").textContent()).trim().split("\n");
  if (recovery.length !== 10) problems.push(`${recovery.length} recovery codes`);
  await glance(benPage, problems, shots("recovery-codes"));
  await benPage.goto("/security");
  await glance(benPage, problems, shots("security-with-codes"));

  const page = await visitor(problems);
  const half = async () => {
    await page.goto("/sign-in?next=/members");
    await form(page, { Email: ben, Password: password }, "Sign in");
    await page.waitForURL(at("/sign-in/code"));
  };
  await half();
  await page.goto("/members");
  await page.waitForURL(at("/sign-in")); // half a sign-in opens nothing
  await half();
  await glance(page, problems, shots("code"));
  await form(page, { Code: oneTime(shared, step() + 1) }, "Sign in"); // the app's clock is ahead
  await page.waitForURL(at("/members"));
  await page.getByRole("button", { name: "Sign out" }).click();
  for (const good of [true, false]) {
    await half();
    await hand(page).link("Use a recovery code");
    await page.getByLabel("Recovery code").waitFor();
    await form(page, { "Recovery code": recovery[3] }, "Sign in");
    if (at("/members")(new URL(page.url())) !== good) problems.push(`a recovery code ${good ? "does not let in" : "lets in twice"}: ${page.url()}`);
    if (good) await page.getByRole("button", { name: "Sign out" }).click();
  }
  await glance(page, problems, shots("recovery-used"));
});

await check("signing out ends the session, not only the cookie", async (problems) => {
  const page = await visitor(problems);
  await signIn(page, "/security");
  const cookies = await page.context().cookies();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(at("/sign-in"));
  if ((await page.context().cookies()).length) problems.push("the cookie stays");
  const thief = await fetch(base + "/security", { redirect: "manual", headers: { cookie: "__Host-session=" + cookies[0].value } });
  if (thief.status !== 303) problems.push(`with the old cookie: ${thief.status}`);
  await page.goBack();
  await page.waitForURL((u) => u.pathname.startsWith("/sign-in")); // nothing is left in the history
});

await check("a new password ends other sessions", async (problems) => {
  const [page, other] = [await visitor(problems), await visitor(problems)];
  await signIn(page, "/security");
  await signIn(other, "/security");
  const field = page.locator("#f-password");
  const change = async (text) => {
    await field.fill(text);
    await page.getByRole("button", { name: "Change password" }).click();
  };
  await change("short");
  await page.getByText("Enter 12 to 256 characters.").first().waitFor();
  if (await field.inputValue()) problems.push("the page repeats a password");
  await glance(page, problems, shots("password-wrong"));
  await change(password);
  await page.locator(".note.ok").waitFor();
  await other.goto("/security");
  await other.waitForURL(at("/sign-in"));
});

await check("another site", async (problems) => {
  await owner.route("http://evil.localhost/", (route) =>
    route.fulfill({ contentType: "text/html", body: `<form method="post" action="${base}/sign-out"><button>Win</button></form>` }),
  );
  await owner.context().clearCookies();
  await signIn(owner, "/security");
  await owner.goto("http://evil.localhost/").catch(() => {});
  const [answer] = await Promise.all([owner.waitForResponse((r) => r.url() === `${base}/sign-out`), owner.getByRole("button").click()]);
  if (answer.status() !== 403) problems.push(`a form of another site got ${answer.status()}`);
  await heading(owner, "Sent by another site");
  await owner.goto(`${base}/security`);
  if (new URL(owner.url()).pathname !== "/security") problems.push("it has signed the member out");
});

// Last, because everybody here is of one network.
await check("guessing is slowed down", async (problems) => {
  const page = await visitor(problems);
  await page.goto("/sign-in");
  // A slow machine may need more than six: the wait doubles with each.
  const told = page.getByText(/Too many tries\. Try again at \d\d:\d\d:\d\d UTC\./);
  for (let n = 0; n < 6 || (n < 12 && !(await told.count())); n++) await form(page, { Email: "victim@example.test", Password: "wrong wrong wrong" }, "Sign in");
  await told.waitFor();
  await glance(page, problems, shots("sign-in-throttled"));
});
await browser.close();
