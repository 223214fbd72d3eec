// Figures from the server, filled with data here.

import * as api from "./api.js";

const Bokeh = window.Bokeh;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
// Okabe and Ito's colours, told apart by colour-blind readers; the black one is left out: it vanishes in the dark.
const LINE_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#A59A00"];

const place = document.getElementById("picture");
let shown = null;

const theme = () => (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

async function embed(kind, words) {
  const item = await api.figure(kind, { ...words, theme: theme(), width: Math.floor(place.clientWidth) });
  clear();
  shown = await Bokeh.embed.embed_item(item, place);
  const model = Bokeh.documents[Bokeh.documents.length - 1];
  return (name) => model.get_model_by_name(name);
}

export function clear() {
  shown?.clear();
  shown = null;
  Bokeh.documents.splice(0);
  place.replaceChildren();
}

function image(values, rows, columns) {
  return Bokeh.require("core/util/ndarray").ndarray(values, { dtype: "float64", shape: [rows, columns] });
}

/** Least and greatest finite value, null where there is none. */
export function spread(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** A colour scale needs a width, also where all values are equal. */
function scale(colours, range) {
  const [low, high] = range;
  const pad = low === high ? Math.abs(low) * 1e-3 || 1e-3 : 0;
  colours.setv({ low: low - pad, high: high + pad });
}

/** Show a stretch of an axis; Bokeh's own ranges would complain of a figure that is still empty. */
function stretch(range, low, high) {
  range.setv({ start: low, end: high, reset_start: low, reset_end: high });
}

/** Outer edges of evenly spaced cells from their centres; a single cell is a second of arc, or a metre. */
function edges(centres, single) {
  const step = centres.length > 1 ? (centres[centres.length - 1] - centres[0]) / (centres.length - 1) : single;
  return [centres[0] - step / 2, centres[centres.length - 1] + step / 2];
}

/** A map that sharpens. */
export class MapPicture {
  static async open(surface, stations) {
    const geographic = surface.dims[1] === "lon";
    const single = geographic ? 1 / 3600 : 1;
    const [west, east] = edges(surface[surface.dims[1]], single);
    const [south, north] = edges(surface[surface.dims[0]], single);
    const { variable, units } = surface;
    const find = await embed("map", { title: variable, variable, units, west, east, south, north, geographic });
    if (geographic) find("stations").data = stationColumns(stations);
    return new MapPicture(find);
  }

  constructor(find) {
    this.surface = find("surface");
    this.veil = find("veil");
    this.colours = find("colours");
  }

  set range(range) {
    scale(this.colours, range);
  }

  /** Draw a frame; cells that are not computed yet are estimated under a veil, or left out. */
  draw(frame, onlyComputed) {
    const [rows, columns] = frame.shape;
    const pending = (index) => frame.computed[index] === 0;
    const values = onlyComputed ? frame.values : frame.estimate.map((value, index) => (pending(index) ? value : frame.values[index]));
    const veil = Float64Array.from(frame.computed, (computed) => (onlyComputed || computed ? NaN : 1));
    this.surface.data = { ...this.surface.data, image: [image(values, rows, columns)] };
    this.veil.data = { ...this.veil.data, image: [image(veil, rows, columns)] };
  }
}

function stationColumns(stations) {
  const known = stations.features.filter((feature) => feature.geometry !== null);
  const column = (pick) => known.map(pick);
  const lon = column((feature) => feature.geometry.coordinates[0]);
  const lat = column((feature) => feature.geometry.coordinates[1]);
  return {
    lon, lat, x: lon, y: lat,
    station: column((feature) => feature.id),
    name: column((feature) => feature.properties.name),
    elevation: column((feature) => feature.properties.elevation_m ?? "unknown"),
  };
}

const millis = (table) => table.times.map((time) => Date.parse(time));

/** Whether a table has several days in steps that divide a day, so that it can be drawn day by hour. */
export function hasDays(table) {
  const times = millis(table);
  const step = times[1] - times[0];
  return times.length > 1 && DAY_MS % step === 0 && step <= 6 * HOUR_MS && times[times.length - 1] - times[0] >= 2 * DAY_MS;
}

/** One line a series. */
export async function drawLines(table) {
  const { variable, units } = table;
  const find = await embed("lines", { title: variable, variable, units });
  const [rows, columns] = table.shape;
  const times = millis(table);
  const one = (column) => Array.from({ length: rows }, (_, row) => table.values[row * columns + column]);
  find("lines").data = {
    times: table.stations.map(() => times),
    values: table.stations.map((_, column) => one(column)),
    station: table.stations,
    colour: table.stations.map((_, column) => LINE_COLOURS[column % LINE_COLOURS.length]),
  };
  stretch(find("across"), times[0], Math.max(times[rows - 1], times[0] + 1));
  const [low, high] = spread(table.values) ?? [0, 1];
  const room = 0.05 * (high - low) || 1;
  stretch(find("upwards"), low - room, high + room);
  return `${columns} series of ${variable} [${units}] over ${rows} time cells from ${table.times[0]}.`;
}

/** The mean over the series, a column a day, hours upwards. */
export async function drawDayByHour(table) {
  const { variable, units } = table;
  const find = await embed("day_by_hour", { title: `${variable}, mean over the series`, variable, units });
  const [rows, columns] = table.shape;
  const times = millis(table);
  const step = times[1] - times[0];
  const first = Math.floor(times[0] / DAY_MS) * DAY_MS;
  const days = Math.floor((times[rows - 1] - first) / DAY_MS) + 1;
  const slots = DAY_MS / step;
  const values = new Float64Array(slots * days).fill(NaN);
  for (let row = 0; row < rows; row += 1) {
    const present = table.values.subarray(row * columns, (row + 1) * columns).filter(Number.isFinite);
    const since = times[row] - first;
    const slot = Math.floor((since % DAY_MS) / step);
    const mean = present.reduce((sum, value) => sum + value, 0) / present.length;
    values[slot * days + Math.floor(since / DAY_MS)] = mean;
  }
  const surface = find("surface");
  surface.data = { image: [image(values, slots, days)], x: [first], y: [0], dw: [days * DAY_MS], dh: [24] };
  stretch(find("across"), first, first + days * DAY_MS);
  const range = spread(values);
  if (range) scale(find("colours"), range);
  return `Mean ${variable} [${units}] of ${columns} series, ${days} days across and hours of the day upwards, from ${table.times[0]}.`;
}
