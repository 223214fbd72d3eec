// The stage of an answer: its pictures are placed, drawn again and again, linked, and listened to.

import { sameExtent } from "./beside.js";
import { Brush } from "./brush.js";
import { gridStep } from "./builder.js";
import { button, figure as short, h } from "./dom.js";
import { link } from "./figures.js";
import { VIEWS } from "./looks.js";
import { Pane } from "./pane.js";
import { expectMap } from "./pictures.js";
import { scaleOf } from "./question.js";
import { regionOf } from "./region.js";
import { Swipe } from "./swipe.js";
import { T } from "./text.js";
import { longName } from "./variables.js";
import { coloursOf, content, differenceOf, headOf, shareColours } from "./views.js";

/** From one redraw to the next: ten a second with those that come late. */
const PAUSE_MS = 75;
/** A map that takes longer to be fetched and drawn leaves half of the time to computing. */
const SLOW_MS = 120;
/** How long a stage that changes its size is waited for. */
const SETTLED_MS = 200;
/** Share of the shown stretch by which a map must be moved before it is offered as a region. */
const MOVED = 0.02;
/** What is around a map's cells on each side, as a share of them; `figures.py` has it too. */
const MARGIN = 0.08;
/** A map that moves so long after a finger, a wheel or a mouse is moved by it, and not by a window of another size [ms]. */
const GESTURE_MS = 1500;
/** Share of the shown stretch by which an arrow moves a map, and by how many times plus and minus change its scale. */
const STRIDE = 0.2;
const ZOOM = 1.25;
const ARROWS = { ArrowLeft: [-STRIDE, 0], ArrowRight: [STRIDE, 0], ArrowDown: [0, -STRIDE], ArrowUp: [0, STRIDE] };
const ZOOMS = { "+": 1 / ZOOM, "=": 1 / ZOOM, "-": ZOOM };
/** A question that stood so long unchanged may be asked next. */
const EXPECT_MS = 300;

export class Stage {
  /**
   * `questions` returns those that are shown, in a new list for each answer. `on` holds area (takes a region that is to
   * be mapped), moved (told whether such a region is offered after a gesture), drawn (takes the first picture, or null),
   * and note (the address).
   */
  constructor(frame, looks, questions, on) {
    Object.assign(this, { frame, looks, on });
    this.listed = questions;
    this.panes = Object.fromEntries(["first", "second", "difference", "cell"].map((name) => [name, new Pane(name, { filled: true })]));
    const { first, second, difference } = this.panes;
    this.brush = new Brush({ first, second, difference }, on.note);
    this.build();
    this.arrange();
    new ResizeObserver(() => {
      clearTimeout(this.settling);
      this.settling = setTimeout(() => this.frame.attempt(() => this.fit()), SETTLED_MS);
    }).observe(this.together);
  }

  build() {
    const { looks, panes: { cell } } = this;
    this.bar = h("progress", { id: "bar", max: 1, value: 0, "aria-label": T.answer.share });
    cell.element.append(button("✕", () => looks.unpick(), { class: "icon close-cell", "aria-label": T.looking.closeCell, title: T.looking.closeCell }));
    this.together = h("div", { class: "panes" }, Object.values(this.panes).map((pane) => pane.element));
    this.hear();
    this.swipe = new Swipe(this.together);
    this.areaPart = h("div", { id: "area-part", hidden: true }, button(T.see.mapArea, () => this.on.area(this.area()), { id: "map-area" }));
    this.element = h("section", { id: "picture-part", class: "stage", "aria-label": T.answer.title, tabindex: -1 }, this.bar, this.together, this.areaPart);
    looks.mapControls.prepend(this.swipe.element);
  }

  /** Note gestures on the pictures: a map follows once no finger and no button is down. */
  hear() {
    const on = (target, name, act) => target.addEventListener(name, act, { capture: true, passive: true });
    on(this.together, "wheel", () => (this.gestured = performance.now()));
    on(this.together, "pointerdown", () => {
      this.isHeld = true;
      this.on.moved(false);
    });
    this.panes.first.place.addEventListener("keydown", (event) => this.steer(event));
    for (const name of ["pointerup", "pointercancel"]) on(window, name, () => {
      if (!this.isHeld) return;
      this.isHeld = false;
      this.gestured = performance.now();
      this.on.moved(!this.areaPart.hidden);
    });
  }

