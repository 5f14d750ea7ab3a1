// Takes the token from behind the # of the address, where no server sees it, into its field, and off
// the address, where history would keep it.
const field = document.getElementById("f-token");
if (field instanceof HTMLInputElement && location.hash.length > 1) {
  field.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  document.getElementById("f-email")?.focus();
}
