// The stream that fills the archive: what its joins hold, how disordered it is, and how far it is behind, as it moves.

import * as api from "./api.js";
import { bytes, duration, empty, h, instant, number, table } from "./dom.js";
import { drawLines, legend } from "./pictures.js";
import { T } from "./text.js";

/** Records that are kept: about an hour. */
const MOST = 720;
const MIB = 2 ** 20;

const joins = (told) => Object.values(told.joins ?? {});
/** Of all joins together; null where one of them does not know. */
const sum = (told, name) => joins(told).reduce((found, join) => (found === null || join[name] === null ? null : found + join[name]), joins(told).length ? 0 : null);
const greatest = (told, name) => joins(told).map((join) => join[name]).filter(Number.isFinite).reduce((found, one) => Math.max(found, one), -Infinity);
const finite = (value) => (Number.isFinite(value) ? value : NaN);
const since = (told) => (told.last_slice ? (Date.parse(told.at) - Date.parse(told.last_slice)) / 60_000 : null);

/** Graphs: unit, and a line each of a record. */
const GRAPHS = {
  buffers: ["rows", { held: (told) => sum(told, "held"), needed: (told) => sum(told, "needed") }],
  disorder: ["rows", { scrambling: (told) => greatest(told, "scrambling_factor"), lag: (told) => greatest(told, "lag") }],
  held: ["MiB", { heldBytes: (told) => sum(told, "held_bytes") / MIB, allocated: (told) => sum(told, "allocated_bytes") / MIB, limit: (told) => sum(told, "allowed_bytes") / MIB || NaN }],
  flow: ["1/s", { rate: (told) => told.readings_per_s }],
  behind: ["records", { behind: (told) => told.behind }],
  age: ["min", { age: since }],
};

export class Streams {
  /** `move` puts newer values into lines that are drawn already. */
  constructor(move) {
    this.move = move;
    this.records = [];
    /** The state of the stream and its newest record; null where there is none. */
    this.now = null;
    this.state = h("p", { id: "stream-state", role: "status" });
    this.tiles = h("dl", { id: "stream-tiles", class: "tiles" });
    this.graphs = Object.fromEntries(Object.keys(GRAPHS).map((name) => [name, h("div", { id: `stream-${name}`, class: "picture small", role: "img", "aria-labelledby": `stream-${name}-words` })]));
    this.keys = Object.fromEntries(Object.keys(GRAPHS).map((name) => [name, h("div")]));
    this.limit = h("p", { id: "stream-limit", class: "quiet" });
    this.table = h("div");
    this.moving = h("div", {}, this.tiles,
      h("div", { class: "three" }, Object.keys(GRAPHS).map((name) => h("figure", { class: "pane" }, this.graphs[name], this.keys[name], h("figcaption", { id: `stream-${name}-words` }, T.streams.graphs[name])))),
      this.limit, h("details", { class: "as-table" }, h("summary", {}, T.pane.table), this.table));
    this.none = empty(T.streams.none, T.streams.noneAdvice, h("pre", { tabindex: 0 }, T.streams.noneCommand));
    this.none.id = "no-stream";
    this.element = h("div", { id: "stream" }, this.state, this.none, this.moving);
    this.moving.hidden = true;
  }

  async look() {
    const last = this.records[this.records.length - 1];
    const told = await api.look(`engine/stream${last ? `?after=${last.at}` : ""}`);
    this.records.push(...told.records);
    this.records.splice(0, Math.max(0, this.records.length - MOST));
    const is = told.state !== "none" && this.records.length > 0;
    this.none.hidden = is;
    this.moving.hidden = !is;
    const newest = this.records[this.records.length - 1];
    this.state.textContent = is ? T.streams.states[told.state](instant(newest.at.slice(0, 19))) : "";
    this.state.className = told.state === "lost" ? "bad" : "";
    this.now = is ? { state: told.state, record: newest } : null;
    if (is && (told.records.length || this.undrawn)) await this.draw(newest);
  }

  /** Lines of a graph that have a value anywhere: a limit that is not set has none. */
  lines(name) {
    const times = this.records.map((told) => Date.parse(told.at));
    return Object.entries(GRAPHS[name][1])
      .map(([line, pick]) => ({ name: T.streams.lines[line], times, values: this.records.map((told) => finite(pick(told))) }))
      .filter(({ values }, at) => at === 0 || values.some(Number.isFinite));
  }

  async draw(newest) {
    this.undrawn = false;
    this.drawTiles(newest);
    const rows = [];
    for (const [name, [unit]] of Object.entries(GRAPHS)) {
      const lines = this.lines(name);
      const place = this.graphs[name];
      const drawn = `${place.clientWidth} ${lines.length}`;
      if (!place.clientWidth) this.undrawn = true;
      else if (!place.figure || place.drawn !== drawn) {
        place.drawn = drawn;
        this.keys[name].replaceChildren(...[legend(lines)].filter(Boolean));
        this.move(await drawLines(place, lines, { variable: T.streams.titles[name], units: unit, title: T.streams.titles[name] }), lines);
      } else this.move(place.figure, lines);
      rows.push(...lines.map((line) => [T.streams.titles[name], line.name, number(line.values[line.values.length - 1]), unit]));
    }
    const allowed = sum(newest, "allowed_bytes");
    const limit = allowed === null ? T.streams.noLimit : T.streams.limit(bytes(allowed));
    const [spilled, early] = [sum(newest, "spilled"), sum(newest, "closed_early")];
    const disk = spilled ? T.streams.onDisk(number(spilled), bytes(sum(newest, "disk_bytes"))) : "";
    // Streams of earlier releases do not tell their order, and have but one.
    const orders = new Set(joins(newest).map((join) => join.order ?? "whole"));
    this.limit.textContent = [limit, disk, early ? T.streams.closedEarly(number(early)) : "", ...[...orders].map((order) => T.streams.orders[order])].filter(Boolean).join(" ");
    this.table.replaceChildren(table(T.engine.nowCaption, T.engine.nowColumns, rows));
  }

  drawTiles(newest) {
    const stations = joins(newest).reduce((found, join) => found + join.streams, 0);
    const silent = joins(newest).reduce((found, join) => found + join.silent, 0);
    const tiles = [
      [T.streams.tiles.came, number(newest.came)], [T.streams.tiles.rate, number(newest.readings_per_s, 0)], [T.streams.tiles.stations, number(stations)], [T.streams.tiles.silent, number(silent)],
      [T.streams.tiles.slices, number(newest.slices)], [T.streams.tiles.late, number(newest.late)], [T.streams.tiles.batches, number(newest.batches)], [T.streams.tiles.age, duration(since(newest) === null ? null : 60 * since(newest))],
    ];
    this.tiles.replaceChildren(...tiles.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  async redraw() {
    for (const place of Object.values(this.graphs)) place.drawn = "";
    if (this.records.length && !this.moving.hidden) await this.draw(this.records[this.records.length - 1]);
  }
}