  /** Move a map by arrows, zoom it by plus and minus, and choose the cell in its middle by Enter. */
  steer(event) {
    const { first: { place, map } } = this.panes;
    if (!map || event.target !== place || event.ctrlKey || event.altKey || event.metaKey) return;
    const isMove = event.key in ARROWS || event.key in ZOOMS;
    if (!isMove && event.key !== "Enter") return;
    event.preventDefault();
    this.gestured = performance.now();
    if (isMove) map.move(...(ARROWS[event.key] ?? [0, 0]), ZOOMS[event.key]);
    else map.pickMiddle();
  }

  get questions() {
    return this.listed();
  }

  get isRunning() {
    return this.questions.some((question) => !question.ended);
  }

  /** What the map shows, in degrees; null where there is none. */
  area() {
    return this.panes.first.map?.area() ?? null;
  }

  /** What the map shows without the margin that a map has around its cells: mapped again and again it stays as wide. */
  inner() {
    const area = this.area();
    if (!area) return null;
    const [across, up] = [area.east - area.west, area.north - area.south].map((length) => (MARGIN / (1 + 2 * MARGIN)) * length);
    return { west: area.west + across, east: area.east - across, south: area.south + up, north: area.north - up };
  }

  // Placing

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

  /** The old picture stays, paled, until there is another one: what is seen does not flicker while it is changed. */
  age() {
    this.areaPart.hidden = true;
    for (const pane of Object.values(this.panes)) pane.age(T.answer.first);
    this.arrange();
  }

  clear(words) {
    this.bar.value = 0;
    for (const pane of Object.values(this.panes)) pane.clear(words);
  }

  /** Make room for the pictures of a question whose plan is known, and its map while the first cells are computed. */
  prepare(question) {
    const shared = this.shared();
    this.panes.cell.element.hidden = !this.showsCell(shared);
    this.layOut();
    if (shared.view === "map") this.panes.first.openMap(headOf(question, "value", shared)).catch(() => {});
  }

  /** Show as many pictures as were chosen. */
  arrange() {
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
    const { panes, looks, together, questions: [main, beside] } = this;
    const isSwiped = looks.isSwiped && (!beside?.surface || sameExtent(main.surface, beside.surface));
    this.swipe.isOn = isSwiped;
    const maps = ["first", "second", "difference"].filter((name) => !panes[name].element.hidden).length - (isSwiped ? 1 : 0);
    together.style.setProperty("--maps", String(maps));
    together.classList.toggle("with-cell", !panes.cell.element.hidden);
    for (const pane of Object.values(panes)) pane.about.hidden = pane.element.hidden;
  }

  /** Draw pictures again whose place has another size. */
  async fit() {
    // What runs is drawn again anyhow; a page that is not shown has no size.
    if (!this.together.clientWidth || this.isRunning) return;
    await this.busy;
    const changed = Object.values(this.panes).filter((pane) => !pane.element.hidden && pane.shown && pane.drawnSize !== pane.size);
    for (const pane of changed) await pane.redraw();
    if (changed.length) this.listen();
  }

  // Drawing

  /** Draw what there is again and again until all is computed; the last picture is drawn by the end itself. */
  async keepUp() {
    if (this.waits) return;
    this.waits = true;
    while (this.questions.some((question) => !question.ended && question.progress.cells > 0)) await this.refresh();
    this.waits = false;
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
          const rested = this.isRunning && ended - begun > SLOW_MS ? 2 * ended - begun : 0;
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
    const { looks, questions: [main] } = this;
    return { view: looks.view || VIEWS[main.surface.kind][0], time: looks.time, level: looks.level, estimated: looks.estimated.value, palette: looks.palette.value, span: looks.span.value, hatch: Number(looks.hatch.value), extrapolated: looks.extrapolated.value, fit: looks.fit.state(), cell: looks.picked, picked: looks.clicked ? looks.picked : null, stations: this.frame.known.stations, functions: this.frame.known.functions, onPick: (row, column) => looks.pick(row, column) };
  }

