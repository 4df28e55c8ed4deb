// The chosen task of a run's page: loaded when it is opened, named in the address, walked through with the keyboard.

import { put } from "./parts_of_page.js";
import { open, remember } from "./place.js";
import { choose as openTab } from "./tabs.js";
import { rows, show, unfold } from "./tree.js";

const pane = document.getElementById("chosen");
let chosen = "";
let stamp = "";
let place = null;  // where the reader was, before the page went to the chosen task

const rowOf = (task) => rows().find((row) => row.dataset.key === task);
const linkOf = (row) => row?.querySelector("a[data-task]");

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
  const row = rowOf(task);
  if (row?.dataset.of && moves) show(row);
  stamp = row?.dataset.stamp ?? "";
  const run = new URLSearchParams(location.search).get("id") ?? document.querySelector("input[name=run]")?.value ?? "";
  const response = await fetch(`/run/task?${new URLSearchParams({ id: run, task, part: 1 })}`);
  if (chosen !== task) return;
  if (response.ok) put(pane, await response.text());
  else pane.textContent = `The task ${task} cannot be shown: ${response.status}.`;
  pane.hidden = false;
  if (!moves || pane.getBoundingClientRect().top <= innerHeight - 80) return;
  place ??= scrollY;
  pane.scrollIntoView();
}

function choose(task) {
  remember("task", task);
  load(task, true);
}

function leave() {
  const row = rowOf(chosen);
  remember("tab", "");
  choose("");
  if (place !== null) scrollTo(0, place);
  place = null;
  linkOf(row)?.focus();
}

// After an update of the page: the chosen task is read again if its row has changed and nobody uses its part.
export function refresh() {
  mark();
  const row = rowOf(chosen);
  const used = pane?.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
  if (row && row.dataset.stamp !== stamp && !used) load(chosen, false);
}

function walk(step) {
  const shown = rows().filter((row) => !row.hidden);
  const here = document.activeElement?.closest?.("tr")?.dataset.key ?? chosen;
  const at = shown.findIndex((row) => row.dataset.key === here);
  const next = shown[Math.min(Math.max(at + step, 0), shown.length - 1)];
  if (!next) return;
  linkOf(next).focus();
  choose(next.dataset.key);
}

const KEYS = {
  "/": () => document.getElementById("find")?.focus(),
  "?": () => document.getElementById("keys")?.togglePopover?.(),
  Escape: () => { if (chosen && !document.querySelector("[popover]:popover-open")) leave(); },
};
const IN_LIST = {
  ArrowDown: () => walk(1),
  ArrowUp: () => walk(-1),
  ArrowRight: (row) => { if (row.querySelector(".fold")) unfold(row.dataset.key, true); },
  ArrowLeft: (row) => {
    if (row.querySelector(".fold[aria-expanded=true]")) unfold(row.dataset.key, false);
    else linkOf(rowOf(row.dataset.of))?.focus();
  },
};

function press(event) {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.id === "find" && (key === "Enter" || key === "ArrowDown")) {
    event.preventDefault();
    const first = rows().find((row) => !row.hidden);
    if (first) { linkOf(first).focus(); choose(first.dataset.key); }
    return;
  }
  if (target.closest("input, textarea, select, [contenteditable]")) return;
  const row = target.closest(".tasks tr[data-key]");
  const tab = /^[1-9]$/.test(key) && pane.querySelectorAll("[role=tab]")[key - 1];
  const action = (row && IN_LIST[key]) || KEYS[key] || (tab && (() => openTab(tab)));
  if (!action) return;
  if (key !== "Escape") event.preventDefault();
  action(row);
}

if (pane) {
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#leave")) return leave();
    const link = event.target.closest?.("a[data-task]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    choose(link.dataset.task);
  });
  document.addEventListener("keydown", press);
  addEventListener("hashchange", () => load(open("task"), true));
  if (open("task")) load(open("task"), true);
}
