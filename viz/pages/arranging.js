// Where the panels of a board stand: dragged by mouse, and filling a window.

/** Least width of a panel [px], and the proportion of width to height at which pictures are read best. */
const [LEAST_PX, PROPORTION] = [320, 1.5];

/**
 * Let panels be dragged: one takes the place of another that it is dragged over.
 *
 * `on` holds views, which gives those that may be dragged now, place, called with a view and its new number, and end.
 */
export function dragPanels(grid, on) {
  let dragged = null;
  const viewOf = (event) => on.views().find((view) => view.element === event.target.closest?.(".panel"));
  grid.addEventListener("dragstart", (event) => {
    dragged = viewOf(event) ?? null;
    event.dataTransfer?.setData("text/plain", dragged?.panel.id ?? "");
    dragged?.element.classList.add("dragged");
  });
  grid.addEventListener("dragover", (event) => {
    if (!dragged) return;
    event.preventDefault();
    const over = viewOf(event);
    if (over && over !== dragged) on.place(dragged, on.views().indexOf(over));
  });
  grid.addEventListener("drop", (event) => event.preventDefault());
  grid.addEventListener("dragend", () => {
    if (!dragged) return;
    dragged.element.classList.remove("dragged");
    dragged = null;
    on.end();
  });
}

/** Have the panels fill the window, in as many columns as leave each most like a picture; or, as usual, stand below each other. */
export function fillWindow(grid, views, fills) {
  const cells = views.reduce((sum, view) => sum + (view.panel.columns ?? 1), 0);
  grid.classList.toggle("fills", fills && cells > 0);
  if (!fills || !cells) return;
  const most = Math.min(cells, Math.max(1, Math.floor(innerWidth / LEAST_PX)));
  const isOff = (columns) => Math.abs(Math.log(innerWidth / columns / (innerHeight / Math.ceil(cells / columns)) / PROPORTION));
  const offered = Array.from({ length: most }, (_, at) => at + 1);
  const columns = offered.reduce((best, next) => (isOff(next) < isOff(best) ? next : best));
  grid.style.setProperty("--columns", columns);
  grid.style.setProperty("--rows", place(views, columns));
}

/** Give each panel the next place that it fits into, the last of a row what is left of it; return how many rows that takes. */
function place(views, columns) {
  const span = (view, count) => view.element.style.setProperty("--span", count);
  let [rows, used] = [1, 0];
  views.forEach((view, at) => {
    const wanted = Math.min(view.panel.columns ?? 1, columns);
    if (used + wanted > columns) {
      rows += 1;
      used = 0;
    }
    const next = Math.min(views[at + 1]?.panel.columns ?? 1, columns);
    const isLast = at === views.length - 1 || used + wanted + next > columns;
    span(view, isLast ? columns - used : wanted);
    used += wanted;
  });
  return rows;
}
