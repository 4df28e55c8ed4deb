// Shows the parts of a group one at a time: `data-tabs` names the group, and its parts are named by `data-tab`.

import { open, remember } from "./place.js";

const panelsOf = (group) => [...group.children].filter((one) => one.dataset.tab);
const headingOf = (panel) => panel.querySelector("h2, h3, h4");
const labelOf = (panel) => panel.dataset.title ?? headingOf(panel).textContent;
const listOf = (group) => [...group.children].find((one) => one.matches("[role=tablist]"));

function button(group, panel, number) {
  const made = document.createElement("button");
  made.type = "button";
  made.id = `${group.id}-tab-${panel.dataset.tab}`;
  panel.id ||= `${group.id}-${panel.dataset.tab}`;
  for (const [name, value] of Object.entries({ role: "tab", "aria-controls": panel.id, "data-opens": panel.dataset.tab })) made.setAttribute(name, value);
  made.textContent = labelOf(panel);
  made.title = `key ${number}`;
  return made;
}

function arrange(group) {
  const panels = panelsOf(group).filter(headingOf);  // what has no heading is empty
  const wanted = open(group.dataset.tabs);
  const shown = panels.find((one) => one.dataset.tab === wanted) ?? panels[0];
  let list = listOf(group);
  if (!list) {
    list = document.createElement("div");
    list.setAttribute("role", "tablist");
    list.setAttribute("aria-label", group.getAttribute("aria-label"));
    group.prepend(list);
  }
  const names = panels.map((one) => `${one.dataset.tab} ${labelOf(one)}`).join("\n");
  if (list.dataset.names !== names) {
    const focused = document.activeElement?.id;
    list.replaceChildren(...panels.map((one, index) => button(group, one, index + 1)));
    list.dataset.names = names;
    if (focused && list.querySelector(`[id="${focused}"]`)) list.querySelector(`[id="${focused}"]`).focus();
  }
  group.classList.add("tabbed");
  for (const panel of panelsOf(group)) {
    panel.hidden = panel !== shown;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", `${group.id}-tab-${panel.dataset.tab}`);
  }
  for (const tab of list.children) {
    const is = tab.dataset.opens === shown?.dataset.tab;
    tab.setAttribute("aria-selected", String(is));
    tab.tabIndex = is ? 0 : -1;
  }
}

export function arrangeAll(root) {
  for (const group of root.querySelectorAll("[data-tabs]")) arrange(group);
}

export function choose(tab) {
  const group = tab.closest("[data-tabs]");
  remember(group.dataset.tabs, tab.dataset.opens);
  arrangeAll(document);
  document.dispatchEvent(new CustomEvent("tab", { detail: group.dataset.tabs }));
}

document.addEventListener("click", ({ target }) => {
  const tab = target.closest?.("[role=tab]");
  if (tab) choose(tab);
});
document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.("[role=tab]");
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!tab || !step) return;
  event.preventDefault();
  const all = [...tab.parentElement.children];
  const next = all[(all.indexOf(tab) + step + all.length) % all.length];
  next.focus();
  choose(next);
});
