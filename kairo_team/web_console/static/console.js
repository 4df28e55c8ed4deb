// Keeps the parts of an open page up to date, and shows how long ago things were. Pages work without it too.

import { restore } from "./drafts.js";

const UNITS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
const AGE_SECONDS = 10;

function tellAges(root) {
  for (const time of root.querySelectorAll("time")) {
    time.dataset.moment ??= time.textContent;
    const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000));
    const [size, unit] = UNITS.find(([least]) => seconds >= least) ?? [1, "second"];
    const number = Math.floor(seconds / size);
    time.textContent = `${number} ${unit}${number === 1 ? "" : "s"} ago`;
    time.title = time.dataset.moment;
  }
}

// A part with typed text or the focus is not replaced.
function isInUse(part) {
  const typed = [...part.querySelectorAll("textarea, input")].some((one) => one.value !== one.defaultValue);
  return typed || part.contains(document.activeElement);
}

function put(part, html) {
  const opened = new Map([...part.querySelectorAll("details[id]")].map((one) => [one.id, one.open]));
  part.innerHTML = html;
  for (const one of part.querySelectorAll("details[id]")) one.open = opened.get(one.id) ?? one.open;
  restore(part);
  tellAges(part);
}

function offer(part, html) {
  const notice = part.previousElementSibling?.matches(".news") ? part.previousElementSibling : document.createElement("p");
  notice.className = "news";
  notice.setAttribute("role", "status");
  notice.textContent = "This part has changed meanwhile. ";
  const button = document.createElement("button");
  button.className = "plain";
  button.textContent = "Show it";
  button.onclick = () => {
    put(part, html);
    notice.remove();
    part.tabIndex = -1;
    part.focus();
  };
  notice.append(button);
  part.before(notice);
}

function take(parts, shown) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const html = parts[part.dataset.part];
    if (html === undefined || html === shown.get(part)) continue;
    const first = !shown.has(part);
    shown.set(part, html);
    if (first && sameText(part, html)) continue;
    if (isInUse(part)) offer(part, html);
    else put(part, html);
  }
}

// The page already contains the parts: the first message mostly brings the same ones. Ages differ by when they were told.
function sameText(part, html) {
  const made = document.createElement("div");
  made.innerHTML = html;
  return words(made) === words(part);
}

function words(root) {
  const copy = root.cloneNode(true);
  for (const time of copy.querySelectorAll("time")) time.textContent = time.dateTime;
  return copy.textContent.replace(/\s+/g, " ").trim();
}

function follow(address) {
  const lost = document.getElementById("link-lost");
  const shown = new Map();
  const source = new EventSource(address);
  source.onmessage = (message) => take(JSON.parse(message.data), shown);
  source.onopen = () => { lost.hidden = true; };
  source.onerror = () => {
    lost.hidden = false;
    if (source.readyState === EventSource.CLOSED) lost.textContent = "The console refuses this page: open its printed link again.";
  };
}

tellAges(document);
setInterval(() => tellAges(document), AGE_SECONDS * 1000);
const live = document.querySelector("main[data-stream]");
if (live) follow(live.dataset.stream);
