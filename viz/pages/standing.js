// Standing: queries that are kept up to date, their alerts, and how fresh they are.

import * as api from "./api.js";
import { written } from "./code.js";
import { button, choice, duration, empty, field, h, instant, number, part, problemBox, table } from "./dom.js";
import { loose } from "./forms.js";
import { T } from "./text.js";
import { longName, variableChoices } from "./variables.js";

const AGAIN_MS = 2000;
const MOST_ALERTS = 200;
/** Alerts of all queries that the page remembers, the newest ones. */
const MOST_KEPT = 400;
const CLASSES = ["user", "alert", "archive"];
/** Fields of each kind of condition: key, whether it must be given. */
const CONDITIONS = {
  "": [],
  threshold: ["above", "below", "clear"],
  rate: ["above", "below", "per", "over", "clear"],
  missing: ["after"],
  dead: [],
  silent: ["after"],
};
/** Conditions on what arrives: they compute no surface, so that their queries have no steps. */
const LISTENING = ["dead", "silent"];
const MUTE = "1h";

export function open(root, frame) {
  return new Standing(root, frame);
}

class Standing {
  constructor(root, frame) {
    this.frame = frame;
    this.alerts = new Map();
    this.listedNames = [];
    this.list = h("div", { id: "standing-list" });
    this.alertList = h("div", { id: "alerts" });
    this.fresh = h("div", { id: "freshness" });
    this.summary = h("p", { id: "standing-summary", role: "status" });
    this.only = choice("alerts-of", [["", T.standing.allQueries]], () => this.drawAlerts(), "");
    root.append(h("div", { class: "two" }, this.form(),
      h("div", {}, h("section", { "aria-labelledby": "standing-title" }, h("h2", { id: "standing-title" }, T.standing.title), this.summary, this.list),
        h("section", { "aria-labelledby": "fresh-title" }, h("h2", { id: "fresh-title" }, T.standing.freshness), this.fresh),
        h("section", { "aria-labelledby": "alerts-title" }, h("h2", { id: "alerts-title" }, T.standing.alerts), field(T.standing.alertsOf, this.only), this.alertList))));
  }

  form() {
    const { known } = this.frame;
    this.fields = h("div", { id: "condition-fields", class: "inline" });
    this.listening = h("p", { id: "listening", class: "quiet hint", role: "status", hidden: true }, T.standing.listening);
    this.kind = choice("condition", Object.keys(CONDITIONS).map((kind) => [kind, T.standing.conditions[kind || "none"]]), () => this.fillCondition(), "");
    const text = (id, value = "", given = {}) => h("input", { id, type: "text", value, autocomplete: "off", ...given });
    this.query = h("textarea", { id: "standing-query", rows: 9, spellcheck: "false", on: { input: () => this.follow() } });
    this.name = text("standing-name", "", { pattern: "[a-z0-9][a-z0-9_\\-]*" });
    this.variable = choice("standing-variable", variableChoices(known.variables), (name) => this.adapt(name));
    this.query.value = written({ variable: known.variables[0].name, steps: [{ op: "aggregate", function: "mean", time: "10min" }] });
    this.go = h("button", { class: "primary", id: "create" }, T.standing.create);
    this.leaving = button(T.standing.leave, () => this.edit(null), { id: "leave-edit", hidden: true });
    const form = h("form", { id: "standing-form", novalidate: true, on: { submit: (event) => this.create(event) } },
      field(T.standing.name, this.name, T.standing.nameHint), field(T.standing.variable, this.variable),
      h("div", { class: "inline" }, field(T.standing.class, choice("standing-class", CLASSES.map((kind) => [kind, T.standing.classes[kind]]), () => {}, "user")),
        field(T.standing.weight, text("standing-weight", "", { inputmode: "decimal" }), T.standing.weightHint), field(T.standing.validity, text("standing-validity", "10min"), T.standing.validityHint), field(T.standing.window, text("standing-window"), T.standing.windowHint)),
      field(T.standing.condition, this.kind), this.listening, this.fields,
      field(T.standing.to, text("standing-to", "events"), T.standing.toHint),
      field(T.standing.query, this.query, T.standing.queryHint),
      h("div", { class: "buttons" }, this.go, this.leaving),
      h("div", { id: "standing-problem", role: "alert" }));
    this.formTitle = h("h2", { id: "create-title" }, T.standing.new);
    this.follow();
    return h("section", { "aria-labelledby": "create-title" }, this.formTitle, form);
  }

