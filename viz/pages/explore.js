// Explore: a question is built, asked, and its answer sharpens.

import * as api from "./api.js";
import { Answer } from "./answer.js";
import { Builder } from "./builder.js";
import { asCurl, asPython, written } from "./code.js";
import { button, bytes, choice, copy, field, h, number, part } from "./dom.js";
import { Region, setRegion } from "./region.js";
import { Share } from "./share.js";
import { T } from "./text.js";

const ORDERS = ["coarse_to_fine", "walk", "raster"];
const copyOf = (document) => JSON.parse(JSON.stringify(document));

export function open(root, frame) {
  return new Explore(root, frame);
}

class Explore {
  constructor(root, frame) {
    this.frame = frame;
    const { known } = frame;
    this.region = new Region(known.stations, (box, step) => this.builder.change((document) => setRegion(document, box, step), true));
    this.builder = new Builder(known, { defaultGrid: () => this.region.defaultGrid(), attempt: (act) => frame.attempt(act), onChange: (document) => this.onDocument(document), onAdapted: (before) => this.onAdapted(before) });
    this.answer = new Answer(frame, { onState: () => this.note(), onRunning: (running) => this.setRunning(running) });
    const names = Object.keys(known.saved);
    this.saved = choice("saved", [["", T.explore.own], ...names.map((name) => [name, name])], (name) => name && this.builder.set(copyOf(known.saved[name])), "");
    this.order = choice("order", ORDERS.map((order) => [order, T.explore.orders[order]]), () => this.note(), ORDERS[0]);
    root.append(h("div", { class: "two" }, this.question(), this.answer.element));
    this.builder.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.run();
      }
    });
    this.builder.set(this.builder.document);
    // The map waits until its place has a width.
    requestAnimationFrame(() => frame.attempt(() => this.region.open()));
  }

  question() {
    const { builder } = this;
    this.copied = h("div", { class: "copied", hidden: true }, h("p", { class: "quiet", role: "status" }), h("pre", { tabindex: 0 }));
    this.plan = h("pre", { id: "plan", tabindex: 0 }, T.explore.noPlan);
    this.planPart = h("details", { id: "plan-part" }, h("summary", {}, T.explore.plan), this.plan);
    const texts = {
      json: () => `${written(this.read())}\n`,
      python: () => asPython(this.read()),
      curl: () => asCurl(this.read(), new URL(".", location.href.split("#")[0]).href),
      link: () => this.link(),
    };
    return h("section", { "aria-labelledby": "question-title" }, h("h2", { id: "question-title" }, T.explore.question),
      field(T.explore.saved, this.saved), builder.top, this.region.element,
      h("h3", {}, T.explore.steps), h("p", { class: "quiet" }, T.explore.stepsHint), builder.steps, builder.adding,
      h("details", { class: "more" }, h("summary", {}, T.explore.options), builder.more, field(T.explore.order, this.order, T.explore.orderHint)),
      h("div", { class: "field" }, h("label", { for: "document" }, T.explore.json), builder.text, builder.told),
      h("div", { class: "buttons sticky" },
        button(T.explore.run, () => this.run(), { id: "run", class: "primary" }), button(T.explore.stop, () => this.stop(), { id: "stop", disabled: true }),
        button(T.explore.explain, () => this.explain(), { id: "explain" }), button(T.explore.stand, () => this.stand(), { id: "stand" })),
      h("div", { id: "copies", class: "buttons small", role: "group", "aria-label": T.explore.copy }, h("span", { "aria-hidden": true }, T.explore.copy),
        Object.entries(texts).map(([name, text]) => button(T.explore.copies[name], () => this.frame.attempt(() => copy(text(), this.copied)), { id: `copy-${name}` }))),
      h("div", { id: "share" }, new Share(this.frame, { page: "explore" }).element),
      this.copied, this.planPart);
  }

  read() {
    this.frame.say(null);
    return this.builder.read();
  }

  /** Show what the address says; one that was asked is asked again. */
  async show(params) {
    this.frame.units(this.answer.units());
    if (!params.has("q") && !this.begun) await this.suggest();
    if (!params.has("q") || String(params) === this.noted) return;
    this.begun = true;
    this.noted = String(params);
    this.answer.restore(params);
    if (ORDERS.includes(params.get("order"))) this.order.value = params.get("order");
    try {
      this.builder.set(JSON.parse(params.get("q")));
    } catch (error) {
      throw new api.Problem(T.problems.noJson, T.problems.link(error.message));
    }
    if (params.get("run") === "1") await this.run();
  }

  /** Begin with a question that the archive itself suggests. */
  async suggest() {
    this.begun = true;
    const { text } = this.builder;
    const { value } = text;
    const suggestion = await api.suggest();
    // What was typed or chosen meanwhile is the user's.
    if (text.value !== value) return;
    this.builder.suggest(suggestion);
    if (this.frame.may("query")) await this.run();
  }

  /** Where the old variable's picture is shown, show that of the new one. */
  onAdapted(before) {
    if (this.asked === JSON.stringify(before)) this.ask();
  }

  onDocument(document) {
    const { saved } = this.frame.known;
    this.saved.value = Object.keys(saved).find((name) => JSON.stringify(saved[name]) === JSON.stringify(document)) ?? "";
    this.region.show(document);
    this.offerRun(document);
    this.answer?.expect(document);
    this.note();
  }

  /** What reproduces the page. `run` says that the question was asked, `snapshot` what it was asked of. */
  params(snapshot) {
    const asked = this.answer.main;
    const document = copyOf(this.builder.document);
    const same = asked && this.asked === JSON.stringify(document);
    if (same && snapshot) document.snapshot = asked.snapshot;
    return new URLSearchParams({ q: JSON.stringify(document), order: this.order.value, ...this.answer.state(), ...(same ? { run: "1" } : {}) });
  }

  note() {
    if (!this.answer || !this.order) return;
    const params = this.params(false);
    this.noted = String(params);
    this.frame.note("explore", params);
  }

  link() {
    this.read();
    return `${location.href.split("#")[0]}#explore?${this.params(true)}`;
  }

  async run() {
    if (!part("run").disabled) await this.ask();
  }

  async ask() {
    const asked = await this.frame.attempt(async () => {
      const document = this.read();
      this.asked = JSON.stringify(document);
      await this.answer.begin(document, this.order.value, (plan) => this.showPlan(plan));
    });
    if (!asked) return;
    this.note();
    // Where the window is narrow it stands below the question, out of sight.
    const { element } = this.answer;
    if (element.getBoundingClientRect().top > innerHeight) element.scrollIntoView();
  }

  stop() {
    this.frame.attempt(() => this.answer.stop());
  }

  showPlan(plan) {
    this.plan.textContent = `${T.explore.planHead(number(plan.cells), bytes(plan.projected_bytes))}\n\n${plan.explanation}`;
  }

  explain() {
    this.frame.attempt(async () => {
      this.showPlan(await api.explain(this.read()));
      this.planPart.open = true;
    });
  }

  /** Make a standing query of it. */
  stand() {
    this.frame.attempt(() => this.frame.go("standing", { q: JSON.stringify(this.read()) }));
  }

  setRunning(running) {
    const held = document.activeElement;
    const [run, stop] = [part("run"), part("stop")];
    this.running = running;
    this.offerRun(this.builder.document);
    stop.disabled = !running;
    // A button that is switched off while it has the focus would drop a keyboard user at the top of the page.
    if (running && held === run) stop.focus();
    if (!running && held === stop) run.focus();
  }

  /** A question that runs is not asked again; another one takes its place. */
  offerRun(document) {
    const run = part("run");
    if (run) run.disabled = this.running && this.asked === JSON.stringify(document);
  }

  async redraw() {
    if (this.region.figure) await this.region.open();
    await this.answer.redraw();
  }

  leave() {
    this.answer.leave();
  }
}
