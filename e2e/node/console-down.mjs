// What the console says when its database does not answer. The server that it is run against has none.
import { glance, launch, open, shots } from "./browser.mjs";
import { base, check, heading } from "./site.mjs";

const browser = await launch();
const context = await open(browser, base, { extraHTTPHeaders: { cookie: "__Host-session=" + process.env.SESSION } });

await check("the database is down", async (problems) => {
  const page = await context.newPage();
  const answer = await page.goto("/keys");
  if (answer.status() !== 503) problems.push(`${answer.status()}, want 503`);
  await heading(page, "The database cannot be read");
  if (!(await page.getByText(answer.headers()["x-request-id"]).count())) problems.push("there is no id to quote");
  await glance(page, problems, shots("database-down"));
});
await browser.close();