  /** Have the form change a standing query, as it stands in the list; null: make a new one. */
  edit(one) {
    this.editing = one?.name ?? null;
    this.formTitle.textContent = one ? T.standing.changing(one.name) : T.standing.new;
    this.go.textContent = one ? T.standing.save : T.standing.create;
    this.leaving.hidden = !one;
    part("standing-problem").replaceChildren();
    part("standing-name").readOnly = Boolean(one);
    part("standing-name").value = one?.name ?? "";
    if (!one) {
      part("standing-name").focus();
      return;
    }
    const given = { class: one.class, weight: String(one.weight), validity: one.validity ?? "", window: one.window ?? "", to: one.to.join(", ") };
    for (const [name, value] of Object.entries(given)) part(`standing-${name}`).value = value;
    this.aside = null;
    this.query.value = written(one.query);
    this.kind.value = one.condition?.kind ?? "";
    this.fillCondition();
    part("standing-class").value = one.class;
    for (const [name, value] of Object.entries(one.condition ?? {})) if (name !== "kind") part(`condition-${name}`).value = String(value);
    part("standing-weight").focus();
  }

  fillCondition() {
    this.fields.replaceChildren(...CONDITIONS[this.kind.value].map((name) => field(T.standing.bounds[name], h("input", { type: "text", id: `condition-${name}`, autocomplete: "off" }), T.standing.boundHints[name])));
    if (this.kind.value && part("standing-class").value === "user") part("standing-class").value = "alert";
    this.fitQuery();
  }

  /** Take the steps out of the query where the condition listens to what arrives; give them back where it does not. */
  fitQuery() {
    const listens = LISTENING.includes(this.kind.value);
    this.listening.hidden = !listens;
    let query;
    try {
      query = JSON.parse(this.query.value);
    } catch {
      // What is no JSON is told when it is created.
      return;
    } finally {
      this.follow();
    }
    const steps = query.steps ?? [];
    if (listens && steps.length) this.query.value = written({ ...query, steps: [] });
    else if (!listens && !steps.length && this.aside) this.query.value = written({ ...query, steps: this.aside });
    if (steps.length || !listens) this.aside = listens ? steps : null;
  }

  async show(params) {
    this.frame.units(T.frame.noUnits);
    if (params.has("q") && params.get("q") !== this.taken) {
      this.taken = params.get("q");
      const { snapshot, as_of, ...query } = JSON.parse(this.taken);
      if (query.clip?.time) {
        delete query.clip.time;
        if (!Object.keys(query.clip).length) delete query.clip;
      }
      if (this.editing) this.edit(null);
      this.query.value = written(query);
      this.fitQuery();
      part("standing-name").focus();
    }
    this.frame.note("standing", params);
    await this.look();
    clearInterval(this.timer);
    this.timer = setInterval(() => this.look().catch(() => {}), AGAIN_MS);
  }

  hide() {
    clearInterval(this.timer);
  }

  /** The document that the form says. */
  document() {
    const value = (id) => part(id).value.trim();
    const query = this.read();
    const made = { name: value("standing-name") || this.name.placeholder, class: value("standing-class"), query, to: value("standing-to").split(",").map((one) => one.trim()).filter(Boolean) };
    for (const name of ["validity", "window"]) if (value(`standing-${name}`)) made[name] = value(`standing-${name}`);
    if (value("standing-weight")) made.weight = loose(value("standing-weight"));
    if (this.kind.value) {
      made.condition = { kind: this.kind.value };
      for (const name of CONDITIONS[this.kind.value]) {
        const given = loose(value(`condition-${name}`));
        if (given !== undefined) made.condition[name] = given;
      }
    }
    return made;
  }

