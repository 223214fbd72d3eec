// The form of a standing query: what is looked at, when that raises an alert, and whom it tells, as one document.

import * as api from "./api.js";
import { written } from "./code.js";
import { button, choice, field, h, problemBox, tick } from "./dom.js";
import { loose } from "./forms.js";
import { around } from "./pictures.js";
import { ConditionFields } from "./standing_condition.js";
import { StandingPreview } from "./standing_preview.js";
import { describeInput, makeQuery, measureLength, SHORTEST, withoutTime } from "./standing_query.js";
import { T } from "./text.js";
import { longName, variableChoices } from "./variables.js";

const CLASSES = ["alert", "user", "archive"];
const PAUSE_MS = 350;

export class StandingForm {
  /** `saved` is called with what was made or changed, `closed` when the form is to go. */
  constructor(frame, { saved, closed }) {
    this.frame = frame;
    this.saved = saved;
    this.closed = closed;
    this.turn = 0;
    this.pauses = {};
    const { variables, stations } = frame.known;
    const text = (id, value = "", given = {}) => h("input", { id, type: "text", value, autocomplete: "off", ...given });
    const hasMap = around(stations) !== null;
    this.variable = choice("standing-variable", variableChoices(variables), () => this.chooseVariable(), variables[0].name);
    this.where = choice("standing-where", Object.entries(T.standing.wheres).filter(([name]) => name !== "own" && (hasMap || !["mean", "map"].includes(name))), () => this.rebuild(), "stations");
    this.station = text("standing-station", stations.features[0]?.id ?? "", { list: "standing-stations" });
    this.stationField = h("div", { hidden: true }, field(T.standing.station, this.station),
      h("datalist", { id: "standing-stations" }, stations.features.map((feature) => h("option", { value: feature.id }, feature.properties.name ?? ""))));
    this.words = h("p", { id: "standing-sentence", class: "quiet", role: "status" });
    this.condition = new ConditionFields(() => this.fit());
    this.events = h("input", { type: "checkbox", id: "standing-events", checked: true });
    this.mail = text("standing-mail", "", { inputmode: "email" });
    this.webhook = text("standing-webhook", "", { inputmode: "url" });
    this.name = text("standing-name", "", { maxlength: 200 });
    this.step = text("standing-step", SHORTEST);
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
  }

