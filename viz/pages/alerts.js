// Alerts: those that are open, on the map of the stations, over time, and in a table; acknowledging and commenting.

import * as api from "./api.js";
import { button, choice, duration, field, h, instant, number, redraw, table, visible } from "./dom.js";
import { drawEpisodes } from "./episodes.js";
import { openRegion, stationColumns } from "./pictures.js";
import { T } from "./text.js";
import { unitText } from "./units.js";

/** Alerts that the page remembers and lists, the newest ones. */
const MOST_KEPT = 2000;
const MOST_LISTED = 200;
/** Open alerts of a standing query that are shown one by one. */
const MOST_SHOWN = 10;
const MOST_AT_ONCE = 50;
const LONGEST_COMMENT = 1000;
const SPANS = [1, 7, 30];
const DAY_MS = 86_400_000;
/** Marks of stations in alert: colour, shape, size [px]; and of the same in words. */
const MARKS = { open: ["#D55E00", "diamond", 17], acknowledged: ["#E69F00", "triangle", 13] };
const SIGNS = { open: "◆", acknowledged: "▲" };

/** What a standing query is called: its title, or its name where it has none. */
export const titleOf = (entry) => entry.title || entry.name;

const stateOf = (episode) => (episode.acknowledged ? "acknowledged" : "open");

/** The episodes of alerts in the order of their numbers: from when until when which condition held where. */
export function episodesOf(alerts) {
  const episodes = [];
  const last = new Map();
  for (const alert of alerts) {
    const key = `${alert.query}\n${alert.place}`;
    const episode = last.get(key);
    const same = episode && episode.since === alert.since ? episode : null;
    if (alert.happening === "raised") {
      if (same) Object.assign(same, { number: alert.number, until: alert.until });
      else {
        const made = { query: alert.query, place: alert.place, since: alert.since, until: alert.until, number: alert.number };
        episodes.push(made);
        last.set(key, made);
      }
    } else if (alert.happening === "cleared") {
      // The alert that raised it may be older than all that are known.
      const ended = same ?? (episode && !episode.until ? episode : null);
      if (ended) ended.until = alert.until;
      else episodes.push({ query: alert.query, place: alert.place, since: alert.since, until: alert.until, number: null });
    } else if (alert.happening === "withdrawn" && same) {
      episodes.splice(episodes.indexOf(same), 1);
      last.delete(key);
    }
  }
  return episodes;
}

