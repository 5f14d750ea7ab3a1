// What every page has beyond its HTML: copying, the keyboard, lists that follow what happens, and
// dialogs that are pages of their own without script.
document.documentElement.classList.add("js");

const say = (text: string): void => {
  const toast = document.querySelector(".toast");
  if (!toast) return;
  toast.textContent = text;
  setTimeout(() => (toast.textContent = ""), 2500);
};

// read asks for a page of this console. What it has is data: no script of it runs.
const read = (path: string): Promise<Document> =>
  new Promise((resolve, reject) => {
    const r = new XMLHttpRequest();
    r.open("GET", path);
    r.responseType = "document";
    r.onload = () => {
      const same = new URL(r.responseURL).pathname === new URL(path, location.href).pathname; // else it asks to sign in, or for a proof
      if (r.status === 200 && same && r.responseXML) resolve(r.responseXML);
      else reject(new Error(String(r.status)));
    };
    r.onerror = () => reject(new Error("no answer"));
    r.send();
  });

// ask opens the question that a page asks, as a dialog.
const ask = async (link: HTMLAnchorElement): Promise<void> => {
  const part = (await read(link.href)).querySelector("[data-confirm]");
  if (!part) throw new Error("no question");
  const dialog = document.createElement("dialog");
  dialog.append(document.importNode(part, true));
  const title = dialog.querySelector("h1, h2");
  if (title) {
    const head = document.createElement("h2");
    head.id = "dialog-title";
    head.textContent = title.textContent;
    title.replaceWith(head);
    dialog.setAttribute("aria-labelledby", head.id);
  }
  show(dialog, link);
};

// show opens a dialog; what had the focus has it again after.
const show = (dialog: HTMLDialogElement, before: HTMLElement): void => {
  dialog.addEventListener("close", () => {
    dialog.remove();
    before.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
};

addEventListener("click", async (event) => {
  const at = event.target instanceof Element ? event.target : null;
  const copy = at?.closest<HTMLElement>("[data-copy]");
  if (copy) {
    const text = document.getElementById(copy.dataset.copy ?? "")?.textContent?.trim() ?? "";
    try {
      await navigator.clipboard.writeText(text);
      say("Copied");
    } catch {
      say("Your browser blocked the clipboard. Select the text and copy it.");
    }
  }
  const link = at?.closest<HTMLAnchorElement>("a[data-dialog]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    ask(link).catch(() => location.assign(link.href));
  }
  const dialog = at?.closest("[data-close]")?.closest("dialog");
  if (dialog) {
    event.preventDefault();
    dialog.close();
  }
});

// A form is sent once: a second click would take the place of the answer that is under way, and
// that answer may have the only copy of a session or a secret.
const sent = new Map<EventTarget, number>();
addEventListener("pageshow", () => sent.clear());
addEventListener("submit", (event) => {
  const form = event.target;
  if (!(form instanceof HTMLFormElement) || form.method !== "post" || event.defaultPrevented) return;
  if (event.timeStamp - (sent.get(form) ?? -Infinity) < 5000) event.preventDefault();
  else sent.set(form, event.timeStamp);
});

// Following reads the page again every two seconds and puts its live part in the place of what is
// there. It stops when somebody begins to work with that part, and waits while nobody looks.
const follow = document.querySelector<HTMLInputElement>("input[data-follow]");
const live = document.querySelector<HTMLElement>("[data-live]");
if (follow?.parentElement && live) {
  follow.parentElement.hidden = false;
  document.querySelector("[data-refresh]")?.remove();
  const said = document.querySelector("[data-said]");
  const ids = (at: Element): string[] => [...at.querySelectorAll("tbody th a.row")].map((a) => a.getAttribute("href") ?? "");
  let timer = 0;
  const stop = (why: string): void => {
    clearTimeout(timer);
    if (follow.checked && said) said.textContent = why;
    follow.checked = false;
  };
  const turn = async (): Promise<void> => {
    if (!document.hidden) {
      const next = (await read(location.href)).querySelector("[data-live]");
      if (!next || !follow.checked) return;
      const had = new Set(ids(live));
      const fresh = ids(next).filter((id) => !had.has(id)).length;
      live.replaceChildren(...document.importNode(next, true).childNodes);
      if (fresh && said) said.textContent = `${fresh} new ${fresh === 1 ? "call" : "calls"}`;
    }
    if (follow.checked) timer = setTimeout(run, 2000);
  };
  const run = (): void => void turn().catch(() => stop("The page could not be read again, so it is not followed any more."));
  follow.addEventListener("change", () => (follow.checked ? run() : clearTimeout(timer)));
  for (const kind of ["pointerdown", "keydown", "focusin"]) live.addEventListener(kind, () => stop("Not followed any more."));
}

// Single keys never act in fields, and not at all for a member who has turned them off.
const places: Record<string, string> = { o: "/", k: "/keys", r: "/requests", u: "/usage", b: "/billing" };
const entry = (place: string): HTMLElement | null => document.querySelector(`.menu a[href="${place}"]`);
const find = (): HTMLInputElement | null => document.querySelector(".find input");
let going = false;

// list says what the keys do on this page, in the words of its menu.
const list = (): void => {
  const rows: [string, string][] = find()?.checkVisibility() ? [["/", "Find"]] : [];
  for (const [key, place] of Object.entries(places)) {
    const name = entry(place)?.textContent?.trim();
    if (name) rows.push([`g ${key}`, name]);
  }
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "dialog-title");
  const make = (tag: string, text: string, into: Element = dialog): HTMLElement => {
    const e = document.createElement(tag);
    e.textContent = text;
    into.append(e);
    return e;
  };
  make("h2", "Keyboard shortcuts").id = "dialog-title";
  const table = make("dl", "");
  table.className = "kv";
  for (const [key, name] of [...rows, ["?", "This list"]]) {
    make("kbd", key ?? "", make("dt", "", table));
    make("dd", name ?? "", table);
  }
  make("p", "They can be turned off under Security.").className = "small quiet";
  const acts = make("p", "");
  acts.className = "acts";
  const close = make("button", "Close", acts);
  close.className = "btn";
  close.dataset.close = "";
  show(dialog, document.activeElement instanceof HTMLElement ? document.activeElement : document.body);
};

addEventListener("keydown", (event) => {
  if (!("shortcuts" in document.body.dataset)) return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable], dialog")) return;
  if (event.key === "?") list();
  if (event.key === "/") {
    const input = find();
    if (input?.checkVisibility()) {
      event.preventDefault();
      input.focus();
    }
  }
  const place = places[event.key];
  if (going && place && entry(place)) location.assign(place);
  going = event.key === "g";
});
