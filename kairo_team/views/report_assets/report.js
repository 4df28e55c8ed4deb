// Rows are in the page, or packed in `#rows` as lists by name: [html, state, words, tokens, dollars, seconds].
const unpack = async (packed) => {
  const bytes = Uint8Array.from(atob(packed), (one) => one.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
};
const make = (list, html) => { const box = document.createElement(list.tagName); box.innerHTML = html; return box.firstElementChild; };
const lists = [];
const show = (list, data) => {
  const name = list.dataset.list, part = (what) => document.querySelector(`[data-${what}="${name}"]`);
  const rows = data.map(([html, state, words, ...sums], at) => ({ html, state, words, sums, at }));
  const words = part("filter"), state = part("state"), order = part("order"), more = part("more"), count = part("count"), tools = part("tools");
  let shown = 100;
  const draw = () => {
    const asked = words ? words.value.toLowerCase() : "", only = state ? state.value : "", by = order ? order.value : "";
    const found = rows.filter((row) => (!only || row.state === only) && (!asked || row.words.includes(asked)));
    if (by) found.sort((a, b) => b.sums[by] - a.sums[by] || a.at - b.at);
    list.replaceChildren(...found.slice(0, shown).map((row) => (row.element ||= make(list, row.html))));
    if (count) count.textContent = `${Math.min(shown, found.length).toLocaleString("en")} of ${found.length.toLocaleString("en")} shown`;
    if (more) more.hidden = shown >= found.length;
  };
  for (const one of [words, state, order]) if (one) one.addEventListener("input", () => { shown = 100; draw(); });
  if (more) more.addEventListener("click", () => { shown += 100; draw(); });
  if (tools) tools.hidden = false;
  if (!more) shown = rows.length;
  draw();
  const first = Number(list.dataset.first);
  lists.push((number) => {
    const row = rows[number - first];
    if (!row || !words) return;
    words.value = row.words;
    state.value = "";
    draw();
  });
};
const follow = () => {
  const id = decodeURIComponent(location.hash.slice(1)), at = () => id && document.getElementById(id);
  if (!at() && id.startsWith("task-")) for (const find of lists) find(Number(id.slice(5)));
  const one = at();
  if (one && one.tagName === "DETAILS") one.open = true;
  if (one) one.scrollIntoView();
};
unpack(document.getElementById("rows").textContent).then((data) => {
  for (const list of document.querySelectorAll("[data-list]")) if (data[list.dataset.list]) show(list, data[list.dataset.list]);
  addEventListener("hashchange", follow);
  follow();
}).catch(() => { for (const one of document.querySelectorAll("[data-failed]")) one.hidden = false; });
// Paper has every task with its findings and its output; prompts and changes only where they were opened.
let closed = [];
addEventListener("beforeprint", () => { closed = [...document.querySelectorAll("details.task:not([open])")]; for (const one of closed) one.open = true; });
addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