export class Alerts {
  /** `changed` is called after an alert was acknowledged or commented on. */
  constructor(frame, changed) {
    this.frame = frame;
    this.changed = changed;
    this.alerts = new Map();
    this.entries = [];
    this.open = h("div", { id: "open-alerts" });
    this.map = h("div", { id: "alerts-map", class: "region", role: "img" });
    this.key = h("p", { class: "quiet" }, Object.values(T.alerts.key).join(" · "));
    this.axis = h("div", { id: "alerts-axis" });
    this.rows = choice("axis-rows", Object.entries(T.alerts.rowsBy), () => this.drawAxis(), "query");
    this.span = choice("axis-span", SPANS.map((days) => [String(days), T.alerts.spans(days)]), () => this.drawAxis(), "7");
    this.only = choice("alerts-of", [["", T.alerts.all]], () => this.drawTable(), "");
    this.list = h("div", { id: "alerts" });
    const section = (id, title, ...inner) => h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...inner);
    this.mapPart = section("where-title", T.alerts.mapTitle, this.map, this.key);
    // Hidden until it is known what there is: an empty map has no name.
    this.element = h("div", { class: "alerts", hidden: true },
      h("div", { class: "alerts-now" }, section("open-title", T.alerts.title, this.open), this.mapPart),
      section("when-title", T.alerts.axisTitle, h("div", { class: "inline looks" }, field(T.alerts.rows, this.rows), field(T.alerts.span, this.span)), this.axis,
        h("details", { class: "as-table" }, h("summary", {}, T.alerts.list), field(T.alerts.of, this.only), this.list)));
  }

  /** Take in the standing queries, the alerts that have come, and when the newest readings are of. */
  async update(entries, alerts, newest) {
    this.newest = Object.values(newest).map((time) => Date.parse(time));
    for (const alert of alerts) this.alerts.set(alert.number, alert);
    for (const number of [...this.alerts.keys()].slice(0, -MOST_KEPT)) this.alerts.delete(number);
    this.titles = Object.fromEntries(entries.map((entry) => [entry.name, titleOf(entry)]));
    this.entries = entries;
    // Where there is none yet, there is nothing to show of them.
    this.element.hidden = !entries.length && !this.alerts.size;
    const text = JSON.stringify(entries.map((entry) => [entry.name, entry.title, entry.muted_until, entry.standing]));
    const isNew = text !== this.drawn;
    this.drawn = text;
    if (isNew) this.drawOpen();
    if (isNew || alerts.length || !this.tableDrawn) {
      this.offerNames();
      this.drawTable();
      this.drawAxis();
    }
    if (isNew || (!this.map.figure && !this.key.hidden)) await this.drawMap();
  }

  title(name) {
    return this.titles?.[name] ?? name;
  }

  /** A station by its name as well, where it has one. */
  placeOf(place) {
    this.names ??= new Map(this.frame.known.stations.features.map((feature) => [feature.id, feature.properties.name ?? ""]));
    const name = this.names.get(place);
    return visible(name && name !== place ? `${name} (${place})` : place);
  }

  /** All that are open, each with its standing query. */
  standing() {
    return this.entries.flatMap((entry) => entry.standing.map((episode) => ({ ...episode, entry })));
  }

  // The list

  drawOpen() {
    const all = this.standing();
    const cards = (state) => this.entries.map((entry) => this.card(entry, all.filter((episode) => episode.entry === entry && stateOf(episode) === state))).filter(Boolean);
    redraw(this.open, () => {
      const [open, acknowledged] = [cards("open"), cards("acknowledged")];
      return [...(open.length ? open : [h("p", { class: "quiet" }, T.alerts.none)]),
        ...(acknowledged.length ? [h("h3", {}, T.alerts.acknowledgedTitle), ...acknowledged] : [])];
    });
  }

  /** Alerts of a standing query in one state. */
  card(entry, episodes) {
    if (!episodes.length) return null;
    const state = stateOf(episodes[0]);
    const rule = this.alerts.get(episodes.find((episode) => this.alerts.has(episode.number))?.number)?.rule ?? "";
    const numbered = episodes.filter((episode) => episode.number !== null);
    const several = state === "open" && numbered.length > 1 && numbered.length <= MOST_AT_ONCE;
    return h("article", { class: `alert-card ${state}`, data: { query: entry.name } },
      h("div", { class: "alert-head" }, h("strong", {}, titleOf(entry)), h("span", { class: "quiet" }, rule),
        several ? button(T.alerts.acknowledgeAll(number(numbered.length)), () => this.remark(numbered, "acknowledge"), { class: "small", data: { act: `all-${entry.name}` } }) : null),
      h("ul", {}, episodes.slice(0, MOST_SHOWN).map((episode) => this.row(episode, state)),
        episodes.length > MOST_SHOWN ? h("li", { class: "quiet" }, T.alerts.more(number(episodes.length - MOST_SHOWN))) : null));
  }

  row(episode, state) {
    const { entry, place } = episode;
    const reading = this.alerts.get(episode.number)?.readings?.[0];
    const value = reading && Number.isFinite(reading.value) ? `${number(reading.value)} ${unitText(reading.unit)}` : "";
    const act = (what, words, on) => button(words, on, { class: "small", "aria-label": T.alerts.on(words, titleOf(entry), place), data: { act: `${what}-${episode.number}` } });
    const may = this.frame.may("operate") && episode.number !== null;
    const editor = this.editor?.number === episode.number ? this.editor.element : null;
    const buttons = may ? h("div", { class: "buttons small" },
      state === "open" ? act("acknowledge", T.alerts.acknowledge, () => this.remark([episode], "acknowledge")) : act("reopen", T.alerts.reopen, () => this.remark([episode], "reopen")),
      act("comment", T.alerts.comment, () => this.edit(episode))) : null;
    const length = duration((this.now() - Date.parse(episode.since)) / 1000);
    return h("li", { data: { number: String(episode.number) } },
      h("div", { class: "alert-row" }, h("span", { class: `alert-what ${state}` }, `${SIGNS[state]} `, h("strong", {}, this.placeOf(place)), ` ${T.alerts.since(instant(episode.since.slice(0, 19)), length)}`, value ? ` · ${value}` : "", episode.number === null ? ` · ${T.alerts.muted}` : ""), buttons),
      ...episode.remarks.map((remark) => h("p", { class: "remark" }, T.alerts.remark(remark.author, instant(remark.at.slice(0, 19)), T.alerts.remarks[remark.happening], remark.comment))),
      editor);
  }

  /** The end of what is known of the network: alerts are as old as its newest reading says, not as the clock does. */
  now() {
    const known = [...this.alerts.values()].flatMap((alert) => [alert.since, alert.until, alert.readings?.[0]?.time]).filter(Boolean).map((time) => Date.parse(time));
    const judged = this.entries.map((entry) => entry.judged).filter(Boolean).map((time) => Date.parse(time));
    return Math.max(...this.newest, ...judged, ...known, ...this.standing().map((episode) => Date.parse(episode.since)), 0);
  }

  /** Offer a line for a comment below an alert. */
  edit(episode) {
    const text = h("input", { type: "text", maxlength: LONGEST_COMMENT, autocomplete: "off" });
    const leave = () => {
      this.editor = null;
      this.drawOpen();
      this.open.querySelector(`[data-act="comment-${episode.number}"]`)?.focus();
    };
    const element = h("form", { class: "comment", on: { submit: (event) => {
      event.preventDefault();
      this.remark([episode], "comment", text.value).then((worked) => worked && leave());
    } } }, field(T.alerts.commentLabel, text, T.alerts.commentHint), h("div", { class: "buttons small" }, h("button", {}, T.alerts.save), button(T.alerts.cancel, leave)));
    text.dataset.act = `text-${episode.number}`;
    this.editor = { number: episode.number, element };
    this.drawOpen();
    text.focus();
  }

  remark(episodes, act, comment = "") {
    return this.frame.attempt(async () => {
      for (const episode of episodes) await api.remark(episode.number, act, comment);
      await this.changed();
    });
  }

  // The map

  async drawMap(anew = false) {
    const { stations } = this.frame.known;
    const marked = new Map();
    // Open ones hide acknowledged ones of the same station.
    for (const episode of this.standing()) if (marked.get(episode.place) !== "open") marked.set(episode.place, stateOf(episode));
    const count = (state) => [...marked].filter(([place, is]) => is === state && stations.features.some((feature) => feature.id === place)).length;
    this.map.setAttribute("aria-label", T.alerts.mapAlt(number(count("open")), number(count("acknowledged"))));
    if (!this.map.figure || anew) {
      const figure = await openRegion(this.map, stations, { title: "" });
      if (!figure) {
        this.map.replaceChildren(h("p", { class: "quiet" }, T.alerts.noMap));
        this.key.hidden = true;
        return;
      }
    }
    this.map.figure.find("stations").data = alertColumns(stationColumns(stations), marked);
  }

  // Over time

  drawAxis() {
    const end = this.now();
    const from = end - Number(this.span.value) * DAY_MS;
    // What stands is known from the standing queries, also where its alert is older than all that are remembered; an alert
    // without an end is of a query that was removed or changed, and when it was over nobody knows.
    const known = episodesOf([...this.alerts.values()].sort((one, other) => one.number - other.number)).filter((episode) => episode.until)
      .concat(this.standing().map((episode) => ({ query: episode.entry.name, place: episode.place, since: episode.since, until: null, acknowledged: episode.acknowledged })));
    const shown = known.filter((episode) => Date.parse(episode.since) <= end && (!episode.until || Date.parse(episode.until) >= from))
      .map((episode) => ({ ...episode, row: this.rows.value === "query" ? this.title(episode.query) : this.placeOf(episode.place), words: T.alerts.bar(this.title(episode.query), episode.place, instant(episode.since.slice(0, 19)), episode.until && instant(episode.until.slice(0, 19))) }));
    this.axis.replaceChildren(...drawEpisodes(shown, { from, end, width: this.axis.clientWidth }));
  }

  // The table

  offerNames() {
    const names = [...new Set([...this.entries.map((entry) => entry.name), ...[...this.alerts.values()].map((alert) => alert.query)])];
    const text = JSON.stringify(names.map((name) => this.title(name)));
    if (text === this.offered) return;
    this.offered = text;
    const chosen = this.only.value;
    this.only.replaceChildren(new Option(T.alerts.all, ""), ...names.map((name) => new Option(visible(this.title(name)), name)));
    this.only.value = names.includes(chosen) ? chosen : "";
  }

  drawTable() {
    this.tableDrawn = true;
    const all = [...this.alerts.values()].filter((alert) => !this.only.value || alert.query === this.only.value).sort((one, other) => other.number - one.number);
    const rows = all.slice(0, MOST_LISTED).map((alert) => [instant(alert.at.slice(0, 19)), this.title(alert.query), `${T.alerts.happenings[alert.happening] ?? alert.happening}${alert.late ? T.alerts.late : ""}${alert.muted ? T.alerts.mutedWord : ""}`, this.placeOf(alert.place), alert.text]);
    this.list.replaceChildren(rows.length ? table(T.alerts.caption, [[T.alerts.columns[0], "time"], ...T.alerts.columns.slice(1)], rows) : h("p", { class: "quiet" }, T.alerts.noAlerts));
  }

  async redraw() {
    if (this.entries.length || this.map.figure) {
      this.drawAxis();
      await this.drawMap(true);
    }
  }
}

/** The stations of a map, those in alert marked and drawn over the others. */
function alertColumns(columns, marked) {
  const order = columns.id.map((_, at) => at).sort((one, other) => marked.has(columns.id[one]) - marked.has(columns.id[other]));
  const sorted = Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, order.map((at) => values[at])]));
  sorted.id.forEach((id, at) => {
    const state = marked.get(id);
    if (!state) return;
    [sorted.colour[at], sorted.marker[at], sorted.size[at]] = MARKS[state];
    sorted.state[at] = T.alerts.key[state];
  });
  return sorted;
}
