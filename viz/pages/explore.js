// Explore: a question is built, asked, and its answer sharpens.

import * as api from "./api.js";
import { Answer } from "./answer.js";
import { Builder } from "./builder.js";
import { asCurl, asPython, written } from "./code.js";
import { asContinuous } from "./cql_forms.js";
import { button, bytes, choice, copy, field, h, number, part, visible } from "./dom.js";
import { Region, setRegion } from "./region.js";
import { See } from "./see.js";
import { describeComputation } from "./sentence.js";
import { Share } from "./share.js";
import { T } from "./text.js";

const ORDERS = ["coarse_to_fine", "walk", "by_time", "raster"];
/** A window in which controls are a sheet; `explore.css` has it too. */
const NARROW = window.matchMedia("(max-width: 48rem)");
const copyOf = (document) => JSON.parse(JSON.stringify(document));

let expected = null;

/** Ask for what the page begins with, while the frame still asks what there is. */
export function expect(params) {
  if (params.has("q")) return;
  expected = api.suggest();
  expected.catch(() => {});
}

export function open(root, frame) {
  return new Explore(root, frame);
}

class Explore {
  constructor(root, frame) {
    this.frame = frame;
    const { known } = frame;
    this.region = new Region(known.stations, (box, step) => this.takeRegion(box, step));
    this.builder = new Builder(known, { defaultGrid: () => this.region.defaultGrid(), attempt: (act) => frame.attempt(act), onChange: (document) => this.onDocument(document), onAdapted: () => this.askNow() });
    this.answer = new Answer(frame, {
      onState: () => this.note(), onRunning: (running) => this.setRunning(running), onArea: (box) => box && this.takeRegion(box, undefined),
      isChosen: (document) => this.builder.hasChosenGrid(document),
      // What was typed and not asked is left alone.
      follow: (box) => box && this.builder.text.value === this.askedText && this.takeRegion(box, undefined),
    });
    this.see = new See(known, this.builder, this.region, { attempt: (act) => frame.attempt(act), ask: () => this.askNow(), area: () => this.answer.stage.area() });
    this.saved = choice("saved", [["", T.explore.own]], (name) => name && this.builder.set(copyOf(known.saved[name])), "");
    this.order = choice("order", ORDERS.map((order) => [order, T.explore.orders[order]]), () => this.note(), ORDERS[0]);
    root.append(this.screen(), this.answer.about.element);
    this.builder.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.run();
      }
    });
    this.builder.set(this.builder.document);
    // The picture does not wait for those that can be answered, which are the slowest to find.
    this.offered = frame.saved().then((saved) => this.offerSaved(saved), () => {});
  }

  offerSaved(saved) {
    const { known } = this.frame;
    known.saved = saved;
    const names = Object.keys(saved);
    this.saved.append(...names.map((name) => new Option(visible(name), name)));
    this.answer.looks.offerSaved(names);
    this.onDocument(this.builder.document);
  }

  /** What fills the window: what is seen above the picture, how it is computed beside it, time below it. */
  screen() {
    const { answer } = this;
    const { bar, mapControls } = answer.looks;
    this.sentence = h("p", { id: "sentence" });
    this.how = button(T.see.how, () => this.showPanel(this.panel.hidden || this.isSheetDown), { id: "how", "aria-expanded": "false", "aria-controls": "how-panel" });
    this.panel = this.question();
    this.sheet = h("div", { class: "sheet", id: "sheet" }, button(T.see.close, () => this.showSheet(false), { class: "close-sheet", id: "close-sheet" }), this.see.element, bar, this.panel);
    this.opener = button("☰", () => this.showSheet(true), { id: "open-sheet", class: "icon", "aria-label": T.see.controls, title: T.see.controls, "aria-controls": "sheet" });
    this.sheet.addEventListener("keydown", (event) => event.key === "Escape" && this.showSheet(false));
    NARROW.addEventListener("change", () => this.placeControls());
    const toAbout = button(T.see.toAbout, () => answer.about.element.scrollIntoView(), { id: "to-about" });
    mapControls.append(h("div", { id: "share" }, new Share(this.frame, { page: "explore" }).element), toAbout);
    this.act = h("div", { class: "act" }, this.opener, button(T.explore.run, () => this.run(), { id: "run", class: "primary" }), button(T.explore.stop, () => this.stop(), { id: "stop", hidden: true }));
    this.placeControls();
    return h("div", { class: "screen" }, this.sheet, this.act,
      h("div", { class: "saying" }, this.how, this.sentence, answer.finerWords, answer.status),
      answer.stage.element, mapControls);
  }

  /** In a narrow window what is chosen most often stands above and below the picture, and not on the sheet. */
  placeControls() {
    const { see, answer: { looks } } = this;
    const { activeElement } = document;
    if (NARROW.matches) {
      this.act.prepend(see.variablePart);
      looks.mapControls.prepend(looks.besidePart);
    } else {
      see.element.prepend(see.variablePart);
      looks.views.after(looks.besidePart);
      this.sheet.classList.remove("open");
      this.opener.setAttribute("aria-expanded", "false");
    }
    // What is moved loses the focus.
    if (see.variablePart.contains(activeElement) || looks.besidePart.contains(activeElement)) activeElement.focus();
  }

  /** How it is computed, folded away until somebody wants to know. */
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
    return h("section", { id: "how-panel", class: "how-panel", "aria-labelledby": "question-title", hidden: true }, h("h2", { id: "question-title" }, T.see.how),
      h("div", { class: "buttons" }, button(T.explore.explain, () => this.explain(), { id: "explain" }), button(T.explore.stand, () => this.stand(), { id: "stand" }), button(T.continuous.offer, () => this.askContinuously(), { id: "continuously" })),
      h("div", { id: "copies", class: "buttons small", role: "group", "aria-label": T.explore.copy }, h("span", { "aria-hidden": true }, T.explore.copy),
        Object.entries(texts).map(([name, text]) => button(T.explore.copies[name], () => this.frame.attempt(() => copy(text(), this.copied)), { id: `copy-${name}` }))),
      this.copied, this.planPart,
      field(T.explore.saved, this.saved),
      h("h3", {}, T.explore.steps), h("p", { class: "quiet" }, T.explore.stepsHint), builder.steps, builder.adding,
      h("details", { class: "more" }, h("summary", {}, T.explore.options), builder.more, field(T.explore.order, this.order, T.explore.orderHint)),
      h("div", { class: "field" }, h("label", { for: "document" }, T.explore.json), builder.text, builder.told));
  }

  /** Whether controls are a sheet, as in a narrow window. */
  get hasSheet() {
    return getComputedStyle(this.sheet).display !== "contents";
  }

  get isSheetDown() {
    return this.hasSheet && !this.sheet.classList.contains("open");
  }

  showPanel(isShown) {
    this.panel.hidden = !isShown;
    this.how.setAttribute("aria-expanded", String(isShown));
    if (!this.hasSheet) return;
    this.showSheet(isShown);
    if (isShown) this.panel.scrollIntoView();
  }

  /** Slide the controls up over the picture, or down again; in wide windows they stand above it. */
  showSheet(isShown) {
    this.sheet.classList.toggle("open", isShown);
    this.opener.setAttribute("aria-expanded", String(isShown));
    if (this.hasSheet) part(isShown ? "close-sheet" : "open-sheet").focus();
  }

  /** Ask of another region, on cells that the page chooses where none are given. */
  takeRegion(box, step) {
    this.frame.attempt(() => {
      this.builder.change((document) => setRegion(document, box, { step, stations: this.frame.known.stations }), true);
      if (step === undefined) this.builder.chooseGrid(this.builder.document);
      this.askNow();
    });
  }

  read() {
    this.frame.say(null);
    return this.builder.read();
  }

  /** Show what the address says; one that was asked is asked again. */
  async show(params) {
    if (!params.has("q") && !this.begun) {
      if (params.size) this.answer.restore(params);
      await this.suggest();
    }
    if (!params.has("q") || String(params) === this.noted) return;
    if (params.get("beside")?.startsWith("saved:")) await this.offered;
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
    const suggestion = await (expected ?? api.suggest());
    expected = null;
    // What was typed or chosen meanwhile is the user's.
    if (text.value !== value) return;
    this.builder.chooseGrid(suggestion.query);
    this.builder.suggest(suggestion);
    if (this.frame.may("query")) await this.run();
  }

  /** What is seen was changed: ask at once, for those who may. */
  askNow() {
    if (this.frame.may("query")) this.ask();
  }

  onDocument(document) {
    const { saved } = this.frame.known;
    this.saved.value = Object.keys(saved).find((name) => JSON.stringify(saved[name]) === JSON.stringify(document)) ?? "";
    this.region.show(document);
    this.see?.show(document);
    this.say(document);
    this.offerRun(document);
    this.answer?.stage.expect(document);
    this.note();
  }

  /** Say in a sentence how a query is computed. */
  say(document) {
    if (!this.sentence) return;
    const { stations } = this.frame.known;
    this.sentence.textContent = this.sentence.title = visible(describeComputation(document, stations.features.length));
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
      this.askedText = this.builder.text.value;
      await this.answer.begin(document, this.order.value, (plan) => this.showPlan(plan));
    });
    if (asked) this.note();
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

  /** Ask the same of the readings as a continuous query, over the same time. */
  askContinuously() {
    this.frame.attempt(() => {
      const query = this.read();
      const [from, to] = (query.clip?.time ?? []).map((bound) => String(bound).slice(0, 16));
      this.frame.go("continuous", { text: asContinuous(query), ...(from && to ? { from, to } : {}) });
    });
  }

  setRunning(running) {
    const held = document.activeElement;
    const [run, stop] = [part("run"), part("stop")];
    this.running = running;
    stop.hidden = !running;
    this.offerRun(this.builder.document);
    // A button that is switched off while it has the focus would drop a keyboard user at the top of the page.
    if (running && held === run) stop.focus();
    if (!running && held === stop) run.focus();
  }

  /** A question that runs is not asked again; another one takes its place. */
  offerRun(document) {
    const run = part("run");
    // Stop takes its place, so that nothing moves.
    if (run) run.hidden = run.disabled = Boolean(this.running) && this.asked === JSON.stringify(document);
  }

  async redraw() {
    if (this.region.figure && this.see.place.element.open) await this.region.open();
    await this.answer.stage.redraw();
  }

  hide() {
    this.answer.hide();
  }

  leave() {
    this.answer.leave();
  }
}
