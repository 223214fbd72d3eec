// The result of a back-test: rows as episodes of their keys on an axis of time, and as tables.

import * as api from "./api.js";
import { LongTable, figure, h, instant, number, table } from "./dom.js";
import { drawEpisodes } from "./episodes.js";
import { T } from "./text.js";
import { unitText } from "./units.js";

/** Parts of the axis: rows of a key within one of them are one mark. */
const PARTS = 400;
const MOST_LISTED = 200;

const short = (text) => instant(text?.slice(0, 19));
/** An instant where the head of its column says UTC. */
const bare = (text) => short(text).replace(" UTC", "");

/** A value as the tables show it. */
function shown(value, kind) {
  if (value === null) return T.missing;
  if (kind === "number") return figure(value);
  return kind === "time" ? short(value) : kind === "integer" ? number(value, 0) : String(value);
}

const keyOf = (row, { keys, columns }) => keys.map((at) => shown(row[at], columns[at].kind === "integer" ? "text" : columns[at].kind)).join(" · ") || T.continuous.whole;
const valuesAt = ({ keys, columns }) => columns.map((_, at) => at).filter((at) => at > 1 && !keys.includes(at));

/** What the values of rows were in a column: the one there was, or the lowest and highest. */
function spanOf(rows, at, { columns }) {
  const { kind } = columns[at];
  const values = rows.map((row) => row[at]).filter((value) => value !== null);
  if (!values.length) return T.missing;
  const isNumber = ["number", "integer"].includes(kind);
  const [low, high] = isNumber ? [Math.min, Math.max].map((pick) => values.reduce((one, other) => pick(one, other))) : [values[0], values[values.length - 1]];
  const [first, last] = [shown(low, kind), shown(high, kind)];
  return first === last ? first : T.continuous.range(first, last);
}

const named = ({ name, unit }) => (unit ? `${name} [${unitText(unit)}]` : name);
const describeValues = (rows, result) => valuesAt(result).map((at) => `${named(result.columns[at])} ${spanOf(rows, at, result)}`).join(", ");

/** Episodes of a relation: from when rows of a key are there until none is. */
function episodesOfRelation(result) {
  const open = new Map();
  const found = [];
  for (let first = 0; first < result.rows.length;) {
    // What leaves and enters at one instant is one change.
    let last = first;
    while (last < result.rows.length && result.rows[last][0] === result.rows[first][0]) last += 1;
    const changed = new Set();
    for (const row of result.rows.slice(first, last)) {
      const key = keyOf(row, result);
      const episode = open.get(key) ?? { row: key, since: row[0], until: null, count: 0, rows: [] };
      episode.count += row[1];
      if (row[1] > 0) episode.rows.push(row);
      open.set(key, episode);
      changed.add(key);
    }
    for (const key of changed) {
      const episode = open.get(key);
      if (episode.count > 0) continue;
      open.delete(key);
      if (episode.rows.length) found.push({ ...episode, until: result.rows[first][0] });
    }
    first = last;
  }
  return [...found, ...open.values()];
}

/** Rows of a stream, those of a key that lie close to each other together. */
function marksOfStream(result) {
  const apart = (Date.parse(result.end) - Date.parse(result.start)) / PARTS;
  const last = new Map();
  const found = [];
  for (const row of result.rows) {
    const key = keyOf(row, result);
    const mark = last.get(key);
    if (mark && Date.parse(row[0]) - Date.parse(mark.until) < apart) Object.assign(mark, { until: row[0], rows: [...mark.rows, row] });
    else {
      last.set(key, { row: key, since: row[0], until: row[0], rows: [row] });
      found.push(last.get(key));
    }
  }
  return found;
}

/** What a result tells: episodes, or marks of a stream, in order of time. */
export function tellings(result) {
  const found = result.result === "relation" ? episodesOfRelation(result) : marksOfStream(result);
  return found.sort((one, other) => (one.since < other.since ? -1 : 1));
}

