// The question: forms and JSON of one query, each follows the other.

import * as api from "./api.js";
import { written } from "./code.js";
import { button, choice, field, h, part, tick } from "./dom.js";
import { box, loose, parameters } from "./forms.js";
import { T } from "./text.js";

const OPERATIONS = ["convert", "aggregate", "interpolate", "merge"];
const TIMES = ["10min", "1h", "6h", "1day", "all", "hour_of_day", "day_of_year", "month_of_year"];
const FLAGS = [1, 2, 3, 4];
const DEFAULT_FLAGS = [1, 2];
const WAIT_MS = 400;

/** What a new step begins as; `grid` is that of the region. */
const BEGINNINGS = {
  convert: () => ({ op: "convert", function: "valid_range", params: { low: -40, high: 50 } }),
  aggregate: () => ({ op: "aggregate", function: "mean", time: "1h" }),
  interpolate: (grid) => ({ op: "interpolate", method: "auto", grid }),
  merge: (_, variable) => ({ op: "merge", function: "difference", with: [{ variable, steps: [] }] }),
};

const inTime = (method) => method.endsWith("_in_time");

/** The step that puts values on a map, if there is one. */
export const gridStep = (document) => [...(document.steps ?? [])].reverse().find((step) => step.op === "interpolate" && step.grid);

const isSame = (first, second) => JSON.stringify(first) === JSON.stringify(second);

/** Keys in the order in which people read them. */
function ordered({ variable, snapshot, as_of, select, accept_flags, steps, clip, variance, ...rest }) {
  const known = { variable, snapshot, as_of, select, accept_flags, steps, clip, variance, ...rest };
  return Object.fromEntries(Object.entries(known).filter(([, value]) => value !== undefined));
}

/**
 * A builder of queries.
 *
 * `known` holds functions, variables, snapshots; `defaultGrid` gives the grid of a new interpolation, `attempt` runs what
 * may meet a problem, and shows that; `onChange` is called with each document that can be read, `onAdapted` with the one
 * that was carried over to another variable.
 */
export class Builder {
  constructor(known, { defaultGrid, attempt, onChange, onAdapted }) {
    this.known = known;
    this.attempt = attempt;
    this.defaultGrid = defaultGrid;
    this.onChange = onChange;
    this.onAdapted = onAdapted;
    this.document = { variable: known.variables[0]?.name ?? "", steps: [] };
    this.text = h("textarea", { id: "document", rows: 14, spellcheck: "false", autocomplete: "off", "aria-describedby": "document-hint" });
    this.told = h("p", { id: "document-hint", class: "quiet", "aria-live": "polite" }, T.builder.hint);
    this.steps = h("ol", { id: "steps", class: "steps" });
    this.more = h("div");
    this.text.addEventListener("input", () => {
      clearTimeout(this.pause);
      this.pause = setTimeout(() => this.readText(), WAIT_MS);
    });
    const kind = choice("new-step", OPERATIONS.map((op) => [op, T.builder.operations[op]]), () => {}, "aggregate");
    this.adding = h("div", { class: "inline adding" }, field(T.builder.newStep, kind), button(T.builder.add, () => this.add(kind.value), { id: "add-step" }));
    this.fill();
  }

  /** The document as it stands in the text. */
  read() {
    clearTimeout(this.pause);
    let document;
    try {
      document = JSON.parse(this.text.value);
    } catch (error) {
      throw new api.Problem(T.problems.noJson, T.problems.noJsonAdvice(error.message));
    }
    if (typeof document !== "object" || document === null || Array.isArray(document)) {
      throw new api.Problem(T.problems.noJson, T.problems.noObject);
    }
    this.document = document;
    return document;
  }

  readText() {
    try {
      this.read();
      this.told.textContent = T.builder.hint;
      this.text.removeAttribute("aria-invalid");
      this.fillForms();
      this.onChange(this.document);
    } catch (problem) {
      this.text.setAttribute("aria-invalid", "true");
      this.told.textContent = problem.message;
    }
  }

  set(document) {
    this.document = document;
    this.fill();
    this.onChange(document);
  }

  /** Show a suggested query, and say how it was chosen. */
  suggest({ query, notes }) {
    this.set(query);
    this.told.textContent = [...notes.map((note) => `${note}.`), T.builder.hint].join(" ");
  }

  /** Note that the grid of a query was chosen by the page, so that its cells may become finer. */
  chooseGrid(document) {
    this.chosenGrid = JSON.stringify(gridStep(document)?.grid);
  }

