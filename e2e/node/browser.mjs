// A browser for the checks of the console, and what is checked on every page.
import { chromium } from "playwright-core";
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";

const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

export const widths = [1280, 820, 390, 360];
export const themes = ["light", "dark"];

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP plain.example 127.0.0.1"],
  });

// watch collects what a page must never say: policy reports, errors of scripts, answers of 500.
export const watch = (page, problems) => {
  page.on("console", (m) => /Content Security Policy|TrustedHTML|Refused to/.test(m.text()) && problems.push(`policy: ${m.text().slice(0, 160)}`));
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

// look checks the page as it is at every width in both themes. Everything that axe knows is asked
// at one wide and one narrow; what depends on colours and places at all. glance does half of it,
// for states of a page that look has seen.
export const look = async (page, problems, shot, glance = false) => {
  for (const width of widths) {
    for (const theme of themes) {
      if (glance && (width === 820 || width === (theme === "light" ? 390 : 360))) continue;
      await page.setViewportSize({ width, height: width > 500 ? 860 : 800 });
      await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
      const at = `${width} ${theme}`;
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) problems.push(`${at}: scrolls sideways by ${wide} px`);
      const small = await page.evaluate(targets);
      if (small.length) problems.push(`${at}: targets under 24 px: ${small.join(", ")}`);
      if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe + ";0"); // by the debugger, which the policy does not reach
      const all = (width === 1280 && theme === "light") || (width === 390 && theme === "dark");
      const only = all ? { type: "tag", values: rules } : { type: "rule", values: ["color-contrast", "target-size", "scrollable-region-focusable"] };
      const { violations } = await page.evaluate((runOnly) => window.axe.run(document, { runOnly, resultTypes: ["violations"] }), only);
      for (const v of violations) problems.push(`${at}: ${v.id}: ${v.nodes.map((n) => n.target.join(" ")).slice(0, 3).join(" | ")} ${v.nodes[0].any?.[0]?.message ?? ""}`);
      if (shot && all) await page.screenshot({ path: `${shot}.${width}.${theme}.png`, fullPage: true });
    }
  }
  await page.setViewportSize({ width: 1280, height: 860 });
};

export const glance = (page, problems, shot) => look(page, problems, shot, true);

// walk presses Tab through the page: every stop is visible, named, ringed and in the order of the document.
export const walk = async (page, problems) => {
  await page.setViewportSize({ width: 1280, height: 860 });
  await page.evaluate(() => {
    document.activeElement?.blur();
    document.body.tabIndex = -1;
    document.body.focus();
  });
  let before = 0;
  for (let n = 0; n < 200; n++) {
    await page.keyboard.press("Tab");
    const stop = await page.evaluate(() => {
      const e = document.activeElement;
      if (!e || e === document.body) return null;
      const style = getComputedStyle(e);
      const after = getComputedStyle(e, "::after");
      const name = e.getAttribute("aria-label") || e.textContent.trim() || e.querySelector("[aria-label]")?.getAttribute("aria-label") || [...(e.labels ?? [])].map((l) => l.textContent).join("") || e.title || "";
      return {
        place: [...document.querySelectorAll("*")].indexOf(e),
        what: `${e.tagName.toLowerCase()} ${name.slice(0, 30)}`,
        named: name !== "",
        seen: e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && e.getBoundingClientRect().height > 0,
        ringed: style.outlineStyle !== "none" || after.outlineStyle !== "none" || e.matches(".composer *"),
        date: e.type === "date",
      };
    });
    if (!stop || stop.place < before) return n;
    if (!stop.named || !stop.seen) problems.push(`stop ${n} (${stop.what}) is not ${stop.named ? "visible" : "named"}`);
    if (!stop.ringed) problems.push(`stop ${n} (${stop.what}) has no ring`);
    if (!stop.date && stop.place === before) return n;
    before = stop.place;
  }
  problems.push("Tab does not come to an end");
};

// budget compares what a page transfers with the design's limits, in bytes after gzip.
export const budget = async (context, url, problems) => {
  const page = await context.newPage();
  const sizes = { document: 0, stylesheet: 0, script: 0, image: 0 };
  const reads = [];
  page.on("response", (r) => {
    const kind = r.request().resourceType();
    reads.push(
      r.body().then(
        (body) => (sizes[kind in sizes ? kind : "image"] += zlib.gzipSync(body).length),
        () => {}, // a redirect has none
      ),
    );
  });
  await page.goto(url, { waitUntil: "networkidle" });
  await Promise.all(reads);
  const playground = url.endsWith("/playground") ? 15 : 0;
  const limits = { document: 15, stylesheet: 10, script: 3 + 6 + playground };
  for (const [kind, limit] of Object.entries(limits)) {
    if (sizes[kind] > limit * 1024) problems.push(`${kind}: ${sizes[kind]} bytes, at most ${limit} KB`);
  }
  const sum = Object.values(sizes).reduce((a, b) => a + b, 0);
  if (sum > 60 * 1024) problems.push(`${sum} bytes in all, at most 60 KB`);
  // The second visit brings nothing but the page: what is immutable is asked for once.
  const again = [];
  page.on("request", (r) => again.push(r));
  await page.reload({ waitUntil: "networkidle" }).catch(() => {});
  await page.close();
  return again.length;
};

export const shots = (name) => {
  const dir = process.env.SHOTS;
  if (!dir) return "";
  fs.mkdirSync(dir, { recursive: true });
  return path.join(dir, name);
};
