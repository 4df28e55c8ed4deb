// Puts new contents into a part of a page and changes only what differs: scroll, selection, focus and folds stay.

import { arrange as arrangeQuestions } from "./desk.js";
import { restore } from "./drafts.js";
import { arrangeAll } from "./tabs.js";
import { draw } from "./timeline.js";
import { arrange } from "./tree.js";

const UNITS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

export function tellAges(root) {
  for (const time of root.querySelectorAll("time")) {
    time.dataset.moment ??= time.textContent;
    const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000));
    const [size, unit] = UNITS.find(([least]) => seconds >= least) ?? [1, "second"];
    const number = Math.floor(seconds / size);
    time.textContent = `${number} ${unit}${number === 1 ? "" : "s"} ago`;
    time.title = time.dataset.moment;
  }
}

const kindOf = (node) => `${node.nodeName} ${node.getAttribute?.("class") ?? ""}`;
const keyOf = (node) => node.getAttribute?.("data-key") ?? node.getAttribute?.("id") ?? null;  // `form.id` may be a field

function isSame(old, made) {
  if (old.nodeName === "TIME") return old.dateTime === made.dateTime;
  return old.isEqualNode(made);
}

function change(old, made) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!made.hasAttribute(name) && !(old.nodeName === "DETAILS" && name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  changeChildren(old, made);
}

// Pairs new children with old ones: by their key, else the next one of the same kind.
function paired(old, made) {
  const keyed = new Map([...old.children].map((one) => [keyOf(one), one]));
  const others = [...old.childNodes].filter((one) => keyOf(one) === null);
  let from = 0;
  return [...made.childNodes].map((next) => {
    const key = keyOf(next);
    if (key !== null) return [next, keyed.get(key)?.nodeName === next.nodeName ? keyed.get(key) : null];
    const at = others.findIndex((one, index) => index >= from && kindOf(one) === kindOf(next));
    if (at >= 0) from = at + 1;
    return [next, others[at] ?? null];
  });
}

function changeChildren(old, made) {
  const pairs = paired(old, made);
  const stays = new Set(pairs.map(([, kept]) => kept));
  for (const one of [...old.childNodes]) if (!stays.has(one)) one.remove();
  let at = old.firstChild;  // what stays in its order is not moved: a moved element loses the focus
  for (const [next, kept] of pairs) {
    if (kept === at && kept) at = at.nextSibling;
    else old.insertBefore(kept ?? next, at);
    if (kept && !isSame(kept, next)) change(kept, next);
  }
}

// What scripts add to the page's text: bars in their places, folds, tabs.
export function prepare(root) {
  draw(root);
  arrange(root);
  arrangeAll(root);
  arrangeQuestions(root);
}

export function put(part, html) {
  const made = part.cloneNode(false);
  made.innerHTML = html;
  prepare(made);
  const focused = document.activeElement;
  changeChildren(part, made);
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });  // it was moved
  restore(part);
  tellAges(part);
}

// A change of a text is a list of [first line, number of lines to take away, lines to put there], from the end on.
// A line is its text, an old line's number, or [that number, a place, number of letters to take away, text to put there].
export function changed(text, change) {
  if (typeof change === "string") return change;
  const old = text.split("\n"), lines = [...old];
  for (const [start, number, added] of change) lines.splice(start, number, ...added.map((one) => lineOf(old, one)));
  return lines.join("\n");
}

function lineOf(old, one) {
  if (typeof one === "string") return one;
  if (typeof one === "number") return old[one];
  const [at, place, number, text] = one;
  return old[at].slice(0, place) + text + old[at].slice(place + number);
}
