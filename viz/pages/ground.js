// The ground below a map: relief and contours of the archive's elevation layer, coast and borders where the map is wide.

import * as api from "./api.js";
import { bytesImage } from "./figures.js";

/** Columns of the relief that is fetched, and cells that are drawn of each of its cells along a side, so that it is smooth. */
const COLUMNS = 320;
const FINER = 3;
/** How long a map stays where it is before its ground is fetched for there [ms]. */
const PAUSE_MS = 250;
/** How far the ground reaches beyond the map, and how much narrower a view may be before it gets a finer one. */
const AROUND = 0.1;
const NARROWER = 0.5;
/** Every fifth contour is thicker, and has its elevation written on it. */
const EVERY = 5;
const WIDTHS = [0.6, 1.2];
const HALO_PX = 1.5;
/** Shortest contour with an elevation, and least distance between two of these [px]. */
const [LABELLED_PX, APART_PX] = [110, 90];
const METRES_PER_DEGREE = 111_195;
/** Brightness of level ground, which is transparent, as `hypergrid.layers.ground` has it; and over how many cells relief fades towards unknown ground. */
const LEVEL = 1 + 254 * Math.SQRT1_2;
const FADE = 24;

/**
 * Lay the ground below a map, later than what is drawn now, and again where the map is moved.
 *
 * Maps in metres have a scale bar alone: the layers of an archive are in longitude and latitude.
 */
export function layGround(figure, geographic = true) {
  const { x_range: across, y_range: upwards } = figure.plot;
  let laid = null;
  let turn = 0;
  let timer = 0;
  const lay = async () => {
    const view = { west: across.start, east: across.end, south: upwards.start, north: upwards.end };
    if (laid && reaches(laid, view)) return;
    const extent = widened(view);
    const mine = (turn += 1);
    const [ground, coast] = await Promise.all([api.ground(extent, COLUMNS), api.coast(extent, figure.plot.inner_width || COLUMNS)].map((answer) => answer.catch(() => null)));
    if (mine !== turn || figure.place.figure !== figure) return;
    laid = extent;
    if (coast) drawCoast(figure, coast, extent);
    if (ground) drawGround(figure, ground, extent);
    figure.place.dataset.ground = [coast?.scale, ground?.layer].filter(Boolean).join(" ") || "none";
  };
  const later = (pause_ms) => {
    clearTimeout(timer);
    timer = setTimeout(() => lay().catch(() => {}), pause_ms);
  };
  const measure = () => {
    const shrink = geographic ? METRES_PER_DEGREE * Math.cos((((upwards.start + upwards.end) / 2) * Math.PI) / 180) : 1;
    figure.find("ruler").setv({ end: Math.max((across.end - across.start) * shrink, 1e-6) });
  };
  for (const range of [across, upwards]) {
    range.change.connect(() => {
      measure();
      if (geographic) later(PAUSE_MS);
    });
  }
  if (geographic) later(0);
}

/** Whether a laid extent covers a view, finely enough. */
const reaches = (laid, view) =>
  laid.west <= view.west && laid.east >= view.east && laid.south <= view.south && laid.north >= view.north && view.east - view.west > NARROWER * (laid.east - laid.west) / (1 + 2 * AROUND);

function widened({ west, east, south, north }) {
  const [wide, high] = [AROUND * (east - west), AROUND * (north - south)];
  const [low, top] = [Math.max(south - high, -90), Math.min(north + high, 90)];
  const edges = { west: west - wide, east: east + wide, south: low, north: top };
  // As the address says it, so that what is drawn lies where it was computed.
  return Object.fromEntries(Object.entries(edges).map(([side, edge]) => [side, Number(edge.toFixed(7))]));
}

function drawCoast(figure, { scale, coast, borders, land }, { west, east, south, north }) {
  figure.find("sea").data = scale ? { left: [west], right: [east], bottom: [south], top: [north] } : { left: [], right: [], bottom: [], top: [] };
  Object.entries({ coast, borders, land }).forEach(([name, columns]) => (figure.find(name).data = columns));
}

