// Forms of a step's parameters, from what the API tells of its function.

import { choice, field, h } from "./dom.js";
import { T } from "./text.js";

/** Variogram models that fit takes by name; a model with further parameters is written in the JSON. */
export const MODELS = ["exponential", "spherical", "gaussian", "matern", "linear", "power", "nugget"];
const FITS = ["fit", "fit_by_slice"];
const TRENDS = ["", "none", "auto", "profile", "lapse_rate"];

/** What is typed: a number where it is one, else text ("-40 degF"); undefined where nothing is. */
export function typed(text) {
  const bare = text.trim();
  if (!bare) return undefined;
  return Number.isFinite(Number(bare)) ? Number(bare) : bare;
}

const shown = (value) => (value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));

/** JSON where it is some, else the text. */
export function loose(text) {
  const bare = text.trim();
  if (!bare) return undefined;
  try {
    return JSON.parse(bare);
  } catch {
    return bare;
  }
}

export function box(value, on, given = {}) {
  const made = h("input", { type: "text", value: shown(value), autocomplete: "off", spellcheck: "false", ...given });
  made.addEventListener("input", () => on(made.value));
  return made;
}

function variogram(value, set, id) {
  const model = typeof value === "object" && value ? value.model : (value ?? "");
  const held = typeof value === "object" && value ? value : {};
  const pairs = [["", T.builder.choose], ...FITS.map((name) => [name, T.builder.fits[name]]), ...MODELS.map((name) => [name, name])];
  const select = choice(`${id}-variogram`, pairs, (chosen) => {
    if (!chosen) return set(undefined, true);
    const start = { psill: held.psill ?? 1, range_m: held.range_m ?? 500, nugget: held.nugget ?? 0 };
    return set(FITS.includes(chosen) ? chosen : { model: chosen, ...start }, true);
  }, FITS.includes(model) || MODELS.includes(model) ? model : "");
  const numbers = model && !FITS.includes(model)
    ? ["psill", "range_m", "nugget"].map((name) => field(T.builder.variogram[name], box(held[name], (text) => set({ ...held, [name]: (held[name] = typed(text)) }), { inputmode: "decimal" })))
    : [];
  return h("div", { class: "inline" }, field(T.builder.parameter("variogram", "", true), select), ...numbers);
}

/** One parameter; `set(value, anew)` takes what was chosen, undefined takes it away. */
function control(one, value, set, id) {
  const label = T.builder.parameter(one.name, one.unit, one.required);
  const hint = one.summary + (one.default === null || one.default === undefined ? "" : T.builder.default(shown(one.default)));
  switch (one.kind) {
    case "variogram":
      return variogram(value, set, id);
    case "count":
    case "number":
      return field(label, box(value, (text) => set(typed(text)), { inputmode: one.kind === "count" ? "numeric" : "text", required: one.required }), hint);
    case "names":
      return field(label, box(Array.isArray(value) ? value.join(", ") : value, (text) => set(text.trim() ? text.split(",").map((name) => name.trim()).filter(Boolean) : undefined)), hint);
    case "trend":
      return typeof value === "object" && value
        ? field(label, box(value, (text) => set(loose(text))), hint)
        : field(label, choice(undefined, TRENDS.map((name) => [name, name || T.builder.notGiven]), (chosen) => set(chosen || undefined), value ?? ""), hint);
    default:
      return field(label, box(value, (text) => set(text.trim() || undefined), { required: one.required }), hint);
  }
}

/** Fields of all parameters of a function: what must be given and what is given, the others folded away; `id` is the step's. */
export function parameters(row, params, change, id) {
  const put = (name) => (value, anew = false) =>
    change((step) => {
      step.params = { ...step.params };
      if (value === undefined) delete step.params[name];
      else step.params[name] = value;
      if (!Object.keys(step.params).length) delete step.params;
    }, anew);
  const make = (one) => control(one, params?.[one.name], put(one.name), id);
  // A variogram is fitted where none is given, but it is what decides a map by kriging.
  const open = row.parameters.filter((one) => one.required || one.kind === "variogram" || params?.[one.name] !== undefined);
  const folded = row.parameters.filter((one) => !open.includes(one));
  return [
    ...open.map(make),
    folded.length ? h("details", { class: "more" }, h("summary", {}, T.builder.more(folded.length)), folded.map(make)) : null,
  ];
}

