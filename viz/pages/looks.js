// How an answer is looked at: view, time, level, cell, what is beside it. It knows neither questions nor pictures.

import { button, choice, field, h, number, tick } from "./dom.js";
import { T } from "./text.js";
import { longName } from "./variables.js";
import { FitForm } from "./variogram.js";

const FILM_MS = 400;
export const VIEWS = { map: ["map", "lines", "heat", "histogram", "variogram"], series: ["lines", "heat", "histogram", "variogram"] };
const ESTIMATED = ["veil", "same", "hidden"];

/** Sliders of a map, and what each of their places is in words; a slider without two places is not shown. */
const SLIDERS = {
  time: (surface) => surface.times,
  level: (surface) => (surface.z ?? []).map((height) => `${number(height)} m`),
};

/** The controls. `on` holds change (draw again), beside (another question may be needed), estimated, note (the address). */
export class Looks {
  constructor({ variables, snapshots, saved }, on) {
    this.on = on;
    this.view = "";
    this.picked = null;
    this.clicked = false;
    const beside = [["", T.answer.nothing], ["deviation", T.answer.deviation], ...variables.map((one) => [`variable:${one.name}`, T.answer.besideVariable(longName(variables, one.name))]),
      ...Object.keys(saved).map((name) => [`saved:${name}`, T.answer.besideSaved(name)]), ...snapshots.map((one) => [`snapshot:${one.id}`, T.answer.besideSnapshot(one.time, one.message)])];
    this.beside = choice("beside", beside, () => on.beside(), "");
    this.difference = h("input", { id: "difference", type: "checkbox", on: { change: () => on.beside() } });
    this.estimated = choice("estimated", ESTIMATED.map((name) => [name, T.answer.estimated[name]]), () => on.estimated(), "veil");
    this.views = h("fieldset", { id: "views", class: "controls", hidden: true });
    this.sliders = Object.fromEntries(Object.keys(SLIDERS).map((name) => [name, this.slider(name)]));
    this.play = button(T.answer.play, () => this.film(), { id: "play", "aria-pressed": "false" });
    this.sliders.time.part.append(this.play);
    this.place = this.pickFields();
    this.fit = new FitForm(() => {
      on.note();
      on.change();
    });
    this.above = h("div", { class: "inline looks" }, this.views, field(T.answer.beside, this.beside), tick(T.answer.difference, this.difference));
    this.mapControls = h("div", { id: "map-controls", class: "controls", hidden: true }, this.sliders.time.part, this.sliders.level.part, field(T.answer.estimatedCells, this.estimated));
  }

  get time() {
    return Number(this.sliders.time.input.value);
  }

  get level() {
    return Number(this.sliders.level.input.value);
  }

  get comparable() {
    return Boolean(this.beside.value) && this.beside.value !== "deviation";
  }

  slider(name) {
    const input = h("input", { id: name, type: "range", min: 0, max: 0, value: 0, step: 1 });
    const text = h("output", { id: `${name}-text`, for: name });
    input.addEventListener("input", () => {
      this.sayChoice(name);
      this.on.change();
    });
    input.addEventListener("change", () => this.on.note());
    return { input, text, part: h("div", { id: `${name}-part`, class: "slider", hidden: true }, h("label", { for: name }, T.answer.sliders[name]), input, text) };
  }

  sayChoice(name) {
    const { input, text } = this.sliders[name];
    text.textContent = SLIDERS[name](this.surface)[Number(input.value)] ?? "";
  }

  // What reproduces it

  state() {
    const [time, level] = ["time", "level"].map((name) => this.wanted?.[name] ?? this.sliders[name].input.value);
    const given = { view: this.view, time, level, estimated: this.estimated.value, beside: this.beside.value, difference: this.difference.checked ? "1" : "", pick: this.clicked ? this.picked.join(",") : "", ...(this.view === "variogram" ? this.fit.state() : {}) };
    return Object.fromEntries(Object.entries(given).filter(([name, value]) => value && value !== "0" && !(name === "estimated" && value === "veil")));
  }

