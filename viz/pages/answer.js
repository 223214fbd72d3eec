// The answer: one picture or several of one or two questions, and what is said of them.

import * as api from "./api.js";
import { Brush } from "./brush.js";
import { gridStep } from "./builder.js";
import { button, figure as short, h, number, visible } from "./dom.js";
import { downloadLinks } from "./downloads.js";
import { link } from "./figures.js";
import { Looks, VIEWS } from "./looks.js";
import { Pane } from "./pane.js";
import { expectMap, hasDays } from "./pictures.js";
import { pose, scaleOf } from "./question.js";
import { regionOf } from "./region.js";
import { T } from "./text.js";
import { longName } from "./variables.js";
import { content, differenceOf, headOf, shareColours } from "./views.js";

/** Steps whose numbers are of one variable only. */
const BOUNDS = ["valid_range", "limit"];
/** At most ten redraws a second. */
const PAUSE_MS = 100;
/** While an answer is computed each redraw is followed by a rest, for it takes from the computing: so many times its length, at most so long or a tenth of the time gone. */
const REST = 6;
const LONGEST_REST_MS = 600;
/** A question that stood so long unchanged may be asked next. */
const EXPECT_MS = 300;
/** Cells that a second opinion recomputes. */
const OPINION_CELLS = 50;
/** Time cells from which a series is shown day by hour at first. */
const MANY = 72;

export class Answer {
  constructor(frame, { onState, onRunning }) {
    this.frame = frame;
    this.onState = onState;
    this.onRunning = onRunning;
    this.questions = [];
    this.panes = { first: new Pane("first"), second: new Pane("second"), difference: new Pane("difference"), cell: new Pane("cell") };
    this.looks = new Looks(frame.known, { change: () => this.refresh(), beside: () => this.onBeside(), estimated: () => this.onEstimated(), note: () => onState(), busy: () => Boolean(this.busy) });
    const { first, second, difference } = this.panes;
    this.brush = new Brush({ first, second, difference }, () => onState());
    this.element = this.build();
    this.showPanes();
  }

  /** The question that was asked; beside it another one may be. */
  get main() {
    return this.questions[0];
  }

  build() {
    const { looks } = this;
    this.bar = h("progress", { id: "bar", max: 1, value: 0, "aria-label": T.answer.share });
    this.status = h("p", { id: "status", role: "status", "aria-live": "polite" }, T.answer.idle);
    this.range = h("p", { id: "range", class: "quiet" });
    this.notes = h("ul", { id: "notes", class: "quiet", "aria-label": T.answer.notes, hidden: true });
    this.opinion = h("p", { id: "opinion", class: "quiet", role: "status" });
    this.opinionButton = button(T.answer.opinion, () => this.askOpinion(), { id: "second-opinion", title: T.answer.opinionHint });
    this.opinionPart = h("div", { class: "buttons small", hidden: true }, this.opinionButton, this.opinion);
    this.downloads = h("nav", { id: "downloads", "aria-label": T.answer.downloads, hidden: true });
    this.together = h("div", { class: "panes" }, Object.values(this.panes).map((pane) => pane.element));
    return h("section", { id: "picture-part", "aria-labelledby": "picture-title", tabindex: -1 }, h("h2", { id: "picture-title" }, T.answer.title),
      h("div", { class: "status" }, this.bar, this.status), looks.above, looks.fit.element, this.together, this.range, this.notes, this.opinionPart, this.brush.element, looks.mapControls, looks.place, this.downloads);
  }

  units() {
    const surface = this.main?.surface;
    return surface ? T.frame.units(surface.long_name, surface.units) : T.frame.noUnits;
  }

  state() {
    return { ...this.looks.state(), ...this.brush.state() };
  }

  restore(params) {
    this.looks.restore(params);
    this.brush.restore(params);
    this.showPanes();
  }

  // Asking

