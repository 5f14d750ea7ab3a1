// A browser for the checks of the console, and what is checked on every page.
import { chromium } from "playwright-core";
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";

const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const every = { type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] };
const rules = (...values) => ({ type: "rule", values });

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM, timeout: 180_000,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP plain.example 127.0.0.1"],
  });

// counts of what no page may ever do, over everything that was opened.
export const forbidden = { violations: 0, elsewhere: 0 };

// open makes a context: a browser of somebody who has never been here.
export const open = async (browser, base, more = {}) => {
  const context = await browser.newContext({ baseURL: base, viewport: { width: 1280, height: 860 }, ...more });
  context.setDefaultTimeout(120_000);
  await context.addInitScript(() =>
    document.addEventListener("securitypolicyviolation", (e) => console.debug(`Content Security Policy: ${e.violatedDirective} ${e.blockedURI}`)),
  );
  return context;
};

// watch collects what a page must never say or do: policy reports, errors of scripts, answers of
// 500, requests to anybody else.
export const watch = (page, problems) => {
  page.on("console", (m) => {
    if (!/Content Security Policy|TrustedHTML|Refused to/.test(m.text())) return;
    forbidden.violations++;
    problems.push(`policy: ${m.text().slice(0, 160)}`);
  });
  const sent = (r) => {
    if (r.url().startsWith(process.env.BASE) || r.url().startsWith("http://plain.example:")) return;
    forbidden.elsewhere++;
    problems.push(`a request to ${r.url()}`);
  };
  page.on("requestfinished", sent);
  page.on("requestfailed", (r) => r.failure()?.errorText === "csp" || sent(r)); // what the policy stops is not sent
  page.on("pageerror", (e) => problems.push(`script: ${e.message}`));
  page.on("response", (r) => r.status() >= 500 && problems.push(`${r.status()} of ${r.url()}`));
};

const targets = () =>
  [...document.querySelectorAll("a, button, input, select, summary")]
    .filter((e) => {
      if (!e.checkVisibility() || e.closest("p, li, dd, .small, th, .crumb, .sec-head, .side-foot") || e.matches(".skip, .brand, .vh")) return false;
      const r = e.getBoundingClientRect();
      return r.height > 0 && r.height < 24 && e.type !== "checkbox" && e.type !== "radio";
    })
    .map((e) => e.textContent.trim() || e.name);

// What is asked of a page, dearest last: colours depend on the theme and on what is shown at a
// width, not on the width itself, and places depend on the width alone. So each is asked once.
const looks = [
  { width: 1280, theme: "light", ask: every, shot: true },
  { width: 1280, theme: "dark", ask: rules("color-contrast") },
  { width: 820, theme: "dark", ask: rules("target-size", "scrollable-region-focusable") },
  { width: 390, theme: "dark", ask: every, shot: true },
  { width: 390, theme: "light", ask: rules("color-contrast") },
  { width: 360, theme: "light", ask: rules("target-size", "scrollable-region-focusable") },
];

