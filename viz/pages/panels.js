// Panels as values: made of an address of the pages, and turned into what is asked now.

import { meanOf } from "./pane.js";
import { T } from "./text.js";

const [SECOND_MS, HOUR_MS] = [1000, 3_600_000];
const UNITS_MS = { day: 24 * HOUR_MS, h: HOUR_MS, min: 60 * SECOND_MS, s: SECOND_MS };
/** Lengths of time that are offered. */
export const LENGTHS = ["1h", "6h", "1day", "2day", "7day", "28day", "365day"];
/** What of an address of Explore is not how its answer is looked at. */
const NO_VIEW = ["q", "order", "run", "brush", "beside", "difference"];
const [MOST_PARTS, LONGEST_PART] = [20, 200];

/** A duration of the API, such as 6h, in milliseconds. */
export function millisOf(text) {
  const [, count, unit] = /^(\d+)(day|h|min|s)$/.exec(text) ?? [];
  return count ? Number(count) * UNITS_MS[unit] : NaN;
}

/** Milliseconds as a duration of the API, in the largest unit that divides it. */
export function durationOf(ms) {
  const [unit, size] = Object.entries(UNITS_MS).find(([, one]) => ms % one === 0) ?? ["s", SECOND_MS];
  return `${Math.max(1, Math.round(ms / size))}${unit}`;
}

/** A duration in words: the last 6 hours. */
export function lengthWords(text) {
  const [, count, unit] = /^(\d+)(day|h|min|s)$/.exec(text ?? "") ?? [];
  return count ? T.panels.length(Number(count), T.panels.units[unit]) : T.panels.whole;
}

/** The panel of what an address of Explore or Stations shows, with the time as it is there; null where it shows nothing yet. */
export function panelOf(page, params) {
  if (page === "stations") {
    const [station, variable, days] = ["station", "variable", "days"].map((name) => params.get(name));
    return station && variable ? { kind: "series", station, variable, last: Number(days) ? `${Number(days)}day` : null } : null;
  }
  if (!params.has("q")) return null;
  const query = JSON.parse(params.get("q"));
  const parts = [...params].filter(([name, text]) => !NO_VIEW.includes(name) && /^[a-z_]{1,40}$/.test(name) && text.length <= LONGEST_PART);
  return { kind: "picture", query, view: Object.fromEntries(parts.slice(0, MOST_PARTS)), last: null };
}

/** How long the time of a query is, as a duration; "" where it has none. */
export function spanOf({ clip }) {
  const [start, stop] = (clip?.time ?? []).map((text) => Date.parse(/Z|[+-]\d\d:?\d\d$/.test(text) || !text.includes("T") ? text : `${text}Z`));
  return stop > start ? durationOf(stop - start) : "";
}

/** A panel that follows the newest readings over a length of time. */
export function following(panel, last) {
  if (!panel.query) return { ...panel, last };
  const { snapshot, as_of, clip, ...query } = panel.query;
  const { time, ...rest } = clip ?? {};
  const { time: cell, ...view } = panel.view ?? {};
  return { ...panel, last, query: { ...query, ...(Object.keys(rest).length ? { clip: rest } : {}) }, ...(panel.view ? { view } : {}) };
}

/** Every variable that a panel reads: those of its query, and of the queries within. */
export function variablesOf({ query, variable }) {
  const names = new Set(variable ? [variable] : []);
  const visit = (value) => {
    if (Array.isArray(value)) value.forEach(visit);
    else if (value && typeof value === "object") {
      if (typeof value.variable === "string") names.add(value.variable);
      Object.values(value).forEach(visit);
    }
  };
  visit(query);
  return names;
}

/** When the time of a panel begins and ends [ms], where it follows: it ends with the newest slice of its variable. */
export function spanNow({ last, query, variable }, ends) {
  const end = Date.parse(ends[query?.variable ?? variable] ?? "");
  return last && Number.isFinite(end) ? [end - millisOf(last), end] : null;
}

/** The query of a panel now. */
export function questionOf(panel, ends) {
  const span = spanNow(panel, ends);
  if (!span) return panel.query;
  return { ...panel.query, clip: { ...panel.query.clip, time: span.map((at) => new Date(at).toISOString()) } };
}

/** The address of the page that shows what a panel shows now. */
export function addressOf(panel, ends) {
  if (!panel.query) return `stations?${new URLSearchParams({ station: panel.station, variable: panel.variable, days: String(Math.ceil(millisOf(panel.last ?? "0s") / UNITS_MS.day) || 0) })}`;
  return `explore?${new URLSearchParams({ q: JSON.stringify(questionOf(panel, ends)), ...panel.view, run: "1" })}`;
}

/** Several series as one: their least or greatest value at each time, else their mean. */
export function joined(lines, how) {
  if (how !== "min" && how !== "max") return meanOf(lines);
  return lines[0].values.map((_, at) => reduced(lines.map((line) => line.values[at]), how).value);
}

/** One number of values, NaN where none is finite; with the place of the latest one. */
export function reduced(values, how) {
  const finite = values.filter(Number.isFinite);
  const at = values.findLastIndex(Number.isFinite);
  if (!finite.length) return { value: NaN, at };
  const sum = () => finite.reduce((total, value) => total + value, 0);
  const ways = { latest: () => values[at], mean: () => sum() / finite.length, min: () => Math.min(...finite), max: () => Math.max(...finite), sum };
  return { value: ways[how](), at };
}
