// The list of tasks: what grew from a map or a loop is folded away and shown again, and words find tasks. Of a long list
// the page has a window of rows, with blank space for the others: what comes into view is asked for.

const folds = new Map();
const WAIT = 300;
const NEAR = 25;  // rows: a window that is nearly where it should be stays
let height = 32;  // of a row, until rows were measured
let from = null;

export const words = () => document.getElementById("find")?.value.trim() ?? "";

const rowsIn = (root) => [...root.querySelectorAll(".tasks tr[data-key]")];
export const rows = () => rowsIn(document);

export function arrange(root) {
  const all = rowsIn(root), wanted = words().toLowerCase().split(/\s+/);
  const byTask = new Map(all.map((row) => [row.dataset.key, row]));
  const folded = (row) => {
    const holder = byTask.get(row.dataset.of);
    if (!holder) return false;
    const fold = holder.querySelector(".fold");
    return (fold && fold.getAttribute("aria-expanded") === "false") || folded(holder);
  };
  for (const row of all) {
    const fold = row.querySelector(".fold");
    if (!fold) continue;
    fold.hidden = false;
    if (folds.has(row.dataset.key)) fold.setAttribute("aria-expanded", String(folds.get(row.dataset.key)));
  }
  for (const space of root.querySelectorAll(".blank svg")) space.setAttribute("height", space.dataset.rows * height);
  for (const row of all) {
    const text = row.cells[0].textContent.toLowerCase();
    row.hidden = wanted[0] ? !wanted.every((word) => text.includes(word)) : folded(row);
  }
}

export function unfold(task, is) {
  folds.set(task, is);
  arrange(document);
  ask();
}

export function show(row) {
  for (let of = row?.dataset.of; of; of = rows().find((one) => one.dataset.key === of)?.dataset.of) folds.set(of, true);
  arrange(document);
}

const ask = () => document.dispatchEvent(new CustomEvent("find"));
const list = () => document.querySelector("table.tasks");
const number = (name) => Number(list()?.dataset[name] ?? 0);

// What the list shall have, in the words of an address; empty as long as the page has all rows.
export function asked(before) {
  if (!before && "whole" in (list()?.dataset ?? {})) return "";
  const opened = [...folds].filter(([, is]) => is).map(([task]) => ["open", task]);
  return new URLSearchParams([["find", words()], ["from", from ?? number("start")], ...opened].filter(([, value]) => value)).toString();
}

// Asks for the rows around the middle of the window. Ended tasks are counted from the end, where their places stay.
function look() {
  const shown = rows().length, total = number("total");
  const middle = (innerHeight / 2 - list().tBodies[0].getBoundingClientRect().top) / height;
  const start = Math.round(Math.min(Math.max(middle - shown / 2, 0), total - shown));
  if (Math.abs(start - number("start")) < NEAR) return;
  from = start < shown ? start : start - total;
  ask();
}

const sight = new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) look(); }, { rootMargin: "50%" });

// After an update: blank space has the height of as many rows, and is watched anew, because it may still be in view.
export function watch() {
  const all = rows();
  if (all.length === number("total")) return;
  const found = (all.at(-1).getBoundingClientRect().bottom - all[0].getBoundingClientRect().top) / all.length;
  if (found > 0 && Math.abs(found - height) > height / 10) {
    height = found;
    arrange(document);
  }
  sight.disconnect();
  for (const space of document.querySelectorAll(".blank svg")) sight.observe(space);
}

let later = 0;
document.addEventListener("click", ({ target }) => {
  const fold = target.closest?.(".fold");
  if (fold) unfold(fold.closest("tr").dataset.key, fold.getAttribute("aria-expanded") === "false");
});
document.addEventListener("input", ({ target }) => {
  if (target.id !== "find") return;
  arrange(document);
  clearTimeout(later);
  later = setTimeout(() => { from = 0; ask(); }, WAIT);
});
