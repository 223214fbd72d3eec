// One panel of a board: a picture, readings or a number that follows the newest data.

import * as api from "./api.js";
import { button, duration, figure as short, h, instant, number, visible } from "./dom.js";
import { VIEWS } from "./looks.js";
import { linesOf, Pane } from "./pane.js";
import { hasDays, millis } from "./pictures.js";
import { addressOf, joined, lengthWords, questionOf, reduced, spanNow, variablesOf } from "./panels.js";
import { pose } from "./question.js";
import { readingsContent, readReadings } from "./readings.js";
import { T } from "./text.js";
import { Trend } from "./trend.js";
import { unitText } from "./units.js";
import { longName } from "./variables.js";
import { content } from "./views.js";

const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [2000, 60_000];
/** Time cells from which a series is shown day by hour at first, as on Explore. */
const MANY = 72;
/** Time cells that are looked through for one with values: the newest ones may wait for their readings. */
const LOOKED_THROUGH = 6;
/** Room of a map's axes and colour bar beside and below its cells, in letters of a usual size [px]. */
const [BESIDE_PX, BELOW_PX, LETTERS_PX] = [130, 34, 16];
/** From a commit until a panel shows it, as a rule at most [ms]. */
const LATE_MS = 2000;
/** Above this age it is said as a date [ms]. */
const DATED_MS = 2 * 86_400_000;

/** Have an axis show so many ticks, where its kind can. */
const spaced = (ticker, count) => ticker && "desired_num_ticks" in ticker && ticker.setv({ desired_num_ticks: Math.max(2, Math.round(count)) });

export class PanelView {
  /** `turn` runs what asks the server when there is room; `on` holds what the tools do. */
  constructor(panel, frame, turn, on) {
    Object.assign(this, { panel, frame, turn, variables: variablesOf(panel), since: null, pause: FIRST_PAUSE_MS, updates: 0, late: 0, behind_ms: 0, most_behind_ms: 0 });
    this.name = panel.title;
    this.heading = h("p", { class: "panel-title" }, this.name || T.panels.kinds[panel.kind]);
    this.units = h("span", { class: "panel-units" });
    this.age = h("span", { class: "panel-age" });
    this.open = h("a", { class: "panel-open", href: "#" }, "↗");
    /** What it shows, below a title that somebody gave it. */
    this.what = h("p", { class: "panel-what" });
    this.state = h("p", { class: "panel-state", role: "status", hidden: true });
    this.body = h("div", { class: "panel-body" });
    this.tools = h("div", { class: "panel-tools" });
    this.element = h("article", { class: "panel", data: { id: panel.id ?? "", kind: panel.kind, columns: String(panel.columns ?? 1) } },
      h("header", { class: "panel-head" }, this.heading, this.units, this.age, this.open), this.what, this.tools, this.state, this.body);
    this.element.view = this;
    if (panel.kind === "number") this.buildNumber();
    else this.buildPane();
    if (on) this.buildTools(on);
    this.label();
    this.say(T.panels.waiting);
  }

  buildPane() {
    this.pane = new Pane(`panel-${this.panel.id ?? "single"}`);
    this.body.append(this.pane.element);
  }

  buildNumber() {
    this.value = h("p", { class: "panel-value" });
    this.words = h("p", { class: "panel-words" });
    this.trend = new Trend();
    this.body.append(h("div", { class: "panel-number" }, this.value, this.words, this.trend.element));
  }

  /** Buttons that arrange it, shown while the board is arranged. */
  buildTools(on) {
    this.input = h("input", { type: "text", maxlength: 200, value: this.panel.title, placeholder: this.heading.textContent, "aria-label": T.panels.title, on: { change: () => on.rename(this, this.input.value.trim()) } });
    this.buttons = {
      earlier: button("←", () => on.move(this, -1), { class: "icon" }), later: button("→", () => on.move(this, 1), { class: "icon" }),
      width: button("", () => on.resize(this), { class: "icon" }), embed: button("</>", () => on.embed(this), { class: "icon" }), remove: button("✕", () => on.remove(this), { class: "icon" }),
    };
    this.tools.append(this.input, ...Object.values(this.buttons));
  }

