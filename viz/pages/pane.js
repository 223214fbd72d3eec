// One picture of an answer with its words, its table and its files.

import { button, csv, figure as short, h, instant, number, save, table, visible } from "./dom.js";
import { clear, spread } from "./figures.js";
import { drawDayByHour, drawHistogram, drawLines, fillHistogram, histogram, legend, MapPicture, millis } from "./pictures.js";
import { T } from "./text.js";
import { unitText } from "./units.js";
import { drawVariogram, models, variogramRows } from "./variogram.js";

/** Rows that the table under a picture shows; the CSV has all. */
const MOST_ROWS = 200;

/** A picture: "map", "lines", "heat" or "histogram" of what `show` is given. */
export class Pane {
  /** `filled`: the picture fills its place, and its words, table and files stand elsewhere, in `about`. */
  constructor(name, { filled = false } = {}) {
    const caption = name === "first" ? "caption" : `caption-${name}`;
    this.name = name;
    this.place = h("div", { id: name === "first" ? "picture" : `picture-${name}`, class: filled ? "picture filled" : "picture", role: "img", "aria-labelledby": caption });
    this.caption = h(filled ? "p" : "figcaption", { id: caption });
    this.tablePlace = h("div");
    this.details = h("details", { class: "as-table", on: { toggle: () => this.fillTable() } }, h("summary", {}, T.pane.table), this.tablePlace);
    this.saves = h("div", { class: "buttons small", hidden: true },
      button(T.pane.png, () => this.savePicture("png")), button(T.pane.svg, () => this.savePicture("svg")),
      button(T.pane.csv, () => save(this.file("csv"), csv(...this.rows()), "text/csv")));
    this.details.hidden = true;
    this.key = h("div", { class: "legend-place" });
    this.about = h("div", { id: `about-${name}` }, this.caption, this.saves, this.details);
    this.element = filled ? h("figure", { class: `pane pane-${name}` }, this.place, this.key) : h("figure", { class: "pane" }, this.place, this.key, ...this.about.childNodes);
    this.clear();
  }

  /** Have the picture be reached by keys, and say what they do; nothing is said of a picture that takes none. */
  takeKeys(words) {
    if (words === (this.place.dataset.keys ?? "")) return;
    // As an image a reader of screens would keep the keys to itself.
    this.place.setAttribute("role", words ? "application" : "img");
    for (const [name, value] of Object.entries({ tabindex: "0", "data-keys": words, "aria-description": words })) {
      if (words) this.place.setAttribute(name, value);
      else this.place.removeAttribute(name);
    }
  }

  /** Show no picture, and say why; `answer` stands in its place. */
  clear(words = T.pane.none, answer = "") {
    clear(this.place, ...(answer ? [h("p", { class: "empty-picture" }, visible(answer))] : []));
    Object.assign(this, { figure: null, map: null, opening: null, drawn: "", shown: null });
    this.takeKeys("");
    this.key.replaceChildren();
    this.caption.textContent = visible(words);
    this.saves.hidden = this.details.hidden = true;
    this.place.classList.remove("aged");
  }

  /** Keep the picture, paled, until another one comes; it is nothing that is shown any more. */
  age(words) {
    this.shown = null;
    this.caption.textContent = visible(words);
    this.saves.hidden = this.details.hidden = true;
    this.place.classList.toggle("aged", Boolean(this.figure));
  }

  /** Width and, where pictures fill it, height of their place. */
  get size() {
    const { clientWidth, clientHeight, classList } = this.place;
    return classList.contains("filled") ? `${clientWidth} ${clientHeight}` : clientWidth;
  }

  /** What pictures have in common that one figure can show. */
  identity({ view, surface, title, units, scale }) {
    return [view, title, units, scale, this.size, JSON.stringify(surface.dims ?? ""), ...(surface.dims ?? []).flatMap((name) => [surface[name]?.length, surface[name]?.[0], surface[name]?.at(-1)])].join("|");
  }

