// Figures from the server, put into the page, kept apart, linked, and saved as pictures.

import * as api from "./api.js";
import { theme } from "./theme.js";

const Bokeh = window.Bokeh;
// BokehJS (3.9) has each plot listen to the viewport, and never leave it: every figure that ever was would be kept. When its
// width changes the page draws anew anyhow.
if (window.visualViewport) window.visualViewport.addEventListener = () => {};
// It measures all texts by one canvas that is never drawn; Chromium keeps what it knows of each text until a canvas is
// drawn, so that a board would hold each tick, value and time that it ever showed. A new canvas now and then holds none.
const MEASURED = 500;
let measured = 0;
let ruler = null;
Bokeh.require("core/graphics").text_width = (text, font) => {
  if (measured % MEASURED === 0) ruler = document.createElement("canvas").getContext("2d");
  measured += 1;
  ruler.font = font;
  return ruler.measureText(text).width;
};
/** Width of a letter above and below a figure, as a rule [px]. */
const [HEADING_PX, SOURCE_PX] = [9, 5.5];
/** Width of the axis beside which they begin [px]. */
const AXIS_PX = 80;
/** Least height of a figure that fills its place [px]. */
const LOWEST_PX = 200;
/** Between the controls and a station, height and width of the controls with all their words, width of a label at the right [px]. */
const [ROOM_PX, MOST_WORDS_PX, WIDEST_WORDS_PX, LABEL_PX] = [20, 200, 450, 110];
/** What is being put into a place: one after the other, so that the last one asked for is the one that stays. */
const turns = new WeakMap();

export class Figure {
  /** Fetch a figure without data; the browser keeps it for when it is opened. */
  static fetch(place, kind, words) {
    return api.figure(kind, requestOf(place, words));
  }

  /** The figure of a place where it is the one that is wanted, whose data can be replaced; else a new one. */
  static keep(place, kind, words) {
    return Figure.open(place, kind, words, { keeps: true });
  }

  /** Fetch a figure without data and put it into a place, instead of what is there. */
  static open(place, kind, words, { keeps = false } = {}) {
    const turn = (turns.get(place) ?? Promise.resolve()).catch(() => {}).then(async () => {
      const asked = JSON.stringify([kind, requestOf(place, words)]);
      if (keeps && place.figure?.asked === asked) return place.figure;
      const item = await Figure.fetch(place, kind, words);
      place.figure?.clear();
      place.replaceChildren();
      place.figure = new Figure(place, kind, await Bokeh.embed.embed_item(item, place));
      place.figure.asked = asked;
      return place.figure;
    });
    turns.set(place, turn);
    return turn;
  }

  constructor(place, kind, views) {
    this.place = place;
    this.kind = kind;
    this.views = views;
    [this.view] = views.roots;
    this.plot = this.view.model;
    this.document = this.plot.document;
  }

  /** A source or model of the figure by its name. */
  find(name) {
    return this.document.get_model_by_name(name);
  }

  clear() {
    this.views.clear();
    const at = Bokeh.documents.indexOf(this.document);
    if (at >= 0) Bokeh.documents.splice(at, 1);
    this.place.replaceChildren();
    this.place.figure = null;
    delete this.place.dataset.ground;
  }

  /** Listen to events of the figure as well; one listener an event. */
  on(events) {
    const callbacks = Object.entries(events).map(([name, listener]) => [name, [listener]]);
    const before = this.plot.js_event_callbacks;
    this.plot.setv({ js_event_callbacks: new Map([...(before instanceof Map ? before : Object.entries(before)), ...callbacks]) });
  }

  /** Write what is shown above the figure, in lines that fit it, as many as there are `beside` it, and its source below. */
  head(words, source, beside = "") {
    const room = this.place.clientWidth - AXIS_PX;
    const [text, other] = [words, beside].map((each) => inLines(each, room / HEADING_PX));
    const lack = other.split("\n").length - text.split("\n").length;
    this.find("heading").text = text + "\n\u00a0".repeat(Math.max(lack, 0));
    this.find("source").text = inLines(source, room / SOURCE_PX);
  }

