// Filling figures: a map that sharpens, lines with bands and flags, day by hour, a histogram, the stations.

import { visible } from "./dom.js";
import { clear, Figure, image, span, spread, stretch } from "./figures.js";
import { layGround } from "./ground.js";
import { asColumns } from "./hull.js";
import { T } from "./text.js";
import { theme } from "./theme.js";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
// Okabe and Ito's colours, told apart by colour-blind readers; the black one is left out: it vanishes in the dark, and
// the pale ones are darker where the ground is light.
const LINE_COLOURS = {
  light: ["#0072B2", "#B57D00", "#009E73", "#D55E00", "#1795CF", "#C56A9C", "#8F8600"],
  dark: ["#56B4E9", "#E69F00", "#2DBE93", "#F0743E", "#8FA8FF", "#CC79A7", "#C9BC2E"],
};

/** The colours of lines on the ground of the theme. */
export const lineColours = () => LINE_COLOURS[theme()];
/** How a station is, as colour and shape. */
export const STATES = {
  reporting: ["#ffffff", "circle"],
  late: ["#E69F00", "triangle"],
  dead: ["#D55E00", "diamond"],
  unknown: ["#9aa5b1", "square"],
};
/** Stations on a map above which those in order are small: larger ones would hide each other, and those in trouble. */
const MANY = 300;
const BARS = 24;
/** Pixels along the longer side of the image of hatches, those from line to line, and those of a line. */
const [HATCHED, HATCH_STEP, HATCH_LINE] = [480, 8, 2];
const MARGIN = 0.05;

/** Outer edges of evenly spaced cells from their centres; a single cell is a second of arc, or a metre. */
function edges(centres, single) {
  const step = centres.length > 1 ? (centres[centres.length - 1] - centres[0]) / (centres.length - 1) : single;
  return [centres[0] - step / 2, centres[centres.length - 1] + step / 2];
}

/** West, east, south and north of the cells of a surface. */
export function extent(surface) {
  const [row, column] = surface.dims;
  const single = column === "lon" ? 1 / 3600 : 1;
  return { column: edges(surface[column], single), row: edges(surface[row], single), geographic: column === "lon" };
}

/** What the server needs to know of a map, alike for one that is expected and the one that comes: edges to 1e-9. */
function mapAsked(named, across, upwards, geographic) {
  const [west, east, south, north] = [...across, ...upwards].map((edge) => Number(edge.toFixed(9)));
  return { ...named, west, east, south, north, geographic };
}

/** Fetch the empty map of a region in longitude and latitude before it is asked for. */
export const expectMap = (place, named, { west, east, south, north }) => Figure.fetch(place, "map", mapAsked(named, [west, east], [south, north], true));

/** A map that sharpens. */
export class MapPicture {
  static async open(place, surface, stations, { title, quantity, units, scale, onPick, width }) {
    const { column, row, geographic } = extent(surface);
    const words = mapAsked({ title, variable: quantity, units, scale }, column, row, geographic);
    // One of the same extent stays: its ground and its zoom, under finer cells for instance.
    const figure = await Figure.keep(place, "map", width ? { ...words, width } : words);
    if (geographic) figure.find("stations").data = stationColumns(stations);
    return new MapPicture(figure, surface, scale, onPick);
  }

  constructor(figure, surface, scale, onPick) {
    this.figure = figure;
    this.surface = surface;
    this.scale = scale;
    this.image = figure.find("surface");
    this.veil = figure.find("veil");
    this.hatching = figure.find("hatch");
    this.colours = figure.find("colours");
    const [row, column] = surface.dims;
    const { column: across, row: upwards, geographic } = extent(surface);
    this.isGeographic = geographic;
    const at = (value, [low, high], count) => Math.floor(((value - low) / (high - low)) * count);
    this.pick = ({ x, y }) => {
      const place = [at(y, upwards, surface[row].length), at(x, across, surface[column].length)];
      if (place[0] >= 0 && place[1] >= 0 && place[0] < surface[row].length && place[1] < surface[column].length) onPick?.(...place);
    };
    figure.on({ tap: this.pick });
  }

  set range(range) {
    const [low, high] = span(range, this.scale);
    this.colours.setv({ low, high });
  }

  /** Draw a frame; cells that are not computed yet are estimated: "veil" pales them, "same" does not, "hidden" leaves them out. */
  draw(frame, estimated) {
    const [rows, columns] = frame.shape;
    const values = estimated === "hidden" ? frame.values : frame.estimate;
    const veil = new Float64Array(values.length).fill(NaN);
    if (estimated === "veil") for (let at = 0; at < veil.length; at += 1) if (!frame.computed[at]) veil[at] = 1;
    this.image.data = { ...this.image.data, image: [image(values, rows, columns)] };
    this.veil.data = { ...this.veil.data, image: [image(veil, rows, columns)] };
    // After the first values, which it must not delay.
    if (!this.figure.hasGround) layGround(this.figure, this.surface.dims[1] === "lon");
    this.figure.hasGround = true;
  }