  restore(params) {
    this.view = params.get("view") ?? "";
    this.wanted = { time: params.get("time") ?? "0", level: params.get("level") ?? "0" };
    const pick = (params.get("pick") ?? "").split(",").map(Number);
    this.clicked = pick.length === 2 && pick.every((one) => Number.isInteger(one) && one >= 0);
    this.picked = this.clicked ? pick : null;
    const known = [...this.beside.options].map((option) => option.value);
    this.beside.value = known.includes(params.get("beside")) ? params.get("beside") : "";
    this.difference.checked = params.get("difference") === "1";
    this.fit.restore(params);
    this.estimated.value = ESTIMATED.includes(params.get("estimated")) ? params.get("estimated") : "veil";
  }

  // What a surface offers

  hide() {
    this.endFilm();
    this.mapControls.hidden = this.place.hidden = this.views.hidden = this.fit.element.hidden = true;
  }

  show(surface) {
    this.surface = surface;
    this.showViews(surface);
    if (surface.kind !== "map") return;
    for (const [name, { input, text, part }] of Object.entries(this.sliders)) {
      const words = SLIDERS[name](surface);
      const most = Math.max(words.length - 1, 0);
      Object.assign(input, { max: most, value: Math.min(Number(this.wanted?.[name] ?? 0), most) });
      part.hidden = words.length < 2;
      text.textContent = words[Number(input.value)] ?? "";
    }
    this.wanted = null;
    this.showPick();
  }

  showViews(surface) {
    const offered = VIEWS[surface.kind];
    if (!offered.includes(this.view)) this.view = "";
    const current = this.view || offered[0];
    const radio = (view) => tick(T.answer.views[view], h("input", { type: "radio", name: "view", value: view, checked: view === current, on: { change: () => this.choose(view) } }));
    this.views.replaceChildren(h("legend", {}, T.answer.view), ...offered.map(radio));
    this.views.hidden = false;
    this.fit.element.hidden = current !== "variogram";
  }

  choose(view) {
    this.set(view);
    this.on.note();
    this.on.change();
  }

  set(view) {
    this.view = view;
    this.fit.element.hidden = view !== "variogram";
    const radio = this.views.querySelector(`input[value=${view}]`);
    if (radio) radio.checked = true;
  }

  pick(row, column) {
    this.picked = [row, column];
    this.clicked = true;
    this.showPick();
    this.on.note();
    this.on.change();
  }

  /** The cell whose lines are shown, to be chosen without a mouse, too. */
  pickFields() {
    this.pickInputs = ["row", "column"].map((name, axis) => {
      const made = h("input", { id: `pick-${name}`, type: "number", min: 0 });
      made.addEventListener("change", () => {
        const at = Math.max(0, Math.min(Math.round(Number(made.value)) || 0, Number(made.max)));
        this.pick(...this.picked.map((one, place) => (place === axis ? at : one)));
      });
      return made;
    });
    this.pickWords = h("p", { class: "quiet" });
    return h("div", { class: "inline", id: "pick", hidden: true }, this.pickInputs.map((made, axis) => field(T.answer.pick[["row", "column"][axis]], made)), this.pickWords);
  }

  showPick() {
    const { surface } = this;
    const [row, column] = surface.dims;
    const sizes = [surface[row].length, surface[column].length];
    this.picked = (this.picked ?? sizes.map((size) => Math.floor(size / 2))).map((at, axis) => Math.min(at, sizes[axis] - 1));
    this.pickInputs.forEach((made, axis) => {
      made.max = sizes[axis] - 1;
      // What is being typed is left alone.
      if (made !== document.activeElement) made.value = this.picked[axis];
    });
    this.pickWords.textContent = T.answer.picked(number(surface[column][this.picked[1]], 5), number(surface[row][this.picked[0]], 5), surface.axis_units);
    this.place.hidden = surface.times.length < 2;
  }

  // Film

  /** Show one time cell after the other, as fast as they come; or stop that. */
  film() {
    if (this.filming) {
      this.endFilm();
      return;
    }
    const { input } = this.sliders.time;
    this.play.setAttribute("aria-pressed", "true");
    this.play.textContent = T.answer.pause;
    this.filming = setInterval(() => {
      if (this.on.busy()) return;
      input.value = this.time < Number(input.max) ? this.time + 1 : 0;
      this.sayChoice("time");
      this.on.change();
    }, FILM_MS);
  }

  endFilm() {
    clearInterval(this.filming);
    this.filming = null;
    this.play.setAttribute("aria-pressed", "false");
    this.play.textContent = T.answer.play;
  }
}