  /** The picture as a file: "png", or "svg" as lines and letters. */
  picture(form) {
    return this.view.export(form).to_blob();
  }
}

/** What the server is asked for a figure of a place: its words, in the theme and size of now. */
function requestOf(place, words) {
  const width = Math.max(280, Math.floor(words.width ?? place.clientWidth));
  // A place that figures fill has a height of its own.
  const height = place.classList.contains("filled") ? { height: Math.max(LOWEST_PX, Math.floor(place.clientHeight)) } : {};
  return { ...words, theme: theme(), width, ...height };
}

/** A text in lines of at most so many letters, between words. */
function inLines(text, letters) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines[lines.length - 1];
    if (last && last.length + word.length >= letters) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines.join("\n");
}

/** Take the figure out of a place, and put other content there. */
export function clear(place, ...content) {
  const put = () => {
    place.figure?.clear();
    place.replaceChildren(...content);
  };
  put();
  // A figure that is still being fetched would take the place.
  if (turns.has(place)) turns.set(place, turns.get(place).catch(() => {}).then(put));
}

/** Show the same stretch of both axes in two figures, whichever is moved. */
export function link(one, other) {
  for (const axis of ["x_range", "y_range"]) {
    const follow = (from, to) =>
      from.change.connect(() => {
        const { start, end } = from;
        if (to.start !== start || to.end !== end) to.setv({ start, end });
      });
    follow(one.plot[axis], other.plot[axis]);
    follow(other.plot[axis], one.plot[axis]);
  }
}

export function image(values, rows, columns) {
  return Bokeh.require("core/util/ndarray").ndarray(values, { dtype: "float64", shape: [rows, columns] });
}

export function bytesImage(values, rows, columns) {
  return Bokeh.require("core/util/ndarray").ndarray(values, { dtype: "uint8", shape: [rows, columns] });
}

/** Least and greatest finite value, null where there is none. */
export function spread(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** What colours span: values as they are, differences as far below nothing as above it, directions all round. */
export function span(range, scale) {
  if (scale === "cyclic") return [0, 360];
  const [low, high] = range;
  if (scale === "diverging") {
    const most = Math.max(Math.abs(low), Math.abs(high)) || 1e-3;
    return [-most, most];
  }
  // A colour scale needs a width, also where all values are equal.
  const pad = low === high ? Math.abs(low) * 1e-3 || 1e-3 : 0;
  return [low - pad, high + pad];
}

/** Show a stretch of an axis; Bokeh's own ranges would complain of a figure that is still empty. */
export function stretch(range, low, high) {
  range.setv({ start: low, end: high, reset_start: low, reset_end: high });
}

/** Move a map, or have it show more, where stations would lie below the controls, a box from its upper left corner [px]. */
export function uncover({ x_range: across, y_range: up, frame_width: wide, frame_height: high }, stations, controls) {
  if (controls.bottom <= 0) return;
  // Its words come one after the other.
  const [right, bottom] = [Math.max(controls.right, controls.left + WIDEST_WORDS_PX) + ROOM_PX, Math.max(controls.bottom, controls.top + MOST_WORDS_PX) + ROOM_PX];
  const [width, height] = [across.end - across.start, up.end - up.start];
  const places = stations.filter(({ lon }) => Number.isFinite(lon)).map(({ lon, lat }) => ({ x: ((lon - across.start) / width) * wide, y: ((up.end - lat) / height) * high }));
  const covered = places.filter(({ x, y }) => x < right && y < bottom);
  if (!covered.length) return;
  const toRight = right - Math.min(...covered.map(({ x }) => x));
  if (Math.max(...places.map(({ x }) => x)) + toRight < wide - LABEL_PX) {
    const more = (toRight / wide) * width;
    stretch(across, across.start - more, across.end - more);
    return;
  }
  // All of it below the controls, in the same proportions.
  const factor = high / Math.max(high - bottom, high / 3);
  const middle = (across.start + across.end) / 2;
  stretch(across, middle - (factor * width) / 2, middle + (factor * width) / 2);
  stretch(up, up.start, up.start + factor * height);
}
