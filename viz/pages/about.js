// What is said below the pictures of an answer: what its colours span, notes, files, and a second opinion.

import * as api from "./api.js";
import { button, figure as short, h, number, visible } from "./dom.js";
import { downloadLinks } from "./downloads.js";
import { CellLineage } from "./lineage.js";
import { T } from "./text.js";

/** Cells that a second opinion recomputes. */
const OPINION_CELLS = 50;

export class About {
  /** `captions` stand above what is said, `controls` below it; `pick` tells which cell is picked. */
  constructor(frame, captions, controls, pick) {
    this.frame = frame;
    this.question = null;
    this.range = h("p", { id: "range", class: "quiet" });
    this.notes = h("ul", { id: "notes", class: "quiet", "aria-label": T.answer.notes, hidden: true });
    this.opinion = h("p", { id: "opinion", class: "quiet", role: "status" });
    this.opinionButton = button(T.answer.opinion, () => this.askOpinion(), { id: "second-opinion", title: T.answer.opinionHint });
    this.opinionPart = h("div", { class: "buttons small", hidden: true }, this.opinionButton, this.opinion);
    this.lineage = new CellLineage(frame, pick);
    this.downloads = h("nav", { id: "downloads", "aria-label": T.answer.downloads, hidden: true });
    this.element = h("div", { id: "about-picture", class: "below-picture" },
      h("section", { "aria-label": T.see.about }, h("h2", {}, T.see.about), captions, this.range, this.lineage.element, this.notes),
      h("section", { "aria-label": T.answer.downloads }, this.downloads, this.opinionPart, controls));
  }

  /** Another question was asked: nothing is known of it yet. */
  clear() {
    this.question = null;
    this.downloads.hidden = this.notes.hidden = this.opinionPart.hidden = true;
    this.range.textContent = "";
    this.lineage.show(null);
  }

  /** Show what comes with a question that is done. */
  show(question) {
    this.question = question;
    this.downloads.replaceChildren(...downloadLinks(question));
    this.notes.replaceChildren(...question.notes.map((note) => h("li", {}, visible(note))));
    this.notes.hidden = !question.notes.length;
    this.opinion.textContent = "";
    this.lineage.show(question);
    this.downloads.hidden = this.opinionPart.hidden = false;
  }

  /** What the colours of the first picture span, and why; null where there is none. */
  sayRange(shown, { isDone, lacksSwipe } = {}) {
    if (!shown?.range || shown.view !== "map") {
      this.range.textContent = "";
      return;
    }
    const isFitted = shown.span === "picture";
    const why = !isDone ? T.answer.rangeHeld : shown.isShared ? T.answer.rangeBoth : isFitted ? T.looking.rangeOne : T.answer.rangeDone;
    const error = shown.frame.error ? T.answer.error(short(shown.frame.error), shown.units) : "";
    const apart = lacksSwipe ? ` ${T.looking.notSwiped}` : "";
    this.range.textContent = `${T.answer.range(short(shown.range[0]), short(shown.range[1]), shown.units, why)}${error}${hatchWords(shown)}${apart}`;
  }

  /** Have another package recompute some cells of the answer that is shown. */
  async askOpinion() {
    const { question, opinion, opinionButton } = this;
    opinion.textContent = T.answer.opinionAsked(OPINION_CELLS);
    opinionButton.disabled = true;
    let sentence = "";
    await this.frame.attempt(async () => {
      ({ sentence } = await api.secondOpinion(question.id, OPINION_CELLS));
    });
    opinionButton.disabled = false;
    // Another question may have been asked meanwhile.
    if (question === this.question) opinion.textContent = visible(sentence);
  }
}

/** How much of a map is hatched, and from which standard error on. */
function hatchWords({ hatch, uncertain, limit, units }) {
  if (!hatch) return "";
  if (!uncertain) return T.looking.noHatchYet;
  const share = uncertain.reduce((sum, is) => sum + is, 0) / uncertain.length;
  return T.looking.hatched(number(100 * share, 0), short(limit), units);
}
