// Linked brushing: cells that are chosen in one picture, by dragging or by their values, are marked in those beside it.

import { button, choice, field, figure as short, h, number } from "./dom.js";
import { image } from "./figures.js";
import { byDay, millis } from "./pictures.js";
import { T } from "./text.js";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const TOOLS = { move: "PanTool", box: "BoxSelectTool", lasso: "LassoSelectTool" };
const MARKED = 1;
const NOTHING = Float64Array.of(NaN);

const inside = {
  rect: ({ x0, x1, y0, y1 }) => (x, y) => x >= Math.min(x0, x1) && x <= Math.max(x0, x1) && y >= Math.min(y0, y1) && y <= Math.max(y0, y1),
  // A point is inside where a ray from it crosses the edge an odd number of times.
  poly: ({ x: xs, y: ys }) => (x, y) => {
    let odd = false;
    for (let at = 0, before = xs.length - 1; at < xs.length; before = at++) {
      if (ys[at] > y !== ys[before] > y && x < ((xs[before] - xs[at]) * (y - ys[at])) / (ys[before] - ys[at]) + xs[at]) odd = !odd;
    }
    return odd;
  },
};

/** What pictures of a kind consist of: {key, x, y, value} of each cell; equal keys are the same place or time. */
const ITEMS = {
  map: ({ surface, frame }) => {
    const [row, column] = surface.dims;
    const [, across] = frame.shape;
    return Array.from(frame.estimate, (estimate, at) => ({ key: at, x: surface[column][at % across], y: surface[row][Math.floor(at / across)], value: frame.computed[at] ? frame.values[at] : estimate }));
  },
  heat: ({ times, values }) => {
    const at = millis(times);
    const step = at.length > 1 ? at[1] - at[0] : 0;
    return at.map((time, place) => ({ key: time, x: Math.floor(time / DAY_MS) * DAY_MS + DAY_MS / 2, y: ((time % DAY_MS) + step / 2) / HOUR_MS, value: values[place] }));
  },
  lines: ({ lines }) => lines.flatMap((line) => Array.from(line.times, (time, at) => ({ key: `${line.name} ${time}`, x: time, y: line.values[at], value: line.values[at] }))),
};

/** Pictures whose cells are the same, so that a key means the same in both. */
const cellsOf = ({ view, surface }) => (view === "map" ? surface.dims.map((name) => [name, surface[name].length, surface[name][0]].join()).join(" ") : view);

export class Brush {
  constructor(panes, onNote) {
    this.panes = panes;
    for (const pane of Object.values(panes)) pane.choosing = true;
    this.onNote = onNote;
    this.drag = choice("brush-drag", Object.keys(TOOLS).map((name) => [name, T.brush.drags[name]]), () => this.hold(), "move");
    this.of = choice("brush-of", [["first", T.brush.first], ["second", T.brush.second]], () => {}, "first");
    const bound = (id) => h("input", { id, type: "number", step: "any" });
    [this.from, this.to] = [bound("brush-from"), bound("brush-to")];
    this.told = h("p", { id: "brushed", role: "status", hidden: true });
    const form = h("form", { class: "inline", id: "brush-form", novalidate: true, on: { submit: (event) => this.byValues(event) } },
      field(T.brush.drag, this.drag, T.brush.dragHint), field(T.brush.of, this.of), field(T.brush.from, this.from), field(T.brush.to, this.to),
      h("div", { class: "buttons whole" }, h("button", { id: "brush-choose" }, T.brush.choose), button(T.brush.clear, () => this.clear(), { id: "brush-clear" })));
    this.element = h("div", { hidden: true }, h("details", { id: "brush" }, h("summary", {}, T.brush.title), form), this.told);
  }

  get shown() {
    return Object.entries(this.panes).filter(([, pane]) => pane.shown && pane.shown.view in ITEMS && pane.figure && !pane.element.hidden);
  }

  // What reproduces it

  state() {
    return this.values ? { brush: this.values.join() } : {};
  }

  restore(params) {
    this.keys = null;
    this.values = params.has("brush") ? params.get("brush").split(",").slice(0, 3) : null;
    if (!this.values) return;
    [this.of.value, this.from.value, this.to.value] = this.values;
    this.element.querySelector("details").open = true;
  }

