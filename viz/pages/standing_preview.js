// Alerts that a standing query would have raised last week: its values with the number that raises one, and the alerts.

import * as api from "./api.js";
import { figure as digits, h, instant, number, table, visible } from "./dom.js";
import { drawLines, legendOf, lineColours } from "./pictures.js";
import { clear, spread, stretch } from "./figures.js";
import { episodesOf } from "./alerts.js";
import { T } from "./text.js";
import { theme } from "./theme.js";
import { unitText } from "./units.js";

/** Lines without alerts by theme, and the number that raises one. */
const CALM = { light: "#75828f", dark: "#8a97a5" };
const LEVEL = "#D4145A";
const ROOM = 0.06;

/** The words of a preview: how many alerts, and where; `known` holds the names of stations. */
function words(told, known) {
  const [start, stop] = [told.start, told.stop].map((time) => instant(time.slice(0, 16)));
  if (!told.rule) return T.preview.noCondition(start, stop);
  if (!told.raised) return T.preview.nothing(start, stop);
  const raised = told.alerts.filter((alert) => alert.happening === "raised");
  const counts = new Map();
  for (const { place } of raised) counts.set(place, (counts.get(place) ?? 0) + 1);
  const { on } = T.preview;
  const names = [...counts].sort(([, one], [, other]) => other - one).map(([place, times]) => on.again(placeOf(place, known), times));
  const kind = counts.has("map") ? on.map : counts.has("network") ? on.network : on.places([...counts.keys()].every((place) => known.has(place)) ? "station" : "place", names);
  return T.preview.told(number(told.raised), start, stop, kind);
}

/** A place in words: the name of a station, with its id behind it. */
function placeOf(place, known) {
  const name = known.get(place);
  return name && name !== place ? `${name} (${place})` : place;
}

export class StandingPreview {
  constructor(frame) {
    this.frame = frame;
    this.turn = 0;
    this.words = h("p", { id: "preview-words", role: "status" });
    this.place = h("div", { id: "preview-picture", class: "picture", role: "img", "aria-labelledby": "preview-title", "aria-describedby": "preview-words" });
    this.key = h("div", { class: "legend-place" });
    this.note = h("p", { class: "quiet" });
    this.list = h("div");
    this.table = h("details", { class: "as-table", hidden: true }, h("summary", {}, T.pane.table), this.list);
    this.element = h("section", { id: "standing-preview", "aria-labelledby": "preview-title" }, h("h3", { id: "preview-title" }, T.preview.title), this.words, this.place, this.key, this.note, this.table);
    if (!frame.may("query")) this.words.textContent = T.preview.needs;
  }

  /** Ask which alerts a document would have raised, and show them; return the answer, or null where there is none, or a later one. */
  async show(document, name) {
    if (!this.frame.may("query")) return null;
    const turn = (this.turn += 1);
    this.words.textContent ||= T.preview.making;
    this.element.setAttribute("aria-busy", "true");
    try {
      const told = await api.previewStanding(document);
      if (turn !== this.turn) return null;
      [this.told, this.name] = [told, name];
      await this.draw();
      return told;
    } catch (problem) {
      if (turn === this.turn) this.refuse(problem);
      return null;
    } finally {
      if (turn === this.turn) this.element.removeAttribute("aria-busy");
    }
  }

  refuse(problem) {
    this.told = null;
    this.words.textContent = `${problem.title}: ${problem.message}`;
    this.note.textContent = "";
    this.table.hidden = true;
    this.key.replaceChildren();
    clear(this.place);
  }

  async draw() {
    const { told } = this;
    const known = new Map(this.frame.known.stations.features.map((feature) => [feature.id, feature.properties.name]));
    this.words.textContent = visible(words(told, known));
    const notes = told.series ? [T.preview.lines(number(told.series.places.length), number(told.places)), ...told.notes] : told.notes;
    this.note.textContent = notes.join(" ");
    const episodes = episodesOf(told.alerts.map((alert, place) => ({ ...alert, number: place })));
    this.table.hidden = !episodes.length;
    const texts = new Map(told.alerts.filter((alert) => alert.happening === "raised").map((alert) => [`${alert.place} ${alert.since}`, alert.text]));
    this.list.replaceChildren(table(T.preview.caption, T.preview.columns.map((column, place) => (place < 2 ? [column, "time"] : column)),
      episodes.map((episode) => [instant(episode.since.slice(0, 19)), episode.until ? instant(episode.until.slice(0, 19)) : T.preview.lasting, visible(placeOf(episode.place, known)), visible(texts.get(`${episode.place} ${episode.since}`) ?? "")])));
    this.key.replaceChildren();
    if (!told.series) {
      clear(this.place);
      this.drawn = "";
      return;
    }
    await this.drawLines(episodes);
  }

