// What a question has to show in a view, fetched from the API.

import * as api from "./api.js";
import { cellSeries } from "./cell_series.js";
import { instant, number } from "./dom.js";
import { spread } from "./figures.js";
import { hullOfQuery, shareBeyond } from "./hull.js";
import { linesOf, mapWords, meanOf } from "./pane.js";
import { hasDays, millis } from "./pictures.js";
import { T } from "./text.js";
import { variogramContent } from "./variogram.js";

const root = (values) => values.map((value) => Math.sqrt(Math.max(value, 0)) + (Number.isNaN(value) ? NaN : 0));

/** Colours of a kind of field: a palette is chosen for values only. */
export const coloursOf = (scale, palette = "sequential") => (scale === "sequential" ? palette : scale);

/** What is known of a picture as soon as the plan is: title, heading, units, colours, and where its cells lie. */
export function headOf({ surface, scale }, part, shared) {
  const deviation = part === "variance";
  const [name, all] = [surface.long_name, surface.title];
  const [title, quantity, heading] = deviation ? [T.views.deviation(name), T.views.deviationAxis, T.views.deviation(all)] : [name, name, all];
  return { ...shared, part, surface, title, quantity, heading, units: surface.units, scale: deviation ? "uncertainty" : coloursOf(scale, shared.palette) };
}

/**
 * What a pane shows, or why there is nothing, in words; of a map without values {answer, words}, in its place and below it.
 *
 * `part` is "value" or "variance", of which the root is shown; `shared` holds view, time, level, picked and what a map needs.
 */
export function content(question, part, shared) {
  const { surface } = question;
  const deviation = part === "variance";
  const common = headOf(question, part, shared);
  if (shared.view === "variogram") return deviation ? T.views.noVarianceHere : variogramContent(question, common, shared.fit);
  if (surface.kind === "series") return seriesContent(question, common, deviation);
  return shared.view === "map" || shared.view === "histogram" ? frameContent(question, part, common) : cellContent(question, common, deviation);
}

async function frameContent(question, part, common) {
  const { surface, view, title, units } = common;
  const time = Math.min(common.time, surface.times.length - 1);
  const level = Math.min(common.level, (surface.z?.length ?? 1) - 1);
  const found = await api.frame(question.id, time, level, part, question.stopping.signal);
  if (found.fraction === 1 && !found.values.some(Number.isFinite)) {
    const answer = question.isEmpty ? T.views.empty(title, question.notes.at(-1) ?? "") : T.views.emptyFrame(title, instant(found.time));
    return { answer, words: mapWords({ surface, title, units, frame: found }) };
  }
  const frame = part === "variance" ? { ...found, values: root(found.values), estimate: root(found.estimate), error: null } : found;
  const key = `${part}Range`;
  // Colours are fixed by the first estimate, so that the picture does not flicker; the final values set them at the end.
  question[key] ??= spread(frame.estimate);
  const isFitted = question.state === "done" && (part === "variance" || common.span === "picture");
  const range = isFitted ? spread(frame.values) : part === "value" ? (question.range ?? question.valueRange) : question.varianceRange;
  const heading = surface.times.length > 1 ? T.views.heading(common.heading, instant(frame.time)) : common.heading;
  if (view === "histogram") {
    const values = common.estimated === "hidden" ? frame.values : frame.estimate;
    return { ...common, heading, values, words: T.views.histogram(title, units, number(values.filter(Number.isFinite).length), instant(frame.time)) };
  }
  const hatched = part === "value" && common.hatch ? await hatchOf(question, { time, level, range, share: common.hatch }) : {};
  return { ...common, ...hatched, outside: outsideOf(question, common), heading, frame, range, words: mapWords({ surface, title, units, frame }) };
}

/** The hull of a map's stations and the share of its cells beyond, to come: no picture waits for them. Nothing while cells are computed. */
async function outsideOf(question, { surface, extrapolated }) {
  if (!question.ended) return null;
  if (extrapolated === "same" || surface.dims[1] !== "lon") return { hull: null };
  question.outside ??= hullOfQuery(question.document, question.snapshot).then((hull) => ({ hull, beyond: hull && shareBeyond(hull, surface) }));
  return question.outside.catch(() => {
    question.outside = undefined;
    return { hull: null };
  });
}

/** Which cells are uncertain: their standard error is above a share of what the colours span. */
async function hatchOf(question, { time, level, range, share }) {
  if (question.state !== "done" || !question.document.variance || !range) return {};
  const { values } = await api.frame(question.id, time, level, "variance", question.stopping.signal);
  const deviation = root(values);
  const limit = share * (range[1] - range[0]);
  return { deviation, limit, uncertain: Uint8Array.from(deviation, (error) => (error > limit ? 1 : 0)) };
}

