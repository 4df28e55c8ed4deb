// The questions, one at a time beside their list: walked through and answered with the keyboard.

import { open, remember } from "./place.js";
import { choose as openTab } from "./tabs.js";

const ANSWERS = { a: "button.approve", r: "textarea", j: "button.reject", d: "button.defer" };

let at = 0;  // the place of the open question: when it is answered, the next one is there

const cards = (root) => [...root.querySelectorAll("[data-desk] > article, article[id^='q-']")].filter((one) => (one.parentElement ?? root).matches("[data-desk]"));
const idOf = (card) => card.id.slice("q-".length);
const shown = () => cards(document).find((one) => !one.hidden);

export function arrange(root) {
  const all = cards(root);
  const wanted = open("question") || document.querySelector("[data-desk]")?.dataset.current;
  const found = all.findIndex((one) => idOf(one) === wanted);
  if (all.length) at = found >= 0 ? found : Math.min(at, all.length - 1);
  all.forEach((one, index) => { one.hidden = index !== at; });
  document.querySelector("[data-desk]")?.classList.add("arranged");
  const current = (shown() ?? all[at])?.id.slice("q-".length);
  for (const link of root.querySelectorAll("a[data-question]")) {
    if (link.dataset.question === current) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

function choose(id) {
  remember("question", id);
  arrange(document);
}

function walk(step) {
  const all = cards(document);
  const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  if (!next) return;
  choose(idOf(next));
  next.querySelector("h2").tabIndex = -1;
  next.querySelector("h2").focus();
}

function press(event) {
  const { key, target } = event;
  const card = shown();
  if (target.matches("textarea") && key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    target.form.requestSubmit(target.form.querySelector("button.revise"));
  }
  if (target.closest("input, textarea, select, [role=tab]") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (key === "?") return document.getElementById("keys").togglePopover?.();
  if (key === "ArrowDown" || key === "ArrowUp") {
    if (target.closest("pre, .diff, .rich")) return;  // it scrolls
    event.preventDefault();
    return walk(key === "ArrowDown" ? 1 : -1);
  }
  const tab = /^[1-9]$/.test(key) && card?.querySelectorAll("[role=tab]")[key - 1];
  if (tab) return openTab(tab);
  const place = ANSWERS[key] && card?.querySelector(ANSWERS[key]);
  if (!place) return;
  event.preventDefault();
  place.focus();
}

if (document.querySelector("[data-desk]")) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-question]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    choose(link.dataset.question);
  });
  document.addEventListener("submit", ({ target }) => {
    const card = target.closest("article");
    if (!card || !target.elements.question) return;
    const all = cards(document);
    const next = all[all.indexOf(card) + 1] ?? all[0];
    if (next !== card) target.elements.back.value = `/questions#${new URLSearchParams({ question: idOf(next) })}`;
  });
  document.addEventListener("keydown", press);
  addEventListener("hashchange", () => arrange(document));
}