  /** Lines of the places, the number as a line, alerts as shades; a figure that fits already takes new values. */
  async drawLines(episodes) {
    const { told } = this;
    const measured = told.unit === "s" && told.level !== null ? "missing" : told.unit.includes(" per ") ? "change" : "values";
    const title = T.preview.measured[measured](this.name);
    const drawn = [title, told.unit, this.place.clientWidth].join();
    if (!this.place.figure || drawn !== this.drawn) {
      if (!this.place.clientWidth) return;
      this.drawn = drawn;
      await drawLines(this.place, [], { variable: title, units: told.unit, title: "" });
    }
    if (this.told !== told || !this.place.figure) return;
    fill(this.place.figure, told, episodes);
    const known = new Map(this.frame.known.stations.features.map((feature) => [feature.id, feature.properties.name]));
    const named = keys(told, episodes, known);
    this.key.replaceChildren(...(named.length > 1 ? [legendOf(named)] : []));
  }

  async redraw() {
    this.drawn = "";
    if (this.told) await this.draw();
  }
}

/** Stretches of time that overlap as one: shades over shades would be black. */
function joined(stretches) {
  const found = [];
  for (const [start, stop] of stretches.sort(([one], [other]) => one - other)) {
    const last = found[found.length - 1];
    if (last && start <= last[1]) last[1] = Math.max(last[1], stop);
    else found.push([start, stop]);
  }
  return found;
}

/** Places with alerts whose lines are shown, in the order of their colours. */
const alarmedOf = ({ series }, episodes) => [...new Set(episodes.map((episode) => episode.place))].filter((place) => series.places.includes(place));

const levelOf = (told) => `${T.preview.level} ${digits(told.level)} ${unitText(told.unit)}`;

/** Names of what is drawn, with its colour; of places whose colours come again the lines say under the mouse whose they are. */
function keys(told, episodes, known) {
  const alarmed = alarmedOf(told, episodes);
  const colours = lineColours();
  const places = alarmed.length > colours.length ? [[T.preview.key.several(number(alarmed.length)), colours[0]]] : alarmed.map((place, at) => [placeOf(place, known), colours[at]]);
  return [
    ...(told.level === null ? [] : [[levelOf(told), LEVEL]]), ...places,
    ...(alarmed.length < told.series.places.length ? [[T.preview.key.calm, CALM[theme()]]] : []),
    ...(episodes.length ? [[T.preview.key.lasting, `${LEVEL}40`]] : []),
  ];
}

/** Put the values of a preview into a figure of lines. */
function fill(figure, told, episodes) {
  const { places, times, values: coded } = told.series;
  const at = times.map((time) => Date.parse(time));
  const values = api.floats(coded.float64);
  const rows = places.map((_, row) => values.subarray(row * at.length, (row + 1) * at.length));
  const alarmed = alarmedOf(told, episodes);
  const [calm, colours] = [CALM[theme()], lineColours()];
  const colourOf = (place) => (alarmed.includes(place) ? colours[alarmed.indexOf(place) % colours.length] : calm);
  // Only the time that has values: an archive may hold less than a week.
  const first = at.findIndex((_, column) => rows.some((row) => Number.isFinite(row[column])));
  const [from, end] = [Math.max(Date.parse(told.start), at[first] ?? 0), Date.parse(told.stop)];
  const range = spread([...rows.map((row) => spread(row)).filter(Boolean).flat(), ...[told.level, told.clear].filter((level) => level !== null)]) ?? [0, 1];
  const room = ROOM * (range[1] - range[0]) || 1;
  const [low, high] = [range[0] - room, range[1] + room];
  const level = told.level === null ? [] : [{ name: levelOf(told), times: [from, end], values: [told.level, told.level], colour: LEVEL }];
  // The last lines lie above: those in alert, and the number.
  const lines = places.map((place, row) => ({ name: place, times: at, values: rows[row], colour: colourOf(place) })).reverse().concat(level);
  figure.find("lines").data = { times: lines.map((line) => line.times), values: lines.map((line) => line.values), station: lines.map((line) => visible(line.name)), colour: lines.map((line) => line.colour) };
  const shades = joined(episodes.map((episode) => [Math.max(Date.parse(episode.since), from), episode.until ? Math.min(Date.parse(episode.until), end) : end]));
  figure.find("bands").data = { times: shades.map(([start, stop]) => [start, stop, stop, start]), values: shades.map(() => [low, low, high, high]), colour: shades.map(() => LEVEL) };
  stretch(figure.find("across"), from, end);
  stretch(figure.find("upwards"), low, high);
}
