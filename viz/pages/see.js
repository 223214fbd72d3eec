// What is seen: variable, time, place and statistic of a query, as controls of one line; each changes the query.

import * as api from "./api.js";
import { gridStep } from "./builder.js";
import { button, choice, field, h, instant, number } from "./dom.js";
import { popover } from "./popover.js";
import { regionOf } from "./region.js";
import { T } from "./text.js";
import { longName, variableChoices } from "./variables.js";

/** Lengths of time that end with the newest reading [days]. */
const SPANS = [1, 3, 7, 30, 365];
const [HOUR_MS, DAY_MS] = [3_600_000, 86_400_000];
const KM_PER_DEGREE = 111.32;

const instantOf = (value) => (typeof value === "string" ? Date.parse(/(Z|[+-]\d\d:?\d\d)$/.test(value) ? value : /T/.test(value) ? `${value}Z` : value) : NaN);

/** An instant as a field of date and time takes it, in UTC; empty where it is none. */
const localTime = (at) => (Number.isNaN(at) ? "" : new Date(at).toISOString().slice(0, 16));

/** Beginning and end of a query's time [ms]; NaN where it has none. */
export const boundsOf = (document) => [0, 1].map((place) => instantOf(document.clip?.time?.[place]));

/** Have a query be of the time between two fields' values; of all time where one is empty. */
export function setTime(document, from, until) {
  const { time, ...others } = document.clip ?? {};
  const bounds = from && until ? { time: [`${from}Z`, `${until}Z`] } : {};
  document.clip = { ...others, ...bounds };
  if (!Object.keys(document.clip).length) delete document.clip;
}

/** The same query of an earlier or later time of the same length; null where it has no time. */
export function shifted(document, lengths) {
  const [from, until] = boundsOf(document);
  if (!(until > from)) return null;
  return movedTo(document, [from, until].map((at) => at + lengths * (until - from)));
}

/** The same query of the same days a year earlier; null where it has no time. */
export function yearBefore(document) {
  const bounds = boundsOf(document).map((at) => {
    const day = new Date(at);
    return day.setUTCFullYear(day.getUTCFullYear() - 1);
  });
  return bounds[1] > bounds[0] ? movedTo(document, bounds) : null;
}

function movedTo(document, bounds) {
  const moved = { ...document, clip: { ...document.clip } };
  setTime(moved, ...bounds.map(localTime));
  return moved;
}

function timeWords(document) {
  const [from, until] = boundsOf(document);
  if (!(until > from)) return T.see.allReadings;
  const isDays = from % DAY_MS === 0 && until % DAY_MS === 0;
  const [first, last] = [from, isDays ? until - DAY_MS : until].map((at) => instant(new Date(at).toISOString().slice(0, isDays ? 10 : 16)).replace(" UTC", ""));
  if (first === last) return first;
  // As much of the end as differs: its day and its year may be those of the beginning.
  const shared = first.slice(0, 10) === last.slice(0, 10) ? 11 : first.slice(0, 4) === last.slice(0, 4) ? 5 : 0;
  return `${first} – ${last.slice(shared)}`;
}

function placeWords(document, stations) {
  const box = regionOf(document, stations);
  if (box) {
    const [width, height] = [(box.east - box.west) * KM_PER_DEGREE * Math.cos((((box.south + box.north) / 2) * Math.PI) / 180), (box.north - box.south) * KM_PER_DEGREE];
    const digits = Math.min(width, height) < 10 ? 1 : 0;
    return T.see.size(number(width, digits), number(height, digits));
  }
  const grid = gridStep(document)?.grid;
  const step = Number(grid?.step);
  if (grid?.x !== undefined && grid.shape && step > 0) return T.see.sizeOfMetres(number(grid.shape[1] * step, 0), number(grid.shape[0] * step, 0));
  return T.see.everywhere;
}

/** The aggregate over time that decides what is seen: the last one. */
const lastAggregate = (document) => [...(document.steps ?? [])].reverse().find((step) => step.op === "aggregate");

/** Change the statistic of a query, or its cells in time; readings as measured get an aggregate before they are mapped. */
export function setAggregate(document, change) {
  let step = lastAggregate(document);
  if (!step) {
    document.steps ??= [];
    const mapped = document.steps.findIndex((item) => item.op === "interpolate");
    step = { op: "aggregate", function: "mean", time: "1h" };
    document.steps.splice(mapped < 0 ? document.steps.length : mapped, 0, step);
  }
  const before = JSON.stringify(step.time);
  Object.assign(step, change);
  // Queries that are merged with it, as the parts of a wind, keep the same cells in time.
  if (change.time === undefined) return;
  const partners = document.steps.flatMap((item) => item.with ?? []).flatMap((query) => query.steps ?? []);
  for (const partner of partners) if (partner.op === "aggregate" && JSON.stringify(partner.time) === before) partner.time = change.time;
}

