// Overview: what the stations measure now, on a map that fills the window, and how the network is.

import * as api from "./api.js";
import { LongTable, button, choice, duration, empty, field, h, instant, number, part, visible } from "./dom.js";
import { span, spread, uncover } from "./figures.js";
import { Poll } from "./follow.js";
import { layGround } from "./ground.js";
import { placeLabels } from "./labels.js";
import { around, openOverview, STATES } from "./pictures.js";
import { scaleOf } from "./question.js";
import { T } from "./text.js";
import { theme } from "./theme.js";
import { unitText } from "./units.js";
import { longName, variableChoices } from "./variables.js";

const AGAIN_MS = 5000;
/** How often the stations' health is asked for without new values [ms]. */
const HEALTH_MS = 15_000;
const PAUSE_MS = 80;
/** A value this much older than the newest one tells nothing of now, as `stations/health` has it [ms]. */
const OLD_MS = 2 * 86_400_000;
/** Flags whose values are not coloured: suspect, fail, missing. */
const DOUBTFUL = ["3", "4", "9"];
/** Statistics that show what is measured, before others. */
const PLAIN = ["sample", "mean"];
const BAD_FIRST = ["dead", "late", "unknown", "reporting"];
const SIGNS = { reporting: "●", late: "▲", dead: "◆", unknown: "■" };
/** Diameter of the discs [px] for so many stations at most. */
const SIZES = [[30, 24], [100, 18], [300, 13], [Infinity, 9]];
const RIMS = { light: "#1d2733", dark: "#e4e9ee" };
const LOWEST_PX = 320;
/** In windows narrower than this the words stand below the map, and some of their height is in sight [px]. */
const [WIDE_PX, WORDS_PX] = [769, 64];
/** How close a click must be to a station [px]. */
const NEAR_PX = 24;
/** Tiles of a network without positions; the table has the other stations. */
const MOST_TILES = 200;
const STEPS = { ArrowRight: ["lon", 1], ArrowLeft: ["lon", -1], ArrowUp: ["lat", 1], ArrowDown: ["lat", -1] };

export function open(root, frame) {
  return new Overview(root, frame);
}

class Overview {
  constructor(root, frame) {
    Object.assign(this, { root, frame });
    const { variables, stations } = frame.known;
    this.features = new Map(stations.features.map((feature) => [feature.id, feature]));
    this.hasMap = around(stations) !== null;
    this.states = {};
    this.list = choice("overview-variable", variableChoices(variables), (name) => frame.attempt(() => this.choose(name)));
    this.go = button(T.overview.mapOf, () => frame.attempt(() => this.ask()), { id: "map-of", class: "primary" });
    this.age = h("p", { id: "overview-age", class: "quiet" });
    this.health = h("a", { id: "overview-health", href: "#stations" });
    this.key = h("p", { id: "overview-key", class: "quiet" });
    this.card = h("p", { id: "overview-card", role: "status" });
    this.bar = h("div", { id: "overview-bar" }, h("div", { class: "row" }, field(T.overview.variable, this.list), frame.may("query") ? this.go : null),
      h("div", { id: "overview-words" }, this.health, this.age, this.key, this.card));
    this.map = h("div", { id: "overview-map", role: "img", "aria-label": T.overview.title });
    this.stage = h("div", { id: "overview-stage", role: "application", tabindex: 0, "aria-label": T.overview.stage, on: { keydown: (event) => this.press(event) } }, this.map);
    this.tiles = h("ul", { id: "overview-tiles" });
    this.table = new LongTable(T.overview.caption, () => T.overview.columns(unitText(this.unit)).map((name, at) => (at === 2 ? [name, "number"] : at === 3 ? [name, "time"] : name)), (reading) => this.cells(reading), (reading) => `${reading.station} ${reading.name}`);
    this.without = h("p", { id: "overview-without", class: "quiet" });
    root.append(h("div", { id: "overview", class: this.hasMap ? "mapped" : "tiled" }, this.bar,
      ...(this.hasMap ? [this.stage] : [empty(T.overview.noPlaces, T.overview.noPlacesAdvice, h("pre", { tabindex: 0 }, T.overview.noPlacesFile), h("pre", { tabindex: 0 }, T.overview.noPlacesCommand)), this.tiles])),
      h("section", { id: "overview-below", "aria-labelledby": "overview-title" }, h("h2", { id: "overview-title" }, T.overview.title), this.without, this.table.element));
  }

