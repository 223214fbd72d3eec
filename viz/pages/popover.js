// A part that opens below its name, over what is there.

import { h } from "./dom.js";

/** A part with a name and a value on its button; it closes by Escape, and by a press or the focus elsewhere. */
export function popover(id, name, ...content) {
  const value = h("span", { class: "value" });
  const made = h("details", { id, class: "popover" }, h("summary", { id: `${id}-button` }, h("span", {}, name), value), h("div", { class: "over" }, ...content));
  made.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !made.open) return;
    event.stopPropagation();
    made.open = false;
    made.querySelector("summary").focus();
  });
  made.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget && !made.contains(relatedTarget)) made.open = false;
  });
  document.addEventListener("pointerdown", (event) => {
    if (made.open && !made.contains(event.target)) made.open = false;
  });
  return { element: made, say: (text) => (value.textContent = text) };
}
