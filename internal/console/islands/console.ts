// What every page has beyond its HTML: copying, the keyboard, and dialogs that are pages of their own
// without script.
document.documentElement.classList.add("js");

const say = (text: string): void => {
  const toast = document.querySelector(".toast");
  if (!toast) return;
  toast.textContent = text;
  setTimeout(() => (toast.textContent = ""), 2500);
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
  const opener = at?.closest<HTMLElement>("[data-dialog]");
  const dialog = opener && document.getElementById(opener.dataset.dialog ?? "");
  if (dialog instanceof HTMLDialogElement) {
    event.preventDefault();
    dialog.showModal();
  }
});

// Single keys never act in fields, and not at all for a member who has turned them off.
const places: Record<string, string> = { k: "/keys", r: "/requests", u: "/usage", b: "/billing", o: "/" };
let going = false;
addEventListener("keydown", (event) => {
  if (!("shortcuts" in document.body.dataset)) return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]")) return;
  if (event.key === "/") {
    const find = document.querySelector<HTMLInputElement>(".find input");
    if (find?.checkVisibility()) {
      event.preventDefault();
      find.focus();
    }
  }
  const place = places[event.key];
  if (going && place && document.querySelector(`.menu a[href="${place}"]`)) location.assign(place);
  going = event.key === "g";
});
