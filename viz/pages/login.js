// Who asks: logging in with an access key, and out again.

import * as api from "./api.js";
import { ask } from "./dialog.js";
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

let isAsking = false;

/** Ask for a key until one opens something, or the form is closed; then call `done`. */
export async function askForKey(done) {
  if (isAsking) return;
  isAsking = true;
  const key = h("input", { type: "password", autocomplete: "current-password", required: true });
  const act = async () => {
    await api.logIn(key.value.trim());
    return true;
  };
  const isIn = await ask(T.login.needed, [h("p", {}, T.login.advice), field(T.login.key, key)], { submit: T.login.logIn, leave: T.login.notNow, act, wrong: key });
  isAsking = false;
  if (isIn) await done();
}
