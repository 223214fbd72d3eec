// The form of a standing query: what is looked at, when that raises an alert, and whom it tells.

import * as api from "./api.js";
import { written } from "./code.js";
import { button, choice, field, h, part, problemBox, tick } from "./dom.js";
import { loose } from "./forms.js";
import { around } from "./pictures.js";
import { StandingPreview } from "./standing_preview.js";
import { T } from "./text.js";
import { longName, variableChoices } from "./variables.js";

const CLASSES = ["alert", "user", "archive"];
/** Ways of saying when: the condition's kind, and the fields that it needs. */
const WAYS = {
  above: ["threshold", ["level", "clear"]],
  below: ["threshold", ["level", "clear"]],
  rise: ["rate", ["level", "per", "clear"]],
  fall: ["rate", ["level", "per", "clear"]],
  missing: ["missing", ["after"]],
  dead: ["dead", []],
  silent: ["silent", ["after"]],
  none: ["", []],
};
/** Ways that look at what arrives: they compute no surface, so that their queries have no steps. */
const LISTENING = ["dead", "silent"];
/** Lengths of a value, of which the first is taken that holds a reading of most stations [s]. */
const LENGTHS = [["10min", 600], ["30min", 1800], ["1h", 3600], ["3h", 10_800], ["6h", 21_600], ["1day", 86_400]];
/** A station counts as silent after three usual gaps at least. */
const GAPS = 3;
/** Cells along the longer side of a map that is judged: it is computed anew with each slice. */
const CELLS = 20;
const PAUSE_MS = 350;
const [PER, AFTER] = ["1h", "1h"];

/** What goes down as far as something goes up: the number, or its text, with the other sign. */
export const turned = (value) => (typeof value === "number" ? -value : value.startsWith("-") ? value.slice(1) : `-${value}`);

/** A number near `value` with few digits, for values that spread over `span`. */
export function rounded(value, span) {
  const unit = 10 ** Math.floor(Math.log10(span > 0 ? span / 4 : Math.abs(value) || 1));
  return Number((Math.round(value / unit) * unit).toPrecision(6));
}

/** A grid with at most `CELLS` cells along its longer side. */
export function coarser(grid) {
  const factor = Math.ceil(Math.max(...(grid.shape ?? [1])) / CELLS);
  const [, size, unit] = /^([\d.]+)(.*)$/.exec(String(grid.step)) ?? [];
  if (factor < 2 || size === undefined) return grid;
  const step = Number((Number(size) * factor).toPrecision(12));
  return { ...grid, step: unit ? `${step}${unit}` : step, shape: grid.shape.map((count) => Math.ceil(count / factor)) };
}