// look checks the page at every width, in both themes. glance does the two looks that ask for
// everything, for states of a page that look has seen.
export const look = async (page, problems, shot, glance = false) => {
  await page.evaluate(axe + ";0"); // by the debugger, which the policy does not reach
  for (const { width, theme, ask, shot: keep } of looks) {
    if (glance && !keep) continue;
    await page.setViewportSize({ width, height: width > 500 ? 860 : 800 });
    await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
    const found = await page.evaluate(
      async (runOnly) => {
        const { violations } = await window.axe.run(document, { runOnly, resultTypes: ["violations"] });
        return {
          wide: document.documentElement.scrollWidth - innerWidth,
          violations: violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(" ")).slice(0, 3).join(" | ")} ${v.nodes[0].any?.[0]?.message ?? ""}`),
        };
      },
      ask,
    );
    const small = await page.evaluate(targets);
    const at = `${width} ${theme}`;
    if (found.wide > 0) problems.push(`${at}: scrolls sideways by ${found.wide} px`);
    if (small.length) problems.push(`${at}: targets under 24 px: ${small.join(", ")}`);
    for (const v of found.violations) problems.push(`${at}: ${v}`);
    if (shot && keep) await page.screenshot({ path: `${shot}.${width}.${theme}.png`, fullPage: true });
  }
  await page.setViewportSize({ width: 1280, height: 860 });
  await page.emulateMedia({ colorScheme: null, reducedMotion: null });
};

// still keeps a page from loading itself again while it is looked at.
export const still = (page, path) =>
  page.route((u) => u.pathname === path, async (route) => {
    const answer = await route.fetch();
    const { refresh: _, ...headers } = answer.headers();
    await route.fulfill({ response: answer, headers });
  });

export const glance = (page, problems, shot) => look(page, problems, shot, true);

// note keeps what each element is when it gets the focus, before the next key.
const note = () => {
  window.stops = [];
  document.addEventListener("focusin", ({ target: e }) => {
    const style = getComputedStyle(e);
    const name = e.getAttribute("aria-label") || e.textContent.trim() || e.querySelector("[aria-label]")?.getAttribute("aria-label") || [...(e.labels ?? [])].map((l) => l.textContent).join("") || e.title || "";
    window.stops.push({
      place: [...document.querySelectorAll("*")].indexOf(e),
      what: `${e.tagName.toLowerCase()} ${name.slice(0, 30)}`,
      named: name !== "",
      seen: e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && e.getBoundingClientRect().height > 0,
      ringed: style.outlineStyle !== "none" || getComputedStyle(e, "::after").outlineStyle !== "none" || e.matches(".composer *"),
    });
  });
  document.activeElement?.blur();
  document.body.tabIndex = -1;
  document.body.focus();
  window.stops = [];
};

// walk presses Tab through the page: every stop is visible, named, ringed and in the order of
// the document. The parts of a date are stops without an event of their own.
export const walk = async (page, problems) => {
  await page.setViewportSize({ width: 1280, height: 860 });
  await page.evaluate(note);
  const most = await page.evaluate(() => document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]").length + 6 * document.querySelectorAll("[type=date]").length);
  for (let n = 0; n <= most; n++) {
    await page.keyboard.press("Tab");
    if (n % 16 === 15 && (await page.evaluate(() => window.stops.some((s, i) => i > 0 && s.place < window.stops[i - 1].place)))) break;
  }
  const { stops, missed } = await page.evaluate(() => {
    const reached = new Set(window.stops.map((s) => s.place));
    const all = [...document.querySelectorAll("*")];
    const missed = all.filter((e, i) => e.matches("a[href], button:enabled, input:enabled:not([type=radio], [type=hidden]), select, textarea, summary") && e.checkVisibility({ visibilityProperty: true }) && !reached.has(i));
    return { stops: window.stops, missed: missed.map((e) => e.textContent.trim() || e.name) };
  });
  if (missed.length) problems.push(`Tab does not come to ${missed.join(", ")}`);
  const round = stops.findIndex((s, i) => i > 0 && s.place < stops[i - 1].place);
  for (const [n, s] of (round < 0 ? stops : stops.slice(0, round)).entries()) {
    if (!s.named || !s.seen) problems.push(`stop ${n} (${s.what}) is not ${s.named ? "visible" : "named"}`);
    if (!s.ringed) problems.push(`stop ${n} (${s.what}) has no ring`);
  }
  if (stops.length < 2) problems.push("Tab leads nowhere");
};

// weights are the bytes of each file as a browser gets it, and after gzip; assets are the same
// for all pages, so each is fetched once.
const weights = new Map();
const weigh = async (url) => {
  if (!weights.has(url)) {
    const body = Buffer.from(await (await fetch(url)).arrayBuffer());
    weights.set(url, { raw: body.length, gzip: zlib.gzipSync(body).length });
  }
  return weights.get(url);
};

const KB = 1024;

// weight compares what a first visit to the page transfers with the design's limits.
export const weight = async (page, answer, problems) => {
  const html = await answer.body();
  const assets = await page.evaluate(() => {
    const names = [...performance.getEntriesByType("resource").map((e) => e.name), ...[...document.querySelectorAll("link[rel=icon]")].map((l) => l.href)];
    return [...new Set(names.map((n) => n.split("#")[0]))];
  });
  const sum = { html: html.length, raw: html.length, gzip: zlib.gzipSync(html).length, script: 0, style: 0, requests: 1 + assets.length };
  const own = sum.gzip;
  for (const url of assets) {
    const { raw, gzip } = await weigh(url);
    sum.raw += raw;
    sum.gzip += gzip;
    if (url.endsWith(".js")) sum.script += gzip;
    if (url.endsWith(".css")) sum.style += gzip;
  }
  // 3 KB everywhere, 6 more for passkeys, 15 for the playground.
  const scripts = (page.url().endsWith("/playground") ? 24 : 9) * KB;
  for (const [what, bytes, limit] of [
    ["HTML after gzip", own, 15 * KB],
    ["styles after gzip", sum.style, 10 * KB],
    ["scripts after gzip", sum.script, scripts],
    ["everything after gzip", sum.gzip, 60 * KB],
    ["everything", sum.raw, 150 * KB],
  ]) {
    if (bytes > limit) problems.push(`${what}: ${bytes} bytes, at most ${limit}`);
  }
  if (!sum.style) problems.push("no styles were counted");
  return sum;
};

export const shots = (name) => {
  const dir = process.env.SHOTS;
  if (!dir) return "";
  fs.mkdirSync(dir, { recursive: true });
  return path.join(dir, name);
};
