// How a query is computed, in one sentence made from its steps.

import { figure as short, number } from "./dom.js";
import { T } from "./text.js";

const HOUR_MS = 3_600_000;
const BOUNDS = ["valid_range", "limit"];

/** How long the time of a query is, in words. */
function lengthOf({ clip }) {
  const [from, until] = (clip?.time ?? []).map(Date.parse);
  const hours = (until - from) / HOUR_MS;
  if (!(hours > 0)) return T.sentence.wholeTime;
  return hours % 24 === 0 ? T.sentence.days(hours / 24) : T.sentence.hours(number(hours, 1));
}

const everyOf = ({ time }) => (time === undefined ? "" : typeof time === "string" ? time : (time.length ?? time.step ?? ""));

function stationsOf({ select }, stations) {
  const chosen = [select?.station ?? []].flat().length;
  return chosen ? T.sentence.some(number(chosen)) : T.sentence.stations(number(stations));
}

/** How a query over an archive of so many stations is computed, in a sentence. */
export function describeComputation(document, stations) {
  const steps = Array.isArray(document.steps) ? document.steps : [];
  const [length, whose] = [lengthOf(document), stationsOf(document, stations)];
  const first = steps.findIndex((step) => step.op === "aggregate");
  const isMapped = (place) => steps.slice(0, place).some((step) => step.op === "interpolate");
  // What begins the sentence stands before all maps; a statistic of maps comes in its turn.
  const begins = first >= 0 && !isMapped(first) ? first : -1;
  const every = begins >= 0 ? everyOf(steps[begins]) : "";
  const subject = begins >= 0 ? T.sentence.of(T.sentence.statistic(steps[begins].function, every), whose, every === "all" ? length : "") : T.sentence.readings(whose);
  const parts = steps.map((step, place) => {
    if (place === begins) return null;
    if (step.op === "aggregate") return T.sentence.then(step.function, everyOf(step), length);
    if (step.op === "interpolate") return step.grid ? T.sentence.mapped(step.method) : T.sentence.inTime;
    if (step.op === "merge") return T.sentence.merged(step.function);
    const { low, high } = step.params ?? {};
    return BOUNDS.includes(step.function) && [low, high].every(Number.isFinite) ? T.sentence.between(short(low), short(high)) : T.sentence.converted(step.function);
  });
  return `${[subject, ...parts.filter(Boolean)].join(", ")}.`;
}
