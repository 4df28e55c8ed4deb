// Keeps the parts of an open page up to date, and shows how long ago things were. Pages work without it too.

import { changed, put, tellAges } from "./parts_of_page.js";
import "./search.js";
import { refresh } from "./tasks.js";

const AGE_SECONDS = 10;

// A part is not changed under the hands of a person who writes in a form of it, or is about to send one.
function isInUse(part) {
  const forms = [...part.querySelectorAll("form[method=post]")];
  const typed = forms.some((form) => [...form.querySelectorAll("textarea, input")].some((one) => one.value !== one.defaultValue));
  return typed || forms.some((form) => form.contains(document.activeElement));
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
    const change = parts[part.dataset.part];
    if (change === undefined) continue;
    const html = changed(shown.get(part) ?? "", change);
    if (html === shown.get(part)) continue;
    const first = !shown.has(part);
    shown.set(part, html);
    if (first && sameText(part, html)) continue;
    if (isInUse(part)) offer(part, html);
    else put(part, html);
  }
  refresh();
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