  /** The map of what is shown; it can be opened before there is anything to draw, so that the first picture need not wait for it. */
  openMap(shown) {
    const identity = this.identity(shown);
    if (this.opening?.identity !== identity) {
      const { surface, title, quantity, units, scale, stations, onPick } = shown;
      const opening = { identity, map: MapPicture.open(this.place, surface, stations, { title, quantity, units, scale, onPick }) };
      this.opening = opening;
      opening.map.catch(() => {
        if (this.opening === opening) this.opening = null;
      });
    }
    return this.opening.map;
  }

  /**
   * Draw. `shown` holds view, surface, title, units, scale, range; and frame, estimated, picked, stations and onPick of
   * a map or histogram, lines of a picture over time, or times and values of days.
   */
  async show(shown) {
    const { view, quantity, title, units, scale } = shown;
    // The legend first: it takes height from the picture's place, and a picture of another size would be drawn again.
    this.key.replaceChildren(...[view === "lines" ? legend(shown.lines) : view === "variogram" ? legend(models(shown.variogram)) : null].filter(Boolean));
    const { size } = this;
    const identity = this.identity(shown);
    const words = { variable: quantity, units, title, scale };
    const before = this.drawn === identity ? this.shown : null;
    this.shown = shown;
    if (view === "map") {
      const map = await this.openMap(shown);
      // Meanwhile it was cleared, or something else is to be shown.
      if (this.shown !== shown) return;
      this.map = map;
      this.figure = map.figure;
      if (shown.range) this.map.range = shown.range;
      this.map.draw(shown.frame, shown.estimated);
      this.map.hatch(shown.uncertain ?? null, shown.frame.shape);
      this.map.mark(shown.picked);
    } else {
      this.map = this.opening = null;
      // Figures whose data are the same stay as they are.
      const same = before && ["lines", "values", "times", "variogram"].every((name) => before[name] === shown[name]) && String(before.range) === String(shown.range);
      let { figure } = this;
      if (same) this.drawn = identity;
      else if (view === "lines") figure = await drawLines(this.place, shown.lines, { ...words, points: shown.points, choosing: this.choosing });
      else if (view === "variogram") figure = await drawVariogram(this.place, shown.variogram, words);
      else if (view === "heat") figure = await drawDayByHour(this.place, shown.times, shown.values, { ...words, range: shown.range });
      else if (before) fillHistogram(this.figure, shown.values);
      else if (view === "histogram") figure = await drawHistogram(this.place, shown.values, words);
      if (this.shown !== shown) return;
      this.figure = figure;
    }
    this.drawn = identity;
    this.place.classList.remove("aged");
    this.drawnSize = size;
    this.figure.head(visible(shown.heading), shown.surface.source, visible(shown.headingBeside ?? ""));
    this.caption.textContent = visible(shown.words);
    if (view === "map") this.fade(shown);
    this.saves.hidden = this.details.hidden = false;
    if (this.details.open) this.fillTable();
  }

  /** Fade the cells of a map beyond its stations, and say so; of one that is still computed those of the one before. */
  async fade(shown) {
    const outside = await shown.outside;
    if (!outside || this.shown !== shown) return;
    // Faded, an error would look like a smaller one.
    const fades = shown.part !== "variance" && shown.scale !== "diverging";
    this.map.pale(outside.hull, fades);
    this.caption.textContent = visible(shown.words + (fades ? beyondWords(outside.beyond ?? 0) : ""));
  }

  /** Draw what a question has to show, or say why there is nothing; return what is drawn. */
  async put(found) {
    if (!found) return null;
    if (typeof found === "string" || found.answer) {
      this.clear(found.words ?? found, found.answer);
      return null;
    }
    await this.show(found);
    return found;
  }

  /** Draw again what is shown, in another width or theme. */
  async redraw() {
    if (!this.shown) return;
    Object.assign(this, { map: null, opening: null, drawn: "" });
    await this.show(this.shown);
  }

