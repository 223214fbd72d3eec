// Buttons that are held down: a click would be lost with a button that is replaced before it is released.

const ENDS = ["pointerup", "pointercancel", "blur"];
let press = null;

/** Resolves once no button is held down, and its click is over; null where none is. */
export const released = () => press;

document.addEventListener("pointerdown", ({ target, button }) => {
  if (button !== 0 || press || !target.closest?.("a, button, label, summary")) return;
  press = new Promise((resolve) => {
    const end = () => {
      for (const name of ENDS) window.removeEventListener(name, end, true);
      press = null;
      // The click comes after the release, in the same turn.
      setTimeout(resolve);
    };
    for (const name of ENDS) window.addEventListener(name, end, true);
  });
}, true);