  /** Whether the grid of a query is one that the page chose. */
  hasChosenGrid(document) {
    const grid = gridStep(document)?.grid;
    return Boolean(grid) && JSON.stringify(grid) === this.chosenGrid;
  }

  /** Carry the query over to another variable; where that cannot be, change its name alone. */
  async adapt(variable) {
    // What was typed a moment ago counts.
    let before;
    try {
      before = this.read();
    } catch (problem) {
      this.fillForms();
      throw problem;
    }
    const { value } = this.text;
    this.wanted = variable;
    // What was changed meanwhile is the user's.
    const isCurrent = () => this.wanted === variable && this.text.value === value;
    try {
      const adapted = await api.adapt(before, variable);
      if (!isCurrent()) return;
      // A grid of the user's stays theirs.
      if (this.hasChosenGrid(before) || !isSame(gridStep(before)?.grid, gridStep(adapted.query)?.grid)) this.chooseGrid(adapted.query);
      this.suggest(adapted);
      this.onAdapted(before);
    } catch (problem) {
      if (isCurrent()) this.change((document) => (document.variable = variable));
      throw problem;
    }
  }

  /** Change the document by a form; `anew` draws the forms again. */
  change(act, anew = false) {
    act(this.document);
    this.document = ordered(this.document);
    this.text.value = written(this.document);
    this.text.removeAttribute("aria-invalid");
    this.told.textContent = T.builder.hint;
    if (anew) this.fillForms();
    this.onChange(this.document);
  }

  fill() {
    this.text.value = written(this.document);
    this.fillForms();
  }

  fillForms() {
    const held = document.activeElement?.id;
    this.drawForms();
    // Whoever works with the keyboard goes on where they were.
    if (held && document.activeElement?.id !== held) part(held)?.focus();
  }

  drawForms() {
    const { snapshots } = this.known;
    const given = this.document;
    const steps = Array.isArray(given.steps) ? given.steps : [];
    this.steps.replaceChildren(...steps.map((step, place) => this.step(step, place, steps.length)));
    if (!steps.length) this.steps.append(h("li", { class: "quiet" }, T.builder.noSteps));
    const flags = given.accept_flags ?? DEFAULT_FLAGS;
    const flag = (number) => tick(T.flags[number], h("input", { type: "checkbox", id: `flag-${number}`, checked: flags.includes(number), on: { change: ({ target }) => this.flag(number, target.checked) } }));
    const versions = [["", T.builder.newest], ...snapshots.map((one) => [one.id, `${one.time.replace("T", " ").slice(0, 16)} ${one.message}`.slice(0, 60)])];
    this.more.replaceChildren(
      tick(T.builder.variance, h("input", { type: "checkbox", id: "variance", checked: Boolean(given.variance), on: { change: ({ target }) => this.change((document) => (target.checked ? (document.variance = true) : delete document.variance)) } })),
      h("fieldset", {}, h("legend", {}, T.builder.flags), FLAGS.map(flag)),
      field(T.builder.snapshot, choice("snapshot", named(versions, given.snapshot ?? ""), (id) => this.change((document) => (document.snapshot = id || null)), given.snapshot ?? "")),
    );
  }

  flag(number, wanted) {
    this.change((document) => {
      const flags = new Set(document.accept_flags ?? DEFAULT_FLAGS);
      if (wanted) flags.add(number);
      else flags.delete(number);
      const listed = [...flags].sort();
      if (String(listed) === String(DEFAULT_FLAGS)) delete document.accept_flags;
      else document.accept_flags = listed;
    });
  }

  rows(step) {
    const all = this.known.functions[step.op] ?? [];
    return step.op === "interpolate" ? [...all, { name: "recipe", summary: T.builder.recipe, parameters: [] }] : all;
  }

