// The answer: one picture or several of one or two questions, and what is said of them.

import * as api from "./api.js";
import { besideOf, sameExtent } from "./beside.js";
import { Brush } from "./brush.js";
import { gridStep } from "./builder.js";
import { button, figure as short, h, number, visible } from "./dom.js";
import { downloadLinks } from "./downloads.js";
import { Finer } from "./finer.js";
import { link } from "./figures.js";
import { Looks, VIEWS } from "./looks.js";
import { Pane } from "./pane.js";
import { expectMap, hasDays } from "./pictures.js";
import { pose, scaleOf } from "./question.js";
import { regionOf } from "./region.js";
import { Swipe } from "./swipe.js";
import { T } from "./text.js";
import { longName } from "./variables.js";
import { coloursOf, content, differenceOf, headOf, shareColours } from "./views.js";

/** From one redraw to the next: ten a second, with a little to spare. */
const PAUSE_MS = 95;
/** How long a stage that changes its size is waited for. */
const SETTLED_MS = 200;
/** Share of the shown stretch by which a map must be moved before it is offered as a region. */
const MOVED = 0.02;
/** A question that stood so long unchanged may be asked next. */
const EXPECT_MS = 300;
/** Cells that a second opinion recomputes. */
const OPINION_CELLS = 50;
/** Time cells from which a series is shown day by hour at first. */
const MANY = 72;

export class Answer {
  /** `onArea` takes a region that is to be mapped, `isChosen` tells whether a query's grid is one that the page chose. */
  constructor(frame, { onState, onRunning, onArea, isChosen }) {
    this.frame = frame;
    Object.assign(this, { onState, onRunning, onArea, isChosen });
    this.questions = [];
    /** How many times as many cells along a side are shown as were asked for. */
    this.refined = 1;
    this.panes = Object.fromEntries(["first", "second", "difference", "cell"].map((name) => [name, new Pane(name, { filled: true })]));
    this.looks = new Looks(frame.known, { change: () => this.refresh(), beside: () => this.onBeside(), estimated: () => this.onEstimated(), note: () => onState(), busy: () => Boolean(this.busy) });
    const { first, second, difference } = this.panes;
    this.brush = new Brush({ first, second, difference }, () => onState());
    this.finer = new Finer({ replace: (question) => this.replace(question), say: (words) => (this.finerWords.textContent = words) });
    this.build();
    this.showPanes();
    new ResizeObserver(() => {
      clearTimeout(this.settling);
      this.settling = setTimeout(() => this.frame.attempt(() => this.fit()), SETTLED_MS);
    }).observe(this.together);
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
    this.finerWords = h("p", { id: "finer", class: "quiet", role: "status" });
    const { cell } = this.panes;
    cell.element.append(button("✕", () => looks.unpick(), { class: "icon close-cell", "aria-label": T.looking.closeCell, title: T.looking.closeCell }));
    this.together = h("div", { class: "panes" }, Object.values(this.panes).map((pane) => pane.element));
    this.swipe = new Swipe(this.together);
    this.areaPart = h("div", { id: "area-part", hidden: true }, button(T.see.mapArea, () => this.onArea(this.area()), { id: "map-area" }));
    this.stage = h("section", { id: "picture-part", class: "stage", "aria-label": T.answer.title, tabindex: -1 }, this.bar, this.together, this.areaPart);
    looks.mapControls.prepend(this.swipe.element);
    this.about = h("div", { id: "about-picture", class: "below-picture" },
      h("section", { "aria-label": T.see.about }, h("h2", {}, T.see.about), Object.values(this.panes).map((pane) => pane.about), this.range, this.notes),
      h("section", { "aria-label": T.answer.downloads }, this.downloads, this.opinionPart, looks.place, this.brush.element));
  }

  /** What the map shows, in degrees; null where there is none. */
  area() {
    return this.panes.first.map?.area() ?? null;
  }

  units() {
    const surface = this.main?.surface;
    return surface ? T.frame.units(surface.long_name, surface.units) : T.frame.noUnits;
  }