  async show(params) {
    this.fit();
    const wanted = params.get("variable");
    // The map is made while the archive is asked what to show on it.
    if (this.hasMap) this.openMap(this.scaleOf(wanted ?? this.name));
    const { variables } = this.frame.known;
    const isKnown = variables.some(({ name }) => name === wanted);
    const name = isKnown ? wanted : this.name ?? (await this.suggested());
    // The page may have been left meanwhile.
    if (!this.root.hidden) await this.choose(name);
  }

  hide() {
    this.poll?.stop();
  }

  /** The variable that the archive itself suggests to look at first. */
  async suggested() {
    const { variables } = this.frame.known;
    const name = await api.suggest().then(({ query }) => query.variable, () => null);
    return name ?? variables[0].name;
  }

  get unit() {
    return this.frame.known.variables.find(({ name }) => name === this.name)?.unit ?? "";
  }

  get quantity() {
    return longName(this.frame.known.variables, this.name);
  }

  scaleOf(name) {
    return scaleOf({}, this.frame.known.variables.find((variable) => variable.name === name)?.unit);
  }

  /** Make the map as high as the window is below the head of the page. */
  fit() {
    if (!this.hasMap) return;
    const above = this.stage.getBoundingClientRect().top + window.scrollY;
    const below = part("status-line").offsetHeight + (window.innerWidth < WIDE_PX ? WORDS_PX : 0);
    this.stage.style.height = `${Math.max(LOWEST_PX, window.innerHeight - above - below)}px`;
  }

  async choose(name) {
    if (name !== this.name) this.rows = null;
    this.name = this.list.value = name;
    this.frame.note("overview", new URLSearchParams({ variable: name }));
    this.frame.units("overview", T.frame.units(this.quantity, this.unit));
    this.text = "";
    this.poll?.stop();
    // A poll of its own: a slow answer of the variable before is not waited for.
    this.poll = new Poll(() => this.look(name), AGAIN_MS);
    await this.poll.start();
  }

  /** Ask for the newest values, and draw what is new; health comes after them. */
  async look(name) {
    const figure = this.hasMap ? this.openMap(this.scaleOf(name)) : null;
    const text = await api.text(`latest?${new URLSearchParams({ variable: name, f: "csv" })}`);
    await figure;
    if (name !== this.name) return;
    const isNew = text !== this.text;
    if (isNew) {
      const rows = newestOf(api.rowsOf(text));
      if (rows.some(({ station }) => !this.featureOf(station))) await this.renewStations();
      if (name !== this.name) return;
      this.text = text;
      this.rows = rows;
      this.draw();
    } else this.tellAge();
    if (!isNew && this.healthAt_ms + HEALTH_MS > performance.now()) return;
    this.healthAt_ms = performance.now();
    const stations = await api.look("stations/health");
    if (name !== this.name) return;
    const health = JSON.stringify(stations);
    if (health !== this.healthText) {
      this.healthText = health;
      this.states = Object.fromEntries(stations.map(({ station, state }) => [station, state]));
      this.tellHealth(stations);
      this.draw();
    } else if (!isNew) return;
    this.drawTable();
  }

  /** Open the map, unless one of these colours is there. */
  openMap(scale) {
    if (this.opening?.scale === scale) return this.opening.figure;
    const opening = { scale, figure: this.openFigure(scale) };
    this.opening = opening;
    opening.figure.catch(() => {
      if (this.opening === opening) this.opening = null;
    });
    return opening.figure;
  }

