// Dialogs: something is asked for over the page, until it is given or the dialog is closed.

import { button, field, h } from "./dom.js";
import { T } from "./text.js";

/** Dialogs so far: one may open over another, and each has ids of its own. */
let count = 0;

/**
 * Show fields in a dialog, and act on them once they are submitted; resolve with what `act` returns, or with null where
 * the dialog was closed. What is refused is said below the fields; `wrong` is the input that is at fault, where one is.
 */
export function ask(title, fields, { submit, leave = T.dialog.cancel, act, wrong = null }) {
  return new Promise((resolve) => {
    let made = null;
    const id = `dialog-${(count += 1)}`;
    const problem = h("p", { id: `${id}-problem`, class: "problem", role: "alert", hidden: true });
    const go = h("button", { class: "primary" }, submit);
    const form = h("form", { method: "dialog" }, h("h2", { id: `${id}-title` }, title), fields, problem,
      h("div", { class: "buttons" }, go, button(leave, () => dialog.close())));
    const dialog = h("dialog", { "aria-labelledby": `${id}-title`, on: { close: () => {
      dialog.remove();
      resolve(made);
    } } }, form);
    const refuse = (refused) => {
      problem.hidden = false;
      problem.textContent = `${refused.title ?? T.problems.failed}: ${refused.message}`;
      // A button that is switched off has lost the focus.
      go.disabled = false;
      (wrong ?? go).focus();
      wrong?.setAttribute("aria-invalid", "true");
      wrong?.setAttribute("aria-describedby", problem.id);
      wrong?.select();
    };
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        made = await act();
        dialog.close();
      } catch (refused) {
        refuse(refused);
      }
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Ask for a line of text; resolves with it, or with null. */
export function askForText(label, value) {
  const input = h("input", { type: "text", maxlength: 200, required: true, value });
  return ask(label, [field(label, input)], { submit: T.dialog.ok, act: async () => input.value.trim() });
}

/** Ask whether something is to be removed; resolves with true, or with null. */
export const askToRemove = (question) => ask(question, [], { submit: T.dialog.remove, act: async () => true });