function drawGround(figure, { shape, shade, interval, contours }, extent) {
  if (!shape) return;
  const { west, east, south, north } = extent;
  const [rows, columns] = shape;
  figure.find("relief").data = { image: [bytesImage(finer(faded(shade, rows, columns), rows, columns, FINER), FINER * rows, FINER * columns)], x: [west], y: [south], dw: [east - west], dh: [north - south] };
  const levels = new Set(contours.map(({ level }) => level));
  const isThick = (level) => Math.round(level / interval) % EVERY === 0;
  const none = ![...levels].some(isThick);
  const width = contours.map(({ level }) => WIDTHS[Number(isThick(level))]);
  figure.find("contours").data = {
    xs: contours.map(({ x }) => x),
    ys: contours.map(({ y }) => y),
    level: contours.map(({ level }) => level),
    width,
    halo: width.map((one) => one + HALO_PX),
  };
  figure.find("heights").data = heights(contours.filter(({ level }) => none || isThick(level)), figure);
}

/** Brightness that fades to that of level ground where unknown ground (0) is near: relief would end in an edge of the layer. */
function faded(bytes, rows, columns) {
  const away = Float32Array.from(bytes, (value) => (value ? FADE : 0));
  const near = (at, row, column, by) => {
    for (const [up, across, length] of [[0, by, 1], [by, 0, 1], [by, by, Math.SQRT2], [by, -by, Math.SQRT2]]) {
      const [r, c] = [row + up, column + across];
      if (r >= 0 && c >= 0 && r < rows && c < columns) away[at] = Math.min(away[at], away[r * columns + c] + length);
    }
  };
  // A chamfer transform: distances from above, then from below.
  for (let at = 0; at < away.length; at += 1) near(at, Math.floor(at / columns), at % columns, -1);
  for (let at = away.length - 1; at >= 0; at -= 1) near(at, Math.floor(at / columns), at % columns, 1);
  return bytes.map((value, at) => value && Math.round(LEVEL + (value - LEVEL) * (away[at] / FADE)));
}

/** Bytes of cells in finer cells, between the centres as they are weighted; unknown ones (0) have sharp edges. */
function finer(bytes, rows, columns, times) {
  const made = new Uint8Array(rows * columns * times * times);
  const places = (count) => Array.from({ length: count * times }, (_, at) => Math.min(Math.max((at + 0.5) / times - 0.5, 0), count - 1));
  const across = places(columns);
  let at = 0;
  for (const up of places(rows)) {
    const row = Math.min(Math.floor(up), rows - 2);
    const above = up - row;
    for (const right of across) {
      const column = Math.min(Math.floor(right), columns - 2);
      const beside = right - column;
      const from = row * columns + column;
      const [a, b, c, d] = [bytes[from], bytes[from + 1], bytes[from + columns], bytes[from + columns + 1]];
      made[at] = a && b && c && d
        ? Math.round((1 - above) * ((1 - beside) * a + beside * b) + above * ((1 - beside) * c + beside * d))
        : bytes[(row + Math.round(above)) * columns + column + Math.round(beside)];
      at += 1;
    }
  }
  return made;
}

/** Where elevations are written on contours: in the middle of long ones, along them, apart from each other. */
function heights(contours, figure) {
  const { x_range: across, y_range: upwards, inner_width: wide, inner_height: high } = figure.plot;
  const [px, py] = [wide / (across.end - across.start), high / (upwards.end - upwards.start)];
  const found = { x: [], y: [], text: [], angle: [] };
  const taken = [];
  for (const { level, x, y } of contours) {
    const length = x.slice(1).reduce((sum, value, at) => sum + Math.hypot((value - x[at]) * px, (y[at + 1] - y[at]) * py), 0);
    const middle = Math.floor(x.length / 2);
    const place = [x[middle] * px, y[middle] * py];
    const isInside = x[middle] > across.start && x[middle] < across.end && y[middle] > upwards.start && y[middle] < upwards.end;
    if (length < LABELLED_PX || !isInside || taken.some(([left, up]) => Math.hypot(left - place[0], up - place[1]) < APART_PX)) continue;
    taken.push(place);
    const [before, after] = [Math.max(middle - 1, 0), Math.min(middle + 1, x.length - 1)];
    const angle = Math.atan2((y[after] - y[before]) * py, (x[after] - x[before]) * px);
    found.x.push(x[middle]);
    found.y.push(y[middle]);
    found.text.push(`${level} m`);
    // Never upside down.
    found.angle.push(Math.abs(angle) > Math.PI / 2 ? angle - Math.sign(angle) * Math.PI : angle);
  }
  return found;
}