  async openFigure(scale) {
    const figure = await openOverview(this.map, this.frame.known.stations, scale);
    figure.on({ tap: (at) => this.pickNear(at) });
    let timer = 0;
    for (const range of [figure.plot.x_range, figure.plot.y_range]) {
      range.change.connect(() => {
        clearTimeout(timer);
        timer = setTimeout(() => this.label(), PAUSE_MS);
      });
    }
    this.hasGround = false;
    return figure;
  }

  /** A station by its name; a spreadsheet's formula is kept from being one by a quote. */
  featureOf(station) {
    return this.features.get(station) ?? this.features.get(station.slice(1));
  }

  /** Ask for the stations again: readings of one that was not there have come. */
  async renewStations() {
    const stations = await api.look("stations");
    this.frame.known.stations = stations;
    this.features = new Map(stations.features.map((feature) => [feature.id, feature]));
  }

  /** What is to be said of each station: those with a reading of the variable, and no others. */
  readingsOf(rows) {
    const times = rows.map((row) => Date.parse(row.end)).filter(Number.isFinite);
    const newest = Math.max(...times);
    return rows.flatMap((row) => {
      const feature = this.featureOf(row.station);
      if (!feature) return [];
      const time = Date.parse(row.end);
      const state = this.states[feature.id] ?? "reporting";
      const value = row.value === "" ? NaN : Number(row.value);
      const why = !Number.isFinite(value) ? T.overview.noValue : DOUBTFUL.includes(row.flag) ? T.flags[row.flag] : newest - time > OLD_MS ? T.overview.old : "";
      const [lon, lat] = feature.geometry?.coordinates ?? [NaN, NaN];
      return [{ station: feature.id, name: feature.properties.name ?? "", lon, lat, time, value, state, why, isShown: !why && state !== "dead" }];
    });
  }

  draw() {
    this.readings = this.readingsOf(this.rows);
    const { readings, quantity } = this;
    const unit = unitText(this.unit);
    const shown = readings.filter((reading) => reading.isShown);
    const range = spread(shown.map(({ value }) => value));
    const digits = !range ? 1 : range[1] - range[0] >= 100 ? 0 : range[1] - range[0] >= 2 ? 1 : 2;
    for (const reading of readings) reading.text = Number.isFinite(reading.value) ? reading.value.toFixed(digits).replace("-", "−") : T.missing;
    this.tellAge();
    const marks = readings.map(markOf);
    const odd = [...new Set(marks)].filter((mark) => mark !== "reporting");
    this.key.textContent = odd.length ? T.overview.key(odd.sort((first, second) => BAD_FIRST.indexOf(first) - BAD_FIRST.indexOf(second)).map((mark) => `${SIGNS[mark]} ${T.overview.marks[mark]}`)) : "";
    const { length: without } = readings.filter(({ lon }) => !Number.isFinite(lon));
    this.without.textContent = this.hasMap && without ? T.overview.without(number(without)) : "";
    if (!this.hasMap) this.drawTiles(unit);
    else if (this.map.figure) this.drawMap(range, unit);
    this.map.setAttribute("aria-label", T.overview.alt(number(readings.length), quantity, range ? range.map((value) => value.toFixed(digits)) : null, unit));
    if (!readings.length) this.card.textContent = T.overview.noReadings(quantity);
    if (this.picked) this.pick(this.readings.find(({ station }) => station === this.picked));
  }

