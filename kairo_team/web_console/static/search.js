// Searches the list of runs while a person types, and names the runs that are selected.

const WAIT = 300;
const field = document.getElementById("q");
let later = 0;
field?.addEventListener("input", () => {
  clearTimeout(later);
  later = setTimeout(() => {
    const asked = new URLSearchParams(location.search);
    asked.delete("page");
    asked.delete("done");
    asked.set("q", field.value);
    const at = field.selectionStart;
    sessionStorage.setItem("search", JSON.stringify([field.value, at]));
    location.replace(`/?${asked}`);
  }, WAIT);
});
const kept = sessionStorage.getItem("search");
sessionStorage.removeItem("search");
if (field && kept && JSON.parse(kept)[0] === field.value) {
  field.focus();
  field.setSelectionRange(JSON.parse(kept)[1], JSON.parse(kept)[1]);
}

const named = document.querySelector("[data-selected]");
document.addEventListener("change", ({ target }) => {
  if (!named || !target.closest(".select")) return;
  named.textContent = [...document.querySelectorAll(".select :checked")].map((one) => one.name.slice("run ".length)).join(", ");
});
