// The answer: one question or two are asked, followed and refined; `stage.js` draws them, `about.js` says what is below.

import * as api from "./api.js";
import { About } from "./about.js";
import { besideOf } from "./beside.js";
import { gridStep } from "./builder.js";
import { h, number } from "./dom.js";
import { Finer, isQuick } from "./finer.js";
import { Looks, VIEWS } from "./looks.js";
import { hasDays } from "./pictures.js";
import { pose } from "./question.js";
import { Stage } from "./stage.js";
import { T } from "./text.js";

/** Time cells from which a series is shown day by hour at first. */
const MANY = 72;
/** How long a map that was moved rests before what it shows is mapped [ms]. */
const REST_MS = 700;

export class Answer {
  /**
   * `onArea` takes a region that is to be mapped, `follow` one that was moved to, `isChosen` tells whether a query's grid
   * is one that the page chose.
   */
  constructor(frame, { onState, onRunning, onArea, isChosen, follow }) {
    this.frame = frame;
    Object.assign(this, { onState, onRunning, isChosen, follow });
    /** Each question that is asked begins a new list, by which what is late is told apart. */
    this.questions = [];
    /** How many times as many cells along a side are shown as were asked for. */
    this.refined = 1;
    this.looks = new Looks(frame.known, { change: () => this.stage.refresh(), beside: () => this.onBeside(), estimated: () => this.onEstimated(), note: () => onState(), busy: () => Boolean(this.stage.busy) });
    this.stage = new Stage(frame, this.looks, () => this.questions, { area: onArea, moved: (isOffered) => this.onMoved(isOffered), drawn: (...shown) => this.onDrawn(...shown), note: () => onState() });
    this.finer = new Finer({ replace: (question) => this.replace(question), say: (words) => (this.finerWords.textContent = words) });
    this.about = new About(frame, Object.values(this.stage.panes).map((pane) => pane.about), [this.looks.place, this.stage.brush.element], () => this.looks.picking());
    this.status = h("p", { id: "status", role: "status", "aria-live": "polite" }, T.answer.idle);
    this.finerWords = h("p", { id: "finer", class: "quiet", role: "status" });
  }

  /** The question that was asked; beside it another one may be. */
  get main() {
    return this.questions[0];
  }

  state() {
    return { ...this.looks.state(this.refined), ...this.stage.brush.state() };
  }

  restore(params) {
    this.looks.restore(params);
    this.stage.brush.restore(params);
    this.stage.arrange();
  }