  async draw() {
    const { panes, looks, questions } = this;
    const [main, other] = questions;
    if (!main?.surface) return;
    const shared = this.shared();
    // Which pictures there are decides how large each is.
    panes.cell.element.hidden = !this.showsCell(shared);
    this.layOut();
    const deviates = looks.beside.value === "deviation";
    const beside = deviates ? [main, "variance"] : [looks.beside.value && other, "value"];
    // Both are fetched before either is drawn, as they share their colours; one that fails leaves the other alone.
    const found = await Promise.allSettled([contentOf(main, "value", shared), contentOf(...beside, shared)]);
    if (questions !== this.questions) return;
    const part = found[0].value;
    if (part?.view === "map" && part.frame.fraction < 1) {
      // An answer that became whole while its first map was made is drawn once, and whole.
      await panes.first.openMap(part).catch(() => {});
      if (questions !== this.questions || (this.again && main.state === "done")) return;
    }
    const pictures = found.map((one) => one.value);
    shareColours(...pictures);
    // Two pictures over each other have headings of as many lines.
    if (pictures.every((picture) => picture?.heading)) pictures.forEach((picture, at) => (picture.headingBeside = pictures[1 - at].heading));
    const [first, second] = [await panes.first.put(found[0].value), await panes.second.put(found[1].value)];
    const failed = found.find((one) => one.reason);
    if (failed) throw failed.reason;
    if (!first) {
      this.on.drawn(null);
      return;
    }
    if (second && !panes.difference.element.hidden) {
      const apart = differenceOf(first, second);
      if (apart) await panes.difference.show(apart);
      else panes.difference.clear(T.answer.notAlike);
    }
    this.drawCell(shared, questions);
    this.listen();
    this.on.drawn(first, { isDone: main.state === "done", lacksSwipe: looks.isSwiped && this.swipe.element.hidden });
    this.sayPicked(first, deviates ? second : null);
  }

  /** Whether the series of a cell stands beside the map. */
  showsCell(shared) {
    return this.looks.clicked && shared.view === "map";
  }

  /** Lines over time of the cell that was chosen on the map, beside it; what must be computed first holds up nothing else. */
  async drawCell(shared, questions) {
    const { cell } = this.panes;
    const turn = (this.cellTurn = (this.cellTurn ?? 0) + 1);
    const isWanted = () => turn === this.cellTurn && questions === this.questions;
    if (!this.showsCell(shared)) {
      cell.clear();
      return;
    }
    const key = [questions[0].id, ...shared.cell, shared.level].join();
    if (key !== this.cellKey) cell[cell.figure ? "age" : "clear"](T.views.seriesComes, T.views.seriesComes);
    try {
      const lines = await contentOf(questions[0], "value", { ...shared, view: "lines" });
      if (!isWanted()) return;
      await cell.put(lines);
      this.cellKey = key;
    } catch (problem) {
      const words = `${problem.title ?? T.problems.failed}: ${problem.message}`;
      if (isWanted()) cell.clear(words, words);
    }
  }

  /** The value of the chosen cell, with its standard error where that is known. */
  sayPicked({ view, frame, deviation: hatched, units }, uncertainty) {
    const { clicked, picked } = this.looks;
    const deviation = hatched ?? uncertainty?.frame?.estimate;
    const at = clicked && view === "map" ? picked[0] * frame.shape[1] + picked[1] : -1;
    this.looks.pickedValue.textContent = at < 0 ? "" : T.looking.valueAt(short(frame.estimate[at]), deviation ? short(Number(deviation[at].toPrecision(2))) : "", units);
  }

  /** Draw estimated cells as is chosen now: all that is needed is at hand. */
  showEstimated() {
    const estimated = this.looks.estimated.value;
    return Promise.all(Object.values(this.panes).map((pane) => pane.shown?.frame && pane.show({ ...pane.shown, estimated })));
  }

  async redraw() {
    for (const pane of Object.values(this.panes)) if (!pane.element.hidden) await pane.redraw();
    this.listen();
  }

  // Listening

  /** Link pictures, and listen to what is done on them. */
  listen() {
    this.link();
    this.brush.drawn();
    const { map } = this.panes.first;
    this.panes.first.takeKeys(map ? T.looking.keys : "");
    if (!map?.area() || map.isHeard) return;
    map.isHeard = true;
    const offer = () => {
      const [main] = this.questions;
      this.areaPart.hidden = shareMoved(map) < MOVED || map !== this.panes.first.map || !main || !gridStep(main.document);
      if (!this.isHeld && performance.now() - (this.gestured ?? -Infinity) < GESTURE_MS) this.on.moved(!this.areaPart.hidden);
    };
    map.onMove(offer);
    // It may have been moved while it was drawn, for the first time or again under finer cells.
    offer();
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
}

/** Share of its height by which a map shows another stretch than at first. */
function shareMoved({ figure: { plot: { x_range, y_range } } }) {
  const sides = [x_range, y_range].flatMap(({ start, end, reset_start, reset_end }) => [start - reset_start, end - reset_end]);
  const share = Math.max(...sides.map(Math.abs)) / (y_range.reset_end - y_range.reset_start);
  // A browser may have kept a figure of the version before, which does not say what it showed.
  return Number.isFinite(share) ? share : 0;
}

/** What one question has to show; null where it has nothing yet. */
async function contentOf(question, part, shared) {
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
