// What the tests said of the readings by station, and what could not be read.

import * as api from "./api.js";
import { LongTable, button, choice, csv, empty, field, h, number, save, table } from "./dom.js";
import { T } from "./text.js";
import { longName } from "./variables.js";

const FLAGS = ["good", "not_evaluated", "suspect", "fail", "missing"];
const PERIODS = ["1", "7", "28", ""];

/** How many, and which share of all. */
const told = (count, all) => (count ? `${number(count)} (${share(count, all)})` : number(0));

function share(count, all) {
  const percent = (100 * count) / all;
  return percent > 0 && percent < 0.1 ? "< 0.1 %" : percent < 100 && percent > 99.9 ? "> 99.9 %" : `${number(percent, 1)} %`;
}

/** Both sections; `choose` shows the readings of a station and a variable. */
export class Quality {
  constructor(frame, choose) {
    this.frame = frame;
    this.choose = choose;
    const { variables } = frame.known;
    this.variable = choice("quality-variable", [["", T.quality.allVariables], ...variables.map((one) => [one.name, longName(variables, one.name)])], () => this.draw(), "");
    this.period = choice("quality-period", PERIODS.map((days) => [days, T.stations.period(Number(days))]), () => frame.attempt(() => this.look()), "7");
    this.summary = h("p", { id: "quality-summary", role: "status" });
    this.list = h("div", { id: "quality-list" });
    this.table = new LongTable(T.quality.caption, () => [], () => [], (row) => row.station);
    this.rejectList = h("div", { id: "rejects" });
    const section = (id, title, ...inner) => h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...inner);
    this.element = h("div", { class: "below" },
      section("quality-title", T.quality.title, h("div", { class: "inline looks" }, field(T.quality.of, this.variable), field(T.quality.over, this.period)), this.summary, this.list),
      section("rejects-title", T.quality.rejects, this.rejectList));
  }

  /** Ask anew; draw what changed. */
  async look() {
    const days = this.period.value;
    const [counts, rejects] = await Promise.all([api.look(`stations/quality${days ? `?days=${days}` : ""}`), this.frame.may("operate") ? api.look("rejects") : null]);
    if (days !== this.period.value) return;
    const text = JSON.stringify([days, counts, rejects]);
    if (text === this.text) return;
    this.text = text;
    this.counts = counts;
    this.draw();
    this.drawRejects(rejects);
  }

  /** Stations with the counts of their variables summed, the most doubtful first; and the tests that set any flag. */
  rows() {
    const stations = new Map();
    for (const one of this.counts) {
      if (this.variable.value && one.variable !== this.variable.value) continue;
      const mine = stations.get(one.station) ?? { station: one.station, readings: 0, flags: {}, tests: {} };
      stations.set(one.station, mine);
      mine.readings += one.readings;
      for (const what of ["flags", "tests"]) for (const [name, count] of Object.entries(one[what])) mine[what][name] = (mine[what][name] ?? 0) + count;
    }
    const doubt = ({ flags, readings }) => ((flags.suspect ?? 0) + (flags.fail ?? 0)) / readings;
    const rows = [...stations.values()].sort((one, other) => doubt(other) - doubt(one) || one.station.localeCompare(other.station, "en", { numeric: true }));
    return { rows, tests: [...new Set(rows.flatMap((row) => Object.keys(row.tests)))].sort() };
  }

  draw() {
    if (!this.counts) return;
    const { rows, tests } = this.rows();
    if (!rows.length) {
      this.summary.textContent = "";
      this.list.replaceChildren(empty(T.quality.none, T.quality.noneAdvice));
      return;
    }
    const all = rows.reduce((sum, row) => sum + row.readings, 0);
    const sum = (what, name) => rows.reduce((found, row) => found + (row[what][name] ?? 0), 0);
    this.summary.textContent = T.quality.summary(number(all), FLAGS.map((flag) => [share(sum("flags", flag), all), T.quality.flags[flag]]), tests.length ? tests.map((test) => `${T.quality.test(test)} ${number(sum("tests", test))}`) : null);
    const columns = [T.stations.columns[0], [T.quality.readings, "number"], ...FLAGS.map((flag) => [T.quality.flags[flag], "number"]), ...tests.map((test) => [T.quality.test(test), "number"])];
    const look = (station) => button(station, () => this.choose(station, this.variable.value), { class: "link", "aria-label": T.stations.look(station), data: { quality: station } });
    const cells = ({ station, readings, flags, tests: by }) => [look(station), number(readings), ...FLAGS.map((flag) => told(flags[flag] ?? 0, readings)), ...tests.map((test) => told(by[test] ?? 0, readings))];
    const held = document.activeElement?.dataset?.quality;
    Object.assign(this.table, { columns: () => columns, cells });
    this.table.draw(rows);
    this.list.replaceChildren(this.table.element,
      h("div", { class: "buttons small" }, button(T.pane.csv, () => save("hypergrid-quality.csv", csv(["station", "readings", ...FLAGS, ...tests], rows.map((row) => [row.station, row.readings, ...FLAGS.map((flag) => row.flags[flag] ?? 0), ...tests.map((test) => row.tests[test] ?? 0)])), "text/csv"))));
    if (held) this.list.querySelector(`button[data-quality="${CSS.escape(held)}"]`)?.focus();
  }

  /** Draw what could not be read; null: who asks may not see it. */
  drawRejects(rejects) {
    if (!rejects) {
      this.rejectList.replaceChildren(empty(T.frame.notShown, T.frame.notShownAdvice("operate")));
      return;
    }
    const { count, kinds } = rejects;
    if (!count) {
      this.rejectList.replaceChildren(h("p", { class: "quiet" }, T.quality.noRejects));
      return;
    }
    const where = ({ file, line, column }) => T.quality.where(file, line ? number(line) : "", column);
    const examples = (kind) => h("details", {}, h("summary", {}, where(kind.examples[0])),
      h("ul", { class: "examples" }, kind.examples.map((one) => h("li", {}, h("span", { class: "quiet" }, where(one)), h("br"), one.reason, one.text ? [h("br"), h("code", {}, one.text)] : null))));
    this.rejectList.replaceChildren(
      table(T.quality.rejectsCaption(number(count)), [T.quality.reason, [T.quality.rows, "number"], [T.quality.share, "number"], [T.quality.files, "number"], T.quality.examples],
        kinds.map((kind) => [kind.kind, number(kind.count), share(kind.count, count), number(kind.files), examples(kind)])),
      h("p", {}, h("a", { href: api.rejectsAddress, download: "rejects.csv" }, T.quality.allRejects)));
  }
}