  state() {
    return { ...this.looks.state(this.refined), ...this.brush.state() };
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
      const [box, found] = [gridStep(document) && regionOf(document, this.frame.known.stations), variables.find((one) => one.name === document.variable)];
      const { place } = this.panes.first;
      if (!box || !found || !place.clientWidth) return;
      const quantity = longName(variables, found.name);
      expectMap(place, { title: quantity, variable: quantity, units: found.unit, scale: coloursOf(scaleOf(document, found.unit), this.looks.palette.value) }, box).catch(() => {});
    }, EXPECT_MS);
  }

  /** What is asked: a query with its uncertainty where that is shown. */
  toAsk(document) {
    const { beside, hatch } = this.looks;
    return (beside.value === "deviation" || hatch.value) && !document.variance ? { ...document, variance: true } : document;
  }

  /** The question beside, from what is asked and what was chosen; null where there is none of its own. */
  besideDocument(document) {
    return besideOf(this.looks.beside.value, this.toAsk(document), this.frame.known);
  }

  async begin(document, order, onPlan) {
    this.leave();
    this.finer.stop();
    this.finerWords.textContent = "";
    this.areaPart.hidden = true;
    this.looks.scalePick(1 / this.refined);
    this.refined = 1;
    const token = {};
    Object.assign(this, { token, document, order, questions: [] });
    this.onRunning(true);
    this.status.textContent = T.answer.asking;
    this.looks.endFilm();
    this.downloads.hidden = this.notes.hidden = this.opinionPart.hidden = true;
    this.range.textContent = "";
    // The old picture stays, paled, until there is another one: what is seen does not flicker while it is changed.
    for (const pane of Object.values(this.panes)) pane.age(T.answer.first);
    this.showPanes();
    const on = {
      plan: (question) => token === this.token && this.frame.attempt(() => this.onPlan(question, onPlan)),
      progress: (question) => token === this.token && this.onProgress(question),
      end: (question) => token === this.token && this.frame.attempt(() => this.onEnd(question)),
    };
    const other = this.besideDocument(document);
    this.besideAsked = JSON.stringify(other);
    if (!other && this.looks.comparable) this.panes.second.clear(T.looking.noTime, T.looking.noTime);
    try {
      const question = await pose(this.toAsk(document), order, on);
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
      this.looks.hide();
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
    this.panes.cell.element.hidden = !this.showsCell(shared);
    this.layOut();
    // While the first cells are computed the map is made.
    if (shared.view === "map") this.panes.first.openMap(headOf(question, "value", shared)).catch(() => {});
  }

  onProgress(question) {
    this.sayProgress();
    // The first one says that the run began, before there is anything to see.
    if (question.progress.cells > 0) this.keepUp();
  }

  /** Draw what there is again and again until all is computed; the last picture is drawn by the end itself. */
  async keepUp() {
    if (this.waits) return;
    this.waits = true;
    while (this.questions.some((question) => !question.ended && question.progress.cells > 0)) await this.refresh();
    this.waits = false;
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
      this.refine(question);
    }
    this.onState();
  }

  /** Have finer cells computed while the picture is looked at, where the page chose them and nothing is beside it. */
  refine(question) {
    const { looks, document } = this;
    const isAlone = this.together.clientWidth > 0 && question === this.main && this.questions.length === 1 && !looks.beside.value;
    if (isAlone && looks.finer.checked && this.shared().view === "map" && this.isChosen(document)) this.finer.begin(question, this.order);
  }

  /** Show a finer question in place of the one that is shown. */
  async replace(question) {
    const [row] = question.surface.dims;
    const scale = question.surface[row].length / this.main.surface[row].length;
    this.questions = [question];
    this.refined *= scale;
    this.looks.scalePick(scale);
    this.looks.show(question.surface);
    this.downloads.replaceChildren(...downloadLinks(question));
    this.sayProgress();
    await this.refresh();
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

  /** Nobody looks any more: neither the next picture of a film nor a finer one is asked for. */
  hide() {
    this.looks.endFilm();
    this.finer.stop();
  }

  leave() {
    this.finer.stop();
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
    const other = JSON.stringify(this.besideDocument(this.document));
    const isLacking = this.toAsk(this.document) !== this.document && !this.main.document.variance;
    if (isLacking || (other !== "null" && other !== this.besideAsked)) this.frame.attempt(() => this.begin(this.document, this.order, () => {}));
    else this.refresh();
  }

  showPanes() {
    const { looks, panes } = this;
    const two = Boolean(looks.beside.value);
    for (const part of looks.comparing) part.hidden = !looks.comparable;
    panes.second.element.hidden = !two;
    panes.difference.element.hidden = !(looks.comparable && looks.difference.checked);
    panes.cell.element.hidden = true;
    for (const name of ["second", "difference"]) if (panes[name].element.hidden) panes[name].clear();
    this.layOut();
  }

  /** Give each picture its place on the stage: beside each other, or two over each other to be swiped. */
  layOut() {
    const { panes, looks, together } = this;
    const isSwiped = looks.isSwiped && (!this.questions[1]?.surface || sameExtent(this.main.surface, this.questions[1].surface));
    this.swipe.isOn = isSwiped;
    const maps = ["first", "second", "difference"].filter((name) => !panes[name].element.hidden).length - (isSwiped ? 1 : 0);
    together.style.setProperty("--maps", String(maps));
    together.classList.toggle("with-cell", !panes.cell.element.hidden);
    for (const pane of Object.values(panes)) pane.about.hidden = pane.element.hidden;
  }

  /** Draw pictures again whose place has another size. */
  async fit() {
    // What runs is drawn again anyhow; a page that is not shown has no size.
    if (!this.together.clientWidth || this.questions.some((question) => !question.ended)) return;
    await this.busy;
    const changed = Object.values(this.panes).filter((pane) => !pane.element.hidden && pane.shown && pane.drawnSize !== pane.size);
    for (const pane of changed) await pane.redraw();
    if (changed.length) this.listen();
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
          await this.frame.attempt(() => this.draw());
          const ended = performance.now();
          // A large map takes its time: the page answers, and the server computes, for as long as it was drawn.
          const rested = this.questions.some((question) => !question.ended) ? 2 * ended - begun : 0;
          this.due = Math.max(begun + PAUSE_MS, rested);
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
    return { view: looks.view || VIEWS[main.surface.kind][0], time: looks.time, level: looks.level, estimated: looks.estimated.value, palette: looks.palette.value, span: looks.span.value, hatch: Number(looks.hatch.value), fit: looks.fit.state(), cell: looks.picked, picked: looks.clicked ? looks.picked : null, stations: this.frame.known.stations, onPick: (row, column) => looks.pick(row, column) };
  }

  async draw() {
    const { token, panes, looks, main } = this;
    if (!main?.surface) return;
    const shared = this.shared();
    // Which pictures there are decides how large each is.
    panes.cell.element.hidden = !this.showsCell(shared);
    this.layOut();
    const deviates = looks.beside.value === "deviation";
    const beside = deviates ? [main, "variance"] : [looks.beside.value && this.questions[1], "value"];
    // Both are fetched before either is drawn, as they share their colours; one that fails leaves the other alone.
    const found = await Promise.allSettled([this.contentOf(main, "value", shared), this.contentOf(...beside, shared)]);
    if (token !== this.token) return;
    const pictures = found.map((one) => one.value);
    shareColours(...pictures);
    // Two pictures over each other have headings of as many lines.
    if (pictures.every((picture) => picture?.heading)) pictures.forEach((picture, at) => (picture.headingBeside = pictures[1 - at].heading));
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
    this.listen();
    this.sayRange(first);
    this.sayPicked(first, deviates ? second : null);
  }

  /** Link pictures, and listen to what is done on them. */
  listen() {
    this.link();
    this.brush.drawn();
    const { map } = this.panes.first;
    if (!map?.area() || map.isHeard) return;
    map.isHeard = true;
    const before = map.area();
    map.onMove(() => {
      const now = map.area();
      const moved = Math.max(...Object.keys(now).map((side) => Math.abs(now[side] - before[side]))) / (before.north - before.south);
      this.areaPart.hidden = moved < MOVED || map !== this.panes.first.map || !gridStep(this.document);
    });
  }

  /** Whether the series of a cell stands beside the map. */
  showsCell(shared) {
    return this.looks.clicked && shared.view === "map" && this.main.surface.times.length > 1;
  }

  /** Lines over time of the cell that was chosen on the map, beside it. */
  async drawCell(shared, token) {
    const { cell } = this.panes;
    if (!this.showsCell(shared)) {
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
    const isFitted = shown.span === "picture";
    const why = this.main.state !== "done" ? T.answer.rangeHeld : shown.isShared ? T.answer.rangeBoth : isFitted ? T.looking.rangeOne : T.answer.rangeDone;
    const error = shown.frame.error ? T.answer.error(short(shown.frame.error), shown.units) : "";
    const apart = this.looks.isSwiped && this.swipe.element.hidden ? ` ${T.looking.notSwiped}` : "";
    this.range.textContent = `${T.answer.range(short(shown.range[0]), short(shown.range[1]), shown.units, why)}${error}${hatchWords(shown)}${apart}`;
  }

  /** The value of the chosen cell, with its standard error where that is known. */
  sayPicked({ view, frame, deviation: hatched, units }, uncertainty) {
    const { clicked, picked } = this.looks;
    const deviation = hatched ?? uncertainty?.frame?.estimate;
    const at = clicked && view === "map" ? picked[0] * frame.shape[1] + picked[1] : -1;
    this.looks.pickedValue.textContent = at < 0 ? "" : T.looking.valueAt(short(frame.estimate[at]), deviation ? short(Number(deviation[at].toPrecision(2))) : "", units);
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
    this.listen();
  }
}

/** How much of a map is hatched, and from which standard error on. */
function hatchWords({ hatch, uncertain, limit, units }) {
  if (!hatch) return "";
  if (!uncertain) return T.looking.noHatchYet;
  const share = uncertain.reduce((sum, is) => sum + is, 0) / uncertain.length;
  return T.looking.hatched(number(100 * share, 0), short(limit), units);
}