export class CqlResult {
  /** `longer` returns a button that asks for a longer stretch, or null. */
  constructor(longer) {
    this.longer = longer;
    this.words = h("p", { id: "cql-words", role: "status" }, T.continuous.notYet);
    this.strip = h("div", { id: "cql-strip" });
    this.list = h("div", { id: "cql-episodes" });
    this.files = h("p", { id: "cql-downloads", class: "quiet", hidden: true });
    this.changes = h("div");
    this.more = h("details", { class: "as-table", hidden: true, on: { toggle: () => this.drawChanges() } }, h("summary", {}, T.continuous.changes), this.changes);
    this.element = h("section", { id: "cql-result", "aria-labelledby": "cql-result-title" }, h("h2", { id: "cql-result-title" }, T.continuous.result), this.words, this.strip, this.files, this.list, this.more);
  }

  /** Show the rows of a back-test. */
  show(result, id) {
    this.result = result;
    this.told = tellings(result);
    const { columns, rows, start, end } = result;
    const keys = new Set(this.told.map((one) => one.row)).size;
    const isStream = result.result === "stream";
    this.words.textContent = rows.length ? T.continuous.told[result.result](number(isStream ? rows.length : this.told.length), number(keys), short(this.told[0].since)) : T.continuous.none(short(start), short(end));
    this.files.hidden = false;
    this.files.replaceChildren(`${T.continuous.download}: `, ...Object.entries(T.continuous.downloads).flatMap(([form, name]) => [h("a", { href: api.rowsAddress(id, form), download: "" }, name), " "]));
    const newest = this.told.toReversed().slice(0, MOST_LISTED);
    const heads = [[isStream ? T.continuous.at : T.continuous.since, "time"], ...(isStream ? [] : [[T.continuous.until, "time"]]), ...[...result.keys, ...valuesAt(result)].map((at) => named(columns[at]))];
    const keyCells = (one) => result.keys.map((at) => shown(one.rows[0][at], columns[at].kind === "integer" ? "text" : columns[at].kind));
    const cells = (one) => [bare(one.since), ...(isStream ? [] : [one.until ? bare(one.until) : T.continuous.lasting]), ...keyCells(one), ...valuesAt(result).map((at) => spanOf(one.rows, at, result))];
    this.list.replaceChildren(...(newest.length ? [table(T.continuous.episodes[result.result], heads, newest.map(cells))] : []));
    this.more.hidden = !rows.length;
    this.more.open = false;
    this.changes.replaceChildren();
    this.draw();
  }

  /** The strip, at the width that there is. */
  draw() {
    if (!this.result) return;
    const { start, end, result } = this.result;
    const bars = this.told.map((one) => {
      const words = describeValues(one.rows, this.result);
      const said = result === "stream" ? T.continuous.mark(one.row, short(one.since), one.rows.length) : T.continuous.bar(one.row, short(one.since), one.until && short(one.until), words);
      return { row: one.row, since: one.since, until: one.until, words: said };
    });
    this.strip.replaceChildren(...(bars.length ? drawEpisodes(bars, { from: Date.parse(start), end: Date.parse(end), width: this.element.clientWidth }) : [h("p", { class: "quiet" }, T.continuous.noneAdvice), this.longer()].filter(Boolean)));
  }

  /** The rows as they came, once somebody looks at them. */
  drawChanges() {
    if (!this.more.open || this.changes.childElementCount) return;
    const { columns, rows } = this.result;
    const heads = columns.map(({ name, unit, kind }, at) => (at === 1 ? T.continuous.sign : [named({ name, unit }), kind === "number" ? "number" : kind === "time" ? "time" : ""]));
    const long = new LongTable(T.continuous.changesCaption, () => heads, (row) => row.map((value, at) => (at === 1 ? (value > 0 ? "+1" : "−1") : shown(value, columns[at].kind))), (row) => row.join(" "));
    long.draw(rows);
    this.changes.replaceChildren(long.element);
  }
}
