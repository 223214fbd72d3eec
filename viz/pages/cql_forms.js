// Continuous queries that are filled in instead of written; and those that are made of a question of the other pages.

/** Query of a form of the catalogue, with numbers in place of the names in braces. */
export function writeForm(form, values) {
  return form.fields.reduce((text, { name, is_whole: isWhole }) => text.replaceAll(`{${name}}`, isWhole ? Math.round(values[name]) : values[name]), form.text);
}

const AGGREGATES = { mean: "avg", max: "max", min: "min", sum: "sum", count: "count", median: "median", first: "first", last: "last", std: "stddev" };
const UNITS = { s: "Seconds", min: "Minutes", h: "Hours", day: "Days", days: "Days", week: "Weeks" };

/** A length of time of a question, as windows write it; an hour where it is another. */
function windowOf(time) {
  const length = typeof time === "object" && time ? time.length : time;
  const [, count, unit] = /^(\d+)\s*(s|min|h|days?|week)$/.exec(length ?? "") ?? [];
  return count ? `${count} ${UNITS[unit]}` : "1 Hours";
}

const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;

/** A question of Explore or Standing as a continuous query: its first aggregate at the stations, above or below its level. */
export function asContinuous(query, condition = null, unit = "") {
  const first = (query.steps ?? []).find((step) => step.op === "aggregate");
  const call = `${AGGREGATES[first?.function] ?? "avg"}(value)`;
  const stations = [query.select?.station ?? []].flat();
  const where = stations.length ? `\nWhere station In (${stations.map(quoted).join(", ")})` : "";
  const [sign, level] = condition?.above !== undefined && condition?.above !== null ? [">", condition.above] : ["<", condition?.below];
  // A number without a unit has that of the variable.
  const number = typeof level === "number" && unit ? `${level} ${unit}` : level;
  const having = level === undefined || level === null ? "" : ` Having ${call} ${sign} ${Number.isFinite(Number(number)) ? number : quoted(number)}`;
  const window = windowOf(first?.time);
  return `Select station, ${call} as ${first?.function && AGGREGATES[first.function] ? first.function : "mean"}\nFrom ${query.variable} [Range ${window} Slide ${window}]${where}\nGroup By station${having}`;
}
