// The deployment of an import as it is edited: its feeds, columns, variables and stations, and what is not answered yet.

const UNKNOWN = ["unknown", "1", ""];

/** The pattern that matches one file name. */
export const patternOf = (name) => name.split("/").pop().replace(/[*?[]/g, (sign) => `[${sign}]`);

export class Description {
  /** `proposal` as the server gives it; `answered` are keys of questions that are answered already. */
  constructor(proposal, answered = new Set()) {
    this.document = structuredClone(proposal.document);
    this.feeds = proposal.feeds;
    this.units = proposal.units;
    this.variables = new Map(proposal.variables.map((one) => [one.name, one]));
    this.stations = proposal.stations;
    this.answered = answered;
    this.document.feed ??= [];
    for (const feed of this.document.feed) {
      for (const [name, entry] of Object.entries(feed.columns ?? {})) feed.columns[name] = typeof entry === "string" ? { variable: entry } : entry;
    }
  }

  /** The entry of a column; undefined where it is left out. */
  entry(feed, column) {
    return this.document.feed[feed].columns?.[column];
  }

  variableOf(feed, column) {
    return this.variables.get(this.entry(feed, column)?.variable);
  }

  /** Factors and offsets of the units that a column may have. */
  conversionsOf(feed, column) {
    return this.units[this.variableOf(feed, column)?.unit] ?? {};
  }

  /** The unit of a column's numbers: its own, or its variable's. */
  unitOf(feed, column) {
    return this.entry(feed, column)?.unit ?? this.variableOf(feed, column)?.unit ?? "unknown";
  }

  /** Have a column be a variable, or leave it out (""). */
  setVariable(feed, column, name) {
    const columns = (this.document.feed[feed].columns ??= {});
    if (!name) {
      delete columns[column];
      return;
    }
    const before = columns[column] ?? {};
    const variable = this.variables.get(name);
    columns[column] = { ...before, variable: name };
    if (!(before.unit in (this.units[variable.unit] ?? {}))) delete columns[column].unit;
    this.declare(variable);
  }

  setUnit(feed, column, unit) {
    this.entry(feed, column).unit = unit;
    this.answer(`unit:${feed}:${column}`);
  }

  /** A variable that nothing knows yet, in a unit of its own. */
  addVariable(name, unit) {
    const slug = name.trim().toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "") || "variable";
    const variable = this.variables.get(slug) ?? { name: slug, unit: unit.trim() || "unknown", long_name: name.trim(), needs_declaration: true };
    this.variables.set(slug, variable);
    this.units[variable.unit] ??= { [variable.unit]: [1, 0] };
    return variable;
  }

  declare({ name, unit, standard_name: standard, long_name: long, needs_declaration: needed }) {
    if (!needed || this.document.variable?.some((one) => one.name === name)) return;
    (this.document.variable ??= []).push({ name, unit, ...(standard ? { standard_name: standard } : {}), long_name: long });
  }

  station(id) {
    return this.document.station?.find((one) => String(one.id) === id);
  }

  /** Set longitude, latitude or elevation of a station; NaN takes it away. */
  place(id, values) {
    let found = this.station(id);
    if (!found) (this.document.station ??= []).push((found = { id }));
    for (const [key, value] of Object.entries(values)) {
      if (Number.isFinite(value)) found[key] = value;
      else delete found[key];
    }
  }

  /** Where a station is, as far as it is known, and what says so. */
  positionOf(known) {
    const own = this.station(known.id);
    const value = (key) => own?.[key] ?? known[key];
    const isTyped = own && ["lon", "lat"].some((key) => own[key] !== undefined && own[key] !== known[key]);
    return { lon: value("lon"), lat: value("lat"), elevation_m: value("elevation_m"), from: isTyped ? "typed" : known.from };
  }

  answer(key) {
    this.answered.add(key);
  }

  /** Whether the unit of a column has to be answered. */
  isUnitOpen(feed, column) {
    const entry = this.entry(feed, column.name);
    if (!entry || entry.unit || this.answered.has(`unit:${feed}:${column.name}`)) return false;
    return column.unit_is_open && !UNKNOWN.includes(this.variableOf(feed, column.name)?.unit);
  }

  isZoneOpen(feed) {
    return Boolean(this.feeds[feed]?.zone?.is_open) && !this.answered.has(`zone:${feed}`);
  }

  /** What has to be answered: kind, place of the feed, column. */
  open() {
    return this.feeds.flatMap((feed, at) => [
      ...(this.isZoneOpen(at) ? [{ kind: "zone", feed: at }] : []),
      ...(feed.columns ?? []).filter((column) => this.isUnitOpen(at, column)).map((column) => ({ kind: "unit", feed: at, column: column.name })),
    ]);
  }

  /** The document to send: units that were accepted as shown are written down, columns of one kind are numbered. */
  finished() {
    const document = structuredClone(this.document);
    document.feed.forEach((feed, at) => {
      const taken = {};
      for (const [name, entry] of Object.entries(feed.columns ?? {})) {
        const unit = this.variableOf(at, name)?.unit;
        if (!entry.unit && unit && !UNKNOWN.includes(unit)) entry.unit = unit;
        const kind = JSON.stringify([entry.variable, entry.statistic ?? feed.statistic ?? "sample", entry.height_m ?? null]);
        taken[kind] = Math.max(entry.replicate ?? 1, (taken[kind] ?? 0) + 1);
        if (taken[kind] > 1) entry.replicate = taken[kind];
      }
    });
    return document;
  }

  /** Read a file as was answered: a feed of its own, before the others. */
  addFeed(file, answers) {
    const names = this.document.feed.map((feed) => feed.name);
    let name = "csv";
    for (let count = 2; names.includes(name); count += 1) name = `csv_${count}`;
    this.document.feed.unshift({ name, files: patternOf(file), format: "csv", ...answers });
  }
}
