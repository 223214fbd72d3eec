// Stations: how each is, on a map and in a table; and its readings as they came, with their flags.

import * as api from "./api.js";
import { LongTable, button, choice, duration, empty, field, h, instant, number, table, visible } from "./dom.js";
import { Poll } from "./follow.js";
import { Pane } from "./pane.js";
import { expectRegion, openRegion, stationColumns } from "./pictures.js";
import { Quality } from "./quality.js";
import { readingsContent, readReadings } from "./readings.js";
import { Share } from "./share.js";
import { T } from "./text.js";
import { longName, variableChoices } from "./variables.js";

const AGAIN_MS = 15_000;
const COUNTED_MS = 60_000;
const DAY_MS = 86_400_000;
/** Without a reading for so long the network's states are said to be of the past [ms]. */
const OLD_MS = 2 * DAY_MS;
const PERIODS = [1, 2, 7, 28, 0];
const SIGNS = { reporting: "●", late: "▲", dead: "◆", unknown: "■" };
const BAD_FIRST = ["dead", "late", "unknown", "reporting"];

export function open(root, frame) {
  return new Stations(root, frame);
}

class Stations {
  constructor(root, frame) {
    this.frame = frame;
    this.poll = new Poll(() => this.look(), AGAIN_MS);
    const { variables } = frame.known;
    this.summary = h("p", { id: "stations-summary", role: "status" });
    this.map = h("div", { id: "stations-map", class: "region", role: "img", "aria-label": T.stations.mapAlt });
    this.list = h("div", { id: "stations-list" });
    this.table = new LongTable(T.stations.caption, () => T.stations.columns.map((name, place) => (place === 3 ? [name, "time"] : place > 3 ? [name, "number"] : name)), (one) => this.cells(one), (one) => `${one.station} ${this.names[one.station]?.name ?? ""}`);
    this.pane = new Pane("station");
    this.detailTitle = h("h2", { id: "station-title", tabindex: -1 }, T.stations.pick);
    this.variable = choice("station-variable", variableChoices(variables), () => this.choose(this.station), variables[0].name);
    this.period = choice("station-period", PERIODS.map((days) => [String(days), T.stations.period(days)]), () => this.choose(this.station), "2");
    this.counts = h("div", { id: "station-counts" });
    this.share = new Share(frame, { page: "stations" });
    this.detail = h("section", { "aria-labelledby": "station-title" }, this.detailTitle,
      h("div", { class: "inline" }, field(T.stations.variable, this.variable), field(T.stations.periodLabel, this.period)), this.share.element, this.pane.element, this.counts);
    this.pane.clear(T.stations.pickAdvice);
    this.quality = new Quality(frame, (station, variable) => {
      if (variable) this.variable.value = variable;
      this.choose(station, true);
    });
    root.append(h("div", { class: "two" }, h("section", { "aria-labelledby": "health-title" }, h("h2", { id: "health-title" }, T.stations.health), this.summary, this.map, this.list), this.detail), this.quality.element);
  }

  async show(params) {
    const before = this.state();
    for (const [choice, wanted] of [[this.variable, params.get("variable")], [this.period, params.get("days")]]) {
      if ([...choice.options].some(({ value }) => value === wanted)) choice.value = wanted;
    }
    const station = params.get("station") ?? this.station;
    this.sayUnits();
    await this.poll.start();
    this.frame.attempt(() => this.count());
    // The first one of the list is in trouble, if any is.
    const wanted = station ?? this.first;
    if (wanted && (wanted !== this.station || this.state() !== before)) await this.choose(wanted);
  }

  /** What is chosen beside the station. */
  state() {
    return `${this.variable.value} ${this.period.value}`;
  }

  hide() {
    this.poll.stop();
  }

  unitOf() {
    return this.frame.known.variables.find((one) => one.name === this.variable.value)?.unit ?? "";
  }

  /** The chosen variable's long name. */
  get quantity() {
    return longName(this.frame.known.variables, this.variable.value);
  }

  sayUnits() {
    this.frame.units("stations", T.frame.units(this.quantity, this.unitOf()));
  }

