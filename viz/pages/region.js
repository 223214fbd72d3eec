// The region: stations to drag over, and the same as numbers; they set the grid, or the clip, of a query.

import * as api from "./api.js";
import { field, h } from "./dom.js";
import { gridStep } from "./builder.js";
import { around, drawBox, openRegion } from "./pictures.js";
import { T } from "./text.js";

const SIDES = ["west", "east", "south", "north"];
/** Cells along the longer side of a region that was just chosen. */
const CELLS = 50;
const ROUND = 6;

const round = (value) => Number(value.toFixed(ROUND));

/** Degrees of "7:10:37", of "1arcsec", or of a number; NaN of what is none. */
export function degrees(value) {
  if (typeof value === "number") return value;
  const text = String(value ?? "").trim();
  const second = /^([\d.]+) ?arcsec$/.exec(text);
  if (second) return Number(second[1]) / 3600;
  const minute = /^([\d.]+) ?arcmin$/.exec(text);
  if (minute) return Number(minute[1]) / 60;
  const parts = /^(-?)(\d+):(\d+)(?::([\d.]+))?$/.exec(text);
  if (parts) return (parts[1] ? -1 : 1) * (Number(parts[2]) + Number(parts[3]) / 60 + Number(parts[4] ?? 0) / 3600);
  return text === "" ? NaN : Number(text);
}

/** Whether cells of a query's own, of a grid or of an aggregate in space, can be clipped; stations are selected instead. */
const hasCells = (document) => (document.steps ?? []).some((step) => step.lon !== undefined || step.x !== undefined);

/** West, east, south and north of what a query is of: its grid, its clip, or around the stations it selects; null where it does not say. */
export function regionOf(document, stations) {
  const grid = gridStep(document)?.grid;
  const box = (lon, lat) => ({ west: degrees(lon[0]), east: degrees(lon[1]), south: degrees(lat[0]), north: degrees(lat[1]) });
  let found = null;
  if (grid?.lon !== undefined && grid.lat !== undefined) {
    if (Array.isArray(grid.lon)) found = box(grid.lon, grid.lat);
    else {
      const [west, south, step] = [grid.lon, grid.lat, grid.step].map(degrees);
      const [rows, columns] = grid.shape ?? [];
      found = { west, east: west + step * columns, south, north: south + step * rows };
    }
  } else if (!grid && document.clip?.lon && document.clip.lat) found = box(document.clip.lon, document.clip.lat);
  else if (!grid && document.select?.station !== undefined) {
    const chosen = new Set([document.select.station].flat());
    found = around({ features: stations.features.filter(({ id }) => chosen.has(id)) });
  }
  return found && SIDES.every((side) => Number.isFinite(found[side])) ? found : null;
}

/** The grid of a region: cells of whole tenths of a second of arc, about `CELLS` along the longer side. */
export function gridOf({ west, east, south, north }, step) {
  const tenths = Math.max(1, Math.round((Math.max(east - west, north - south) * 36000) / CELLS));
  const wanted = step ?? `${tenths / 10}arcsec`;
  const size = degrees(wanted);
  const count = (low, high) => Math.max(1, Math.round((high - low) / size));
  return { lon: round(west), lat: round(south), step: wanted, shape: [count(south, north), count(west, east)] };
}

/** Have a query select the stations of a region. */
function selectStations(document, { west, east, south, north }, stations) {
  const isInside = ({ geometry }) => {
    const [lon, lat] = geometry?.coordinates ?? [];
    return lon >= west && lon <= east && lat >= south && lat <= north;
  };
  const inside = stations.features.filter(isInside).map(({ id }) => id);
  if (!inside.length) throw new api.Problem(T.region.noStation, T.region.noStationAdvice);
  const { station, ...select } = document.select ?? {};
  // All of them need no list.
  if (inside.length < stations.features.length) select.station = inside;
  document.select = select;
  if (!Object.keys(select).length) delete document.select;
}

/** Have a query be of a region: its grid or its other cells where it has such, else its stations. */
export function setRegion(document, region, { step, stations }) {
  const found = gridStep(document);
  const { lon, lat, ...clip } = document.clip ?? {};
  if (found) {
    const { z } = found.grid;
    found.grid = { ...gridOf(region, step), ...(z === undefined ? {} : { z }) };
  } else if (!hasCells(document)) selectStations(document, region, stations);
  else {
    Object.assign(clip, { lon: [round(region.west), round(region.east)], lat: [round(region.south), round(region.north)] });
  }
  if (Object.keys(clip).length) document.clip = clip;
  else delete document.clip;
}

export class Region {
  constructor(stations, onRegion) {
    this.stations = stations;
    this.onRegion = onRegion;
    this.place = h("div", { id: "region-map", class: "region", role: "img", "aria-label": T.region.alt(stations.features.length) });
    this.inputs = Object.fromEntries(SIDES.map((side) => [side, this.input(side)]));
    this.step = h("input", { id: "cell-size", type: "text", autocomplete: "off", on: { change: () => this.typed() } });
    this.element = h("div", {}, h("p", { class: "quiet" }, T.region.hint), this.place,
      h("div", { class: "inline" }, SIDES.map((side) => field(T.region[side], this.inputs[side])), field(T.region.step, this.step, T.region.stepHint)));
  }

  input(side) {
    return h("input", { id: side, type: "number", step: "any", autocomplete: "off", on: { change: () => this.typed() } });
  }

  /** Where a new grid lies: the region that is shown, or around all stations. */
  defaultGrid() {
    const bounds = this.box ?? around(this.stations) ?? { west: 0, east: 1, south: 0, north: 1 };
    return gridOf(bounds);
  }

  /** The region around all stations; null where no position is known. */
  everywhere() {
    return around(this.stations);
  }

  /** Draw the stations, in the width and the colours that there are now. */
  async open() {
    this.figure = await openRegion(this.place, this.stations, { title: "", onBox: (box) => this.onRegion(box, undefined) });
    if (this.figure) drawBox(this.figure, this.box);
    else this.place.replaceChildren(h("p", { class: "quiet" }, T.region.noPlaces));
  }

  typed() {
    const box = Object.fromEntries(SIDES.map((side) => [side, Number(this.inputs[side].value || NaN)]));
    const fits = SIDES.every((side) => Number.isFinite(box[side])) && box.west < box.east && box.south < box.north;
    for (const side of SIDES) this.inputs[side].toggleAttribute("aria-invalid", !fits);
    if (fits && (!this.step.value || degrees(this.step.value) > 0)) this.onRegion(box, this.step.value.trim() || undefined);
  }

  /** Show the region of a query. */
  show(asked) {
    this.box = regionOf(asked, this.stations);
    for (const side of SIDES) {
      // What is being typed is left alone.
      if (this.inputs[side] !== document.activeElement) this.inputs[side].value = this.box ? round(this.box[side]) : "";
      this.inputs[side].removeAttribute("aria-invalid");
    }
    const grid = gridStep(asked)?.grid;
    this.step.value = grid?.step ?? "";
    this.step.disabled = !grid;
    if (this.figure) drawBox(this.figure, this.box);
  }
}