  // Asking

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
    for (const { looking } of this.questions) looking?.abort();
    this.finerWords.textContent = "";
    this.looks.scalePick(1 / this.refined);
    // The cell that was chosen is none of another grid.
    const grid = JSON.stringify(gridStep(document)?.grid);
    if (this.main && grid !== this.grid) this.looks.forgetPick();
    this.grid = grid;
    this.refined = 1;
    const questions = [];
    Object.assign(this, { document, order, questions });
    this.onRunning(true);
    this.status.textContent = T.answer.asking;
    this.looks.endFilm();
    this.about.clear();
    this.stage.age();
    const on = {
      plan: (question) => questions === this.questions && this.frame.attempt(() => this.onPlan(question, onPlan)),
      progress: (question) => questions === this.questions && this.onProgress(question),
      end: (question) => questions === this.questions && this.frame.attempt(() => this.onEnd(question)),
    };
    const other = this.besideDocument(document);
    this.besideAsked = JSON.stringify(other);
    const { second } = this.stage.panes;
    if (!other && this.looks.comparable) second.clear(T.looking.noTime, T.looking.noTime);
    const again = () => this.begin(document, order, onPlan);
    this.again = again;
    try {
      if (!(await this.pose(this.toAsk(document), on, questions))) return;
    } catch (problem) {
      if (questions !== this.questions) return;
      this.status.textContent = T.answer.idle;
      this.stage.clear(T.answer.refused);
      this.frame.units("explore", T.frame.noUnits);
      this.looks.hide();
      this.onRunning(false);
      throw problem;
    } finally {
      if (this.again === again) this.again = null;
    }
    if (!other) return;
    // A question beside that cannot be answered leaves the other one alone.
    await this.frame.attempt(async () => {
      try {
        await this.pose(other, on, questions);
      } catch (problem) {
        if (questions !== this.questions) return;
        second.clear(T.answer.besideFailed);
        throw problem;
      }
    });
  }

  /** Ask one question; return whether it is still wanted once it is asked. */
  async pose(document, on, questions) {
    const question = await pose(document, this.order, on);
    const isWanted = questions === this.questions;
    if (isWanted) questions.push(question);
    else question.stop().catch(() => {});
    return isWanted;
  }

  onPlan(question, onPlan) {
    if (question !== this.main) return;
    onPlan(question.plan);
    const { surface } = question;
    this.frame.units("explore", T.frame.units(surface.long_name, surface.units));
    this.looks.show(surface);
    this.stage.prepare(question);
  }

  onDrawn(...shown) {
    this.about.sayRange(...shown);
    this.sayProgress();
  }

  onProgress(question) {
    // While a map sharpens its redraws say how far it is: apart from them the words would have the tab draw twice as often.
    if (!this.stage.waits) this.sayProgress();
    // The first one says that the run began, before there is anything to see.
    if (question.progress.cells > 0) this.stage.keepUp();
  }

  sayProgress() {
    const words = { queued: T.answer.waiting, running: T.answer.computing, done: T.answer.done, cancelled: T.answer.stopped, failed: T.answer.failed, lost: T.answer.lost };
    const told = this.questions.map((question) => {
      const { fraction, cells, total, seconds } = question.progress;
      if (question.isEmpty) return T.answer.empty(number(total), number(seconds, 1));
      return ["failed", "lost"].includes(question.state) ? words[question.state] : T.answer.progress(words[question.state], number(100 * fraction, 0), number(cells), number(total), number(seconds, 1));
    });
    this.stage.bar.value = this.questions.reduce((sum, question) => sum + question.progress.fraction, 0) / Math.max(this.questions.length, 1);
    this.status.textContent = told.length > 1 ? T.answer.two(...told) : told[0];
  }

  async onEnd(question) {
    this.sayProgress();
    if (question.state === "failed") this.frame.say(question.problem);
    if (question.state === "lost") this.frame.say({ title: T.problems.gone, detail: T.problems.lostAdvice });
    if (!this.stage.isRunning) this.onRunning(false);
    if (question.state === "cancelled") this.looks.endFilm();
    // Nothing will come into a map that was made for it.
    const { first } = this.stage.panes;
    if (question === this.main && question.state !== "done" && !first.shown) first.clear();
    if (question.state === "done") {
      if (question === this.main) this.about.show(question);
      if (question.surface.kind === "series") question.table = await api.series(question.id);
      this.chooseView(question);
      await this.stage.refresh();
      this.refine(question);
    }
    this.onState();
  }

  chooseView({ table }) {
    if (this.looks.view || !this.main?.surface) return;
    const byDay = table && hasDays(table.times) && table.times.length >= MANY;
    this.looks.set(byDay ? "heat" : VIEWS[this.main.surface.kind][0]);
  }

  /** Another picture beside may need another question. */
  onBeside() {
    this.stage.arrange();
    this.onState();
    if (!this.main) {
      // What is being asked is asked with what stands beside it now.
      if (this.again) this.frame.attempt(this.again);
      return;
    }
    const other = JSON.stringify(this.besideDocument(this.document));
    const isLacking = this.toAsk(this.document) !== this.document && !this.main.document.variance;
    if (isLacking || (other !== "null" && other !== this.besideAsked)) this.frame.attempt(() => this.begin(this.document, this.order, () => {}));
    else this.stage.refresh();
  }

  onEstimated() {
    this.onState();
    this.frame.attempt(() => this.stage.showEstimated());
  }

  // Refining

  /** Whether the page may choose other cells of a question: it chose these, and a single map of them is looked at. */
  mayChoose(question) {
    const { looks, stage, document } = this;
    const isAlone = stage.together.clientWidth > 0 && question && question === this.main && this.questions.length === 1 && !looks.beside.value;
    return isAlone && looks.finer.checked && stage.shared().view === "map" && this.isChosen(document);
  }

  /** Have finer cells computed while the picture is looked at. */
  refine(question) {
    if (this.mayChoose(question)) this.finer.begin(question, this.order);
  }

  /** Map what the map shows once it rests, where that is quick. */
  onMoved(isOffered) {
    clearTimeout(this.resting);
    if (isOffered && this.mayChoose(this.main) && isQuick(this.main)) this.resting = setTimeout(() => this.follow(this.stage.inner()), REST_MS);
  }

  /** Show a finer question in place of the one that is shown. */
  async replace(question) {
    const [row] = question.surface.dims;
    const scale = question.surface[row].length / this.main.surface[row].length;
    this.questions = [question];
    this.refined *= scale;
    this.looks.scalePick(scale);
    this.looks.show(question.surface);
    this.about.show(question);
    this.sayProgress();
    await this.stage.refresh();
  }

  // Leaving

  async stop() {
    const open = this.questions.filter((question) => !question.ended);
    await Promise.all(open.map((question) => question.stop()));
  }

  /** Nobody looks any more: neither the next picture of a film nor a finer one is asked for. */
  hide() {
    this.looks.endFilm();
    clearTimeout(this.resting);
    this.finer.stop();
  }

  leave() {
    clearTimeout(this.resting);
    this.finer.stop();
    this.stop().catch(() => {});
  }
}
