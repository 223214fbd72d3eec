// How the engine is, in sentences for those who use it: what is told by the API, and nothing else.

import { bytes, duration, instant, number } from "./dom.js";
import { T } from "./text.js";

const DAY_S = 86_400;
/** Silence of a network beyond that of most of its stations that is worth a look, and the least such silence [s]. */
const [LONGER, LEAST_S] = [2, 900];
/** Silence after which an archive may be one that is not fed any more [s]. */
const OLD_S = 30 * DAY_S;
/** Shares of a disk and of memory that are free: below the first they want attention, below the second they are bad. */
const FREE = { disk: [0.1, 0.03], memory: [0.15, 0.05] };

const YEAR_S = 365.25 * DAY_S;
/** A long time in years. */
const length = (time_s) => (time_s > 2 * YEAR_S ? T.summary.years(number(time_s / YEAR_S, 0)) : duration(time_s));
const seconds = (time) => Date.parse(time) / 1000;

/**
 * Sentences on how the engine is: {topic, state, text}, with state "good", "attention" or "bad".
 *
 * `told` holds answers of the API: `engine`, `health` of the stations, `snapshots`, `standing` (statistics; null where
 * none are kept), `entries` (standing queries), `stream` ({state, record}; null where none is known), `troubles` by
 * component, and `now`, the time of the page [ms since 1970].
 */
export function summarise(told) {
  return [...troubles(told), freshness(told), stations(told), standing(told), queries(told), disk(told), memory(told), stream(told)].filter(Boolean);
}

function troubles({ troubles: parts }) {
  return Object.entries(parts).map(([name, why]) => ({ topic: name, state: "bad", text: T.summary.component(name, why) }));
}

/** A time of the same day is told by its hour. */
function clock(time, now) {
  const text = time.slice(0, 19);
  return new Date(now).toISOString().slice(0, 10) === text.slice(0, 10) ? `${text.slice(11, 16)} UTC` : instant(text);
}

function freshness({ health, snapshots, now }) {
  const heard = health.map((station) => station.heard).filter(Boolean).sort();
  const newest = heard[heard.length - 1];
  if (!newest) return { topic: "readings", state: "attention", text: T.summary.noReadings };
  const age = now / 1000 - seconds(newest);
  const committed = snapshots[0]?.time;
  const delay = committed ? seconds(committed) - seconds(newest) : NaN;
  const intervals = health.map((station) => station.interval_s).filter((interval) => interval !== null).sort((one, other) => one - other);
  const usual = intervals[Math.floor(intervals.length / 2)];
  const isQuiet = age > Math.max(LONGER * (usual ?? 0), LEAST_S);
  const follows = !committed ? "." : delay >= 0 && delay < DAY_S ? T.summary.followed(duration(delay)) : T.summary.committed(clock(committed, now));
  const advice = !isQuiet ? "" : age > OLD_S || usual === undefined ? T.summary.old : T.summary.quiet(duration(usual));
  return { topic: "readings", state: isQuiet ? "attention" : "good", text: `${T.summary.newest(clock(newest, now), length(Math.max(age, 0)))}${follows}${advice}` };
}

function stations({ health }) {
  if (!health.length) return null;
  const count = (state) => health.filter((station) => station.state === state).length;
  const others = ["late", "dead", "unknown"].filter(count).map((state) => T.summary.state[state](number(count(state))));
  return { topic: "stations", state: count("late") + count("dead") ? "attention" : "good", text: T.summary.stations(number(count("reporting")), number(health.length), others) };
}

function standing({ standing: statistics, entries }) {
  if (!statistics) return null;
  if (statistics.trouble) return { topic: "standing", state: "bad", text: T.summary.trouble(statistics.trouble) };
  const paused = entries.filter((entry) => entry.paused).length;
  const more = paused ? T.summary.paused(number(paused)) : "";
  const count = number(statistics.queries);
  if (statistics.failing.length) return { topic: "standing", state: "bad", text: T.summary.failing(statistics.failing) + more };
  if (!statistics.queries) return { topic: "standing", state: "good", text: T.summary.noStanding + more };
  if (!statistics.queue) return { topic: "standing", state: "good", text: T.summary.fresh(count) + more };
  const why = statistics.overloaded ? T.summary.because.overloaded : T.summary.because.busy;
  return { topic: "standing", state: statistics.overloaded ? "attention" : "good", text: T.summary.stale(number(statistics.queue), count, duration(statistics.oldest_s)) + why + more };
}

function queries({ engine: { queries: runs } }) {
  if (!runs.queued) return { topic: "queries", state: "good", text: T.summary.queries(number(runs.running)) };
  if (runs.queued >= runs.capacity) return { topic: "queries", state: "bad", text: T.summary.full(number(runs.queued)) };
  return { topic: "queries", state: "attention", text: T.summary.waiting(number(runs.queued), number(runs.running), number(runs.workers)) };
}

function room(what, { free_bytes: free, total_bytes: total }) {
  const [scarce, none] = FREE[what];
  return free / total < none ? "bad" : free / total < scarce ? "attention" : "good";
}

function disk({ engine: { disk: space } }) {
  if (!space) return { topic: "disk", state: "attention", text: T.summary.diskUnknown };
  const percent = number(100 * (1 - space.free_bytes / space.total_bytes), 0);
  return { topic: "disk", state: room("disk", space), text: T.summary.disk(bytes(space.free_bytes), bytes(space.total_bytes), percent) };
}

function memory({ engine: { memory: space, process } }) {
  if (!space?.total_bytes) return null;
  return { topic: "memory", state: room("memory", space), text: T.summary.memory(bytes(process.resident_bytes), bytes(space.free_bytes), bytes(space.total_bytes)) };
}

function stream({ stream: held, now }) {
  if (!held || held.state === "none") return null;
  const { state, record } = held;
  const time = clock(record.at, now);
  if (state === "running") {
    const age = record.last_slice ? duration(Math.max(now / 1000 - seconds(record.last_slice), 0)) : "";
    return { topic: "stream", state: "good", text: T.summary.stream.running(age, number(record.behind ?? 0)) };
  }
  return { topic: "stream", state: state === "lost" ? "bad" : "attention", text: T.summary.stream[state](time) };
}