  drawMap(range, unit) {
    const { figure } = this.map;
    const known = this.readings.filter(({ lon }) => Number.isFinite(lon)).sort((first, second) => BAD_FIRST.indexOf(markOf(second)) - BAD_FIRST.indexOf(markOf(first)));
    const [, size] = SIZES.find(([most]) => known.length <= most);
    const column = (pick) => known.map(pick);
    const rim = RIMS[theme()];
    if (range) {
      const [low, high] = span(range, this.opening.scale);
      figure.find("colours").setv({ low, high });
    }
    figure.find("bar").setv({ title: `${this.quantity} [${unit}]` });
    figure.find("stations").data = {
      lon: column(({ lon }) => lon),
      lat: column(({ lat }) => lat),
      value: column((reading) => (reading.isShown ? reading.value : NaN)),
      station: column(({ station }) => visible(station)),
      name: column(({ name }) => visible(name)),
      text: column((reading) => `${reading.text} ${unit}`),
      time: column(({ time }) => instant(new Date(time).toISOString())),
      state: column((reading) => [T.stations.states[reading.state], reading.why].filter(Boolean).join(", ")),
      edge: column((reading) => (markOf(reading) === "reporting" ? rim : STATES[markOf(reading)][0])),
      marker: column((reading) => STATES[markOf(reading)][1]),
      size: column((reading) => (markOf(reading) === "reporting" ? size : 1.25 * size)),
      rim: column((reading) => (markOf(reading) === "reporting" ? Math.min(1.5, size / 9) : 3)),
    };
    this.map.dataset.drawn = this.name;
    const newest = Math.max(...known.map(({ time }) => time));
    // Next to values of now an old one says how old it is.
    this.discs = known.map((reading) => ({ ...reading, size, text: isOld(reading) ? `${reading.text} · ${duration((newest - reading.time) / 1000)} old` : reading.text }));
    this.label();
    // After the values, which it must not delay.
    if (!this.hasGround) {
      uncover(figure.plot, this.discs, this.obstacles()[0]);
      layGround(figure);
    }
    this.hasGround = true;
  }

  /** Write values and names where there is room. */
  label() {
    const { figure } = this.map;
    if (!figure || !this.discs) return;
    figure.find("labels").data = placeLabels(this.discs, figure.plot, this.obstacles());
  }

  /** What lies on the map, as boxes from its upper left corner [px]: the controls, the colour bar, the scale bar. */
  obstacles() {
    const { frame_width: wide, frame_height: high } = this.map.figure.plot;
    const [bar, map] = [this.bar.getBoundingClientRect(), this.map.getBoundingClientRect()];
    const left = map.width - wide;
    return [
      { left: bar.left - map.left - left, right: bar.right - map.left, top: bar.top - map.top, bottom: bar.bottom - map.top },
      { left: wide - 260, right: wide, top: high - 75, bottom: high },
      { left: 0, right: 190, top: high - 50, bottom: high },
    ];
  }

  drawTiles(unit) {
    const ordered = [...this.readings].sort((first, second) => BAD_FIRST.indexOf(markOf(first)) - BAD_FIRST.indexOf(markOf(second)));
    this.tiles.replaceChildren(...ordered.slice(0, MOST_TILES).map((reading) => h("li", { class: markOf(reading) },
      h("a", { href: this.linkOf(reading) }, reading.name || reading.station), h("strong", {}, `${reading.text} ${unit}`),
      h("span", { class: "quiet" }, instant(new Date(reading.time).toISOString())),
      markOf(reading) === "reporting" ? null : h("span", { class: `state ${reading.state}` }, `${SIGNS[markOf(reading)]} ${reading.why || T.stations.states[reading.state]}`))));
    this.drawTable();
  }

  drawTable() {
    const held = document.activeElement?.dataset?.station;
    this.table.draw(this.readings);
    if (held) this.table.element.querySelector(`[data-station="${CSS.escape(held)}"]`)?.focus();
  }

  linkOf({ station }) {
    return `#stations?${new URLSearchParams({ station, variable: this.name })}`;
  }

  cells(reading) {
    return [
      h("a", { href: this.linkOf(reading), data: { station: reading.station } }, reading.station), reading.name, reading.text,
      instant(new Date(reading.time).toISOString()), h("span", { class: `state ${reading.state}` }, `${SIGNS[reading.state]} ${T.stations.states[reading.state]}`), reading.why,
    ];
  }

  tellAge() {
    const times = spread((this.readings ?? []).filter((reading) => reading.isShown).map(({ time }) => time));
    const [first, last] = (times ?? []).map((time) => instant(new Date(time).toISOString()));
    this.age.textContent = times ? T.overview.age(first, last, duration(Math.max(0, (Date.now() - times[1]) / 1000))) : "";
  }

