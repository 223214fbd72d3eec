// Which stations and readings made the cell that is picked, and what changed since.

import * as api from "./api.js";
import { button, figure as short, h, number, table, visible } from "./dom.js";
import { T } from "./text.js";

export class CellLineage {
  /** `pick` returns row and column of the picked cell, its time cell and level; null where none is picked. */
  constructor(frame, pick) {
    Object.assign(this, { frame, pick });
    this.question = null;
    this.words = h("p", { id: "lineage-words", class: "quiet", role: "status" });
    this.found = h("div", { id: "lineage", hidden: true });
    this.button = button(T.lineage.ask, () => this.ask(), { id: "lineage-ask", title: T.lineage.hint });
    this.element = h("div", { hidden: true }, h("div", { class: "buttons small" }, this.button, this.words), this.found);
  }

  /** Another answer is shown; null where there is none, or no map. */
  show(question) {
    this.question = question?.surface.kind === "map" ? question : null;
    this.element.hidden = !this.question;
    this.clear();
  }

  clear() {
    this.words.textContent = "";
    this.found.replaceChildren();
    this.found.hidden = true;
  }

  async ask() {
    const { question } = this;
    const at = this.pick();
    this.clear();
    if (!at) {
      this.words.textContent = T.lineage.pickFirst;
      return;
    }
    this.words.textContent = T.lineage.asked;
    this.button.disabled = true;
    let made = null;
    await this.frame.attempt(async () => {
      made = await api.lineage(question.id, coordinatesOf(question.surface, at));
    });
    this.button.disabled = false;
    // Another question may have been asked meanwhile.
    if (question !== this.question) return;
    this.words.textContent = made ? T.lineage.summary(short(made.value), made.unit, number(made.used, 0), placeOf(made.cell)) : "";
    if (made) this.fill(made);
  }

  fill(made) {
    const used = made.stations.filter(({ slices }) => slices > 0);
    // The heaviest first; without weights the order is by distance.
    used.sort((first, second) => Math.abs(second.weight ?? 0) - Math.abs(first.weight ?? 0));
    const rows = used.map((row) => [row.station, row.weight === null ? "" : row.weight.toFixed(3), number(row.distance_m, 0), T.lineage.slices(number(row.slices, 0), number(row.of_slices, 0))]);
    const left = Object.entries(made.left_out).map(([reason, count]) => T.lineage.leftOut(number(count, 0), visible(reason)));
    const lines = [...(left.length ? [T.lineage.notUsed(left.join(", "))] : []), changesOf(made), ...made.notes.map(visible)];
    this.found.replaceChildren(
      ...(rows.length ? [table(T.lineage.stations(number(rows.length, 0), number(made.stations.length, 0)), T.lineage.columns, rows)] : []),
      h("ul", { class: "quiet" }, ...lines.map((line) => h("li", {}, line))),
    );
    this.found.hidden = false;
  }
}

function coordinatesOf({ dims: [row, column], times, z, ...surface }, { picked, time, level }) {
  const at = { time: times[Math.min(time, times.length - 1)], [row]: surface[row][picked[0]], [column]: surface[column][picked[1]] };
  return z ? { ...at, z: z[Math.min(level, z.length - 1)] } : at;
}

const placeOf = (cell) => Object.entries(cell).filter(([, value]) => typeof value === "number").reverse().map(([name, value]) => `${name} ${number(value, 5)}`).join(", ");

function changesOf({ changed, changed_used: used, snapshot, newest, now, unit }) {
  const counts = Object.entries(changed).map(([kind, count]) => `${number(count, 0)} ${kind}`);
  const value = typeof now === "number" ? `${short(now)} ${unit}` : "";
  if (!counts.length) return snapshot === newest ? T.lineage.newest : T.lineage.unchanged(value);
  return T.lineage.changed(counts.join(", "), number(used, 0), value);
}
