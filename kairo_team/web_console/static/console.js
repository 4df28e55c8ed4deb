// Keeps the parts of an open page up to date, and shows how long ago things were. Pages work without it too.

import { changed, prepare, put, tellAges } from "./parts_of_page.js";
import "./search.js";
import { refresh } from "./tasks.js";
import { asked, watch } from "./tree.js";

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

function take(parts) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const change = parts[part.dataset.part];
    if (change === undefined) continue;
    const html = changed(shown.get(part) ?? "", change);
    if (html === shown.get(part)) continue;
    const first = !shown.has(part);
    shown.set(part, html);
    if (first && sameText(loaded.get(part), html)) continue;
    if (isInUse(part)) offer(part, html);
    else put(part, html);
  }
  refresh();
  watch();
}

// The page already contains the parts: the first message mostly brings the same ones. Ages differ by when they were told.
const sameText = (one, other) => wordsOf(one) === wordsOf(other);

function wordsOf(html) {
  const made = document.createElement("div");
  made.innerHTML = html;
  for (const time of made.querySelectorAll("time")) time.textContent = time.dateTime;
  return made.textContent.replace(/\s+/g, " ").trim();
}

const shown = new Map();
let source = null;

function follow(address) {
  const lost = document.getElementById("link-lost");
  source?.close();
  source = new EventSource(address);
  source.onmessage = (message) => take(JSON.parse(message.data));
  source.onopen = () => { lost.hidden = true; };
  source.onerror = () => {
    lost.hidden = false;
    if (source.readyState === EventSource.CLOSED) lost.textContent = "The console refuses this page: open its printed link again.";
  };
}

// A page of a run is sent the tab that is open, and of many tasks those that are looked for or looked at.
function address(page) {
  const tab = document.querySelector("#views > [role=tablist] > [aria-selected=true]")?.dataset.opens;
  return [page.dataset.stream, tab && `tab=${tab}`, listed].filter(Boolean).join("&");
}

let listed = "";
const loaded = new Map([...document.querySelectorAll("[data-part]")].map((part) => [part, part.innerHTML]));
// After an action the page is where it was.
document.addEventListener("submit", ({ target }) => {
  const back = target.elements.back;
  if (back && !back.value.includes("#")) back.value += location.hash;
});
prepare(document);
tellAges(document);
setInterval(() => tellAges(document), AGE_SECONDS * 1000);
const live = document.querySelector("main[data-stream]");
if (live) {
  follow(address(live));
  document.addEventListener("tab", ({ detail }) => { if (detail === "view") follow(address(live)); });
  document.addEventListener("find", () => {
    const wanted = asked(listed);
    if (wanted === listed) return;
    listed = wanted;
    follow(address(live));
  });
  watch();
}
