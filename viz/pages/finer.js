// Finer cells while a picture is looked at: the same question on cells of half the size, as long as that is cheap.

import { gridStep } from "./builder.js";
import { pose } from "./question.js";
import { T } from "./text.js";

/** How long a picture stands before finer cells are asked for [ms]. */
const CALM_MS = 800;
/** Most cells of a finer picture, all times together, and the longest that it may take by the measure of the last one [s]. */
const [MOST_CELLS, LONGEST_S] = [250_000, 2];
/** Half the size along each side is so many times the cells. */
const [HALVES, TIMES] = [2, 4];
/** What a user does that ends it until the next question. */
const TOUCHES = ["pointerdown", "keydown", "wheel", "input", "change"];

/** A size of cells divided by a number: "1.2arcsec", "30 m" and 0.001 alike; null where it is written otherwise. */
function divided(step, by) {
  if (typeof step === "number") return step / by;
  const parts = /^([\d.]+)(\D*)$/.exec(String(step ?? "").trim());
  return parts && Number(parts[1]) > 0 ? `${Number((Number(parts[1]) / by).toPrecision(12))}${parts[2]}` : null;
}

/** The same query on cells of half the size; null where its grid cannot be divided. */
export function finerDocument(document) {
  const copy = JSON.parse(JSON.stringify(document));
  const { grid } = gridStep(copy) ?? {};
  const step = divided(grid?.step, HALVES);
  if (step === null || !Array.isArray(grid?.shape)) return null;
  Object.assign(grid, { step, shape: grid.shape.map((count) => count * HALVES) });
  return copy;
}

/** Whether a question that is done took so little that another one of as many cells may be asked by itself. */
export const isQuick = ({ ended, progress }) => ended && progress.seconds <= LONGEST_S;
/** Whether finer cells than those of a question that is done cost little, by what these took. */
const isCheap = ({ progress: { total, seconds } }) => total * TIMES <= MOST_CELLS && seconds * TIMES <= LONGEST_S;

export class Finer {
  /** `replace` takes a finer question that is done, in place of the one that is shown; `say` takes words. */
  constructor({ replace, say }) {
    Object.assign(this, { replace, say, token: null });
    for (const name of TOUCHES) window.addEventListener(name, () => this.stop(), { capture: true, passive: true });
    document.addEventListener("visibilitychange", () => document.hidden && this.stop());
  }

  /** A picture is complete: ask for a finer one once it was looked at for a moment. */
  begin(question, order) {
    this.stop();
    const finer = isCheap(question) ? finerDocument(question.document) : null;
    if (!finer || document.hidden) return;
    const token = {};
    this.token = token;
    this.waiting = setTimeout(() => this.ask(finer, order, token).catch(() => this.stop()), CALM_MS);
  }

  async ask(finer, order, token) {
    const [up, across] = gridStep(finer).grid.shape;
    this.say(T.finer.asking(across, up));
    // What was kept, or was measured on an idle machine, may have taken less than this does.
    this.waiting = setTimeout(() => this.stop(), 2000 * LONGEST_S);
    const question = await pose(finer, order, {
      plan: () => {},
      progress: () => {},
      end: async (ended) => {
        if (token !== this.token) return;
        this.question = null;
        if (ended.state !== "done" || ended.isEmpty) {
          this.stop();
          return;
        }
        await this.replace(ended);
        this.say(T.finer.done(across, up));
        if (token === this.token) this.begin(ended, order);
      },
    });
    if (token === this.token && !question.ended) this.question = question;
    else if (!question.ended) question.stop().catch(() => {});
  }

  /** Ask for nothing finer; one that is being computed is stopped. */
  stop() {
    clearTimeout(this.waiting);
    this.token = null;
    if (!this.question) return;
    this.question.stop().catch(() => {});
    this.question = null;
    this.say("");
  }
}
