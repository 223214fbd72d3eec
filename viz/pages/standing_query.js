// What a standing query looks at: a query made of a variable and a place, without its time, in a sentence.

import * as api from "./api.js";
import { T } from "./text.js";
import { longName } from "./variables.js";

/** Lengths of a value, of which the first is taken that holds a reading of most stations [s]. */
export const LENGTHS = [["10min", 600], ["30min", 1800], ["1h", 3600], ["3h", 10_800], ["6h", 21_600], ["1day", 86_400]];
export const SHORTEST = LENGTHS[0][0];
/** A station counts as silent after three usual gaps at least. */
const GAPS = 3;
/** Cells along the longer side of a map that is judged: it is computed anew with each slice. */
const CELLS = 20;

/** A grid with at most `CELLS` cells along its longer side. */
function coarser(grid) {
  const factor = Math.ceil(Math.max(...(grid.shape ?? [1])) / CELLS);
  const [, size, unit] = /^([\d.]+)(.*)$/.exec(String(grid.step)) ?? [];
  if (factor < 2 || size === undefined) return grid;
  const step = Number((Number(size) * factor).toPrecision(12));
  return { ...grid, step: unit ? `${step}${unit}` : step, shape: grid.shape.map((count) => Math.ceil(count / factor)) };
}

/** The length of a value: the shortest that holds a reading of most stations. */
export async function measureLength() {
  const health = await api.look("stations/health");
  const known = health.map((station) => station.interval_s).filter((interval) => interval !== null).sort((one, other) => one - other);
  const usual = (known[Math.floor(known.length / 2)] ?? 0) / GAPS;
  return (LENGTHS.find(([, seconds]) => seconds >= usual) ?? LENGTHS[LENGTHS.length - 1])[0];
}

/** The query of a variable in values of a length of time; `where` is stations, station (the one that is named), map or mean. */
export async function makeQuery({ variable, unit, where, station, time }) {
  const { query } = await api.suggest(variable);
  const first = query.steps.find((step) => step.op === "aggregate");
  const usual = unit === "degree" ? "circular_mean" : (first?.function ?? "mean");
  const base = { variable: query.variable, ...(query.select ? { select: query.select } : {}) };
  if (where === "stations") return { ...base, steps: [{ op: "aggregate", function: usual, time }] };
  if (where === "station") return { ...base, select: { ...query.select, station }, steps: [{ op: "aggregate", function: usual, time }] };
  const last = query.steps.findLastIndex((step) => step.op === "interpolate");
  if (last < 0) throw new api.Problem(T.standing.noMap, T.standing.noMapAdvice);
  const steps = query.steps.slice(0, last + 1).map((step) => (step.op === "aggregate" && step.time !== undefined ? { ...step, time } : step.op === "interpolate" && step.grid ? { ...step, grid: coarser(step.grid) } : step));
  if (where === "map") return { ...base, steps };
  const [row, column] = steps[last].grid.lon === undefined ? ["y", "x"] : ["lat", "lon"];
  return { ...base, steps: [...steps, { op: "aggregate", function: "mean", [column]: "all", [row]: "all" }] };
}

/** A query without its time: a standing query reads what comes. */
export function withoutTime({ snapshot, as_of, ...query }) {
  const { time, ...clip } = query.clip ?? {};
  delete query.clip;
  return Object.keys(clip).length ? { ...query, clip } : query;
}

/** What a standing query looks at, in a sentence. */
export function describeInput(query, known) {
  const { says } = T.standing;
  const steps = (query.steps ?? []).map((step) => {
    if (step.op === "aggregate") return says.aggregate(step.function, typeof step.time === "string" ? step.time : "");
    return step.op === "interpolate" ? says.interpolate(step.method) : says.other(step.function ?? step.method);
  });
  const name = longName(known, query.variable);
  const { station } = query.select ?? {};
  const rest = station ? says.station([station].flat().join(", ")) : "";
  return steps.length ? says.query(name, steps, rest) : `${says.readings(name)}${rest}.`;
}
