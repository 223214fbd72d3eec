// Episodes as bars on an axis of time, a row each of what they are grouped by.

import { h, instant, number } from "./dom.js";
import { T } from "./text.js";

const SPACE = "http://www.w3.org/2000/svg";
const HEIGHT = 26;
const BAR = 14;
const AXIS = 26;
const MOST_ROWS = 30;
const [WIDEST_NAME, LEAST_WIDTH] = [220, 280];
/** Width of a letter of the axis and of a label [px]. */
const LETTER = 7;
const HOUR_MS = 3_600_000;
const STEPS_H = [1, 3, 6, 12, 24, 48, 120, 168, 360];
/** Where a shorter bar could not be seen [px]. */
const SHORTEST = 3;

function s(tag, given = {}, ...children) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(given)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Instants of an axis that are whole steps, with their labels, as many as have room. */
function ticks(from, end, room) {
  const most = Math.max(2, Math.floor(room / 125));
  const step = (STEPS_H.find((hours) => (end - from) / (hours * HOUR_MS) <= most) ?? STEPS_H[STEPS_H.length - 1]) * HOUR_MS;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= end; at += step) {
    const text = new Date(at).toISOString();
    found.push([at, step < 24 * HOUR_MS ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(5, 10)]);
  }
  return found;
}

const cut = (text, letters) => (text.length > letters ? `${text.slice(0, Math.max(letters - 1, 1))}…` : text);

/**
 * Bars of episodes: {row, since, until, acknowledged, words}, those without `until` last to the end.
 *
 * `from` and `end` are the time that is shown [ms since 1970], `width` the room [px]. Rows with open alerts come first.
 */
export function drawEpisodes(episodes, { from, end, width }) {
  if (!episodes.length) return [h("p", { class: "quiet" }, T.alerts.noBars)];
  const rows = [...Map.groupBy(episodes, (episode) => episode.row)].sort(([, one], [, other]) => other.some((episode) => !episode.until) - one.some((episode) => !episode.until));
  const shown = rows.slice(0, MOST_ROWS);
  const whole = Math.max(width || LEAST_WIDTH, LEAST_WIDTH);
  const left = Math.min(WIDEST_NAME, 0.32 * whole, 12 + LETTER * Math.max(...shown.map(([name]) => name.length)));
  const x = (time) => left + ((Math.min(Math.max(time, from), end) - from) / (end - from)) * (whole - left - 8);
  const height = HEIGHT * shown.length + AXIS;
  const lines = ticks(from, end, whole - left).flatMap(([time, label], at, all) => [
    s("line", { class: "tick-line", x1: x(time), x2: x(time), y1: 0, y2: height - AXIS }),
    // A label at the edge would be cut off.
    ...(x(time) + 3 * LETTER > whole && all.length > 1 ? [] : [s("text", { class: "tick-label", x: x(time), y: height - 8, "text-anchor": at === 0 && x(time) < left + 20 ? "start" : "middle" }, label)])]);
  const bars = shown.flatMap(([name, group], row) => [
    s("text", { class: "row-name", x: 0, y: HEIGHT * row + 18 }, s("title", {}, name), cut(name, Math.floor((left - 8) / LETTER))),
    ...group.map((episode) => bar(episode, x, HEIGHT * row + (HEIGHT - BAR) / 2, end))]);
  const words = T.alerts.axisAlt(number(episodes.length), number(rows.length), ...[from, end].map((time) => instant(new Date(time).toISOString().slice(0, 16))));
  return [h("div", { class: "axis", tabindex: 0, role: "region", "aria-label": T.alerts.axisRegion },
    s("svg", { class: "episodes", viewBox: `0 0 ${whole} ${height}`, width: whole, height, role: "img", "aria-label": words }, ...lines, ...bars)),
  ...(rows.length > MOST_ROWS ? [h("p", { class: "quiet" }, T.alerts.moreRows(number(rows.length - MOST_ROWS)))] : [])];
}

function bar({ since, until, acknowledged, words }, x, top, end) {
  const [start, stop] = [x(Date.parse(since)), x(until ? Date.parse(until) : end)];
  const state = until ? "over" : acknowledged ? "acknowledged" : "open";
  return s("rect", { class: `bar ${state}`, x: start, y: top, width: Math.max(stop - start, SHORTEST), height: BAR, rx: 3 }, s("title", {}, words));
}
