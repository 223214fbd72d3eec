// How an answer is looked at: view, time, level, cell, colours, what is beside it. It knows neither questions nor pictures.

import { button, choice, field, h, instant, number, tick, visible } from "./dom.js";
import { popover } from "./popover.js";
import { T } from "./text.js";
import { longName } from "./variables.js";
import { FitForm } from "./variogram.js";

const FILM_MS = 400;
export const VIEWS = { map: ["map", "lines", "heat", "histogram", "variogram"], series: ["lines", "heat", "histogram", "variogram"] };
const ESTIMATED = ["veil", "same", "hidden"];
const EXTRAPOLATED = ["veil", "same"];
/** Shares of what the colours span above which a standard error is hatched, as choices. */
const HATCHES = ["", "0.1", "0.25", "0.5"];
/** What is beside an answer and comes of it, so that it cannot be compared with it. */
const OF_ITSELF = ["deviation"];

/** A cell on a grid with so many times as many cells along a side. */
const scaled = (cell, scale) => cell.map((at) => Math.floor((at + 0.5) * scale));

/** Sliders of a map, and what each of their places is in words; a slider without two places is not shown. */
const SLIDERS = {
  time: (surface) => surface.times.map(instant),
  level: (surface) => (surface.z ?? []).map((height) => `${number(height)} m`),
};

/** The controls. `on` holds change (draw again), beside (another question may be needed), estimated, note (the address). */
export class Looks {
  constructor({ variables, snapshots, functions }, on) {
    this.on = on;
    this.view = "";
    this.picked = null;
    this.clicked = false;
    const methods = (functions.interpolate ?? []).map((row) => row.name).filter((name) => !name.endsWith("_in_time"));
    const beside = [["", T.answer.nothing], ["deviation", T.answer.deviation], ["before", T.looking.before], ["year", T.looking.yearBefore],
      ...methods.map((name) => [`method:${name}`, T.looking.method(name)]), ...variables.map((one) => [`variable:${one.name}`, T.answer.besideVariable(longName(variables, one.name))]),
      ...snapshots.map((one) => [`snapshot:${one.id}`, T.answer.besideSnapshot(one.time, one.message)])];
    this.beside = choice("beside", beside, () => on.beside(), "");
    this.difference = h("input", { id: "difference", type: "checkbox", on: { change: () => on.beside() } });
    this.compare = choice("compare", Object.entries(T.looking.compares), () => on.beside(), "beside");
    this.views = h("fieldset", { id: "views", hidden: true });
    this.sliders = Object.fromEntries(Object.keys(SLIDERS).map((name) => [name, this.slider(name)]));
    this.play = button(T.answer.play, () => this.film(), { id: "play", "aria-pressed": "false" });
    this.sliders.time.part.append(this.play);
    this.place = this.pickFields();
    this.fit = new FitForm(() => {
      on.note();
      on.change();
    });
    this.comparing = [field(T.looking.compare, this.compare), tick(T.answer.difference, this.difference)];
    this.colours = this.colourFields();
    this.besidePart = field(T.answer.beside, this.beside);
    this.bar = h("div", { class: "looks-bar" }, this.views, this.besidePart, this.comparing, this.colours.element, this.fit.element);
    this.pickedValue = h("p", { id: "picked-value", role: "status" });
    this.mapControls = h("div", { id: "map-controls", class: "strip" }, this.sliders.time.part, this.sliders.level.part, this.pickedValue);
  }

  /** Colours, their scale, marks of uncertain and of estimated cells. */
  colourFields() {
    const draw = () => {
      this.on.note();
      this.on.change();
    };
    this.palette = choice("palette", Object.entries(T.looking.palettes), draw, "sequential");
    this.span = choice("colour-span", Object.entries(T.looking.spans), draw, "all");
    this.hatch = choice("hatch", HATCHES.map((share) => [share, share ? T.looking.hatchAbove(100 * share) : T.looking.noHatch]), () => this.on.beside(), "");
    this.estimated = choice("estimated", ESTIMATED.map((name) => [name, T.answer.estimated[name]]), () => this.on.estimated(), "veil");
    this.extrapolated = choice("extrapolated", EXTRAPOLATED.map((name) => [name, T.looking.extrapolated[name]]), draw, "veil");
    this.finer = h("input", { id: "finer-cells", type: "checkbox", checked: true, on: { change: () => this.on.note() } });
    const made = popover("looks-part", "", field(T.looking.palette, this.palette, T.looking.paletteHint), field(T.looking.span, this.span), field(T.looking.hatch, this.hatch), field(T.answer.estimatedCells, this.estimated), field(T.looking.beyond, this.extrapolated), tick(T.looking.finer, this.finer));
    made.say(T.looking.title);
    return made;
  }

