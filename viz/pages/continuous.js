// Continuous: a query in CQL is filled in or written, and back-tested; above all what it would have reported, and when.

import * as api from "./api.js";
import { writeForm } from "./cql_forms.js";
import { CqlEditor } from "./cql_editor.js";
import { describePlan } from "./cql_plan.js";
import { CqlResult } from "./cql_result.js";
import { KeptQueries } from "./continuous_kept.js";
import { button, choice, field, h, number } from "./dom.js";
import { T } from "./text.js";

const AGAIN_MS = 250;
const DAY_MS = 86_400_000;
const STRETCHES = ["1", "3", "7", "31", "own"];
const FIRST_DAYS = "7";
const minute = (time) => new Date(time).toISOString().slice(0, 16);

export function open(root, frame) {
  return new Continuous(root, frame);
}

class Continuous {
  constructor(root, frame) {
    this.frame = frame;
    this.root = root;
    this.result = new CqlResult(() => this.longer());
    this.turn = 0;
    this.running = null;
  }

  async show(params) {
    this.made ??= this.make();
    await this.made;
    const text = params.get("text");
    if (text !== null && text !== this.taken) {
      this.taken = text;
      this.take(params);
      await this.run();
    } else if (text === null && !this.editor.value) {
      this.choose(this.begin.value);
      await this.run();
    }
    this.note();
    await this.kept.show();
  }

  async make() {
    const [catalogue, { ends }] = await Promise.all([api.look("continuous/catalogue"), api.lookForNews()]);
    this.catalogue = catalogue;
    this.end = Math.max(...Object.values(ends).map((time) => Date.parse(time)), 0) || Date.now();
    this.editor = new CqlEditor(catalogue, (text) => this.check(text), { change: () => this.changed(), run: () => this.run() });
    this.begin = choice("cql-begin", [], (name) => this.choose(name));
    const group = (label, options) => Object.assign(document.createElement("optgroup"), { label, hidden: !options.length }).appendChild(new Option("")).parentNode;
    for (const [label, pairs] of [[T.continuous.forms, catalogue.forms.map((one) => [one.name, one.title])], [T.continuous.examples, catalogue.examples.map((one) => [`example ${one.number}`, one.title])]]) {
      if (!pairs.length) continue;
      const made = group(label, pairs);
      made.replaceChildren(...pairs.map(([value, title]) => new Option(title, value)));
      this.begin.append(made);
    }
    this.begin.append(new Option(T.continuous.own, ""));
    this.begin.value = catalogue.forms[0]?.name ?? (catalogue.examples.length ? `example ${catalogue.examples[0].number}` : "");
    this.fields = h("div", { id: "cql-fields", class: "inline" });
    this.stretch = choice("cql-stretch", STRETCHES.map((days) => [days, T.continuous.stretches[days]]), () => this.chooseStretch(), FIRST_DAYS);
    const time = (id) => h("input", { id, type: "datetime-local", on: { input: () => { this.stretch.value = "own"; this.changed(); } } });
    [this.from, this.to] = [time("cql-from"), time("cql-to")];
    this.order = choice("cql-order", Object.entries(T.continuous.orders), () => this.changed(), "time");
    this.order.setAttribute("aria-describedby", "cql-order-hint");
    this.go = button(T.continuous.run, () => this.run(), { id: "cql-run", class: "primary" });
    this.halt = button(T.continuous.stop, () => this.stop(), { id: "cql-stop", hidden: true });
    this.bar = h("progress", { id: "cql-progress", max: 1, value: 0, "aria-label": T.continuous.run, hidden: true });
    this.state = h("span", { id: "cql-progress-words", class: "quiet", role: "status" });
    this.kept = new KeptQueries(this.frame, { take: (text) => this.takeText(text), text: () => this.editor.value, understood: () => this.isUnderstood() });
    this.plan = h("section", { id: "cql-plan", "aria-labelledby": "cql-plan-title" });
    this.planBody = h("div", {}, h("p", { class: "quiet" }, T.continuous.noPlan));
    this.plan.append(h("h2", { id: "cql-plan-title" }, T.continuous.computed), this.planBody);
    const question = h("section", { id: "cql-question", "aria-labelledby": "cql-title" }, h("h2", { id: "cql-title" }, T.continuous.title),
      field(T.continuous.begin, this.begin, T.continuous.beginHint), this.fields, this.editor.element,
      h("div", { class: "inline" }, field(T.continuous.stretch, this.stretch), field(T.continuous.order, this.order)),
      h("p", { class: "quiet hint", id: "cql-order-hint" }, T.continuous.orderHint),
      h("div", { class: "inline" }, field(T.continuous.from, this.from), field(T.continuous.to, this.to)),
      h("div", { class: "buttons" }, this.go, this.halt, this.kept.keep, this.bar, this.state));
    this.chooseStretch();
    this.root.replaceChildren(h("div", { class: "cql" }, this.result.element, question), this.kept.element, this.plan);
  }

  // What is asked

  /** Begin with a form or an example. */
  choose(name) {
    const example = this.catalogue.examples.find((one) => `example ${one.number}` === name);
    this.form = this.catalogue.forms.find((one) => one.name === name) ?? null;
    this.fields.replaceChildren(...(this.form?.fields ?? []).map(({ name: key, label, unit, first, is_whole: isWhole }) =>
      field(`${label}${unit ? ` [${unit}]` : ""}`, h("input", { id: `cql-field-${key}`, type: "number", min: 0, step: isWhole ? 1 : "any", value: first, data: { key }, on: { input: () => this.fill() } }))));
    if (Number(this.stretch.value) < (this.form?.days ?? 0)) {
      this.stretch.value = STRETCHES.find((days) => days >= this.form.days);
      this.chooseStretch();
    }
    if (this.form) this.fill();
    else if (example) this.set(example.text);
    else this.editor.text.focus();
  }