  /** Have the empty map of a question at hand when it is asked. What cannot be told from its text comes with the plan. */
  expect(document) {
    clearTimeout(this.expecting);
    this.expecting = setTimeout(() => {
      const { variables } = this.frame.known;
      const [box, found] = [gridStep(document) && regionOf(document), variables.find((one) => one.name === document.variable)];
      const { place } = this.panes.first;
      if (!box || !found || !place.clientWidth) return;
      const quantity = longName(variables, found.name);
      expectMap(place, { title: quantity, variable: quantity, units: found.unit, scale: scaleOf(document, found.unit) }, box).catch(() => {});
    }, EXPECT_MS);
  }

  /** The question beside, from what is asked and what was chosen; null where there is none of its own. */
  besideDocument(document) {
    const [kind, name] = this.looks.beside.value.split(/:(.*)/s);
    if (kind === "variable") return { ...document, variable: name, steps: (document.steps ?? []).filter((step) => !BOUNDS.includes(step.function)) };
    if (kind === "snapshot") return { ...document, snapshot: name };
    return kind === "saved" ? this.frame.known.saved[name] : null;
  }

  async begin(document, order, onPlan) {
    this.leave();
    const token = {};
    Object.assign(this, { token, document, order, questions: [] });
    this.onRunning(true);
    this.status.textContent = T.answer.asking;
    this.looks.hide();
    this.downloads.hidden = this.notes.hidden = this.opinionPart.hidden = true;
    this.range.textContent = "";
    for (const pane of Object.values(this.panes)) pane.clear(T.answer.first);
    this.showPanes();
    const on = {
      plan: (question) => token === this.token && this.frame.attempt(() => this.onPlan(question, onPlan)),
      progress: (question) => token === this.token && this.onProgress(question),
      end: (question) => token === this.token && this.frame.attempt(() => this.onEnd(question)),
    };
    const asked = this.looks.beside.value === "deviation" && !document.variance ? { ...document, variance: true } : document;
    const other = this.besideDocument(document);
    try {
      const question = await pose(asked, order, on);
      if (token !== this.token) {
        question.stop().catch(() => {});
        return;
      }
      this.questions.push(question);
    } catch (problem) {
      if (token !== this.token) return;
      this.status.textContent = T.answer.idle;
      this.bar.value = 0;
      for (const pane of Object.values(this.panes)) pane.clear(T.answer.refused);
      this.onRunning(false);
      throw problem;
    }
    if (other) await this.frame.attempt(() => this.beginBeside(other, order, on, token));
  }

  /** A question beside that cannot be answered leaves the other one alone. */
  async beginBeside(other, order, on, token) {
    try {
      const question = await pose(other, order, on);
      if (token === this.token) this.questions.push(question);
      else question.stop().catch(() => {});
    } catch (problem) {
      if (token !== this.token) return;
      this.panes.second.clear(T.answer.besideFailed);
      throw problem;
    }
  }

  onPlan(question, onPlan) {
    if (question !== this.main) return;
    onPlan(question.plan);
    this.frame.units(this.units());
    this.looks.show(question.surface);
    const shared = this.shared();
    // While the first cells are computed the map is made.
    if (shared.view === "map") this.panes.first.openMap(headOf(question, "value", shared)).catch(() => {});
  }

  onProgress(question) {
    this.sayProgress();
    // The first one says that the run began, before there is anything to see.
    if (question.progress.cells > 0) this.keepUp();
  }

