// Who asks: logging in with an access key, and out again.

import * as api from "./api.js";
import { button, field, h, part } from "./dom.js";
import { T } from "./text.js";

const SCOPES = ["read", "operate", "query", "write", "admin"];

/** Who asks, as the server told last: name, scope (null: may do nothing), by, access_control. */
let told = { scope: "admin", access_control: false };

/** Whether what needs a scope would be answered. */
export const may = (scope) => SCOPES.indexOf(told.scope) >= SCOPES.indexOf(scope);

/** Whether the server takes imports of files from whoever asks. */
export const mayImport = () => told.imports === true && may("write");

/** Ask who asks, and say it in the head of the page; return whether anything may be read. */
export async function whoAsks(actions) {
  told = await api.look("session");
  say(actions);
  return told.scope !== null;
}

function say({ logIn, logOut }) {
  const isIn = told.by === "session";
  part("session").replaceChildren(...(told.access_control
    ? [isIn ? h("span", { id: "who" }, T.login.who(told.name, told.scope)) : null, button(isIn ? T.login.logOut : T.login.logIn, isIn ? logOut : logIn, { id: isIn ? "log-out" : "log-in" })].filter(Boolean)
    : []));
}

/** Ask for a key until one opens something, or the form is closed; then call `done`. */
export function askForKey(done) {
  if (part("login")) return;
  const problem = h("p", { id: "login-problem", class: "problem", role: "alert", hidden: true });
  const key = h("input", { type: "password", autocomplete: "current-password", required: true });
  const go = h("button", { class: "primary" }, T.login.logIn);
  const form = h("form", { method: "dialog" }, h("h2", { id: "login-title" }, T.login.needed), h("p", {}, T.login.advice), field(T.login.key, key), problem,
    h("div", { class: "buttons" }, go, button(T.login.notNow, () => dialog.close())));
  const dialog = h("dialog", { id: "login", "aria-labelledby": "login-title", on: { close: () => dialog.remove() } }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await api.logIn(key.value.trim());
      dialog.close();
      await done();
    } catch (refused) {
      problem.hidden = false;
      problem.textContent = `${refused.title}: ${refused.message}`;
      key.setAttribute("aria-invalid", "true");
      key.setAttribute("aria-describedby", problem.id);
      key.select();
    } finally {
      go.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
}
