// Passkeys: asks the server for a challenge, the browser for its signature, and the server what follows.
// The buttons are hidden where there is no script.

type Json = Parameters<typeof PublicKeyCredential.parseRequestOptionsFromJSON>[0] & Parameters<typeof PublicKeyCredential.parseCreationOptionsFromJSON>[0];

const post = async (path: string, body: Record<string, string>): Promise<Response> =>
  fetch(path, { method: "POST", body: new URLSearchParams(body) });

const say = (text: string): void => {
  const place = document.getElementById("passkey-says");
  if (place) place.textContent = text;
};

const run = async (button: HTMLElement): Promise<void> => {
  const { begin = "", finish = "", next = "/" } = button.dataset;
  const asked = await post(begin, {});
  if (asked.redirected) return location.assign(asked.url);
  const options = (await asked.json()) as Json & { error?: string };
  if (!asked.ok) return say(options.error ?? "Passkeys cannot be used now.");
  const credential = begin.endsWith("/add")
    ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) })
    : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
  const answer = await post(finish, { response: JSON.stringify(credential), next });
  const told = (await answer.json()) as { next?: string; error?: string };
  if (told.next && answer.ok) {
    const again = document.querySelector<HTMLInputElement>("input[name=again]"); // a form that waits for the proof
    if (!again?.form) return location.assign(told.next);
    again.form.action = again.value;
    return again.form.submit();
  }
  say(told.error ?? "The passkey was not accepted.");
};

for (const button of document.querySelectorAll<HTMLElement>("[data-begin]")) {
  if (typeof PublicKeyCredential === "undefined" || !("parseRequestOptionsFromJSON" in PublicKeyCredential)) {
    button.hidden = true;
    continue;
  }
  button.addEventListener("click", () => {
    say("");
    run(button).catch((e: unknown) => {
      // Leaving the browser's own window is no failure that it must be told of.
      say(e instanceof DOMException && e.name === "NotAllowedError" ? "No passkey was used." : "The passkey could not be used. Try again, or use your password.");
    });
  });
}