async function cellContent(question, common, deviation) {
  const { view, title, units, cell: picked, level, functions } = common;
  if (question.state !== "done") return T.views.whenDone;
  question.cells ??= new Map();
  const key = [...picked, level].join();
  if (!question.cells.has(key)) {
    question.cells.set(key, cellSeries(question, picked, level, functions).then((found) => ({ ...found, deviation: found.variance && root(found.variance), drawn: new Map() })));
  }
  const cell = await question.cells.get(key);
  const spreadOf = cell.deviation;
  if (deviation && !spreadOf) return T.views.noVariance;
  const values = deviation ? spreadOf : cell.values;
  if (!values.some(Number.isFinite)) return T.views.noValues;
  const place = Object.entries(cell.place).reverse().map(([name, value]) => `${name} ${number(value, 5)}`).join(", ");
  const heading = deviation ? common.heading : cell.title;
  if (view === "heat") return daysOf({ ...common, heading }, cell.times, values, T.views.place(place));
  const name = T.views.cell(place);
  if (!cell.drawn.has(deviation)) {
    cell.drawn.set(deviation, [{ name, times: millis(cell.times), values: Array.from(values), deviation: deviation ? null : spreadOf && Array.from(spreadOf) }]);
  }
  const lines = cell.drawn.get(deviation);
  const words = T.views.line(title, units, name, number(values.length), instant(cell.times[0])) + (spreadOf && !deviation ? T.views.band : "");
  return { ...common, heading: T.views.heading(heading, name), lines, points: [], words };
}

function seriesContent(question, common, deviation) {
  const { view, title, units } = common;
  if (deviation) return T.views.noVarianceOfSeries;
  if (!question.table) return T.views.whenDone;
  const { table } = question;
  table.lines ??= linesOf(table);
  const { lines } = table;
  if (!lines.length) return T.views.noSeries;
  if (!table.values.some(Number.isFinite)) return T.views.noValues;
  if (view === "heat") return daysOf(common, table.times, (table.mean ??= meanOf(lines)), T.views.meanOf(lines.length));
  if (view === "histogram") return { ...common, values: table.values, words: T.views.histogram(title, units, number(table.values.filter(Number.isFinite).length), T.views.allTimes) };
  return { ...common, lines, points: [], words: T.views.lines(number(lines.length), title, units, number(table.times.length), instant(table.times[0])) };
}

function daysOf(common, times, values, what) {
  if (!hasDays(times)) return T.views.noDays;
  const { title, units } = common;
  const full = `${title}, ${what}`;
  const heading = T.views.heading(common.heading, what);
  return { ...common, title: full, heading, times, values, range: spread(values), words: T.views.days(title, units, what, instant(times[0])) };
}

/** Give two pictures of equal units the same colours, so that they can be compared. */
export function shareColours(first, second) {
  const isAlike = first?.range && second?.range && ["view", "part", "units", "scale"].every((name) => first[name] === second[name]);
  if (!isAlike) return;
  const range = spread([...first.range, ...second.range]);
  for (const one of [first, second]) Object.assign(one, { range, isShared: true });
}

/** What one picture shows less what another does; null where they are not alike. */
export function differenceOf(first, second) {
  const title = T.views.difference(first.title, second.title);
  const heading = first.frame ? T.views.heading(title, T.views.since(instant(first.frame.time))) : title;
  const common = { ...first, title, heading, quantity: T.views.differenceAxis, scale: "diverging", outside: { hull: null } };
  if (first.units !== second.units || first.view !== second.view) return null;
  if (first.view === "map") {
    const { frame: one } = first;
    const { frame: other } = second;
    if (String(one.shape) !== String(other.shape)) return null;
    const less = (name) => one[name].map((value, at) => value - other[name][at]);
    const computed = one.computed.map((value, at) => Math.min(value, other.computed[at]));
    const frame = { ...one, values: less("values"), estimate: less("estimate"), computed, fraction: Math.min(one.fraction, other.fraction), error: null };
    const range = spread(frame.estimate);
    return { ...common, frame, range, words: mapWords({ surface: first.surface, title, units: first.units, frame }) };
  }
  if (first.view === "lines") {
    const held = new Map(second.lines.map((line) => [line.name, new Map(line.times.map((time, at) => [time, line.values[at]]))]));
    const lines = first.lines.filter((line) => held.has(line.name)).map((line) => ({ name: line.name, times: line.times, values: line.values.map((value, at) => value - (held.get(line.name).get(line.times[at]) ?? NaN)) }));
    if (!lines.length) return null;
    return { ...common, scale: "sequential", lines, words: T.views.lines(number(lines.length), title, first.units, number(lines[0].times.length), instant(new Date(lines[0].times[0]).toISOString())) };
  }
  if (first.view === "heat" && String(first.times) === String(second.times)) {
    const values = Array.from(first.values, (value, at) => value - second.values[at]);
    return { ...common, values, range: null, words: T.views.days(title, first.units, "", instant(first.times[0])) };
  }
  return null;
}