  /** Hatch the cells of which `isUncertain` holds 1; null hatches none. */
  hatch(isUncertain, [rows, columns]) {
    const isHatched = Boolean(isUncertain?.includes(1));
    // A map that sharpens is not drawn once more for nothing.
    if (!isHatched && !this.figure.isHatched) return;
    this.figure.isHatched = isHatched;
    const across = Math.max(1, Math.round(HATCHED / Math.max(rows, columns)));
    if (!isHatched) {
      this.hatching.data = { ...this.hatching.data, image: [image(Float64Array.of(NaN), 1, 1)] };
      return;
    }
    const width = columns * across;
    const marks = new Float64Array(rows * across * width).fill(NaN);
    for (let at = 0; at < marks.length; at += 1) {
      const [y, x] = [Math.floor(at / width), at % width];
      if ((x + y) % HATCH_STEP < HATCH_LINE && isUncertain[Math.floor(y / across) * columns + Math.floor(x / across)]) marks[at] = 1;
    }
    this.hatching.data = { ...this.hatching.data, image: [image(marks, rows * across, width)] };
  }

  /** Outline a hull of stations, and fade the cells beyond it where `fades`; null does neither. */
  pale(hull, fades) {
    if (hull === (this.figure.hull ?? null)) return;
    this.figure.hull = hull;
    const { column, row } = extent(this.surface);
    for (const [name, columns] of Object.entries({ ...asColumns(hull, column, row), ...(fades ? {} : { beyond: { xs: [], ys: [] } }) })) this.figure.find(name).data = columns;
  }

  /** What stretch of the ground is shown, in degrees; null where it is in metres, or as it was at first. */
  area() {
    const [{ start: west, end: east }, { start: south, end: north }] = [this.figure.plot.x_range, this.figure.plot.y_range];
    return this.isGeographic && [west, east, south, north].every(Number.isFinite) ? { west, east, south, north } : null;
  }

  /** Move the shown stretch by shares of its width and height, and make it `factor` times as long around its middle. */
  move(across, up, factor = 1) {
    const { x_range, y_range } = this.figure.plot;
    for (const [range, share] of [[x_range, across], [y_range, up]]) {
      const length = range.end - range.start;
      const middle = range.start + (0.5 + share) * length;
      range.setv({ start: middle - (factor * length) / 2, end: middle + (factor * length) / 2 });
    }
  }

  /** Choose the cell in the middle of what is shown. */
  pickMiddle() {
    const [x, y] = ["x_range", "y_range"].map((name) => (this.figure.plot[name].start + this.figure.plot[name].end) / 2);
    this.pick({ x, y });
  }

  /** Call when the shown stretch is moved. */
  onMove(listener) {
    for (const name of ["x_range", "y_range"]) this.figure.plot[name].change.connect(listener);
  }

  /** Mark a cell, or none. */
  mark(place) {
    const [row, column] = this.surface.dims;
    const data = place ? { x: [this.surface[column][place[1]]], y: [this.surface[row][place[0]]] } : { x: [], y: [] };
    const marked = JSON.stringify(data);
    if (marked === this.figure.marked) return;
    this.figure.marked = marked;
    this.figure.find("picked").data = data;
    this.figure.find("picked_inside").data = { ...data };
  }
}

/** Stations as columns, those in trouble last, which are drawn over the others; `health` tells how each is. */
export function stationColumns(stations, health = {}) {
  const isBad = (feature) => ["late", "dead"].includes(health[feature.id]?.state);
  const known = stations.features.filter((feature) => feature.geometry !== null).sort((one, other) => isBad(one) - isBad(other));
  const isSmall = (feature) => known.length > MANY && !isBad(feature);
  const column = (pick) => known.map(pick);
  const lon = column((feature) => feature.geometry.coordinates[0]);
  const lat = column((feature) => feature.geometry.coordinates[1]);
  const look = (feature) => STATES[health[feature.id]?.state] ?? STATES.reporting;
  return {
    lon, lat, x: lon, y: lat,
    id: column((feature) => feature.id),
    station: column((feature) => visible(feature.id)),
    name: column((feature) => visible(feature.properties.name ?? "")),
    elevation: column((feature) => feature.properties.elevation_m ?? T.missing),
    state: column((feature) => (health[feature.id] ? T.stations.states[health[feature.id].state] : "")),
    colour: column((feature) => look(feature)[0]),
    marker: column((feature) => look(feature)[1]),
    size: column((feature) => (isSmall(feature) ? 5 : look(feature) === STATES.reporting ? 9 : 14)),
    rim: column((feature) => (isSmall(feature) ? 0.5 : 1.5)),
  };
}