/** A query in a sentence. */
export function sentence(query, known) {
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

export class StandingForm {
  /** `saved` is called with what was made or changed, `closed` when the form is to go. */
  constructor(frame, { saved, closed }) {
    this.frame = frame;
    this.saved = saved;
    this.closed = closed;
    this.turn = 0;
    const { variables, stations } = frame.known;
    const text = (id, value = "", given = {}) => h("input", { id, type: "text", value, autocomplete: "off", ...given });
    const hasMap = around(stations) !== null;
    this.variable = choice("standing-variable", variableChoices(variables), () => this.chooseVariable(), variables[0].name);
    this.where = choice("standing-where", Object.entries(T.standing.wheres).filter(([name]) => name !== "own" && (hasMap || !["mean", "map"].includes(name))), () => this.rebuild(), "stations");
    this.station = text("standing-station", stations.features[0]?.id ?? "", { list: "standing-stations" });
    this.stationField = h("div", { hidden: true }, field(T.standing.station, this.station),
      h("datalist", { id: "standing-stations" }, stations.features.map((feature) => h("option", { value: feature.id }, feature.properties.name ?? ""))));
    this.words = h("p", { id: "standing-sentence", class: "quiet", role: "status" });
    this.way = choice("condition", Object.keys(WAYS).map((way) => [way, T.standing.conditions[way]]), () => this.chooseWay(), "above");
    this.fields = h("div", { id: "condition-fields", class: "inline" });
    this.listening = h("p", { id: "listening", class: "quiet hint", role: "status", hidden: true });
    this.events = h("input", { type: "checkbox", id: "standing-events", checked: true });
    this.mail = text("standing-mail", "", { inputmode: "email" });
    this.webhook = text("standing-webhook", "", { inputmode: "url" });
    this.name = text("standing-name", "", { maxlength: 200 });
    this.step = text("standing-step", LENGTHS[0][0]);
    this.over = text("condition-over");
    this.kind = choice("standing-class", [["", T.standing.byItself], ...CLASSES.map((kind) => [kind, T.standing.classes[kind]])], () => {}, "");
    this.weight = text("standing-weight", "", { inputmode: "decimal" });
    this.validity = text("standing-validity");
    this.window = text("standing-window");
    this.files = h("input", { type: "checkbox", id: "standing-files" });
    this.query = h("textarea", { id: "standing-query", rows: 9, spellcheck: "false" });
    this.go = h("button", { class: "primary", id: "create" }, T.standing.create);
    this.leaving = button(T.standing.leave, () => this.edit(null), { id: "leave-edit", hidden: true });
    this.title = h("h2", { id: "create-title" }, T.standing.new);
    this.told = h("div", { id: "standing-problem", role: "alert" });
    this.preview = new StandingPreview(frame);
    this.form = this.build();
    this.element = h("div", { class: "standing-form" },
      h("div", { class: "form-head" }, this.title, button(T.standing.close, () => this.closed(), { id: "close-form", class: "small" })),
      h("div", { class: "form-and-preview" }, this.form, this.preview.element));
    this.fillFields();
  }

  build() {
    const group = (name, ...inner) => h("fieldset", { class: "part" }, h("legend", {}, T.standing.parts[name]), ...inner);
    const form = h("form", { id: "standing-form", novalidate: true, on: { submit: (event) => this.send(event) } },
      group("what", h("div", { class: "inline" }, field(T.standing.variable, this.variable), field(T.standing.where, this.where)), this.stationField, this.words),
      group("when", h("div", { class: "inline when" }, field(T.standing.condition, this.way), this.fields), this.listening),
      group("whom", tick(T.standing.events, this.events), h("div", { class: "inline" }, field(T.standing.mail, this.mail, T.standing.mailHint), field(T.standing.webhook, this.webhook, T.standing.webhookHint)), field(T.standing.name, this.name, T.standing.nameHint)),
      h("details", { id: "standing-details" }, h("summary", {}, T.standing.details),
        h("div", { class: "inline" }, field(T.standing.step, this.step, T.standing.stepHint), field(T.standing.over, this.over, T.standing.overHint)),
        h("div", { class: "inline" }, field(T.standing.class, this.kind), field(T.standing.weight, this.weight, T.standing.weightHint)),
        h("div", { class: "inline" }, field(T.standing.validity, this.validity, T.standing.validityHint), field(T.standing.window, this.window, T.standing.windowHint)),
        tick(T.standing.files, this.files), field(T.standing.query, this.query, T.standing.queryHint)),
      h("div", { class: "buttons" }, this.go, this.leaving), this.told);
    form.addEventListener("input", ({ target }) => {
      if (target === this.query) this.takeText();
      else if (target === this.step || target === this.station) this.soon(() => this.rebuild());
      else this.follow();
      if (target.id === "condition-level") this.isTyped = true;
    });
    return form;
  }

  // What

  /** Begin with a new standing query, or with one as it stands in the list. */
  edit(entry, focus = true) {
    this.editing = entry?.name ?? null;
    this.title.textContent = entry ? T.standing.changing(entry.title || entry.name) : T.standing.new;
    this.go.textContent = entry ? T.standing.save : T.standing.create;
    this.leaving.hidden = !entry;
    this.told.replaceChildren();
    this.aside = null;
    this.isTyped = Boolean(entry);
    if (entry) this.fill(entry);
    else {
      for (const input of [this.name, this.mail, this.webhook, this.weight, this.validity, this.window, this.over]) input.value = "";
      [this.events.checked, this.files.checked, this.kind.value, this.way.value] = [true, false, "", "above"];
      this.offerOwn(false);
      this.where.value = "stations";
      this.fillFields();
      this.frame.attempt(async () => {
        await this.measureLength();
        await this.rebuild();
      });
    }
    if (focus) (entry ? this.name : this.variable).focus();
  }

  fill(entry) {
    const { condition = {} } = entry;
    const given = { name: entry.title || entry.name, weight: String(entry.weight), validity: entry.validity ?? "", window: entry.window ?? "" };
    for (const [name, value] of Object.entries(given)) this[name].value = value;
    this.kind.value = entry.class;
    const to = (channel) => entry.to.filter((target) => target.startsWith(`${channel}:`)).map((target) => target.slice(channel.length + 1)).join(", ");
    [this.mail.value, this.webhook.value] = [to("email"), to("webhook")];
    [this.events.checked, this.files.checked] = [entry.to.includes("events"), entry.to.includes("archive")];
    const falls = condition.below !== undefined;
    this.way.value = { threshold: falls ? "below" : "above", rate: falls ? "fall" : "rise" }[condition.kind] ?? (condition.kind || "none");
    this.fillFields();
    const set = (name, value) => {
      if (value !== undefined && part(`condition-${name}`)) part(`condition-${name}`).value = String(value);
    };
    // A fall is told as how far values go down.
    const asTold = (value) => (this.way.value === "fall" && value !== undefined ? turned(value) : value);
    set("level", asTold(falls ? condition.below : condition.above));
    set("clear", asTold(condition.clear));
    for (const name of ["per", "after"]) set(name, condition[name]);
    this.over.value = condition.kind === "rate" ? (condition.over ?? "step") : "";
    this.take(entry.query);
  }

  /** Take a question as it stands, without its time: it reads what comes. */
  take({ snapshot, as_of, ...query }) {
    if (query.clip?.time) {
      const { time, ...clip } = query.clip;
      query.clip = clip;
      if (!Object.keys(clip).length) delete query.clip;
    }
    this.turn += 1;
    this.offerOwn(true);
    if (!this.editing) {
      this.way.value = "none";
      this.fillFields();
    }
    this.write(query);
  }

  offerOwn(isOwn) {
    const option = this.where.querySelector("option[value=own]");
    if (isOwn && !option) this.where.append(new Option(T.standing.wheres.own, "own"));
    if (!isOwn) option?.remove();
    if (isOwn) this.where.value = "own";
    this.stationField.hidden = this.where.value !== "station";
  }

  /** What was changed in the JSON is taken as it stands. */
  takeText() {
    this.turn += 1;
    this.offerOwn(true);
    const query = this.read(() => null);
    if (query?.variable) this.say(query);
    this.follow();
  }

  write(query) {
    this.query.value = written(this.fitted(query));
    this.say(query);
    this.follow();
  }

  say(query) {
    this.words.textContent = sentence(query, this.frame.known.variables);
    if ([...this.variable.options].some((option) => option.value === query.variable)) this.variable.value = query.variable;
  }

  /** The query without steps where what arrives is looked at; with those that it had, where it is not. */
  fitted(query) {
    const steps = query.steps ?? [];
    if (LISTENING.includes(this.way.value)) {
      if (steps.length) this.aside = steps;
      return { ...query, steps: [] };
    }
    return steps.length || !this.aside ? query : { ...query, steps: this.aside };
  }

  chooseVariable() {
    // The number belongs to the variable before.
    this.isTyped = false;
    if (this.value("level")) this.fields.querySelector("#condition-level").value = "";
    if (this.where.value !== "own") return this.rebuild();
    return this.frame.attempt(async () => {
      const { query } = await api.adapt(this.read(), this.variable.value);
      this.write(query);
    });
  }

  /** The length of a value: the shortest that holds a reading of most stations. */
  async measureLength() {
    const health = await api.look("stations/health");
    const known = health.map((station) => station.interval_s).filter((interval) => interval !== null).sort((one, other) => one - other);
    const usual = (known[Math.floor(known.length / 2)] ?? 0) / GAPS;
    this.step.value = (LENGTHS.find(([, seconds]) => seconds >= usual) ?? LENGTHS[LENGTHS.length - 1])[0];
  }

  /** Make the query of variable and place anew. */
  async rebuild() {
    if (this.where.value === "own") return;
    this.stationField.hidden = this.where.value !== "station";
    this.offerOwn(false);
    const turn = (this.turn += 1);
    await this.frame.attempt(async () => {
      const query = await this.make();
      // Something else was chosen meanwhile.
      if (turn === this.turn) this.write(query);
    });
  }

  async make() {
    const { query } = await api.look(`suggestion?${new URLSearchParams({ variable: this.variable.value })}`);
    const time = this.step.value.trim() || LENGTHS[0][0];
    const first = query.steps.find((step) => step.op === "aggregate");
    const unit = this.frame.known.variables.find(({ name }) => name === query.variable)?.unit;
    const usual = unit === "degree" ? "circular_mean" : (first?.function ?? "mean");
    const base = { variable: query.variable, ...(query.select ? { select: query.select } : {}) };
    const where = this.where.value;
    if (where === "stations") return { ...base, steps: [{ op: "aggregate", function: usual, time }] };
    if (where === "station") return { ...base, select: { ...query.select, station: this.station.value.trim() }, steps: [{ op: "aggregate", function: usual, time }] };
    const last = query.steps.findLastIndex((step) => step.op === "interpolate");
    if (last < 0) throw new api.Problem(T.standing.noMap, T.standing.noMapAdvice);
    const steps = query.steps.slice(0, last + 1).map((step) => (step.op === "aggregate" && step.time !== undefined ? { ...step, time } : step.op === "interpolate" && step.grid ? { ...step, grid: coarser(step.grid) } : step));
    if (where === "map") return { ...base, steps };
    const [row, column] = steps[last].grid.lon === undefined ? ["y", "x"] : ["lat", "lon"];
    return { ...base, steps: [...steps, { op: "aggregate", function: "mean", [column]: "all", [row]: "all" }] };
  }

  // When

  chooseWay() {
    this.isTyped = false;
    this.fillFields();
    const query = this.read(() => null);
    if (query) this.write(query);
  }

  fillFields() {
    const way = this.way.value;
    const hints = { clear: T.standing.clearHint, per: T.standing.perHint, after: T.standing.afterHint };
    const first = { per: PER, after: AFTER };
    this.fields.replaceChildren(...WAYS[way][1].map((name) => field(name === "level" ? T.standing.level : T.standing[name],
      h("input", { type: "text", id: `condition-${name}`, value: first[name] ?? "", autocomplete: "off", inputmode: name === "level" || name === "clear" ? "decimal" : false }), hints[name] ?? "")));
    this.listening.hidden = !LISTENING.includes(way);
    this.listening.textContent = way === "dead" ? `${T.standing.learned} ${T.standing.listening}` : T.standing.listening;
  }

  value(name) {
    return this.fields.querySelector(`#condition-${name}`)?.value.trim() ?? "";
  }

  /** The condition as it stands; undefined where there is none, or no number yet. */
  condition() {
    const way = this.way.value;
    const [kind, names] = WAYS[way];
    if (!kind || (names.includes("level") && this.value("level") === "")) return undefined;
    const made = { kind };
    const number = (name) => {
      const given = loose(this.value(name));
      return way === "fall" ? turned(given) : given;
    };
    if (names.includes("level")) made[["above", "rise"].includes(way) ? "above" : "below"] = number("level");
    if (this.value("clear")) made.clear = number("clear");
    for (const name of ["per", "after"]) if (this.value(name)) made[name] = this.value(name);
    if (kind === "rate") {
      const over = this.over.value.trim() || made.per;
      if (over && over !== "step") made.over = over;
    }
    return made;
  }

  /** Write the unit beside the number, and a number of the recent values where none was typed. */
  propose({ unit, recent, series }) {
    const way = this.way.value;
    const label = this.fields.querySelector("label[for=condition-level]");
    if (label) label.textContent = unit ? T.standing.levelIn(this.unitOf(unit)) : T.standing.level;
    if (!label || this.isTyped || this.value("level") || !recent || !series) return false;
    const span = recent.high - recent.low;
    const level = { above: recent.high, below: recent.low, rise: recent.rise, fall: recent.fall === null ? null : -recent.fall }[way];
    if (level === null || level === undefined) return false;
    this.fields.querySelector("#condition-level").value = String(rounded(level, way === "rise" || way === "fall" ? Math.abs(level) : span));
    return true;
  }

  /** A rate's number is a change, whose unit has no time. */
  unitOf(unit) {
    return unit.split(" per ")[0];
  }

  // Whom, and all of it

  /** The document that the form says; `condition` is left out where it has no number yet. */
  document() {
    const list = (input, channel) => input.value.split(",").map((one) => one.trim()).filter(Boolean).map((one) => (one.startsWith(`${channel}:`) ? one : `${channel}:${one}`));
    const made = { title: this.name.value.trim() || this.name.placeholder, query: this.read(), to: [...(this.events.checked ? ["events"] : []), ...list(this.mail, "email"), ...list(this.webhook, "webhook"), ...(this.files.checked ? ["archive"] : [])] };
    if (this.editing) {
      made.name = this.editing;
      if (made.title === made.name) delete made.title;
    }
    for (const name of ["validity", "window"]) if (this[name].value.trim()) made[name] = this[name].value.trim();
    if (this.kind.value) made.class = this.kind.value;
    if (this.weight.value.trim()) made.weight = loose(this.weight.value);
    const condition = this.condition();
    if (condition) made.condition = condition;
    return made;
  }

  /** The query as it stands in the text. */
  read(otherwise) {
    try {
      return JSON.parse(this.query.value);
    } catch (error) {
      if (otherwise) return otherwise();
      throw new api.Problem(T.problems.noJson, T.problems.noJsonAdvice(error.message));
    }
  }

  /** Show the title that is taken where none is typed, and soon which alerts would have been raised. */
  follow() {
    const { variables } = this.frame.known;
    const unit = variables.find(({ name }) => name === this.variable.value)?.unit ?? "";
    this.name.placeholder = T.standing.titled[this.way.value](longName(variables, this.variable.value), this.value("level") || "…", unit);
    this.soon(() => this.look());
  }

  soon(act) {
    clearTimeout(this.pause);
    this.pause = setTimeout(act, PAUSE_MS);
  }

  async look() {
    const query = this.read(() => null);
    if (!query || this.element.closest("[hidden]")) return;
    const told = await this.preview.show(this.document(), longName(this.frame.known.variables, query.variable ?? ""));
    if (told && this.propose(told)) this.follow();
  }

  async send(event) {
    event.preventDefault();
    this.told.replaceChildren();
    try {
      const made = this.document();
      if (this.way.value !== "none" && !made.condition) throw new api.Problem(T.standing.noNumber, T.standing.noNumberAdvice(T.standing.conditions[this.way.value]));
      if (this.editing) await api.changeStanding(this.editing, "replace", made);
      else await api.createStanding(made);
      const words = this.editing ? T.standing.changed(made.title ?? made.name) : T.standing.created(made.title);
      if (this.editing) this.edit(null);
      this.told.replaceChildren(h("p", { class: "good" }, words));
      this.name.value = "";
      await this.saved(made);
    } catch (problem) {
      this.told.replaceChildren(problemBox(problem));
    }
  }

  redraw() {
    return this.preview.redraw();
  }
}
