// Keeps typed text in this tab until it is sent: it survives another answer, a reload or a refusal.

const PREFIX = "draft:";
const SENT = "sent";
const FIELDS = "main textarea[id]";

function keyOf(field) {
  return `${PREFIX}${field.form?.elements.run?.value ?? ""}:${field.id}`;
}

export function restore(root) {
  for (const field of root.querySelectorAll(FIELDS)) {
    const draft = sessionStorage.getItem(keyOf(field));
    if (draft !== null && field.value === field.defaultValue) field.value = draft;
  }
}

function forgetSent() {
  const sent = JSON.parse(sessionStorage.getItem(SENT) ?? "[]");
  sessionStorage.removeItem(SENT);
  if (document.querySelector(".done")) for (const key of sent) sessionStorage.removeItem(key);
}

document.addEventListener("input", ({ target }) => {
  if (!target.matches(FIELDS)) return;
  if (target.value) sessionStorage.setItem(keyOf(target), target.value);
  else sessionStorage.removeItem(keyOf(target));
});
document.addEventListener("submit", ({ target, submitter }) => {
  if (submitter?.value === "defer") return;
  sessionStorage.setItem(SENT, JSON.stringify([...target.querySelectorAll(FIELDS)].map(keyOf)));
});
forgetSent();
restore(document);