  /** Ask how the stations are; draw again only what changed. */
  async look() {
    const { stations } = this.frame.known;
    if (!this.map.figure) expectRegion(this.map, stations, "").catch(() => {});
    const told = await api.look("stations/health");
    const text = JSON.stringify(told);
    if (text === this.told) return;
    // Readings came: what the tests say of them is worth asking for, but seldom, for all of them are counted.
    if (this.told && this.countedAt + COUNTED_MS < performance.now()) this.count().catch(() => {});
    this.told = text;
    this.names = Object.fromEntries(stations.features.map((feature) => [feature.id, feature.properties]));
    this.health = Object.fromEntries(told.map((one) => [one.station, one]));
    this.newest = told.reduce((newest, one) => Math.max(newest, one.heard ? Date.parse(one.heard) : 0), 0);
    const count = (state) => told.filter((one) => one.state === state).length;
    this.summary.textContent = T.stations.summary(BAD_FIRST.map((state) => [number(count(state)), T.stations.states[state]]), instant(new Date(this.newest).toISOString()));
    const age = Date.now() - this.newest;
    if (this.newest && age > OLD_MS) this.summary.append(` ${T.stations.asOf(duration(age / 1000))}`);
    if (!told.length) {
      this.list.replaceChildren(empty(T.stations.none, T.stations.noneAdvice));
      return;
    }
    const ordered = [...told].sort((one, other) => BAD_FIRST.indexOf(one.state) - BAD_FIRST.indexOf(other.state) || one.station.localeCompare(other.station, "en", { numeric: true }));
    this.first = ordered[0].station;
    const held = document.activeElement?.dataset?.station;
    this.table.draw(ordered);
    if (this.list.firstChild !== this.table.element) this.list.replaceChildren(this.table.element);
    if (held) this.list.querySelector(`button[data-station="${CSS.escape(held)}"]`)?.focus();
    await this.drawMap();
  }

  cells(one) {
    return [
      button(one.station, () => this.choose(one.station, true), { class: "link", "aria-label": T.stations.look(one.station), data: { station: one.station } }),
      this.names[one.station]?.name ?? "",
      h("span", { class: `state ${one.state}` }, `${SIGNS[one.state]} ${T.stations.states[one.state]}`),
      instant(one.last),
      one.last ? duration((this.newest - Date.parse(one.last)) / 1000) : "",
      duration(one.interval_s), number(one.readings), number(one.missing), number(one.flagged),
    ];
  }

  count() {
    this.countedAt = performance.now();
    return this.quality.look();
  }

  /** A map that is there takes the news; `anew` makes another one. */
  async drawMap(anew = false) {
    const { stations } = this.frame.known;
    if (this.map.figure && !anew) {
      this.map.figure.find("stations").data = stationColumns(stations, this.health);
      return;
    }
    const figure = await openRegion(this.map, stations, { health: this.health, title: "", onTap: (station) => this.choose(station) });
    if (!figure) this.map.replaceChildren(h("p", { class: "quiet" }, T.region.noPlaces));
  }

  /** Show the readings of a station; `jump` moves the focus to them. */
  async choose(station, jump = false) {
    if (!station) return;
    this.station = station;
    const variable = this.variable.value;
    this.sayUnits();
    this.frame.note("stations", new URLSearchParams({ station, variable, days: this.period.value }));
    this.detailTitle.textContent = visible(T.stations.title(station));
    if (jump) this.detailTitle.focus();
    await this.frame.attempt(() => this.readings(station, variable, this.unitOf()));
  }

  async readings(station, variable, unit) {
    const asked = (this.asked = (this.asked ?? 0) + 1);
    const { quantity } = this;
    const days = Number(this.period.value);
    const last = this.health[station]?.last;
    const start = days && last ? new Date(Date.parse(last) - days * DAY_MS).toISOString() : "";
    const readings = await readReadings(station, variable, start);
    // Another station, variable or time was chosen meanwhile: its readings may have come before these.
    if (asked !== this.asked) return;
    this.counts.replaceChildren();
    if (!readings.length) {
      this.pane.clear(T.stations.noReadings(quantity));
      return;
    }
    await this.pane.show(readingsContent(readings, { station, variable, quantity, units: unit, snapshot: this.frame.known.snapshots[0]?.id ?? "" }));
    const count = (flag) => readings.filter((one) => one.flag === flag).length;
    const present = [1, 2, 3, 4, 9].filter(count);
    const tests = (flag) => [...new Set(readings.filter((one) => one.flag === flag).map((one) => one.failed_tests).filter(Boolean))].join("; ");
    this.counts.replaceChildren(table(T.stations.flagCaption, [T.stations.flag, [T.stations.readings, "number"], T.stations.tests],
      present.map((flag) => [`${{ 3: "▲ ", 4: "✕ ", 9: "■ " }[flag] ?? "— "}${T.flags[flag]}`, number(count(flag)), tests(flag)])));
  }

  async redraw() {
    if (this.health) await this.drawMap(true);
    await this.pane.redraw();
  }
}