  // Choosing

  byValues(event) {
    event.preventDefault();
    this.values = [this.of.value, this.from.value, this.to.value];
    this.takeValues();
    this.onNote();
  }

  takeValues() {
    const [name, from, to] = this.values;
    const [low, high] = [from === "" ? -Infinity : Number(from), to === "" ? Infinity : Number(to)];
    this.take(this.panes[name], (one) => one.value >= low && one.value <= high);
  }

  take(pane, test) {
    if (!pane?.shown || !(pane.shown.view in ITEMS)) return;
    this.cells = cellsOf(pane.shown);
    this.keys = new Set(ITEMS[pane.shown.view](pane.shown).filter(test).map((one) => one.key));
    this.mark();
  }

  clear() {
    this.keys = this.values = null;
    this.mark();
    this.onNote();
  }

  // Drawing

  /** Pictures were drawn: listen to new ones, and mark what is chosen in them. */
  drawn() {
    const { shown } = this;
    this.element.hidden = !shown.length;
    this.of.options[1].disabled = !this.panes.second.shown || this.panes.second.element.hidden;
    if (this.of.options[1].disabled) this.of.value = "first";
    for (const [, pane] of shown) {
      if (pane.figure.brushes) continue;
      pane.figure.brushes = true;
      pane.figure.on({
        selectiongeometry: ({ geometry, final }) => {
          if (!final || !(geometry.type in inside)) return;
          this.values = null;
          const within = inside[geometry.type](geometry);
          this.take(pane, (one) => within(one.x, one.y));
          this.onNote();
        },
      });
    }
    this.hold();
    // What is chosen by its values follows them, as those of another time cell; what was dragged over stays where it is.
    if (this.values && this.panes[this.values[0]]?.shown) this.takeValues();
    else this.mark();
  }

  /** Make dragging do what was chosen. */
  hold() {
    for (const [, pane] of this.shown) {
      const tool = pane.figure.plot.toolbar.tools.find((one) => one.type === TOOLS[this.drag.value]);
      if (tool && this.drag.value !== pane.figure.drags) tool.active = true;
      pane.figure.drags = this.drag.value;
    }
  }

  mark() {
    const words = [];
    let counted = "";
    for (const [, { shown, figure }] of this.shown) {
      const alike = this.keys && cellsOf(shown) === this.cells;
      draw(shown, figure, alike ? this.keys : null);
      if (!alike) continue;
      const items = ITEMS[shown.view](shown).filter((one) => Number.isFinite(one.value));
      const chosen = items.filter((one) => this.keys.has(one.key));
      counted ||= T.brush.counted(number(chosen.length), number(items.length));
      words.push(T.brush.mean(shown.title, meanOf(chosen), meanOf(items.filter((one) => !this.keys.has(one.key))), shown.units));
    }
    this.told.hidden = !words.length;
    this.told.textContent = words.length ? `${counted} ${words.join(" ")}` : "";
  }
}

const meanOf = (items) => short(items.length ? items.reduce((sum, one) => sum + one.value, 0) / items.length : NaN);

/** Mark the chosen cells of a picture: the others of a map or of days are paled, points of lines get a ring. */
function draw(shown, figure, keys) {
  const source = figure.find("brush");
  if (shown.view === "lines") {
    const chosen = keys ? ITEMS.lines(shown).filter((one) => keys.has(one.key)) : [];
    source.data = { time: chosen.map((one) => one.x), value: chosen.map((one) => one.y) };
    return;
  }
  if (!keys) {
    source.data = { ...source.data, image: [image(NOTHING, 1, 1)] };
    return;
  }
  const paled = ITEMS[shown.view](shown).map((one) => (keys.has(one.key) ? NaN : MARKED));
  if (shown.view === "map") {
    source.data = { ...source.data, image: [image(Float64Array.from(paled), ...shown.frame.shape)] };
  } else {
    const { cells, slots, days, first } = byDay(shown.times, paled);
    source.data = { image: [image(cells, slots, days)], x: [first], y: [0], dw: [days * DAY_MS], dh: [24] };
  }
}
