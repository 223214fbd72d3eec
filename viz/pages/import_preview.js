// What a reading becomes: its instant in UTC by the zone of its clock, its value in the unit of its variable.

const FIXED = /^([+-])(\d\d):?(\d\d)$/;
const formats = new Map();

/** Minutes by which a zone is ahead of UTC at an instant [ms]. */
function offsetAt(at, zone) {
  const fixed = FIXED.exec(zone);
  if (fixed) return (fixed[1] === "-" ? -1 : 1) * (Number(fixed[2]) * 60 + Number(fixed[3]));
  if (!formats.has(zone)) {
    formats.set(zone, new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" }));
  }
  const { year, month, day, hour, minute, second } = Object.fromEntries(formats.get(zone).formatToParts(at).map(({ type, value }) => [type, Number(value)]));
  return (Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(at / 1000) * 1000) / 60_000;
}

/** The instant [ms] at which a clock of a zone showed a time, such as 2024-03-12T14:00:00. */
export function instantOf(clock, zone) {
  const wall = Date.parse(`${clock}Z`);
  // The second round is right where the zone changes its offset between the first guess and the instant.
  let at = wall - offsetAt(wall, zone) * 60_000;
  at = wall - offsetAt(at, zone) * 60_000;
  return at;
}

const LONG = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", day: "numeric", month: "long", year: "numeric", hour: "2-digit", minute: "2-digit" });

/** An instant [ms], or what a clock showed, in words: 12 March 2024 14:00. */
export const inWords = (at) => LONG.format(typeof at === "string" ? Date.parse(`${at}Z`) : at).replace(/,| at/g, "");

/** Zones to choose from: UTC, those that are likely, and all that the browser knows. */
export function zones(...likely) {
  const known = typeof Intl.supportedValuesOf === "function" ? Intl.supportedValuesOf("timeZone") : [];
  const whole = Array.from({ length: 27 }, (_, at) => at - 12).filter(Boolean).map((hours) => `${hours < 0 ? "-" : "+"}${String(Math.abs(hours)).padStart(2, "0")}:00`);
  return [...new Set(["UTC", ...likely.filter(Boolean), ...known, ...whole])];
}

export const zoneHere = () => Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";

/** A value in the unit of its variable; `conversions` has factor and offset of each unit. */
export function converted(value, unit, conversions) {
  const known = conversions?.[unit];
  return known && value !== null && value !== undefined ? value * known[0] + known[1] : null;
}