  /** Show the variable of the query, and the name that it gets where none is typed: one that no other has. */
  follow() {
    const [, variable = ""] = /"variable":\s*"([^"]*)"/.exec(this.query.value) ?? [];
    this.variable.value = variable;
    const name = [variable, this.kind.value].filter(Boolean).join("-").toLowerCase();
    this.name.placeholder = [name, ...this.listedNames.map((_, place) => `${name}-${place + 2}`)].find((one) => !this.listedNames.includes(one));
  }

  /** Carry the query over to another variable. */
  adapt(variable) {
    return this.frame.attempt(async () => {
      const { query } = await api.adapt(this.read(), variable).finally(() => this.follow());
      this.query.value = written(query);
      this.follow();
    });
  }

  /** The query as it stands in the text. */
  read() {
    try {
      return JSON.parse(this.query.value);
    } catch (error) {
      throw new api.Problem(T.problems.noJson, T.problems.noJsonAdvice(error.message));
    }
  }

  async create(event) {
    event.preventDefault();
    const place = part("standing-problem");
    place.replaceChildren();
    try {
      const made = this.document();
      if (this.editing) await api.changeStanding(this.editing, "replace", made);
      else await api.createStanding(made);
      const done = this.editing ? T.standing.changed(made.name) : T.standing.created(made.name);
      if (this.editing) this.edit(null);
      place.replaceChildren(h("p", { class: "good" }, done));
      part("standing-name").value = "";
      await this.look();
    } catch (problem) {
      place.replaceChildren(problemBox(problem));
    }
  }

  async look() {
    let entries;
    try {
      entries = await api.look("standing");
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      clearInterval(this.timer);
      this.list.replaceChildren(empty(T.standing.off, T.standing.offAdvice));
      return;
    }
    const after = Math.max(0, ...this.alerts.keys());
    const [alerts, statistics] = await Promise.all([api.look(`standing/alerts?after=${after}&limit=1000`), api.look("standing/statistics")]);
    for (const alert of alerts) this.alerts.set(alert.number, alert);
    for (const number of [...this.alerts.keys()].slice(0, -MOST_KEPT)) this.alerts.delete(number);
    this.listedNames = entries.map((one) => one.name);
    this.follow();
    this.drawList(entries, statistics);
    this.drawFreshness(statistics);
    const names = [...new Set([...entries.map((one) => one.name), ...[...this.alerts.values()].map((one) => one.query)])];
    if (String(names) !== this.names) {
      this.names = String(names);
      const chosen = this.only.value;
      this.only.replaceChildren(new Option(T.standing.allQueries, ""), ...names.map((name) => new Option(name, name)));
      this.only.value = names.includes(chosen) ? chosen : "";
      this.alertsDrawn = false;
    }
    if (alerts.length || !this.alertsDrawn) this.drawAlerts();
  }

  drawList(entries, statistics) {
    this.summary.textContent = T.standing.summary(number(entries.length), number(statistics.queue), duration(statistics.oldest_s), statistics.trouble);
    const text = JSON.stringify([entries, statistics.failing]);
    if (text === this.listed) return;
    this.listed = text;
    if (!entries.length) {
      this.list.replaceChildren(empty(T.standing.none, T.standing.noneAdvice));
      return;
    }
    const held = document.activeElement?.dataset?.act;
    const rows = entries.map((one) => {
      const act = (name, on) => button(T.standing.acts[name], () => this.act(on), { class: "small", "aria-label": T.standing.actOn(T.standing.acts[name], one.name), data: { act: `${name}-${one.name}` } });
      const state = one.paused ? T.standing.paused : statistics.failing.includes(one.name) ? T.standing.failing : one.muted_until ? T.standing.mutedUntil(instant(one.muted_until.slice(0, 19))) : one.standing.length ? T.standing.raised(one.standing.length) : T.standing.quiet;
      return [h("strong", {}, one.name), T.standing.classes[one.class], number(one.weight), longName(this.frame.known.variables, one.query.variable), state,
        h("div", { class: "buttons small" },
          one.paused ? act("resume", () => api.changeStanding(one.name, "resume")) : act("pause", () => api.changeStanding(one.name, "pause")),
          one.muted_until ? act("unmute", () => api.changeStanding(one.name, "mute", { until: null })) : act("mute", () => api.changeStanding(one.name, "mute", { for: MUTE })),
          act("test", () => api.changeStanding(one.name, "test")),
          // Who may not change it is not told whom it tells.
          this.frame.may("write") ? button(T.standing.acts.edit, () => this.edit(one), { class: "small", "aria-label": T.standing.actOn(T.standing.acts.edit, one.name), data: { act: `edit-${one.name}` } }) : null,
          act("open", () => this.frame.go("explore", { q: JSON.stringify(one.query) })),
          act("remove", () => this.remove(one.name)))];
    });
    this.list.replaceChildren(table(T.standing.caption, [T.standing.name, T.standing.class, [T.standing.weight, "number"], T.standing.variable, T.standing.state, T.standing.does], rows));
    if (held) this.list.querySelector(`button[data-act="${CSS.escape(held)}"]`)?.focus();
  }

  async act(on) {
    await this.frame.attempt(async () => {
      await on();
      this.listed = null;
      await this.look();
    });
  }

  async remove(name) {
    if (window.confirm(T.standing.sure(name))) await api.removeStanding(name);
  }

  drawFreshness({ freshness }) {
    const rows = Object.entries(freshness).map(([kind, one]) => [T.standing.classes[kind] ?? kind, number(one.evaluations), duration(one.median_s), duration(one.p99_s), duration(one.longest_s)]);
    const text = JSON.stringify(rows);
    if (text === this.freshTold) return;
    this.freshTold = text;
    this.fresh.replaceChildren(rows.length ? table(T.standing.freshCaption, T.standing.freshColumns.map((name, place) => (place ? [name, "number"] : name)), rows) : h("p", { class: "quiet" }, T.standing.notYet));
  }

  drawAlerts() {
    this.alertsDrawn = true;
    const all = [...this.alerts.values()].filter((one) => !this.only.value || one.query === this.only.value).sort((one, other) => other.number - one.number);
    const rows = all.slice(0, MOST_ALERTS).map((one) => [instant(one.at.slice(0, 19)), one.query, `${T.standing.happenings[one.happening] ?? one.happening}${one.late ? T.standing.late : ""}${one.muted ? T.standing.muted : ""}`, one.place, one.text]);
    this.alertList.replaceChildren(rows.length ? table(T.standing.alertsCaption, [[T.standing.alertColumns[0], "time"], ...T.standing.alertColumns.slice(1)], rows) : h("p", { class: "quiet" }, T.standing.noAlerts));
  }
}
