// A swipe: two pictures of one extent over each other, and what moves the edge between them.

import { field, h } from "./dom.js";
import { T } from "./text.js";

const MIDDLE = 50;
const bounded = (share) => Math.max(0, Math.min(100, share));

/** The divider over the pictures, and the same as a range for the keyboard. */
export class Swipe {
  constructor(together) {
    this.together = together;
    this.input = h("input", { id: "swipe", type: "range", min: 0, max: 100, step: 1, value: MIDDLE, on: { input: () => this.move(Number(this.input.value)) } });
    this.element = h("div", { id: "swipe-part", class: "slider", hidden: true }, field(T.looking.swipe, this.input));
    this.divider = h("div", { class: "divider", hidden: true, "aria-hidden": true });
    this.divider.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      this.divider.setPointerCapture(event.pointerId);
    });
    this.divider.addEventListener("pointermove", (event) => {
      if (!this.divider.hasPointerCapture(event.pointerId)) return;
      const { left, width } = this.together.querySelector(".pane-first").getBoundingClientRect();
      this.move(bounded((100 * (event.clientX - left)) / width));
    });
    together.append(this.divider);
    this.move(MIDDLE);
  }

  /** Show the second picture right of a share of the width [%]. */
  move(share) {
    this.input.value = share;
    this.input.setAttribute("aria-valuetext", T.looking.swipeWords(Math.round(share)));
    this.together.style.setProperty("--swipe", `${share}%`);
  }

  set isOn(isOn) {
    this.element.hidden = this.divider.hidden = !isOn;
    this.together.classList.toggle("swipe", isOn);
  }
}
