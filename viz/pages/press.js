// Buttons that are held down: a click is lost with a button that is replaced before it is released.

const ENDS = ["pointerup", "pointercancel", "keyup", "contextmenu", "dragend", "blur"];
/** A finger's click comes with the tap, in a later task than its release [ms]. */
const TAP_MS = 50;
/** A press of which no end is told holds nothing for longer [ms]. */
const LONGEST_MS = 10_000;
let press = null;

/** The promise that the button that is held down is released, and its click over; null where none is. */
export const whenReleased = () => press;

function begin({ target, pointerId, pointerType = "mouse" }) {
  if (press || !target.closest?.("a, button, label, summary")) return;
  press = new Promise((resolve) => {
    const end = (event) => {
      // Other elements that lose the focus, and other fingers, are no end of it.
      if (event?.type === "blur" && event.target !== window) return;
      if (event?.type.startsWith("pointer") && event.pointerId !== pointerId) return;
      for (const name of ENDS) window.removeEventListener(name, end, true);
      clearTimeout(timer);
      press = null;
      // A mouse's click comes after the release, in the same task.
      setTimeout(resolve, pointerType === "mouse" ? 0 : TAP_MS);
    };
    const timer = setTimeout(end, LONGEST_MS);
    for (const name of ENDS) window.addEventListener(name, end, true);
  });
}

document.addEventListener("pointerdown", (event) => event.button === 0 && begin(event), true);
// Buttons are clicked when the space bar is released.
document.addEventListener("keydown", (event) => event.key === " " && begin(event), true);
