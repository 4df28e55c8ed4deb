"use strict";
// Each list has all its rows in the page, or the first of them and all as JSON: [html, state, words, tokens, dollars, seconds].
for (const list of document.querySelectorAll("[data-list]")) {
  const name = list.dataset.list, data = document.querySelector(`script[data-for="${name}"]`);
  const make = (html) => { const box = document.createElement(list.tagName); box.innerHTML = html; return box.firstElementChild; };
  const rows = data
    ? JSON.parse(data.textContent).map(([html, state, words, ...sums], at) => ({ html, state, words, sums, at }))
    : [...list.children].map((element, at) => ({
        element, at, state: element.dataset.state, words: element.dataset.words, sums: (element.dataset.sums || "").split(" ").map(Number),
      }));
  const page = data ? 100 : rows.length, part = (what) => document.querySelector(`[data-${what}="${name}"]`);
  const words = part("filter"), state = part("state"), order = part("order"), more = part("more"), count = part("count");
  let shown = page;
  const draw = () => {
    const asked = (words ? words.value : "").toLowerCase(), only = state ? state.value : "", by = order ? order.value : "";
    const found = rows.filter((row) => (!only || row.state === only) && (!asked || row.words.includes(asked)));
    if (by) found.sort((a, b) => b.sums[by] - a.sums[by] || a.at - b.at);
    list.replaceChildren(...found.slice(0, shown).map((row) => (row.element ||= make(row.html))));
    if (count) count.textContent = `${Math.min(shown, found.length).toLocaleString("en")} of ${found.length.toLocaleString("en")} shown`;
    if (more) more.hidden = shown >= found.length;
  };
  for (const one of [words, state, order]) if (one) one.addEventListener("input", () => { shown = page; draw(); });
  if (more) more.addEventListener("click", () => { shown += page; draw(); });
  const tools = part("tools");
  if (tools) tools.hidden = false;
  if (more || tools) draw();
}
let closed = [];
addEventListener("beforeprint", () => { closed = [...document.querySelectorAll("details:not([open])")]; for (const one of closed) one.open = true; });
addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
const follow = () => { const one = location.hash && document.getElementById(location.hash.slice(1)); if (one && one.tagName === "DETAILS") one.open = true; };
addEventListener("hashchange", follow);
follow();
