"use strict";
// What reports and the console share: buttons that copy a text or a command.
document.documentElement.classList.add("scripted");
document.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("button.copy");
  if (!button) return;
  const around = button.parentElement, from = around.querySelector(".source pre") ?? around.querySelector("pre, code");
  try {
    await navigator.clipboard.writeText(from.textContent);
    button.textContent = "Copied";
  } catch {
    const range = document.createRange();
    range.selectNodeContents(from);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});