  /** The card of a step; its select stays while the rest of it changes, so that typing in it goes on. */
  step(step, place, count) {
    const key = step.op === "interpolate" ? "method" : "function";
    const rows = this.rows(step);
    const row = () => rows.find((one) => one.name === step[key]) ?? { name: step[key], summary: "", parameters: [] };
    const change = (act, anew) => this.change((document) => act(document.steps[place]), anew);
    const [head, hint, rest] = [h("div", { class: "step-head" }), h("p", { class: "quiet hint", id: `step-${place}-hint` }), h("div")];
    const fill = () => {
      head.replaceChildren(h("strong", {}, `${place + 1}. ${T.builder.operations[step.op] ?? step.op}`), this.moves(step.op, row().name, place, count));
      hint.textContent = row().summary;
      rest.replaceChildren(...[this.cells(step, change), ...parameters(row(), step.params, change, `step-${place}`)].filter(Boolean));
    };
    const select = choice(`step-${place}-function`, named(rows.map((one) => [one.name, one.name]), step[key]), (name) => {
      change((one) => this.rename(one, key, name, rows));
      fill();
    }, step[key]);
    select.setAttribute("aria-describedby", hint.id);
    fill();
    const card = h("li", { class: "step", data: { op: step.op } }, head, field(T.builder.what[step.op] ?? T.builder.what.convert, select), hint, rest);
    card.addEventListener("keydown", (event) => {
      if (!event.altKey || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
      event.preventDefault();
      this.move(place, place + (event.key === "ArrowUp" ? -1 : 1));
    });
    return card;
  }

  /** Another function: parameters that it knows are kept, and so is where it interpolates. */
  rename(step, key, name, rows) {
    step[key] = name;
    const kept = rows.find((other) => other.name === name).parameters.map((parameter) => parameter.name);
    step.params = Object.fromEntries(Object.entries(step.params ?? {}).filter(([known]) => kept.includes(known)));
    if (!Object.keys(step.params).length) delete step.params;
    if (step.op !== "interpolate") return;
    if (inTime(name)) {
      delete step.grid;
      step.time ??= "10min";
    } else {
      delete step.time;
      step.grid ??= this.defaultGrid();
    }
  }

  moves(op, name, place, count) {
    const words = T.builder.step(place + 1, op, name);
    const act = (what, sign, on, disabled) => button(sign, on, { id: `step-${place}-${what}`, class: "icon", "aria-label": T.builder.acts[what](words), title: T.builder.acts[what](words), disabled });
    return h("span", { class: "icons" },
      act("up", "↑", () => this.move(place, place - 1), place === 0),
      act("down", "↓", () => this.move(place, place + 1), place === count - 1),
      act("remove", "✕", () => this.remove(place), false));
  }

  /** What cells a step gives, by its kind. */
  cells(step, change) {
    if (step.op === "aggregate" || step.time !== undefined) {
      const list = h("datalist", { id: `times-${(this.lists = (this.lists ?? 0) + 1)}` }, TIMES.map((time) => h("option", { value: time })));
      const others = ["lon", "lat", "x", "y", "z", "zones"].filter((name) => step[name] !== undefined);
      const set = (text) => change((one) => {
        const value = loose(text);
        if (value === undefined) delete one.time;
        else one.time = value;
      });
      return h("div", {}, field(T.builder.time, box(step.time, set, { list: list.id }), T.builder.timeHint), list,
        others.length ? h("p", { class: "quiet" }, T.builder.others(others.join(", "))) : null);
    }
    if (step.op === "interpolate") return h("p", { class: "quiet" }, T.builder.grid(JSON.stringify(step.grid ?? {}).replaceAll('"', "").replaceAll(",", ", ")));
    if (step.op === "merge") {
      const text = h("textarea", { rows: 3, spellcheck: "false", class: "small" }, JSON.stringify(step.with ?? []));
      text.addEventListener("input", () => {
        const value = loose(text.value);
        const fits = Array.isArray(value);
        text.toggleAttribute("aria-invalid", !fits);
        if (fits) change((one) => (one.with = value));
      });
      return field(T.builder.with, text, T.builder.withHint);
    }
    return null;
  }

  add(op) {
    this.change((document) => (document.steps = [...(document.steps ?? []), BEGINNINGS[op](this.defaultGrid(), document.variable)]), true);
    part(`step-${this.document.steps.length - 1}-function`).focus();
  }

  remove(place) {
    this.change((document) => document.steps.splice(place, 1), true);
    // The focus stays near, for whoever removes several with the keyboard.
    (part(`step-${Math.min(place, this.document.steps.length - 1)}-remove`) ?? part("add-step")).focus();
  }

  move(from, to) {
    if (to < 0 || to >= this.document.steps.length) return;
    this.change(({ steps }) => steps.splice(to, 0, ...steps.splice(from, 1)), true);
    const wanted = part(`step-${to}-${to < from ? "up" : "down"}`);
    (wanted.disabled ? part(`step-${to}-function`) : wanted).focus();
  }
}

/** Pairs of a select, with what the document says where the server does not list it. */
const named = (pairs, value) => (value === undefined || pairs.some(([key]) => key === value) ? pairs : [...pairs, [value, T.builder.unlisted(value)]]);