  /** Draw what there is once the last picture has had its rest; whoever waits for that draws what came meanwhile, too. */
  async keepUp() {
    if (this.waits) return;
    this.waits = true;
    await this.busy;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, this.rested - performance.now())));
    this.waits = false;
    // The last picture is drawn by the end itself.
    if (this.questions.some((one) => !one.ended)) this.refresh();
  }

  sayProgress() {
    const words = { queued: T.answer.waiting, running: T.answer.computing, done: T.answer.done, cancelled: T.answer.stopped, failed: T.answer.failed, lost: T.answer.lost };
    const told = this.questions.map((question) => {
      const { fraction, cells, total, seconds } = question.progress;
      if (question.isEmpty) return T.answer.empty(number(total), number(seconds, 1));
      return ["failed", "lost"].includes(question.state) ? words[question.state] : T.answer.progress(words[question.state], number(100 * fraction, 0), number(cells), number(total), number(seconds, 1));
    });
    this.bar.value = this.questions.reduce((sum, question) => sum + question.progress.fraction, 0) / Math.max(this.questions.length, 1);
    this.status.textContent = told.length > 1 ? T.answer.two(...told) : told[0];
  }

  async onEnd(question) {
    this.sayProgress();
    if (question.state === "failed") this.frame.say(question.problem);
    if (question.state === "lost") this.frame.say({ title: T.problems.gone, detail: T.problems.lostAdvice });
    if (this.questions.every((one) => one.ended)) this.onRunning(false);
    if (question.state === "cancelled") this.looks.endFilm();
    // Nothing will come into a map that was made for it.
    if (question === this.main && question.state !== "done" && !this.panes.first.shown) this.panes.first.clear();
    if (question.state === "done") {
      if (question === this.main) {
        this.downloads.replaceChildren(...downloadLinks(question));
        this.downloads.hidden = false;
        this.showNotes(question.notes);
        this.opinion.textContent = "";
        this.opinionPart.hidden = false;
      }
      if (question.surface.kind === "series") question.table = await api.series(question.id);
      this.chooseView(question);
      await this.refresh();
    }
    this.onState();
  }

  chooseView({ table }) {
    if (this.looks.view || !this.main?.surface) return;
    const byDay = table && hasDays(table.times) && table.times.length >= MANY;
    this.looks.set(byDay ? "heat" : VIEWS[this.main.surface.kind][0]);
  }

  async stop() {
    const open = this.questions.filter((question) => !question.ended);
    await Promise.all(open.map((question) => question.stop()));
  }

  leave() {
    this.rested = 0;
    for (const question of this.questions) if (!question.ended) question.stop().catch(() => {});
  }

  // Looking

  /** What is drawn is at hand; what comes next is drawn likewise. */
  onEstimated() {
    this.onState();
    const estimated = this.looks.estimated.value;
    this.frame.attempt(() => Promise.all(Object.values(this.panes).map((pane) => pane.shown?.frame && pane.show({ ...pane.shown, estimated }))));
  }

  /** Another picture beside may need another question. */
  onBeside() {
    this.showPanes();
    this.onState();
    if (!this.main) return;
    const { value } = this.looks.beside;
    const other = JSON.stringify(this.besideDocument(this.document));
    const isThere = value === "deviation" ? this.main.document.variance : other === "null" || other === this.besideAsked;
    this.besideAsked = other;
    if (value && !isThere) this.frame.attempt(() => this.begin(this.document, this.order, () => {}));
    else this.refresh();
  }

  showPanes() {
    const { looks, panes } = this;
    const two = Boolean(looks.beside.value);
    looks.difference.disabled = !looks.comparable;
    panes.second.element.hidden = !two;
    panes.difference.element.hidden = !(looks.comparable && looks.difference.checked);
    panes.cell.element.hidden = true;
    this.together.classList.toggle("beside", two);
    for (const name of ["second", "difference"]) if (panes[name].element.hidden) panes[name].clear();
  }

  /** Fetch and draw what is chosen as it stands; one at a time, so that a slow line is not flooded. */
  refresh() {
    this.again = true;
    this.busy ??= (async () => {
      try {
        while (this.again) {
          await new Promise((resolve) => setTimeout(resolve, Math.max(0, (this.due ?? 0) - performance.now())));
          this.again = false;
          const begun = performance.now();
          this.due = begun + PAUSE_MS;
          await this.frame.attempt(() => this.draw());
          const ended = performance.now();
          this.rested = ended + Math.min(REST * (ended - begun), Math.max(LONGEST_REST_MS, 100 * (this.main?.progress.seconds ?? 0)));
        }
      } finally {
        this.busy = null;
      }
    })();
    return this.busy;
  }

  /** How all pictures of the answer are looked at. */
  shared() {
    const { looks, main } = this;
    return { view: looks.view || VIEWS[main.surface.kind][0], time: looks.time, level: looks.level, estimated: looks.estimated.value, fit: looks.fit.state(), cell: looks.picked, picked: looks.clicked ? looks.picked : null, stations: this.frame.known.stations, onPick: (row, column) => looks.pick(row, column) };
  }

  async draw() {
    const { token, panes, looks, main } = this;
    if (!main?.surface) return;
    const shared = this.shared();
    const deviates = looks.beside.value === "deviation";
    const beside = deviates ? [main, "variance"] : [looks.beside.value && this.questions[1], "value"];
    // Both are fetched before either is drawn, as they share their colours; one that fails leaves the other alone.
    const found = await Promise.allSettled([this.contentOf(main, "value", shared), this.contentOf(...beside, shared)]);
    if (token !== this.token) return;
    // A time without values has no picture, but others have.
    if (main.state === "done") looks.mapControls.hidden = main.surface.kind !== "map";
    shareColours(...found.map((one) => one.value));
    const [first, second] = [await panes.first.put(found[0].value), await panes.second.put(found[1].value)];
    const failed = found.find((one) => one.reason);
    if (failed) throw failed.reason;
    if (!first) {
      this.range.textContent = "";
      return;
    }
    if (second && !panes.difference.element.hidden) {
      const apart = differenceOf(first, second);
      if (apart) await panes.difference.show(apart);
      else panes.difference.clear(T.answer.notAlike);
    }
    await this.drawCell(shared, token);
    if (token !== this.token) return;
    this.link();
    this.brush.drawn();
    looks.mapControls.hidden = main.surface.kind !== "map";
    this.sayRange(first);
  }

  /** Lines over time of the cell that was chosen on the map, below it. */
  async drawCell(shared, token) {
    const { cell } = this.panes;
    const wanted = this.looks.clicked && shared.view === "map" && this.main?.state === "done" && this.main.surface.times.length > 1;
    cell.element.hidden = !wanted;
    if (!wanted) {
      cell.clear();
      return;
    }
    const lines = await this.contentOf(this.main, "value", { ...shared, view: "lines" });
    if (token === this.token) await cell.put(lines);
  }

  /** What one question has to show; null where it has nothing yet. */
  async contentOf(question, part, shared) {
    if (!question?.surface || question.stopping.signal.aborted || ["queued", "failed", "lost", "cancelled"].includes(question.state)) return null;
    if (!question.progress.cells) return null;
    try {
      return await content(question, part, shared);
    } catch (error) {
      // A stopped query has no further pictures; the one that was on its way is no problem of anybody's.
      if (question.stopping.signal.aborted || question.state === "cancelled") return null;
      throw error;
    }
  }

  /** The same stretch of the axes in pictures of the same kind. */
  link() {
    const { first: main, second: beside, difference } = this.panes;
    const [first, ...others] = [main, beside, difference].map((pane) => pane.figure).filter((figure) => figure?.place.figure === figure);
    for (const other of others) {
      if (other.kind === first.kind && other.linked !== first && !["histogram", "variogram"].includes(first.kind)) {
        other.linked = first;
        link(first, other);
      }
    }
  }

  sayRange(shown) {
    if (!shown.range || shown.view !== "map") {
      this.range.textContent = "";
      return;
    }
    const why = this.main.state !== "done" ? T.answer.rangeHeld : shown.isShared ? T.answer.rangeBoth : T.answer.rangeDone;
    const error = shown.frame.error ? T.answer.error(short(shown.frame.error), shown.units) : "";
    this.range.textContent = `${T.answer.range(short(shown.range[0]), short(shown.range[1]), shown.units, why)}${error}`;
  }

  showNotes(notes) {
    this.notes.replaceChildren(...notes.map((note) => h("li", {}, visible(note))));
    this.notes.hidden = !notes.length;
  }

  /** Have another package recompute some cells of the answer that is shown. */
  async askOpinion() {
    const { main, opinion, opinionButton } = this;
    opinion.textContent = T.answer.opinionAsked(OPINION_CELLS);
    opinionButton.disabled = true;
    let sentence = "";
    await this.frame.attempt(async () => {
      ({ sentence } = await api.secondOpinion(main.id, OPINION_CELLS));
    });
    opinionButton.disabled = false;
    // Another question may have been asked meanwhile.
    if (main === this.main) opinion.textContent = visible(sentence);
  }

  async redraw() {
    for (const pane of Object.values(this.panes)) if (!pane.element.hidden) await pane.redraw();
    this.link();
    this.brush.drawn();
  }
}