  /** Write the query of the form. */
  fill() {
    const values = Object.fromEntries([...this.fields.querySelectorAll("input")].map((input) => [input.dataset.key, Number(input.value)]));
    if (Object.values(values).every((value) => value > 0)) this.set(writeForm(this.form, values));
    else this.editor.say(T.continuous.notAllNumbers);
  }

  set(text) {
    this.editor.value = text;
    this.note();
  }

  /** Take what an address says. */
  take(params) {
    this.begin.value = "";
    this.form = null;
    this.fields.replaceChildren();
    this.editor.value = params.get("text");
    if (params.get("order") === "arrival") this.order.value = "arrival";
    const bounds = ["from", "to"].map((name) => params.get(name));
    if (bounds.every((bound) => /^\d{4}-\d\d-\d\dT\d\d:\d\d$/.test(bound ?? ""))) {
      [this.from.value, this.to.value] = bounds;
      this.stretch.value = "own";
    }
  }

  /** Take a text as one's own. */
  takeText(text) {
    this.begin.value = "";
    this.form = null;
    this.fields.replaceChildren();
    this.set(text);
    this.editor.text.focus();
  }

  async isUnderstood() {
    await this.frame.attempt(() => this.editor.ask());
    if (this.editor.fault || !this.editor.value.trim()) this.editor.text.focus();
    return !this.editor.fault && Boolean(this.editor.value.trim());
  }

  chooseStretch() {
    const days = Number(this.stretch.value);
    if (days) [this.from.value, this.to.value] = [minute(this.end - days * DAY_MS), minute(this.end)];
    else this.from.focus();
    this.changed();
  }

  /** A button for the next longer stretch that can be chosen; null after the longest. */
  longer() {
    const next = STRETCHES[STRETCHES.indexOf(this.stretch.value) + 1];
    if (!Number(next)) return null;
    return button(T.continuous.longer(T.continuous.stretches[next]), () => {
      this.stretch.value = next;
      this.chooseStretch();
      this.run();
    });
  }

  /** What was typed is one's own, no form's any more. */
  changed() {
    if (this.form && this.editor.value && document.activeElement === this.editor.text) {
      this.form = null;
      this.begin.value = "";
      this.fields.replaceChildren();
    }
    this.note();
  }

  note() {
    if (!this.editor?.value) return;
    const params = new URLSearchParams({ text: this.editor.value, from: this.from.value, to: this.to.value, order: this.order.value });
    this.taken = this.editor.value;
    this.frame.note("continuous", params);
  }

  /** Whether a text is understood; if so its plan is shown. */
  async check(text) {
    try {
      const told = await api.explainContinuous(text);
      if (text !== this.editor.value) return null;
      this.editor.say(T.continuous.fine(T.continuous.kinds[told.result], number(told.columns.length)));
      this.planBody.replaceChildren(...describePlan(told));
      return null;
    } catch (problem) {
      if (!(problem instanceof api.Problem) || problem.status < 400 || problem.status === 401) throw problem;
      this.planBody.replaceChildren(h("p", { class: "quiet" }, T.continuous.noPlan));
      const { line = 0, column = 0, length = 0, problem: words, suggestion } = problem.body;
      return { line, column, length, problem: words ?? problem.message, suggestion };
    }
  }

  // The back-test

  async run() {
    const turn = (this.turn += 1);
    if (this.running) await this.stop();
    await this.frame.attempt(async () => {
      await this.editor.ask();
      if (this.editor.fault || !this.editor.value.trim()) return;
      this.frame.say(null);
      this.setRunning(true);
      try {
        const utc = (input) => (input.value ? `${input.value}Z` : null);
        const asked = await api.backtest({ text: this.editor.value, from: utc(this.from), to: utc(this.to), order: this.order.value });
        this.running = asked.id;
        await this.follow(asked, turn);
      } finally {
        if (turn === this.turn) this.setRunning(false);
      }
    });
  }

  async follow(asked, turn) {
    let told = asked;
    while (["queued", "running"].includes(told.state)) {
      this.bar.value = told.fraction;
      this.state.textContent = told.state === "queued" ? T.continuous.waiting : T.continuous.running(number(100 * told.fraction, 0), number(told.rows, 0));
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      if (turn !== this.turn) return;
      told = await api.look(`continuous/backtest/${asked.id}`);
    }
    if (turn !== this.turn) return;
    this.state.textContent = told.state === "cancelled" ? T.continuous.stopped : "";
    if (told.state === "failed") throw new api.Problem(told.error.title, told.error.detail, told.error.status);
    if (told.state === "done") this.result.show(await api.look(`continuous/backtest/${asked.id}/rows?f=json`), asked.id);
  }

  setRunning(isRunning) {
    const held = document.activeElement;
    [this.halt.hidden, this.bar.hidden, this.go.hidden] = [!isRunning, !isRunning, isRunning];
    this.result.element.toggleAttribute("aria-busy", isRunning);
    // A button that goes while it has the focus would drop a keyboard user at the top of the page.
    if (isRunning && held === this.go) this.halt.focus();
    if (!isRunning && held === this.halt) this.go.focus();
    if (!isRunning) this.running = null;
  }

  async stop() {
    const id = this.running;
    if (id) await api.stopBacktest(id).catch(() => {});
  }

  hide() {
    this.editor?.close();
    this.kept?.hide();
  }

  leave() {
    this.stop();
    this.kept?.hide();
  }

  redraw() {
    this.result.draw();
  }
}