  offerSaved(names) {
    this.beside.append(...names.map((name) => new Option(visible(T.answer.besideSaved(name)), `saved:${name}`)));
  }

  get time() {
    return Number(this.sliders.time.input.value);
  }

  get level() {
    return Number(this.sliders.level.input.value);
  }

  get comparable() {
    return Boolean(this.beside.value) && !OF_ITSELF.includes(this.beside.value);
  }

  /** Whether two pictures are compared by a swipe. */
  get isSwiped() {
    return this.comparable && this.compare.value === "swipe";
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

  /** Row and column of the cell that was clicked, with the time cell and level that are shown; null where none was. */
  picking() {
    return this.clicked ? { picked: this.picked, time: this.time, level: this.level } : null;
  }

  /** `refined`: how many times as many cells along a side are shown as were asked for. */
  state(refined) {
    const [time, level] = ["time", "level"].map((name) => this.wanted?.[name] ?? this.sliders[name].input.value);
    const given = {
      view: this.view, time, level, estimated: this.estimated.value, beside: this.beside.value, difference: this.difference.checked ? "1" : "", pick: this.clicked ? scaled(this.picked, 1 / refined).join(",") : "",
      compare: this.compare.value, palette: this.palette.value, colours: this.span.value, hatch: this.hatch.value, extrapolated: this.extrapolated.value, finer: this.finer.checked ? "" : "no", ...(this.view === "variogram" ? this.fit.state() : {}),
    };
    const usual = { estimated: "veil", compare: "beside", palette: "sequential", colours: "all", extrapolated: "veil" };
    return Object.fromEntries(Object.entries(given).filter(([name, value]) => value && value !== "0" && value !== usual[name]));
  }

  restore(params) {
    this.view = params.get("view") ?? "";
    this.wanted = { time: params.get("time") ?? "0", level: params.get("level") ?? "0" };
    const pick = (params.get("pick") ?? "").split(",").map(Number);
    this.clicked = pick.length === 2 && pick.every((one) => Number.isInteger(one) && one >= 0);
    this.picked = this.clicked ? pick : null;
    for (const [select, name] of [[this.beside, "beside"], [this.compare, "compare"], [this.palette, "palette"], [this.span, "colours"], [this.hatch, "hatch"], [this.estimated, "estimated"], [this.extrapolated, "extrapolated"]]) {
      const known = [...select.options].map((option) => option.value);
      const usual = select === this.beside ? "" : known[0];
      select.value = known.includes(params.get(name)) ? params.get(name) : usual;
    }
    this.difference.checked = params.get("difference") === "1";
    this.finer.checked = params.get("finer") !== "no";
    this.fit.restore(params);
  }

  // What a surface offers

  /** Nothing is shown: there is nothing to look at. */
  hide() {
    this.views.hidden = this.fit.element.hidden = true;
    this.hideMap();
  }

  hideMap() {
    this.place.hidden = true;
    this.pickedValue.textContent = "";
    for (const { part } of Object.values(this.sliders)) part.hidden = true;
  }

  show(surface) {
    this.surface = surface;
    this.showViews(surface);
    if (surface.kind !== "map") {
      this.hideMap();
      return;
    }
    for (const [name, { input, text, part }] of Object.entries(this.sliders)) {
      const words = SLIDERS[name](surface);
      const most = Math.max(words.length - 1, 0);
      Object.assign(input, { max: most, value: Math.min(Number(this.wanted?.[name] ?? (Number(input.max) === most ? input.value : 0)), most) });
      part.hidden = words.length < 2;
      text.textContent = words[Number(input.value)] ?? "";
    }
    this.wanted = null;
    this.showPick();
  }

  /** Keep the chosen cell where it is while the cells along a side become so many times as many. */
  scalePick(scale) {
    if (this.picked && scale !== 1) this.picked = scaled(this.picked, scale);
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

  /** The cells are others now: none of them was chosen. */
  forgetPick() {
    this.clicked = false;
    this.picked = null;
    this.pickedValue.textContent = "";
  }

  /** No cell is looked at any more. */
  unpick() {
    this.clicked = false;
    this.pickedValue.textContent = "";
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
    this.place.hidden = false;
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
