// Draws the timelines of tasks: the page has seconds, so that a row stays as it is while the run goes on.

const LEAST = 0.2, ROOM = 2.5;  // percent: what can be seen, and what has room for a number

export function draw(root) {
  const table = root.querySelector("table.tasks");
  if (!table) return;
  const span = Number(table.dataset.span) || 1;
  for (const piece of table.querySelectorAll("[data-from]")) {
    const from = Number(piece.dataset.from), to = Number(piece.dataset.to ?? table.dataset.until);
    const width = Math.max((to - from) / span * 100, LEAST);
    piece.setAttribute("x", `${Math.max(Math.min(from / span * 100, 100 - width), 0).toFixed(1)}%`);
    if (piece.nodeName === "text") piece.toggleAttribute("hidden", width < ROOM);
    else piece.setAttribute("width", `${width.toFixed(1)}%`);
  }
}