  /** Names of the panel, for the eyes and for screen readers. */
  label() {
    const name = visible(this.name || T.panels.kinds[this.panel.kind]);
    this.heading.textContent = name;
    this.element.setAttribute("aria-label", name);
    this.open.setAttribute("aria-label", T.panels.open(name));
    this.open.title = T.panels.open(name);
    this.open.href = `#${addressOf(this.panel, this.news?.ends ?? {})}`;
    if (!this.buttons) return;
    const isWide = this.panel.columns === 2;
    const labels = { earlier: T.panels.earlier(name), later: T.panels.later(name), width: isWide ? T.panels.narrower(name) : T.panels.wider(name), embed: T.panels.embed(name), remove: T.panels.remove(name) };
    this.tools.setAttribute("aria-label", T.panels.tools(name));
    this.tools.setAttribute("role", "group");
    this.buttons.width.textContent = isWide ? "▫" : "▭";
    this.input.placeholder = name;
    for (const [tool, label] of Object.entries(labels)) {
      this.buttons[tool].setAttribute("aria-label", label);
      this.buttons[tool].title = label;
    }
  }

  // Following

  /** Whether news concern it: its variables changed, or perhaps all did. */
  isConcerned({ changed }) {
    return !this.updates || changed === null || changed.some((name) => this.variables.has(name));
  }

  /** Show what is new since a moment [ms]; what comes while it is asked is asked afterwards. */
  follow(news, since) {
    this.news = news;
    this.since ??= since;
    this.update();
  }

  /** What it did, and how far it was behind the commits, of which so many by more than `LATE_MS`. */
  statistics() {
    const { updates, late, behind_ms, most_behind_ms, since } = this;
    return { updates, late, behind_ms, most_behind_ms, waits: since !== null };
  }

  update() {
    clearTimeout(this.retry);
    this.isFailing = false;
    this.updating ??= this.turns().finally(() => {
      this.updating = null;
      // News may have come at the very end.
      if (this.since !== null && !this.isFailing && !this.isLeft) this.update();
    });
    return this.updating;
  }

  async turns() {
    while (this.since !== null && !this.isLeft) {
      const { since } = this;
      this.since = null;
      try {
        await this.turn(() => this.draw());
        this.note(since);
      } catch (problem) {
        // A figure that came after its panel was left has no place any more.
        if (this.isLeft) return;
        if (!(problem instanceof api.Problem)) console.error(problem);
        this.since ??= since;
        this.fail(problem);
        return;
      }
    }
  }

  note(since) {
    this.behind_ms = Date.now() - since;
    // The first picture is late for nothing.
    if (this.updates) {
      this.most_behind_ms = Math.max(this.most_behind_ms, this.behind_ms);
      this.late += this.behind_ms > LATE_MS;
    }
    this.updates += 1;
    this.pause = FIRST_PAUSE_MS;
    this.say("");
    this.label();
    this.tellAge();
  }

  /** Say why in its place, and try again, more and more seldom. */
  fail(problem) {
    this.isFailing = true;
    this.say(T.panels.failedSince(`${problem.title ?? T.panels.failed}: ${problem.message}`), true);
    this.retry = setTimeout(() => this.update(), this.pause);
    this.pause = Math.min(2 * this.pause, LONGEST_PAUSE_MS);
  }

  say(words, isBad = false) {
    this.state.textContent = visible(words);
    this.state.hidden = !words;
    this.state.classList.toggle("bad", isBad);
    this.element.classList.toggle("stale", isBad);
  }

  /** Say what it shows where its title does not. */
  tellWhat(words) {
    this.what.textContent = this.panel.title && words !== this.panel.title ? visible(words) : "";
  }

  /** How old its data are, by the clock of now. */
  tellAge() {
    if (!Number.isFinite(this.dataAt)) {
      this.age.textContent = "";
      return;
    }
    const age = Date.now() - this.dataAt;
    const time = instant(new Date(this.dataAt).toISOString());
    this.age.title = T.panels.until(time);
    this.age.classList.toggle("dated", age > DATED_MS || age < 0);
    this.age.textContent = age > DATED_MS || age < 0 ? time.replace(" UTC", "") : T.panels.age(duration(Math.max(age, 1000) / 1000));
  }

  // Drawing

