// The series of a cell of a map: what is at hand, or the same question of that cell alone, with its uncertainty.

import * as api from "./api.js";
import { gridStep } from "./builder.js";
import { pose } from "./question.js";
import { boundsOf, setAggregate } from "./see.js";
import { LENGTHS, measureLength } from "./standing_query.js";
import { T } from "./text.js";

/** Lengths of time cells, shortest first, as a query writes them, and how long they are [s]. */
const ALL = [...LENGTHS, ["7days", 604_800]];
/** Points of a series, of so many years at most that its cells are weeks: it comes soon, and each of them can be seen. */
const MOST_POINTS = 400;
/** The status of a question that cannot be answered as it is. */
const REFUSED = 422;

/** Lengths to try for a query, the best one first: as short as there is room for, and no shorter than stations report. */
async function lengthsOf(document) {
  const [from, until] = boundsOf(document);
  const shortest = await measureLength().then((name) => ALL.findIndex(([other]) => other === name), () => 0);
  const roomy = ALL.findIndex(([, seconds]) => (until - from) / 1000 / seconds <= MOST_POINTS);
  // Without dates the whole archive may be years.
  const first = until > from ? (roomy < 0 ? ALL.length - 1 : roomy) : ALL.length - 2;
  return ALL.slice(Math.max(first, shortest)).map(([name]) => name);
}

/** The query of one cell of a map; `time` is the length of its time cells where the map has a single one. */
export function cellQuery(document, surface, [row, column], level, time) {
  const copy = JSON.parse(JSON.stringify(document));
  if (time) setAggregate(copy, { time });
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

/** Ask a query, and wait for its end; `signal` stops it. */
const answered = (document, signal) => new Promise((resolve, reject) => {
  const wrapped = (problem) => new api.Problem(problem?.title ?? T.problems.gone, problem?.detail ?? problem?.message ?? T.problems.lostAdvice, problem?.status);
  const end = (question) => (question.state === "done" ? resolve(question) : reject(wrapped(question.problem)));
  pose(document, "coarse_to_fine", { plan: () => {}, progress: () => {}, end }).then((question) => {
    const stop = () => question.ended || question.stop().catch(() => {});
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  }, reject);
});

async function ask(document, signal) {
  const asked = await answered(document, signal);
  return { ...(await api.cell(asked.id, 0, 0, 0)), title: asked.surface.title };
}

/** The first answer of several ways to ask; where one is refused the next is tried. */
async function firstAnswer(ways) {
  for (const [at, way] of ways.entries()) {
    try {
      return await way();
    } catch (problem) {
      if (problem.status !== REFUSED || at === ways.length - 1) throw problem;
    }
  }
  return null;
}

/** Whether the method by which a query is mapped has an uncertainty; `functions` are those that the server knows. */
function hasVariance(document, functions) {
  const method = gridStep(document)?.method;
  const known = functions?.interpolate?.find(({ name }) => name === method);
  return method === "auto" || Boolean(known?.parameters.some(({ name }) => name === "variance_of"));
}

/**
 * A cell over time, with its uncertainty where its method has one; `title` says what the series is.
 *
 * Without `functions` nothing is asked for the sake of the uncertainty alone.
 */
export async function cellSeries(question, picked, level, functions) {
  const { id, document, surface } = question;
  const atHand = () => api.cell(id, ...picked, level).then((cell) => ({ ...cell, title: surface.title }));
  const isSeries = surface.times.length > 1;
  const isUncertain = functions && hasVariance(document, functions);
  if (isSeries && (document.variance || !isUncertain)) return atHand();
  question.looking ??= new AbortController();
  const { signal } = question.looking;
  if (isSeries) return ask({ ...cellQuery(document, surface, picked, level), variance: true }, signal).catch(atHand);
  // Steps after the map may have no uncertainty even so, and steps before it no cells so short.
  const kinds = isUncertain ? [true, false] : [false];
  const ways = (await lengthsOf(document)).flatMap((time) => kinds.map((variance) => () => ask({ ...cellQuery(document, surface, picked, level, time), variance }, signal)));
  return firstAnswer(ways);
}
