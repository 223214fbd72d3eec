// The series of a cell of a map: what is at hand, or the same question of that cell alone, with its uncertainty.

import * as api from "./api.js";
import { gridStep } from "./builder.js";
import { pose } from "./question.js";
import { boundsOf, setAggregate } from "./see.js";
import { T } from "./text.js";

const HOUR_MS = 3_600_000;
/** Lengths of time cells, shortest first, as a query writes them, and how long they are [ms]. */
const LENGTHS = { "10min": HOUR_MS / 6, "1h": HOUR_MS, "6h": 6 * HOUR_MS, "1day": 24 * HOUR_MS };
/** Most points of a series, so that it comes soon and each of them can be seen. */
const MOST_POINTS = 400;

/** The query of one cell of a map; of a map of one time at shorter times, which are days where the query has no dates. */
export function cellQuery(document, surface, [row, column], level) {
  const copy = JSON.parse(JSON.stringify(document));
  if (surface.times.length < 2) {
    const [from, until] = boundsOf(copy);
    const time = Object.keys(LENGTHS).find((name) => (until - from) / LENGTHS[name] <= MOST_POINTS) ?? "1day";
    setAggregate(copy, { time });
  }
  const [up, across] = surface.dims;
  const clip = { ...copy.clip };
  for (const [name, at] of [[up, row], [across, column], ["z", level]]) {
    const centres = surface[name] ?? [];
    // An axis of one cell needs no clip.
    if (centres.length < 2) continue;
    // A clip selects cells by their lower edge.
    const size = Math.abs(centres[1] - centres[0]);
    const edge = centres[at] - size / 2;
    clip[name] = [edge - size / 4, edge + size / 4];
  }
  return { ...copy, clip };
}

const answered = (document) => new Promise((resolve, reject) => {
  const end = (question) => (question.state === "done" ? resolve(question) : reject(question.problem ?? new api.Problem(T.problems.gone, T.problems.lostAdvice)));
  pose(document, "coarse_to_fine", { plan: () => {}, progress: () => {}, end }).catch(reject);
});

async function ask(document) {
  const asked = await answered(document);
  return { ...(await api.cell(asked.id, 0, 0, 0)), title: asked.surface.title };
}

/** Whether the method by which a query is mapped has an uncertainty; `functions` are those that the server knows. */
function hasVariance(document, functions) {
  const method = gridStep(document)?.method;
  const known = functions?.interpolate?.find(({ name }) => name === method);
  return method === "auto" || Boolean(known?.parameters.some(({ name }) => name === "variance_of"));
}

/** A cell over time, with its uncertainty where its method has one; `title` says what the series is. */
export async function cellSeries({ id, document, surface }, picked, level, functions) {
  const atHand = () => api.cell(id, ...picked, level).then((cell) => ({ ...cell, title: surface.title }));
  const isSeries = surface.times.length > 1;
  if (isSeries && document.variance) return atHand();
  const query = cellQuery(document, surface, picked, level);
  const plain = () => (isSeries ? atHand() : ask(query));
  // Steps after the map may have none even so.
  return hasVariance(document, functions) ? ask({ ...query, variance: true }).catch(plain) : plain();
}