  build() {
    const group = (name, ...inner) => h("fieldset", { class: "part" }, h("legend", {}, T.standing.parts[name]), ...inner);
    const form = h("form", { id: "standing-form", novalidate: true, on: { submit: (event) => this.send(event) } },
      group("what", h("div", { class: "inline" }, field(T.standing.variable, this.variable), field(T.standing.where, this.where)), this.stationField, this.words),
      group("when", this.condition.element),
      group("whom", tick(T.standing.events, this.events), h("div", { class: "inline" }, field(T.standing.mail, this.mail, T.standing.mailHint), field(T.standing.webhook, this.webhook, T.standing.webhookHint)), field(T.standing.name, this.name, T.standing.nameHint)),
      h("details", { id: "standing-details" }, h("summary", {}, T.standing.details),
        h("div", { class: "inline" }, field(T.standing.step, this.step, T.standing.stepHint), field(T.standing.over, this.condition.over, T.standing.overHint)),
        h("div", { class: "inline" }, field(T.standing.class, this.kind), field(T.standing.weight, this.weight, T.standing.weightHint)),
        h("div", { class: "inline" }, field(T.standing.validity, this.validity, T.standing.validityHint), field(T.standing.window, this.window, T.standing.windowHint)),
        tick(T.standing.files, this.files), field(T.standing.query, this.query, T.standing.queryHint)),
      h("div", { class: "buttons" }, this.go, this.leaving), this.told);
    form.addEventListener("input", ({ target }) => {
      if (target === this.query) this.takeText();
      else if (target === this.step || target === this.station) this.soon("rebuild");
      else this.follow();
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
    if (entry) this.fill(entry);
    else {
      for (const input of [this.name, this.mail, this.webhook, this.weight, this.validity, this.window]) input.value = "";
      [this.events.checked, this.files.checked, this.kind.value] = [true, false, ""];
      this.condition.clear();
      this.offerOwn(false);
      this.where.value = "stations";
      this.frame.attempt(async () => {
        this.step.value = await measureLength();
        await this.rebuild();
      });
    }
    if (focus) (entry ? this.name : this.variable).focus();
  }

  fill(entry) {
    const given = { name: entry.title || entry.name, weight: String(entry.weight), validity: entry.validity ?? "", window: entry.window ?? "" };
    for (const [name, value] of Object.entries(given)) this[name].value = value;
    this.kind.value = entry.class;
    const to = (channel) => entry.to.filter((target) => target.startsWith(`${channel}:`)).map((target) => target.slice(channel.length + 1)).join(", ");
    [this.mail.value, this.webhook.value] = [to("email"), to("webhook")];
    [this.events.checked, this.files.checked] = [entry.to.includes("events"), entry.to.includes("archive")];
    this.condition.write(entry.condition ?? {});
    this.take(entry.query);
  }

  /** Take a question as it stands. */
  take(query) {
    this.turn += 1;
    this.offerOwn(true);
    if (!this.editing) this.condition.choose("none");
    this.write(withoutTime(query));
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
    this.words.textContent = describeInput(query, this.frame.known.variables);
    if ([...this.variable.options].some((option) => option.value === query.variable)) this.variable.value = query.variable;
  }

  /** The query without steps where what arrives is looked at; with those that it had, where it is not. */
  fitted(query) {
    const steps = query.steps ?? [];
    if (this.condition.isListening) {
      if (steps.length) this.aside = steps;
      return { ...query, steps: [] };
    }
    return steps.length || !this.aside ? query : { ...query, steps: this.aside };
  }

  chooseVariable() {
    this.condition.forgetLevel();
    if (this.where.value !== "own") return this.rebuild();
    return this.frame.attempt(async () => {
      const { query } = await api.adapt(this.read(), this.variable.value);
      this.write(query);
    });
  }

  /** The unit of the chosen variable. */
  get unit() {
    return this.frame.known.variables.find(({ name }) => name === this.variable.value)?.unit ?? "";
  }

  /** Make the query of variable and place anew. */
  async rebuild() {
    if (this.where.value === "own") return;
    this.stationField.hidden = this.where.value !== "station";
    this.offerOwn(false);
    const turn = (this.turn += 1);
    await this.frame.attempt(async () => {
      const query = await makeQuery({ variable: this.variable.value, unit: this.unit, where: this.where.value, station: this.station.value.trim(), time: this.step.value.trim() || SHORTEST });
      // Something else was chosen meanwhile.
      if (turn === this.turn) this.write(query);
    });
  }

  /** Another condition was chosen: the query may have to have steps, or none. */
  fit() {
    const query = this.read(() => null);
    if (query) this.write(query);
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
    const condition = this.condition.read();
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
    this.name.placeholder = T.standing.titled[this.condition.way](longName(this.frame.known.variables, this.variable.value), this.condition.value("level") || "…", this.unit);
    this.soon("look");
  }

  /** Call a method once typing rests; neither of the two puts the other off. */
  soon(method) {
    clearTimeout(this.pauses[method]);
    this.pauses[method] = setTimeout(() => this[method](), PAUSE_MS);
  }

  async look() {
    const query = this.read(() => null);
    if (!query || this.element.closest("[hidden]")) return;
    const told = await this.preview.show(this.document(), longName(this.frame.known.variables, query.variable ?? ""));
    if (told && this.condition.propose(told)) this.follow();
  }

  async send(event) {
    event.preventDefault();
    this.told.replaceChildren();
    try {
      const made = this.document();
      const { way } = this.condition;
      if (way !== "none" && !made.condition) throw new api.Problem(T.standing.noNumber, T.standing.noNumberAdvice(T.standing.conditions[way]));
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