  async draw() {
    const { panel } = this;
    const newest = [...this.variables].map((name) => Date.parse(this.news.newest[name] ?? "")).filter(Number.isFinite);
    this.dataAt = Math.min(...newest);
    if (panel.kind === "number") await this.drawNumber();
    else if (panel.kind === "series") await this.put(await this.readings());
    else await this.put(await this.picture());
  }

  /** Put what there is to show into the pane, and make the figure one of a board. */
  async put(found) {
    const before = this.pane.figure;
    // Why there is nothing to show stands in its place: the words below a picture are not seen on a board.
    const shown = await this.pane.put(typeof found === "string" ? { answer: found, words: found } : found);
    if (!shown) return;
    this.name = this.panel.title || shown.title;
    this.tellWhat(shown.heading ?? shown.title);
    this.units.textContent = shown.units ? `[${unitText(shown.units)}]` : "";
    if (this.pane.figure !== before || this.size !== this.sizeNow()) this.fit();
  }

  async readings() {
    const { panel, frame } = this;
    const { variables } = frame.known;
    const span = spanNow(panel, this.news.ends);
    const readings = await readReadings(panel.station, panel.variable, span && new Date(span[0]).toISOString());
    const quantity = longName(variables, panel.variable);
    if (!readings.length) return T.stations.noReadings(quantity);
    this.dataAt = Math.max(...readings.map((reading) => reading.at));
    const units = variables.find((one) => one.name === panel.variable)?.unit ?? "";
    return readingsContent(readings, { station: panel.station, variable: panel.variable, quantity, units, snapshot: this.news.id });
  }

  /** Ask the query of now; resolves when it is answered. */
  ask() {
    return new Promise((resolve, reject) => {
      const end = (question) => {
        this.question = null;
        if (question.state === "done") resolve(question);
        else reject(question.problem ? new api.Problem(question.problem.title, question.problem.detail, question.problem.status) : new api.Problem(T.panels.failed, question.state === "cancelled" ? T.panels.stopped : T.panels.lost));
      };
      const progress = ({ progress: { fraction } }) => {
        if (!this.updates) this.say(T.panels.computing(number(100 * fraction, 0)));
      };
      pose(questionOf(this.panel, this.news.ends), "coarse_to_fine", { plan() {}, progress, end }).then((question) => {
        // One that was shared, or small, may have ended already.
        if (!question.ended) this.question = question;
        if (this.isLeft) question.stop().catch(() => {});
      }, reject);
    });
  }

  async picture() {
    const question = await this.ask();
    const { surface } = question;
    if (surface.kind === "series") question.table = await api.series(question.id);
    const { panel } = this;
    const { level = "0", estimated = "veil", extrapolated = "veil", pick = "", time = "0" } = panel.view ?? {};
    const view = VIEWS[surface.kind].includes(panel.view?.view) ? panel.view.view : this.usualView(question);
    const [row, column] = surface.dims ?? [];
    const picked = pick ? pick.split(",").map(Number) : null;
    const cell = picked ?? (surface.dims && [surface[row], surface[column]].map((centres) => Math.floor(centres.length / 2)));
    const shared = { view, level: Number(level), estimated, extrapolated, fit: {}, cell, picked, stations: this.frame.known.stations };
    const newest = surface.times.length - 1;
    let at = panel.last ? newest : Math.min(Number(time), newest);
    let found = await content(question, "value", { ...shared, time: at });
    // The newest time cell may not have the readings yet that its coverage needs.
    while (panel.last && found?.answer && at > Math.max(0, newest - LOOKED_THROUGH)) {
      at -= 1;
      found = await content(question, "value", { ...shared, time: at });
    }
    return found;
  }

  usualView({ surface, table }) {
    if (table && hasDays(table.times) && table.times.length >= MANY) return "heat";
    return VIEWS[surface.kind][0];
  }