/** Where the stations are, with a rim; null where no position is known. */
export function around(stations) {
  const columns = stationColumns(stations);
  const [lon, lat] = [spread(columns.lon), spread(columns.lat)];
  if (!lon || !lat) return null;
  const rim = ([low, high]) => Math.max(0.1 * (high - low), 5e-4);
  return { west: lon[0] - rim(lon), east: lon[1] + rim(lon), south: lat[0] - rim(lat), north: lat[1] + rim(lat) };
}

const regionAsked = (title, bounds) => ({ title, variable: "", units: "", geographic: true, ...bounds });

/** Fetch the empty map of the stations before it is opened. */
export async function expectRegion(place, stations, title) {
  const bounds = around(stations);
  if (bounds) await Figure.fetch(place, "region", regionAsked(title, bounds));
}

/** Bounds with half as much around them as they have across, where other places can be chosen. */
const widened = ({ west, east, south, north }) => {
  const more = Math.max(0.5 * Math.max(east - west, north - south), 0.02);
  return { west: west - more, east: east + more, south: Math.max(south - more, -90), north: Math.min(north + more, 90) };
};

/** The stations, where dragging chooses a region; `onPoint` takes any place that is clicked, for which `wide` leaves room. */
export async function openRegion(place, stations, { health, title, onBox, onTap, onPoint, wide = false }) {
  const close = around(stations);
  const bounds = wide && close ? widened(close) : close;
  if (!bounds) {
    clear(place);
    return null;
  }
  const figure = await Figure.open(place, "region", regionAsked(title, bounds));
  const columns = stationColumns(stations, health);
  figure.find("stations").data = columns;
  figure.on({
    selectiongeometry: ({ geometry, final }) => {
      if (!final || geometry.type !== "rect") return;
      const { x0, x1, y0, y1 } = geometry;
      onBox?.({ west: Math.min(x0, x1), east: Math.max(x0, x1), south: Math.min(y0, y1), north: Math.max(y0, y1) });
    },
    tap: ({ x, y }) => {
      onPoint?.({ lon: x, lat: y });
      if (!onTap) return;
      const away = columns.lon.map((lon, at) => Math.hypot((lon - x) * Math.cos((y * Math.PI) / 180), columns.lat[at] - y));
      const nearest = away.indexOf(Math.min(...away));
      if (away[nearest] < 0.05 * (bounds.east - bounds.west)) onTap(columns.id[nearest]);
    },
  });
  layGround(figure);
  return figure;
}

/** The empty map of the stations that fills a place. */
export const openOverview = (place, stations, scale) => Figure.open(place, "overview", { ...around(stations), scale, height: place.clientHeight });

export function drawBox(figure, box) {
  const one = (value) => (box ? [value] : []);
  figure.find("box").data = { left: one(box?.west), right: one(box?.east), bottom: one(box?.south), top: one(box?.north) };
}

export const millis = (times) => times.map((time) => Date.parse(time));

/** Whether times are several days in steps that divide a day, so that they can be drawn day by hour. */
export function hasDays(times) {
  if (times.length < 2) return false;
  const [first, second] = millis(times.slice(0, 2));
  const step = second - first;
  return step > 0 && DAY_MS % step === 0 && step <= 6 * HOUR_MS && Date.parse(times[times.length - 1]) - first >= 2 * DAY_MS;
}

/**
 * Lines over time.
 *
 * `lines` holds {name, times [ms], values, deviation?}: a band is drawn two deviations around the line; `points` holds
 * {time, value, colour, marker, what}.
 */
export async function drawLines(place, lines, { variable, units, title, points = [], width, choosing = false }) {
  const words = { title, variable, units, ...(choosing ? { choosing } : {}) };
  const figure = await Figure.keep(place, "lines", width ? { ...words, width } : words);
  const colours = lineColours();
  const colour = lines.map((_, column) => colours[column % colours.length]);
  const bands = lines.flatMap((line, column) => (line.deviation ? bandsOf(line, colour[column]) : []));
  figure.find("lines").data = {
    times: lines.map((line) => line.times),
    values: lines.map((line) => line.values),
    station: lines.map((line) => visible(line.name)),
    colour,
  };
  const columns = (rows, names) => Object.fromEntries(names.map((name) => [name, rows.map((row) => row[name])]));
  figure.find("bands").data = columns(bands, ["times", "values", "colour"]);
  figure.find("points").data = columns(points, ["time", "value", "colour", "marker", "what"]);
  const times = spread(lines.flatMap((line) => [line.times[0], line.times[line.times.length - 1]]).concat(points.map((point) => point.time)));
  if (times) stretch(figure.find("across"), times[0], Math.max(times[1], times[0] + 1));
  const ranges = [...lines.map((line) => spread(line.values)), ...bands.map((band) => spread(band.values)), spread(points.map((point) => point.value))];
  const found = ranges.filter(Boolean).flat();
  const [low, high] = spread(found) ?? [0, 1];
  const room = MARGIN * (high - low) || 1;
  stretch(figure.find("upwards"), low - room, high + room);
  return figure;
}

