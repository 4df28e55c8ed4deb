// The chosen task of a run's page: loaded when it is opened, named in the address, walked through with the keyboard.

import { put } from "./parts_of_page.js";

const pane = document.getElementById("chosen");
let chosen = "";
let stamp = "";

const rows = () => [...document.querySelectorAll(".tasks tr[data-key]")];
const rowOf = (task) => rows().find((row) => row.dataset.key === task);
const named = () => new URLSearchParams(location.hash.slice(1)).get("task") ?? "";

function mark() {
  for (const row of rows()) {
    if (row.dataset.key === chosen) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }
}

async function load(task, moves) {
  chosen = task;
  mark();
  if (!task) { pane.hidden = true; return; }
  stamp = rowOf(task)?.dataset.stamp ?? "";
  const run = new URLSearchParams(location.search).get("id") ?? document.querySelector("input[name=run]")?.value ?? "";
  const response = await fetch(`/run/task?${new URLSearchParams({ id: run, task, part: 1 })}`);
  if (chosen !== task) return;
  if (response.ok) put(pane, await response.text());
  else pane.textContent = `The task ${task} cannot be shown: ${response.status}.`;
  pane.hidden = false;
  if (moves && pane.getBoundingClientRect().top > innerHeight - 80) pane.scrollIntoView();
}

function choose(task) {
  const now = new URLSearchParams(location.hash.slice(1));
  now.set("task", task);
  history.replaceState(null, "", `#${now}`);
  load(task, true);
}

// After an update of the page: the chosen task is read again if its row has changed and nobody uses its part.
export function refresh() {
  mark();
  const row = rowOf(chosen);
  const used = pane?.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
  if (row && row.dataset.stamp !== stamp && !used) load(chosen, false);
  filter();
}

function filter() {
  const field = document.getElementById("find");
  if (!field) return;
  const words = field.value.toLowerCase().split(/\s+/);
  for (const row of rows()) {
    const text = row.cells[0].textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}

function walk(step) {
  const shown = rows().filter((row) => !row.hidden);
  const at = shown.findIndex((row) => row.dataset.key === chosen);
  const next = shown[Math.min(Math.max(at + step, 0), shown.length - 1)];
  if (!next) return;
  next.querySelector("a[data-task]").focus();
  choose(next.dataset.key);
}

if (pane) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-task]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    choose(link.dataset.task);
  });
  document.addEventListener("input", ({ target }) => { if (target.id === "find") filter(); });
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select, [contenteditable]") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); document.getElementById("find")?.focus(); }
    else if (event.target.closest(".tasks") && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      walk(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "?") document.getElementById("keys")?.togglePopover?.();
  });
  addEventListener("hashchange", () => load(named(), true));
  if (named()) load(named(), false);
}