  async drawNumber() {
    const { panel } = this;
    const { title, units, times, values } = panel.query ? await this.answered() : await this.read();
    const { value, at } = reduced(values, panel.reduce);
    const how = T.panels.reductions[panel.reduce];
    this.name = panel.title || T.panels.number(how, title);
    this.tellWhat(title);
    if (!Number.isFinite(value)) {
      this.value.textContent = T.missing;
      this.words.textContent = T.panels.noValues(lengthWords(panel.last));
      this.trend.draw([], [], "");
      return;
    }
    const unit = unitText(units);
    this.value.replaceChildren(h("span", { class: "panel-figure" }, short(value)), " ", h("span", { class: "panel-unit" }, unit));
    const low = reduced(values, "min").value;
    const high = reduced(values, "max").value;
    this.words.textContent = `${how} · ${lengthWords(panel.last)}: ${T.panels.range(short(low), short(high))} ${unit}`;
    this.trend.draw(times, values, T.panels.trend(short(low), short(high), short(values.find(Number.isFinite)), short(values[at])));
    if (!panel.query) this.dataAt = times[at];
  }

  /** The series of the query; of several, at each time their least or greatest value where that is wanted, else their mean. */
  async answered() {
    const question = await this.ask();
    const { surface } = question;
    if (surface.kind !== "series") throw new api.Problem(T.panels.failed, T.panels.noNumber);
    const table = await api.series(question.id);
    const lines = linesOf(table);
    const values = lines.length ? joined(lines, this.panel.reduce) : [];
    return { title: surface.long_name, units: surface.units, times: millis(table.times), values };
  }

  /** Good readings of its station, and those that nobody judged. */
  async read() {
    const { panel } = this;
    const { variables } = this.frame.known;
    const span = spanNow(panel, this.news.ends);
    const readings = await readReadings(panel.station, panel.variable, span && new Date(span[0]).toISOString());
    const quantity = longName(variables, panel.variable);
    const units = variables.find((one) => one.name === panel.variable)?.unit ?? "";
    // Of several heights or statistics the first: their readings are not of one quantity.
    const { lines } = readingsContent(readings, { station: panel.station, variable: panel.variable, quantity, units, snapshot: this.news.id });
    return { title: T.stations.plot(quantity, panel.station), units, times: lines[0]?.times ?? [], values: lines[0]?.values ?? [] };
  }

  // Size

  sizeNow() {
    const { place } = this.pane;
    return `${place.clientWidth} x ${place.clientHeight}`;
  }

  /** Have the figure fill its place: without tools and heading, which the panel has, and the unit, and with letters of the page's size. */
  fit() {
    const { figure, place } = this.pane;
    if (!figure || !place.clientHeight) return;
    const { plot } = figure;
    const letters = parseFloat(getComputedStyle(this.body).fontSize);
    const ticks = `${0.75 * letters}px`;
    const [width, height] = [place.clientWidth, place.clientHeight];
    plot.setv({ toolbar_location: null });
    for (const name of ["heading", "source"]) figure.find(name).setv({ visible: false });
    for (const item of [...plot.left, ...plot.below, ...plot.right]) {
      // Titles lie there, too.
      if (item.type === "ColorBar") item.setv({ major_label_text_font_size: ticks, title: null });
      else if (item.type.endsWith("Axis")) item.setv({ major_label_text_font_size: ticks, axis_label: null });
    }
    // So that labels of ticks keep apart.
    const room = plot.frame_width ? Math.min(width, height) : width;
    for (const { ticker } of plot.below) spaced(ticker, room / (letters * 6));
    for (const { ticker } of plot.left) spaced(ticker, height / (letters * 3));
    if (plot.frame_width && plot.frame_height) {
      figure.proportion ??= plot.frame_height / plot.frame_width;
      const growth = letters / LETTERS_PX;
      const [most, tallest] = [Math.max(width - growth * BESIDE_PX, 80), Math.max(height - growth * BELOW_PX, 60)];
      const across = Math.round(Math.min(most, tallest / figure.proportion));
      plot.setv({ frame_width: across, frame_height: Math.round(across * figure.proportion) });
    } else plot.setv({ width, height });
    this.size = this.sizeNow();
  }

  /** Draw again in another width or theme. */
  async redraw() {
    if (!this.pane?.shown) return;
    await this.pane.redraw();
    this.fit();
  }

  /** Nothing more is asked; what is on its way is stopped. */
  leave() {
    this.isLeft = true;
    clearTimeout(this.retry);
    this.question?.stop().catch(() => {});
  }

  /** Leave, and take its figure out of the page. */
  remove() {
    this.leave();
    this.pane?.clear();
    this.element.remove();
  }
}