  tellHealth(stations) {
    const count = (state) => stations.filter((station) => station.state === state).length;
    const heard = stations.reduce((newest, { heard: at }) => (at > newest ? at : newest), "");
    const counts = [...BAD_FIRST].reverse().filter(count).map((state) => `${number(count(state))} ${T.stations.states[state]}`);
    this.health.textContent = T.overview.health(number(stations.length), counts, instant(heard));
  }

  // A station of the map

  pickNear({ x, y }) {
    const { x_range: across, y_range: upwards, frame_width: wide, frame_height: high } = this.map.figure.plot;
    const [px, py] = [wide / (across.end - across.start), high / (upwards.end - upwards.start)];
    const away = this.discs.map(({ lon, lat }) => Math.hypot((lon - x) * px, (lat - y) * py));
    const nearest = away.indexOf(Math.min(...away));
    this.pick(away[nearest] <= NEAR_PX ? this.discs[nearest] : null);
  }

  /** Say what a station measures, and mark it; none clears both. */
  pick(reading) {
    this.picked = reading?.station ?? null;
    this.map.figure?.find("picked").setv({ data: reading && Number.isFinite(reading.lon) ? { x: [reading.lon], y: [reading.lat] } : { x: [], y: [] } });
    const words = reading ? T.overview.card(visible(`${reading.station} ${reading.name}`.trim()), `${reading.text} ${unitText(this.unit)}`, instant(new Date(reading.time).toISOString()), [T.stations.states[reading.state], reading.why].filter(Boolean).join(", ")) : "";
    this.card.replaceChildren(...(reading ? [words, " ", h("a", { href: this.linkOf(reading) }, T.overview.look)] : []));
  }

  /** Arrows go from station to station, east and west or north and south; Enter shows the readings. */
  press(event) {
    const step = STEPS[event.key];
    if (event.target !== this.stage || event.ctrlKey || event.altKey || event.metaKey || !this.discs?.length) return;
    if (step) {
      event.preventDefault();
      const [axis, by] = step;
      const ordered = [...this.discs].sort((first, second) => first[axis] - second[axis]);
      const at = ordered.findIndex(({ station }) => station === this.picked);
      this.pick(ordered[at < 0 ? 0 : Math.min(Math.max(at + by, 0), ordered.length - 1)]);
    } else if (event.key === "Escape") this.pick(null);
    else if (event.key === "Enter" && this.picked) location.hash = this.linkOf({ station: this.picked });
  }

  /** Ask for the map of the variable: Explore runs the question that the archive suggests. */
  async ask() {
    const { query } = await api.suggest(this.name);
    this.frame.go("explore", { q: JSON.stringify(query), run: "1" });
  }

  async redraw() {
    this.fit();
    if (!this.hasMap) return;
    this.opening = null;
    await this.openMap(this.scaleOf(this.name));
    // The values may still be on their way: `look` draws them once they are there.
    if (this.rows) this.draw();
  }
}

const isOld = ({ state }) => ["late", "dead"].includes(state);

/** How a station is drawn: as its state, or as one of which nothing is known where its value says nothing of now. */
function markOf({ state, why }) {
  if (isOld({ state })) return state;
  return why ? "unknown" : "reporting";
}

/** A reading of each station: of the kind (statistic, height, replicate) that most stations have. */
function newestOf(rows) {
  const kindOf = (row) => [PLAIN.includes(row.statistic) ? 0 : 1, row.height_m, row.replicate].join("|");
  const counts = new Map();
  for (const row of rows) counts.set(kindOf(row), (counts.get(kindOf(row)) ?? 0) + 1);
  const isBefore = (row, other) => {
    const [kind, otherKind] = [kindOf(row), kindOf(other)];
    if (kind[0] !== otherKind[0]) return kind[0] < otherKind[0];
    if (counts.get(kind) !== counts.get(otherKind)) return counts.get(kind) > counts.get(otherKind);
    return kind === otherKind ? row.end > other.end : kind < otherKind;
  };
  const chosen = new Map();
  for (const row of rows) {
    if (!chosen.has(row.station) || isBefore(row, chosen.get(row.station))) chosen.set(row.station, row);
  }
  return [...chosen.values()];
}