  fillTable() {
    if (!this.details.open || !this.shown) return;
    const [columns, rows] = this.rows();
    const words = rows.length > MOST_ROWS ? T.pane.firstRows(MOST_ROWS, number(rows.length)) : "";
    const told = rows.slice(0, MOST_ROWS).map((row) => row.map((value) => (typeof value === "number" ? short(value) : value)));
    const heads = columns.map((name) => [name.replace(/\[(.*)\]$/, (_, unit) => `[${unitText(unit)}]`), "number"]);
    this.tablePlace.replaceChildren(table(`${this.shown.title} ${words}`, heads, told));
  }

  /** What is shown as columns and rows. */
  rows() {
    const { view, surface, units, frame, lines, title } = this.shown;
    if (view === "variogram") return variogramRows(this.shown.variogram, units);
    if (view === "histogram") {
      const { edges, counts } = histogram(this.shown.values);
      return [[T.pane.from(units), T.pane.to(units), T.pane.cells], counts.map((count, at) => [edges[at], edges[at + 1], count])];
    }
    if (view === "map") {
      const [row, column] = surface.dims;
      const [, across] = frame.shape;
      const rows = Array.from(frame.estimate, (value, at) => {
        const computed = frame.computed[at] !== 0;
        return [surface[column][at % across], surface[row][Math.floor(at / across)], computed ? frame.values[at] : value, computed ? T.pane.computed : T.pane.estimated];
      });
      return [[`${column} [${surface.axis_units}]`, `${row} [${surface.axis_units}]`, `${title} [${units}]`, T.pane.how], rows];
    }
    if (view === "heat") {
      const { times, values } = this.shown;
      return [[T.pane.time, `${title} [${units}]`], times.map((time, at) => [instant(time), values[at]])];
    }
    const names = lines.flatMap((line) => [`${line.name} [${units}]`, ...(line.deviation ? [T.pane.deviation(line.name, units)] : [])]);
    const all = [...new Set(lines.flatMap((line) => Array.from(line.times)))].sort((one, other) => one - other);
    const held = lines.map((line) => new Map(Array.from(line.times, (time, at) => [time, at])));
    const rows = all.map((time) => [
      instant(new Date(time).toISOString()),
      ...lines.flatMap((line, place) => {
        const at = held[place].get(time);
        return [line.values[at] ?? NaN, ...(line.deviation ? [line.deviation[at] ?? NaN] : [])];
      }),
    ]);
    return [[T.pane.time, ...names], rows];
  }

  file(ending) {
    const words = this.shown.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
    return `hypergrid-${words}.${ending}`;
  }

  async savePicture(form) {
    save(this.file(form), await this.figure.picture(form));
  }
}

/** What a map shows at one time, in words. */
export function mapWords({ surface, title, units, frame }) {
  const range = spread(frame.values);
  const values = range ? T.pane.range(short(range[0]), short(range[1]), units) : (frame.fraction < 1 ? T.pane.nothingYet : T.pane.allMissing);
  const height = frame.level_m === undefined ? "" : T.pane.at(number(frame.level_m));
  const rest = frame.computed.includes(0) ? T.pane.paler : "";
  const circles = surface.dims[1] === "lon" ? T.pane.circles : "";
  return T.pane.map({ title, units, time: instant(frame.time), height, across: frame.shape[1], up: frame.shape[0], percent: number(100 * frame.fraction, 0), values, rest, circles });
}

/** Which share of a map's cells lies beyond its stations, in words; none where none does. */
const beyondWords = (share) => (share === 0 ? "" : share < 1 ? T.pane.beyond(number(Math.max(1, 100 * share), 0)) : T.pane.allBeyond);

/** The table of a finished query without a map, as lines. */
export function linesOf(series) {
  const [rows, columns] = series.shape;
  const times = millis(series.times);
  return series.stations.map((name, column) => ({
    name,
    times,
    values: Array.from({ length: rows }, (_, row) => series.values[row * columns + column]),
  }));
}

/** Mean over lines at each time. */
export function meanOf(lines) {
  return lines[0].values.map((_, row) => {
    const present = lines.map((line) => line.values[row]).filter(Number.isFinite);
    return present.length ? present.reduce((sum, value) => sum + value, 0) / present.length : NaN;
  });
}