/** Which colour is which line, in words; for so many lines that colours come again there is none. */
export function legend(lines) {
  const { light, dark } = LINE_COLOURS;
  if (lines.length < 2 || lines.length > light.length) return null;
  return legendOf(lines.map(({ name }, at) => [name, `light-dark(${light[at]}, ${dark[at]})`]));
}

/** A legend of [name, colour] pairs. */
export function legendOf(pairs) {
  const list = document.createElement("ul");
  list.className = "legend";
  for (const [name, colour] of pairs) {
    const item = document.createElement("li");
    item.textContent = visible(name);
    item.style.setProperty("--key", colour);
    list.append(item);
  }
  return list;
}

/** Two deviations around a line, one polygon for each stretch without gaps. */
function bandsOf(line, colour) {
  const found = [];
  let run = [];
  const close = () => {
    if (run.length > 1) {
      const back = [...run].reverse();
      const edge = (sign) => (index) => line.values[index] + sign * 2 * line.deviation[index];
      found.push({
        times: [...run, ...back].map((index) => line.times[index]),
        values: [...run.map(edge(1)), ...back.map(edge(-1))],
        colour,
      });
    }
    run = [];
  };
  line.values.forEach((value, index) => {
    if (Number.isFinite(value) && Number.isFinite(line.deviation[index])) run.push(index);
    else close();
  });
  close();
  return found;
}

/** Values over times, in columns of days with hours upwards: the array, its shape, and where it begins [ms]. */
export function byDay(times, values) {
  const at = millis(times);
  const step = at[1] - at[0];
  const first = Math.floor(at[0] / DAY_MS) * DAY_MS;
  const days = Math.floor((at[at.length - 1] - first) / DAY_MS) + 1;
  const slots = DAY_MS / step;
  const cells = new Float64Array(slots * days).fill(NaN);
  at.forEach((time, row) => {
    const since = time - first;
    cells[Math.floor((since % DAY_MS) / step) * days + Math.floor(since / DAY_MS)] = values[row];
  });
  return { cells, slots, days, first };
}

/** A column a day, hours upwards. */
export async function drawDayByHour(place, times, values, { variable, units, title, scale, range, width }) {
  const words = { title, variable, units, scale };
  const figure = await Figure.keep(place, "day_by_hour", width ? { ...words, width } : words);
  const { cells, slots, days, first } = byDay(times, values);
  const surface = figure.find("surface");
  surface.data = { image: [image(cells, slots, days)], x: [first], y: [0], dw: [days * DAY_MS], dh: [24] };
  stretch(figure.find("across"), first, first + days * DAY_MS);
  const found = range ?? spread(cells);
  if (found) {
    const [low, high] = span(found, scale);
    figure.find("colours").setv({ low, high });
  }
  return figure;
}

/** How many values lie where: edges and counts. */
export function histogram(values) {
  const range = spread(values);
  if (!range) return { edges: [], counts: [] };
  const [low, high] = range[0] === range[1] ? [range[0] - 0.5, range[1] + 0.5] : range;
  const counts = new Array(BARS).fill(0);
  for (const value of values) {
    if (Number.isFinite(value)) counts[Math.min(Math.floor(((value - low) / (high - low)) * BARS), BARS - 1)] += 1;
  }
  return { edges: Array.from({ length: BARS + 1 }, (_, at) => low + (at * (high - low)) / BARS), counts };
}

export async function drawHistogram(place, values, { variable, units, title, width }) {
  const words = { title, variable, units };
  const figure = await Figure.keep(place, "histogram", width ? { ...words, width } : words);
  fillHistogram(figure, values);
  return figure;
}

/** Newer values in a histogram that is there: nothing flickers. */
export function fillHistogram(figure, values) {
  const { edges: sides, counts } = histogram(values);
  figure.find("bars").data = { left: sides.slice(0, -1), right: sides.slice(1), bottom: counts.map(() => 0), top: counts };
  if (counts.length) {
    stretch(figure.find("across"), sides[0], sides[BARS]);
    stretch(figure.find("upwards"), 0, 1.05 * Math.max(...counts));
  }
}