export class See {
  /** `attempt` runs what may meet a problem, and shows that; `ask` asks the query as it stands; `area` returns what the map shows. */
  constructor(known, builder, region, { attempt, ask, area }) {
    Object.assign(this, { known, builder, region, attempt, ask, area });
    const { variables, functions } = known;
    this.variable = choice("variable", variableChoices(variables), (name) => attempt(() => builder.adapt(name)), "");
    this.span = choice("span", [["", T.see.allReadings], ...SPANS.map((days) => [String(days), T.builder.last(days)])], (days) => days && attempt(() => this.last(Number(days))), "");
    const clock = (id) => h("input", { type: "datetime-local", id, max: "2261-12-31T00:00", on: { change: () => this.typed() } });
    [this.from, this.until] = [clock("from"), clock("until")];
    /** The fields write days and months in the order of the browser's language. */
    this.written = h("p", { id: "dates-written", class: "quiet" });
    this.dates = popover("dates", T.see.dates, field(T.builder.from, this.from), field(T.builder.until, this.until), this.written);
    this.dates.say(T.see.datesShown);
    this.shown = button(T.see.asShown, () => this.takeArea(), { id: "as-shown" });
    this.place = popover("place-part", T.see.place, h("div", { class: "buttons small" }, button(T.see.everywhere, () => this.takeBox(region.everywhere()), { id: "everywhere" }), this.shown), region.element);
    // The map of the stations is made once there is a place with a width for it.
    this.place.element.addEventListener("toggle", () => this.place.element.open && attempt(() => region.open()));
    const free = (functions.aggregate ?? []).filter((row) => !row.parameters.some((one) => one.required));
    const names = [...Object.keys(T.see.statistics).filter((name) => free.some((row) => row.name === name)), ...free.map((row) => row.name).filter((name) => !(name in T.see.statistics))];
    this.statistic = choice("statistic", names.map((name) => [name, T.see.statistics[name] ?? name.replaceAll("_", " ")]), (name) => name && this.change((document) => setAggregate(document, { function: name })), "");
    this.every = choice("every", Object.entries(T.see.spans), (time) => time && this.change((document) => setAggregate(document, { time })), "");
    const move = (id, sign, name, lengths) => button(sign, () => this.move(lengths), { id, class: "icon", "aria-label": name, title: name });
    this.moves = [move("earlier", "‹", T.see.earlier, -1), move("later", "›", T.see.later, 1)];
    this.variablePart = h("div", { class: "wide" }, field(T.builder.variable, this.variable));
    this.element = h("div", { class: "see", role: "group", "aria-label": T.see.title }, this.variablePart,
      h("div", { class: "steps-in-time wide" }, field(T.see.time, this.span), this.moves), this.dates.element, this.place.element,
      field(T.see.statistic, this.statistic), field(T.see.every, this.every));
  }

  /** Show what a query is of. */
  show(document) {
    offer(this.variable, document.variable ?? "", (name) => T.builder.unlisted(name));
    const time = String(document.clip?.time ?? "");
    if (time !== this.spanned?.time) this.spanned = null;
    this.span.options[0].text = timeWords(document);
    this.span.value = this.spanned?.days ?? "";
    const [from, until] = boundsOf(document);
    // What is being typed is left alone.
    for (const [input, at] of [[this.from, from], [this.until, until]]) if (input !== globalThis.document.activeElement) input.value = localTime(at);
    this.written.textContent = until > from ? T.see.datesWritten(...[from, until].map((at) => instant(new Date(at).toISOString().slice(0, 16)))) : "";
    for (const made of this.moves) made.disabled = !(until > from);
    this.place.say(placeWords(document, this.known.stations));
    const step = lastAggregate(document);
    offer(this.statistic, step?.function ?? "", (name) => (name ? name.replaceAll("_", " ") : T.see.asMeasured));
    const every = step ? (typeof step.time === "string" ? step.time : JSON.stringify(step.time ?? "")) : "";
    offer(this.every, every, (text) => text.replace(/[{}"]/g, "") || T.see.asMeasured);
  }

  /** Change the query, and ask it at once. */
  change(act) {
    this.builder.change(act, true);
    this.ask();
  }

  typed() {
    const [from, until] = [this.from.value, this.until.value];
    const fits = (!from && !until) || (from && until && from < until);
    for (const input of [this.from, this.until]) input.toggleAttribute("aria-invalid", Boolean(from && until && !fits));
    if (fits) this.change((document) => setTime(document, from, until));
  }

  move(lengths) {
    const moved = shifted(this.builder.document, lengths);
    if (moved) this.change((document) => (document.clip = moved.clip));
  }

  /** Ask for the days that end with the hour of the variable's newest reading. */
  async last(days) {
    const { variable } = this.builder.document;
    const { features } = await api.look(`latest?variable=${encodeURIComponent(variable)}`);
    if (this.builder.document.variable !== variable) return;
    if (!features.length) throw new api.Problem(T.builder.noReadings(longName(this.known.variables, variable)), T.builder.noReadingsAdvice);
    const newest = Math.max(...features.map((feature) => Date.parse(feature.properties.end)));
    const until = (Math.floor(newest / HOUR_MS) + 1) * HOUR_MS;
    const bounds = [until - days * DAY_MS, until].map(localTime);
    this.spanned = { days: String(days), time: String(bounds.map((at) => `${at}Z`)) };
    this.change((document) => setTime(document, ...bounds));
  }

  takeBox(box) {
    if (box) this.region.onRegion(box, undefined);
    this.place.element.open = false;
  }

  takeArea() {
    this.takeBox(this.area());
  }
}

/** Choose a value of a list, which is added in words where the list does not have it. */
function offer(select, value, words) {
  for (const option of [...select.options]) if (option.dataset.added) option.remove();
  if (![...select.options].some((option) => option.value === value)) {
    const option = new Option(words(value), value);
    option.dataset.added = "yes";
    select.prepend(option);
  }
  select.value = value;
}
